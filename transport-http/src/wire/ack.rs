//! Acks, one or many: a bare array comes back, one element per item. (queen-http.md 8)

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::command::{Ack, AckItem, AckStatus, LeaseProof};
use tidegate_core::name::{GroupName, LeaseId, PartitionId, TransactionId, excerpt};
use tidegate_core::reply::AckOutcome;
use uuid::Uuid;

use crate::body::{Object, Text, parse, parse_below};
use crate::error::Failure;
use crate::wire::json;

/// What says how one message was settled, as sent. Null counts as absent in all of it.
#[derive(JsonSchema, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AckFields<'b> {
    #[serde(borrow, rename = "transactionId")]
    pub(crate) transaction: Option<Text<'b>>,
    #[serde(borrow, rename = "partitionId")]
    pub(crate) partition: Option<Text<'b>>,
    #[serde(borrow)]
    status: Option<Text<'b>>,
    #[serde(borrow, rename = "leaseId")]
    lease: Option<Text<'b>>,
    #[serde(borrow)]
    error: Option<Text<'b>>,
    /// Means nothing in the items of a batch, whatever it is.
    #[serde(borrow)]
    #[schemars(with = "Option<String>")]
    consumer_group: Option<&'b RawValue>,
}

#[derive(JsonSchema, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BatchBody<'b> {
    #[serde(borrow)]
    consumer_group: Option<Text<'b>>,
    #[serde(borrow)]
    acknowledgments: Option<Vec<Object<AckFields<'b>>>>,
}

/// The acks of one request.
pub(crate) struct Acks<'b> {
    group: GroupName,
    items: Vec<Object<AckFields<'b>>>,
    /// What stands before a field's name in an error text.
    batch: bool,
}

/// A body of `/ack`.
pub(crate) fn single(body: &[u8]) -> Result<Acks<'_>, Failure> {
    let Object(item) = parse::<Object<AckFields>>(body)?;
    Ok(Acks { group: item.group("consumerGroup")?, items: vec![Object(item)], batch: false })
}

/// A body of `/ack/batch`.
pub(crate) fn batch(body: &[u8]) -> Result<Acks<'_>, Failure> {
    let Object(batch) = parse::<Object<BatchBody>>(body)?;
    let group = group_name("consumerGroup", batch.consumer_group.as_deref())?;
    Ok(Acks { group, items: batch.acknowledgments.unwrap_or_default(), batch: true })
}

/// An item that no broker needs to look at: its place and why.
pub(crate) type Malformed = Vec<(usize, String)>;

impl Acks<'_> {
    /// The command, and the items that are not in it because their partition id is none.
    pub(crate) fn command(&self) -> Result<(Ack, Malformed), Failure> {
        let mut malformed = Vec::new();
        let mut items = Vec::with_capacity(self.items.len());
        for (index, Object(item)) in self.items.iter().enumerate() {
            let field = |name: &str| match self.batch {
                true => format!("acknowledgments[{index}].{name}"),
                false => name.to_owned(),
            };
            match item.item(field)? {
                Ok(item) => items.push(item),
                Err(error) => malformed.push((index, error)),
            }
        }
        Ok((Ack { group: self.group.clone(), items }, malformed))
    }

    /// The answer. `outcomes` has one entry per item that is not malformed.
    pub(crate) fn answer(&self, outcomes: Vec<AckOutcome>, malformed: Malformed) -> Vec<u8> {
        let mut out = Vec::with_capacity(2 + self.items.len() * 160);
        let mut outcomes = outcomes.into_iter();
        let mut malformed = malformed.into_iter().peekable();
        out.push(b'[');
        for (index, Object(item)) in self.items.iter().enumerate() {
            let (outcome, error) = match malformed.next_if(|(place, _)| *place == index) {
                Some((_, error)) => (AckOutcome::default(), Some(error)),
                None => {
                    let outcome = outcomes.next().unwrap_or_default();
                    let error = outcome.error.map(|error| error.to_string());
                    (outcome, error)
                }
            };
            if index > 0 {
                out.push(b',');
            }
            element(&mut out, index, item.transaction.as_deref().unwrap_or_default(), &outcome, error.as_deref());
        }
        out.push(b']');
        out
    }
}

fn element(out: &mut Vec<u8>, index: usize, transaction: &str, outcome: &AckOutcome, error: Option<&str>) {
    out.extend_from_slice(b"{\"index\":");
    json::number(out, index);
    out.extend_from_slice(b",\"transactionId\":");
    json::text(out, transaction);
    out.extend_from_slice(b",\"success\":");
    json::boolean(out, error.is_none());
    out.extend_from_slice(b",\"error\":");
    match error {
        Some(error) => json::text(out, error),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"leaseReleased\":");
    json::boolean(out, outcome.lease_released);
    out.extend_from_slice(b",\"dlq\":");
    json::boolean(out, outcome.dead_lettered);
    out.extend_from_slice(b",\"noop\":");
    json::boolean(out, outcome.noop);
    if outcome.dropped {
        out.extend_from_slice(b",\"dropped\":true");
    }
    out.push(b'}');
}

impl AckFields<'_> {
    /// The item, or why its address can be none. `field` gives a field's full name for an error text.
    pub(crate) fn item(&self, field: impl Fn(&str) -> String) -> Result<Result<AckItem, String>, Failure> {
        let transaction = self.transaction.as_ref().map(|id| TransactionId::new(id));
        let transaction = transaction.transpose().map_err(|error| Failure::bad_name(&field("transactionId"), error))?;
        let partition = match partition_id(self.partition.as_deref().unwrap_or_default()) {
            Ok(partition) => partition,
            Err(error) => return Ok(Err(error)),
        };
        Ok(Ok(AckItem {
            partition,
            transaction,
            status: status(self.status.as_deref()),
            lease: self.lease.as_deref().map_or(LeaseProof::None, lease_proof),
            error: self.error.as_deref().filter(|error| !error.is_empty()).map(Into::into),
        }))
    }

    /// Whose cursor moves. `field` is what the error text calls it.
    pub(crate) fn group(&self, field: &str) -> Result<GroupName, Failure> {
        let name = self.consumer_group.map(|raw| parse_below::<Text>(field, raw.get().as_bytes())).transpose()?;
        group_name(field, name.as_deref())
    }
}

fn group_name(field: &str, name: Option<&str>) -> Result<GroupName, Failure> {
    match name {
        Some(name) => GroupName::new(name).map_err(|error| Failure::bad_name(field, error)),
        None => Ok(GroupName::queue_mode()),
    }
}

/// A partition's id, or the text that clients know from a database for a malformed one.
pub(crate) fn partition_id(text: &str) -> Result<PartitionId, String> {
    Uuid::try_parse(text).map(PartitionId).map_err(|_| {
        let shown = excerpt(text);
        format!("invalid input syntax for type uuid: \"{shown}\"")
    })
}

/// What a lease id proves: the empty text nothing, a text that is no lease id of ours a lease that nobody has.
pub(crate) fn lease_proof(text: &str) -> LeaseProof {
    match Uuid::try_parse(text) {
        _ if text.is_empty() => LeaseProof::None,
        // Leases are told apart by their text, so the other spellings of a UUID are other texts.
        Ok(id) if text.len() == 36 => LeaseProof::Lease(LeaseId(id)),
        Ok(_) | Err(_) => LeaseProof::Foreign,
    }
}

/// A status that is none of the known words is a failure: so it is written, and clients rely on it.
fn status(text: Option<&str>) -> AckStatus {
    match text {
        None | Some("completed" | "success" | "acked" | "ok") => AckStatus::Completed,
        Some("retry") => AckStatus::Retry,
        Some("dlq") => AckStatus::DeadLetter,
        Some(_) => AckStatus::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::reply::AckError;

    const PARTITION: &str = "00000000-0000-4000-8000-000000000001";

    fn command(acks: Result<Acks<'_>, Failure>) -> Result<(Ack, Malformed), String> {
        acks.and_then(|acks| acks.command()).map_err(|failure| failure.text())
    }

    #[test]
    fn statuses_and_leases_are_read() {
        let body = format!(
            r#"{{"transactionId":"t","partitionId":"{PARTITION}","status":null,"consumerGroup":null,"leaseId":"","error":""}}"#
        );
        let (ack, malformed) = command(single(body.as_bytes())).expect("a good ack");
        assert!(ack.group.is_queue_mode() && malformed.is_empty());
        let item = &ack.items[0];
        assert_eq!((item.status, item.lease, &item.error), (AckStatus::Completed, LeaseProof::None, &None));

        let statuses = [("ok", AckStatus::Completed), ("Completed", AckStatus::Failed), ("", AckStatus::Failed)];
        for (text, expected) in
            statuses.into_iter().chain([("retry", AckStatus::Retry), ("dlq", AckStatus::DeadLetter)])
        {
            assert_eq!(status(Some(text)), expected, "{text}");
        }
        assert_eq!(lease_proof("x"), LeaseProof::Foreign);
        assert_eq!(lease_proof(PARTITION), LeaseProof::Lease(LeaseId(Uuid::try_parse(PARTITION).expect("a UUID"))));
        assert_eq!(lease_proof(&PARTITION.replace('-', "")), LeaseProof::Foreign);
    }

    #[test]
    fn a_malformed_address_is_its_items_own_problem() {
        let body = format!(
            r#"{{"consumerGroup":"g","acknowledgments":[{{"transactionId":"a","partitionId":"x"}},
            {{"transactionId":"b","partitionId":"{PARTITION}","status":"failed","error":"e","consumerGroup":7}},{{}}]}}"#
        );
        let acks = batch(body.as_bytes()).expect("a good batch");
        let (ack, malformed) = acks.command().expect("a good batch");
        assert_eq!((ack.items.len(), malformed.len()), (1, 2));
        let outcome = AckOutcome { error: Some(AckError::InvalidLease), dropped: true, ..AckOutcome::default() };
        assert_eq!(
            String::from_utf8(acks.answer(vec![outcome], malformed)).as_deref(),
            Ok(concat!(
                r#"[{"index":0,"transactionId":"a","success":false,"error":"invalid input syntax for type uuid: \"x\"","#,
                r#""leaseReleased":false,"dlq":false,"noop":false},"#,
                r#"{"index":1,"transactionId":"b","success":false,"error":"invalid or expired lease","#,
                r#""leaseReleased":false,"dlq":false,"noop":false,"dropped":true},"#,
                r#"{"index":2,"transactionId":"","success":false,"error":"invalid input syntax for type uuid: \"\"","#,
                r#""leaseReleased":false,"dlq":false,"noop":false}]"#,
            ))
        );
        assert!(command(batch(b"{}")).is_ok_and(|(ack, _)| ack.items.is_empty()));
    }

    #[test]
    fn refusals_name_the_field() {
        let refused = |body: &str, expected: &str| {
            let text = command(batch(body.as_bytes())).expect_err(body);
            assert!(text.starts_with("bad body: ") && text.contains(expected), "{body}: {text}");
        };
        refused("[]", "expected an object");
        refused(r#"{"acknowledgments":{}}"#, "acknowledgments: invalid type");
        refused(r#"{"acknowledgments":[{"status":5}]}"#, "acknowledgments[0].status: invalid type: integer `5`");
        refused(r#"{"acknowledgments":[{},{"partitionId":[]}]}"#, "acknowledgments[1].partitionId: ");
        refused(r#"{"consumerGroup":5}"#, "consumerGroup: ");
        refused(r#"{"consumerGroup":"a\u0000"}"#, "consumerGroup contains U+0000");
        let long = format!(r#"{{"acknowledgments":[{{}},{{"transactionId":"{}"}}]}}"#, "x".repeat(70_000));
        refused(&long, "acknowledgments[1].transactionId is 70000 bytes long");
        let text = command(single(br#"{"consumerGroup":5}"#)).expect_err("a group is a string");
        assert!(text.contains("consumerGroup: invalid type: integer `5`, expected a string"), "{text}");
    }
}
