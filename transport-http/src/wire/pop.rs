//! Pop: typed query parameters in, messages with their payloads verbatim out. (queen-http.md 6)

use tidegate_core::command::{Pop, PopScope};
use tidegate_core::name::GroupName;
use tidegate_core::record::StartFrom;
use tidegate_core::reply::{Claim, Delivery};
use tidegate_core::time::Span;

use crate::error::Failure;
use crate::query::{Query, unexpected};
use crate::time;
use crate::wire::json;

/// Messages of a pop that names no number.
const DEFAULT_BATCH: i32 = 200;

fn truth(query: Query<'_>, name: &str) -> Result<bool, Failure> {
    Ok(query.typed::<bool>(name, "true or false")?.unwrap_or(false))
}

fn timeout(query: Query<'_>) -> Result<Option<Span>, Failure> {
    let timeout = query.typed::<u64>("timeout", "a whole number of milliseconds, not negative")?;
    Ok(timeout.map(|millis| Span::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))))
}

/// How long a pop waits; none when it does not, or makes no sense.
pub(crate) fn wait(query: Query<'_>, default_timeout: Span) -> Option<Span> {
    let waits = truth(query, "wait").ok()?;
    waits.then_some(timeout(query).ok()?.unwrap_or(default_timeout))
}

/// Whether a pop commits what it is given.
pub(crate) fn commits(query: Query<'_>) -> bool {
    truth(query, "autoAck").unwrap_or(false)
}

/// The pop that `query` asks for.
pub(crate) fn command(scope: PopScope, query: Query<'_>, default_timeout: Span) -> Result<Pop, Failure> {
    let whole = |name| query.typed::<i32>(name, "a whole number of 32 bits");
    let truth = |name| truth(query, name);
    let batch = whole("batch")?.unwrap_or(DEFAULT_BATCH);
    let partitions = whole("partitions")?.unwrap_or(1);
    let timeout = timeout(query)?;
    let lease = whole("leaseSeconds")?.filter(|&seconds| seconds > 0);
    let group = match query.text("consumerGroup")? {
        Some(name) => GroupName::new(&name)
            .map_err(|error| Failure::bad_request(format!("query parameter consumerGroup {error}")))?,
        None => GroupName::queue_mode(),
    };
    Ok(Pop {
        scope,
        group,
        batch: u32::try_from(batch).unwrap_or(0).max(1),
        partitions: u32::try_from(partitions).ok().filter(|&cap| cap > 0),
        auto_ack: truth("autoAck")?,
        wait: truth("wait")?.then_some(timeout.unwrap_or(default_timeout)),
        lease: lease.map(|seconds| Span::from_secs(seconds.into())),
        start: start(query)?,
    })
}

/// Where a new group starts; what is no mode and no time is refused on every route (36.9).
fn start(query: Query<'_>) -> Result<Option<StartFrom>, Failure> {
    let mode = query.filter("subscriptionMode")?;
    let mode = match mode.as_deref() {
        None => None,
        Some("all" | "from_beginning") => Some(StartFrom::All),
        Some("new" | "new-only") => Some(StartFrom::New),
        Some(other) => {
            let known = "one of all, new, from_beginning, new-only";
            return Err(unexpected("subscriptionMode", known, other));
        }
    };
    let from = query.filter("subscriptionFrom")?;
    match from.as_deref() {
        None => Ok(mode),
        Some("now") => Ok(Some(StartFrom::New)),
        Some(text) => match time::parse(text) {
            Some(since) => Ok(Some(StartFrom::Time(since))),
            None => Err(unexpected("subscriptionFrom", &format!("now or {}", time::ACCEPTED), text)),
        },
    }
}

/// The answer. `queue` is the path's, or empty on a discovery pop.
pub(crate) fn answer(queue: &str, group: &GroupName, delivery: &Delivery) -> Vec<u8> {
    let mut lease = Vec::with_capacity(38);
    match delivery.lease {
        Some(id) => json::uuid(&mut lease, id.0),
        None => lease.extend_from_slice(b"\"\""),
    }
    let mut quoted_group = Vec::new();
    json::text(&mut quoted_group, group.as_str());

    let mut out = Vec::with_capacity(room(delivery, queue.len(), quoted_group.len()));
    out.extend_from_slice(b"{\"success\":true,\"queue\":");
    json::text(&mut out, queue);
    if let Some(first) = delivery.claims.first() {
        out.extend_from_slice(b",\"partition\":");
        json::text(&mut out, first.name.as_str());
        out.extend_from_slice(b",\"partitionId\":");
        json::uuid(&mut out, first.partition.0);
    }
    out.extend_from_slice(b",\"leaseId\":");
    out.extend_from_slice(&lease);
    out.extend_from_slice(b",\"consumerGroup\":");
    out.extend_from_slice(&quoted_group);
    out.extend_from_slice(b",\"messages\":[");
    let start = out.len();
    for claim in &delivery.claims {
        messages(&mut out, start, claim, &lease, &quoted_group);
    }
    out.extend_from_slice(b"],\"partitionsClaimed\":");
    json::number(&mut out, delivery.claims.len());
    out.push(b'}');
    out
}

/// The messages of one claim. What they share is written once and copied.
fn messages(out: &mut Vec<u8>, start: usize, claim: &Claim, lease: &[u8], group: &[u8]) {
    let mut tail = Vec::with_capacity(192 + claim.name.as_str().len());
    tail.extend_from_slice(b"\",\"partitionId\":");
    json::uuid(&mut tail, claim.partition.0);
    tail.extend_from_slice(b",\"partition\":");
    json::text(&mut tail, claim.name.as_str());
    tail.extend_from_slice(b",\"leaseId\":");
    tail.extend_from_slice(lease);
    tail.extend_from_slice(b",\"consumerGroup\":");
    tail.extend_from_slice(group);
    tail.push(b'}');

    let mut created = None;
    let mut created_text = String::new();
    for delivered in &claim.messages {
        // All messages of a segment share their time.
        if created != Some(delivered.created) {
            created = Some(delivered.created);
            created_text = time::micros(delivered.created);
        }
        if out.len() > start {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"id\":");
        json::uuid(out, delivered.id.0);
        out.extend_from_slice(b",\"transactionId\":");
        match &delivered.message.transaction {
            Some(transaction) => json::text(out, transaction),
            None => json::uuid(out, delivered.id.0),
        }
        out.extend_from_slice(b",\"traceId\":");
        match delivered.message.trace {
            Some(trace) => json::uuid(out, trace.0),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"data\":");
        json::payload(out, &delivered.message.payload);
        out.extend_from_slice(b",\"producerSub\":");
        match &delivered.message.producer {
            Some(producer) => json::text(out, producer),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"createdAt\":\"");
        out.extend_from_slice(created_text.as_bytes());
        out.extend_from_slice(&tail);
    }
}

/// About how long the answer gets, so that large payloads are copied once.
fn room(delivery: &Delivery, queue: usize, group: usize) -> usize {
    let per_message = 320 + group;
    let claims = delivery.claims.iter().map(|claim| {
        let names = claim.messages.len() * (per_message + claim.name.as_str().len());
        let given = claim.messages.iter().map(|delivered| &delivered.message);
        names + given.map(|m| m.payload.len() + m.transaction.as_ref().map_or(0, |id| id.len())).sum::<usize>()
    });
    256 + queue + group + claims.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use tidegate_core::message::StoredMessage;
    use tidegate_core::name::{LeaseId, MessageId, PartitionId, PartitionName, QueueName, TraceId};
    use tidegate_core::reply::DeliveredMessage;
    use tidegate_core::time::Timestamp;
    use uuid::Uuid;

    fn asked(query: &str) -> Result<Pop, String> {
        let scope = PopScope::Queue(QueueName::new("q").expect("a name"));
        command(scope, Query::new(Some(query)), Span::from_secs(30)).map_err(|failure| failure.text())
    }

    #[test]
    fn parameters_are_typed() {
        let plain = asked("").expect("nothing is required");
        assert_eq!((plain.batch, plain.partitions, plain.auto_ack, plain.wait), (200, Some(1), false, None));
        assert!(plain.group.is_queue_mode() && plain.start.is_none() && plain.lease.is_none());

        let full =
            asked("batch=-3&partitions=0&autoAck=true&wait=true&timeout=1500&leaseSeconds=5&consumerGroup=a+b%2B&x=1");
        let full = full.expect("all good");
        assert_eq!((full.batch, full.partitions, full.auto_ack), (1, None, true));
        assert_eq!(full.wait, Some(Span::from_millis(1500)));
        assert_eq!(full.lease, Some(Span::from_secs(5)));
        assert_eq!(full.group.as_str(), "a b+");
        assert_eq!(asked("wait=true").expect("good").wait, Some(Span::from_secs(30)));
        assert_eq!(asked("wait=false&timeout=5").expect("good").wait, None);
        assert_eq!(asked("consumerGroup=").expect("good").group.as_str(), "");
        assert_eq!(asked("leaseSeconds=-1").expect("good").lease, None);
        assert_eq!(
            asked("timeout=18446744073709551615&wait=true").expect("good").wait,
            Some(Span::from_millis(i64::MAX))
        );

        for (query, name) in [
            ("batch=abc", "batch"),
            ("batch=2147483648", "batch"),
            ("wait=1", "wait"),
            ("autoAck=yes", "autoAck"),
            ("autoAck=True", "autoAck"),
            ("timeout=-5", "timeout"),
            ("timeout=1.5", "timeout"),
            ("leaseSeconds=x", "leaseSeconds"),
            ("partitions=", "partitions"),
            ("wait=true&wait=true", "wait"),
            ("consumerGroup=%00", "consumerGroup"),
            ("consumerGroup=%ff", "consumerGroup"),
        ] {
            let text = asked(query).expect_err(query);
            assert!(text.starts_with(&format!("query parameter {name} ")), "{query}: {text}");
        }
        let long = asked(&format!("consumerGroup={}", "x".repeat(1025))).expect_err("too long");
        assert_eq!(long, "query parameter consumerGroup is 1025 bytes long, at most 1024 bytes of UTF-8 are allowed");
    }

    #[test]
    fn subscriptions_have_known_words() {
        let start = |query: &str| asked(query).map(|pop| pop.start);
        assert_eq!(start("subscriptionMode=from_beginning"), Ok(Some(StartFrom::All)));
        assert_eq!(start("subscriptionMode=all&subscriptionFrom="), Ok(Some(StartFrom::All)));
        assert_eq!(start("subscriptionMode=new-only"), Ok(Some(StartFrom::New)));
        assert_eq!(start("subscriptionMode=all&subscriptionFrom=now"), Ok(Some(StartFrom::New)));
        let time = Timestamp::from_micros(1_764_504_000_000_000);
        for text in
            ["2025-11-30T12:00:00Z", "2025-11-30T14:00:00+02:00", "2025-11-30T14:00:00%2B02:00", "2025-11-30+12:00"]
        {
            assert_eq!(
                start(&format!("subscriptionMode=new&subscriptionFrom={text}")),
                Ok(Some(StartFrom::Time(time)))
            );
        }
        let text = start("subscriptionMode=NEW").expect_err("case matters");
        assert!(text.starts_with("query parameter subscriptionMode must be one of all, new, from_beginning, new-only"));
        let text = start("subscriptionFrom=garbage").expect_err("no time");
        assert!(text.starts_with("query parameter subscriptionFrom must be now or a timestamp"), "{text}");
        assert!(start("subscriptionMode=bad&subscriptionFrom=now").is_err());
    }

    #[test]
    fn the_answer_is_exact() {
        let message = |n: u128, transaction: Option<&str>, payload: &'static [u8]| DeliveredMessage {
            id: MessageId(Uuid::from_u128(n)),
            created: Timestamp::from_micros(1_764_504_000_000_001),
            message: StoredMessage {
                transaction: transaction.map(Into::into),
                payload: Bytes::from_static(payload),
                trace: (n == 1).then(|| TraceId(Uuid::from_u128(9))),
                producer: None,
            },
        };
        let claim = Claim {
            partition: PartitionId(Uuid::from_u128(3)),
            name: PartitionName::new("p").expect("a name"),
            messages: vec![message(1, Some("t"), b"{\"b\":1, \"a\":1.0}"), message(2, None, b"")],
        };
        let lease = Some(LeaseId(Uuid::from_u128(4)));
        let group = GroupName::new("g\"").expect("a name");
        let text = answer("q", &group, &Delivery { lease, claims: vec![claim.clone()] });
        let zeros = "00000000-0000-0000-0000-00000000000";
        let tail = format!(
            r#","createdAt":"2025-11-30T12:00:00.000001Z","partitionId":"{zeros}3","partition":"p","leaseId":"{zeros}4","consumerGroup":"g\""}}"#
        );
        let expected = [
            &format!(r#"{{"success":true,"queue":"q","partition":"p","partitionId":"{zeros}3","leaseId":"{zeros}4","#),
            r#""consumerGroup":"g\"","messages":["#,
            &format!(
                r#"{{"id":"{zeros}1","transactionId":"t","traceId":"{zeros}9","data":{{"b":1, "a":1.0}},"producerSub":null"#
            ),
            &tail,
            &format!(r#",{{"id":"{zeros}2","transactionId":"{zeros}2","traceId":null,"data":null,"producerSub":null"#),
            &tail,
            r#"],"partitionsClaimed":1}"#,
        ];
        assert_eq!(String::from_utf8(text), Ok(expected.concat()));

        let text = answer("", &group, &Delivery { lease: None, claims: vec![claim] });
        assert!(
            String::from_utf8(text).is_ok_and(|text| text.contains(r#""leaseId":"","consumerGroup":"g\"","messages""#))
        );
    }
}
