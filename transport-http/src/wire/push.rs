//! Push: a bare array comes back, one element per item. (queen-http.md 4)

use bytes::Bytes;
use compact_str::CompactString;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::command::{Push, PushGroup};
use tidegate_core::message::NewMessage;
use tidegate_core::name::{MessageId, NameError, PartitionName, QueueName, TransactionId};
use tidegate_core::reply::PushOutcome;
use uuid::Uuid;

use crate::body::{Object, Text, parse, present};
use crate::error::Failure;
use crate::wire::{json, payload};

#[derive(JsonSchema, Deserialize)]
pub(crate) struct PushBody<'b> {
    #[serde(borrow)]
    items: Option<Vec<Object<PushItem<'b>>>>,
}

/// One item as sent, borrowed from the body.
#[derive(JsonSchema, Deserialize)]
pub(crate) struct PushItem<'b> {
    #[serde(borrow)]
    queue: Option<Text<'b>>,
    #[serde(borrow)]
    partition: Option<Text<'b>>,
    #[serde(borrow, default, deserialize_with = "present")]
    #[schemars(with = "serde_json::Value")]
    payload: Option<&'b RawValue>,
    #[serde(borrow, rename = "transactionId")]
    transaction: Option<Text<'b>>,
}

/// The items of a push, in request order.
pub(crate) fn items(body: &Bytes) -> Result<Vec<Object<PushItem<'_>>>, Failure> {
    let Object(push) = parse::<Object<PushBody>>(body)?;
    push.items.ok_or_else(|| Failure::bad_body("items is missing, expected an array"))
}

/// The command for `items`, whose payloads are slices of `body`, pushed by `subject`.
pub(crate) fn command(
    items: &[Object<PushItem<'_>>],
    body: &Bytes,
    subject: Option<&CompactString>,
) -> Result<Push, Failure> {
    if let [Object(item)] = items {
        // The common case without a table of groups.
        let (queue, partition, message) = item.message(0, body, subject)?;
        let group = PushGroup { queue, partition, items: vec![(0, message)] };
        return Ok(Push { groups: vec![group], items: 1 });
    }
    let messages: Result<Vec<_>, _> =
        items.iter().zip(0..).map(|(Object(item), n)| item.message(n, body, subject)).collect();
    Ok(Push::new(messages?))
}

impl PushItem<'_> {
    fn message(
        &self,
        index: usize,
        body: &Bytes,
        subject: Option<&CompactString>,
    ) -> Result<(QueueName, PartitionName, NewMessage), Failure> {
        let missing =
            |field, expected| Failure::bad_body(format!("items[{index}].{field} is missing, expected {expected}"));
        let wrong = |field| move |error: NameError| Failure::bad_name(&format!("items[{index}].{field}"), error);
        let queue = self.queue.as_ref().ok_or_else(|| missing("queue", "a string"))?;
        let partition = match &self.partition {
            Some(name) => PartitionName::new(name).map_err(wrong("partition"))?,
            None => PartitionName::default_partition(),
        };
        let transaction = self.transaction.as_ref().map(|id| TransactionId::new(id));
        let payload = self.payload.ok_or_else(|| missing("payload", "any JSON value"))?;
        let message = NewMessage {
            transaction: transaction.transpose().map_err(wrong("transactionId"))?,
            payload: payload::slice(payload, body, || format!("items[{index}]"))?,
            trace: None,
            producer: subject.cloned(),
        };
        Ok((QueueName::new(queue).map_err(wrong("queue"))?, partition, message))
    }
}

/// The answer to a push of `items`.
pub(crate) fn answer(items: &[Object<PushItem<'_>>], outcomes: &[PushOutcome]) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 + items.len() * 224);
    out.push(b'[');
    for (index, (Object(item), &outcome)) in items.iter().zip(outcomes).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let queue = item.queue.as_deref().unwrap_or_default();
        result(&mut out, index, item.transaction.as_deref(), queue, outcome);
    }
    out.push(b']');
    out
}

/// One element of a push's answer.
pub(crate) fn result(out: &mut Vec<u8>, index: usize, transaction: Option<&str>, queue: &str, outcome: PushOutcome) {
    let (id, status) = match outcome {
        PushOutcome::Queued(id) => (id, "queued"),
        PushOutcome::Duplicate(id) => (id, "duplicate"),
        PushOutcome::Failed(_) => (MessageId(Uuid::nil()), "failed"),
    };
    out.extend_from_slice(b"{\"index\":");
    json::number(out, index);
    out.extend_from_slice(b",\"message_id\":");
    json::uuid(out, id.0);
    out.extend_from_slice(b",\"transaction_id\":");
    match transaction {
        Some(transaction) => json::text(out, transaction),
        None => json::uuid(out, id.0),
    }
    out.extend_from_slice(b",\"queueName\":");
    json::text(out, queue);
    out.extend_from_slice(b",\"status\":\"");
    out.extend_from_slice(status.as_bytes());
    out.extend_from_slice(b"\"}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::error::Rejection;

    fn parsed(body: &str) -> Result<Push, String> {
        let body = Bytes::copy_from_slice(body.as_bytes());
        items(&body).and_then(|items| command(&items, &body, None)).map_err(|failure| failure.text())
    }

    fn refused(body: &str, expected: &str) {
        let text = parsed(body).expect_err(body);
        assert!(text.starts_with("bad body: ") && text.contains(expected), "{body}: {text}");
    }

    #[test]
    fn groups_keep_order_and_bytes() {
        let push = parsed(
            r#"{"items":[{"queue":"a","payload": {"b":1, "a":1.0} },{"queue":"b","partition":"","payload":null},
               {"queue":"\u0061","partition":null,"payload":1e400,"transactionId":"","traceId":5}]}"#,
        )
        .expect("a good push");
        assert_eq!((push.groups.len(), push.items), (2, 3));
        let of = |group: usize, item: usize| {
            (push.groups[group].items[item].0, &push.groups[group].items[item].1.payload[..])
        };
        assert_eq!(of(0, 0), (0, &br#"{"b":1, "a":1.0}"#[..]));
        assert_eq!(of(0, 1), (2, &b"1e400"[..]));
        assert_eq!(of(1, 0), (1, &b"null"[..]));
        assert_eq!(push.groups[0].partition.as_str(), "Default");
        assert_eq!(push.groups[1].partition.as_str(), "");
        let ids: Vec<_> =
            push.groups[0].items.iter().map(|(_, m)| m.transaction.as_ref().map(|id| id.as_str())).collect();
        assert_eq!(ids, [None, Some("")]);
        assert_eq!(parsed(r#"{"items":[]}"#), Ok(Push::default()));
    }

    #[test]
    fn refusals_name_the_field() {
        refused("{}", "items is missing");
        refused(r#"{"items":{}}"#, "items: invalid type");
        refused(r#"{"items":[{"queue":"q","payload":1},["q","p",1]]}"#, "items[1]: invalid type: sequence");
        refused(r#"{"items":[{"queue":"q","data":1}]}"#, "items[0].payload is missing");
        refused(r#"{"items":[{"payload":1}]}"#, "items[0].queue is missing");
        refused(r#"{"items":[{"queue":null,"payload":1}]}"#, "items[0].queue is missing");
        refused(
            r#"{"items":[{"queue":7,"payload":1}]}"#,
            "items[0].queue: invalid type: integer `7`, expected a string",
        );
        refused(r#"{"items":[{"queue":"a\u0000","payload":1}]}"#, "items[0].queue contains U+0000");
        refused(r#"{"items":[{"queue":"\ud800","payload":1}]}"#, "items[0].queue: ");
        refused(r#"{"items":[{"queue":"q","payload":1,"partition":[]}]}"#, "items[0].partition: invalid type");
        refused(r#"{"items":[{"queue":"q","queue":"r","payload":1}]}"#, "duplicate field `queue`");
        let long = "x".repeat(70_000);
        refused(&format!(r#"{{"items":[{{"queue":"{long}","payload":1}}]}}"#), "items[0].queue is 70000 bytes long");
        refused(
            &format!(
                r#"{{"items":[{{"queue":"q","payload":1}},{{"queue":"q","payload":1,"transactionId":"{long}"}}]}}"#
            ),
            "items[1].transactionId is 70000 bytes long, at most 65535",
        );
    }

    #[test]
    fn answers_are_exact() {
        let body = Bytes::from_static(
            br#"{"items":[{"queue":"a","payload":1,"transactionId":"t\"1"},{"queue":"b","payload":1},{"queue":"c","payload":1}]}"#,
        );
        let items = items(&body).expect("a good push");
        let id = MessageId(Uuid::from_u128(7));
        let outcomes =
            [PushOutcome::Queued(id), PushOutcome::Duplicate(id), PushOutcome::Failed(Rejection::StoreUnavailable)];
        assert_eq!(
            String::from_utf8(answer(&items, &outcomes)).as_deref(),
            Ok(concat!(
                r#"[{"index":0,"message_id":"00000000-0000-0000-0000-000000000007","transaction_id":"t\"1","#,
                r#""queueName":"a","status":"queued"},"#,
                r#"{"index":1,"message_id":"00000000-0000-0000-0000-000000000007","#,
                r#""transaction_id":"00000000-0000-0000-0000-000000000007","queueName":"b","status":"duplicate"},"#,
                r#"{"index":2,"message_id":"00000000-0000-0000-0000-000000000000","#,
                r#""transaction_id":"00000000-0000-0000-0000-000000000000","queueName":"c","status":"failed"}]"#,
            ))
        );
    }
}
