//! Transactions: pushes and acks, all or nothing. (queen-http.md 10)

use bytes::Bytes;
use compact_str::CompactString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_core::command::{LeaseProof, Operation, Transaction};
use tidegate_core::message::NewMessage;
use tidegate_core::name::{GroupName, NameError, PartitionName, QueueName, TraceId, TransactionId};
use tidegate_core::reply::{OperationOutcome, RolledBack};
use uuid::Uuid;

use crate::body::{Object, Text, parse, parse_below, present};
use crate::error::Failure;
use crate::wire::ack::{AckFields, lease_proof};

/// What the answer says where `operations` is no array.
pub(crate) const NO_OPERATIONS: &str = "transaction requires an operations array";
/// What it says for an operation of another type.
pub(crate) const OTHER_OPERATION: &str = "segments transaction supports only push and ack operations";
/// The payload of a push that has none.
const EMPTY_PAYLOAD: &[u8] = b"{}";

#[derive(JsonSchema, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TransactionBody<'b> {
    #[serde(borrow)]
    #[schemars(with = "Vec<OperationShape>")]
    operations: Option<&'b RawValue>,
    #[serde(borrow)]
    required_leases: Option<Vec<Text<'b>>>,
}

/// An operation as the document tells it.
#[derive(JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[allow(dead_code, reason = "only its schema is used")]
enum OperationShape {
    /// A push of one message, or of several as `items`.
    #[serde(rename_all = "camelCase")]
    Push { queue: String, partition: Option<String>, payload: serde_json::Value, transaction_id: Option<String> },
    /// An ack.
    #[serde(rename_all = "camelCase")]
    Ack {
        transaction_id: String,
        partition_id: uuid::Uuid,
        status: Option<String>,
        consumer_group: Option<String>,
        lease_id: Option<String>,
    },
}

/// An operation's type decides what else is read of it, so the whole of it is kept.
#[derive(Deserialize)]
struct OperationKind<'b> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'b RawValue>,
}

#[derive(Deserialize)]
struct Bundle<'b> {
    #[serde(borrow)]
    items: Option<Vec<Object<PushFields<'b>>>>,
}

#[derive(Deserialize)]
struct PushFields<'b> {
    #[serde(borrow)]
    queue: Option<Text<'b>>,
    #[serde(borrow)]
    partition: Option<Text<'b>>,
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'b RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    data: Option<&'b RawValue>,
    #[serde(borrow, rename = "transactionId")]
    transaction: Option<Text<'b>>,
    #[serde(borrow, rename = "traceId")]
    trace: Option<&'b RawValue>,
}

/// Why a transaction is answered without asking the broker.
pub(crate) enum Unfit {
    /// 400 in the plain shape.
    Body(Failure),
    /// 400 in the shape of a transaction's answer, with this error.
    Shape(&'static str),
    /// It would certainly be rolled back, with this error.
    RolledBack(String),
}

impl From<Failure> for Unfit {
    fn from(failure: Failure) -> Self {
        Unfit::Body(failure)
    }
}

/// What of an operation its answer repeats.
pub(crate) enum Echo {
    /// Of a push: the transaction id it was given, and its queue.
    Push(Option<String>, QueueName),
    /// Of an ack: the transaction id.
    Ack(String),
}

/// The command, whose messages `subject` pushes, and what its answer repeats of each operation.
pub(crate) fn command(body: &Bytes, subject: Option<&CompactString>) -> Result<(Transaction, Vec<Echo>), Unfit> {
    let Object(transaction) = parse::<Object<TransactionBody>>(body)?;
    let raw = transaction.operations.map_or("", RawValue::get);
    if !raw.starts_with('[') {
        return Err(Unfit::Shape(NO_OPERATIONS));
    }
    let mut read = Reader { body, subject, operations: Vec::new(), echoes: Vec::new(), malformed: None };
    for (n, raw) in parse_below::<Vec<&RawValue>>("operations", raw.as_bytes())?.into_iter().enumerate() {
        read.operation(&format!("operations[{n}]"), raw.get())?;
    }
    if let Some(text) = read.malformed {
        return Err(Unfit::RolledBack(format!("QTXN ack references partition {text} not owned by this tenant")));
    }
    let proofs = transaction.required_leases.unwrap_or_default().into_iter().map(|lease| lease_proof(&lease));
    let required_leases = proofs.filter(|proof| *proof != LeaseProof::None).collect();
    Ok((Transaction { operations: read.operations, required_leases }, read.echoes))
}

struct Reader<'b> {
    body: &'b Bytes,
    subject: Option<&'b CompactString>,
    operations: Vec<Operation>,
    echoes: Vec<Echo>,
    /// The first partition id that is none.
    malformed: Option<String>,
}

impl<'b> Reader<'b> {
    fn operation(&mut self, place: &str, raw: &'b str) -> Result<(), Unfit> {
        let Object(operation) = parse_below::<Object<OperationKind>>(place, raw.as_bytes())?;
        let kind = operation.kind.and_then(|kind| serde_json::from_str::<Text>(kind.get()).ok());
        let below = format!("{place}.");
        match kind.as_deref() {
            Some("push") => {
                let Object(bundle) = parse_below::<Object<Bundle>>(&below, raw.as_bytes())?;
                match bundle.items {
                    Some(items) => items
                        .into_iter()
                        .enumerate()
                        .try_for_each(|(n, Object(item))| self.push(&format!("{place}.items[{n}]"), item)),
                    None => {
                        let Object(item) = parse_below::<Object<PushFields>>(&below, raw.as_bytes())?;
                        self.push(place, item)
                    }
                }
            }
            Some("ack") => {
                let Object(fields) = parse_below::<Object<AckFields>>(&below, raw.as_bytes())?;
                self.ack(place, &fields)
            }
            Some(_) | None => Err(Unfit::Shape(OTHER_OPERATION)),
        }
    }

    fn push(&mut self, place: &str, item: PushFields<'b>) -> Result<(), Unfit> {
        let wrong = |field| move |error: NameError| Failure::bad_name(&format!("{place}.{field}"), error);
        let queue = item.queue.as_ref();
        let queue = queue.ok_or_else(|| Failure::bad_body(format!("{place}.queue is missing, expected a string")))?;
        let queue = QueueName::new(queue).map_err(wrong("queue"))?;
        let partition = match &item.partition {
            Some(name) => PartitionName::new(name).map_err(wrong("partition"))?,
            None => PartitionName::default_partition(),
        };
        let given = item.transaction.filter(|id| !id.is_empty());
        let transaction =
            given.as_ref().map(|id| TransactionId::new(id)).transpose().map_err(wrong("transactionId"))?;
        let payload = match item.payload.or(item.data) {
            Some(raw) => crate::wire::payload::slice(raw, self.body, || place.to_owned())?,
            None => Bytes::from_static(EMPTY_PAYLOAD),
        };
        let trace = item.trace.and_then(|raw| serde_json::from_str::<Text>(raw.get()).ok());
        let trace = trace.and_then(|text| Uuid::try_parse(&text).ok()).map(TraceId);
        let message = NewMessage { transaction, payload, trace, producer: self.subject.cloned() };
        self.echoes.push(Echo::Push(given.map(|id| id.0.into_owned()), queue.clone()));
        self.operations.push(Operation::Push { queue, partition, message });
        Ok(())
    }

    fn ack(&mut self, place: &str, fields: &AckFields<'_>) -> Result<(), Unfit> {
        let group: GroupName = fields.group(&format!("{place}.consumerGroup"))?;
        match fields.item(|name| format!("{place}.{name}"))? {
            Ok(item) => self.operations.push(Operation::Ack { group, item }),
            Err(_) => {
                let text = fields.partition.as_deref().unwrap_or_default();
                self.malformed.get_or_insert_with(|| tidegate_core::name::excerpt(text));
            }
        }
        let transaction = fields.transaction.as_deref().unwrap_or_default();
        self.echoes.push(Echo::Ack(transaction.to_owned()));
        Ok(())
    }
}

/// The answer.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer<'a> {
    transaction_id: String,
    success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    results: Vec<Line<'a>>,
}

/// The answer's line for one operation; its `type` says which keys it has.
#[derive(JsonSchema, Serialize)]
#[serde(untagged)]
enum Line<'a> {
    Push(PushLine<'a>),
    Ack(AckLine<'a>),
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct PushLine<'a> {
    index: usize,
    r#type: &'static str,
    success: bool,
    transaction_id: String,
    message_id: String,
    queue_name: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    duplicate: bool,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct AckLine<'a> {
    index: usize,
    r#type: &'static str,
    success: bool,
    transaction_id: &'a str,
    error: Option<&'static str>,
    dlq: bool,
}

impl<'a> Answer<'a> {
    /// Nothing was done.
    pub(crate) fn failed(id: Uuid, error: &'a str) -> Self {
        Answer { transaction_id: id.to_string(), success: false, error: Some(error), results: Vec::new() }
    }

    /// Everything was done.
    pub(crate) fn done(id: Uuid, echoes: &'a [Echo], outcomes: &[OperationOutcome]) -> Self {
        let lines = echoes.iter().zip(outcomes).enumerate().map(|(index, (echo, outcome))| line(index, echo, outcome));
        Answer { transaction_id: id.to_string(), success: true, error: None, results: lines.collect() }
    }
}

fn line<'a>(index: usize, echo: &'a Echo, outcome: &OperationOutcome) -> Line<'a> {
    let dlq = matches!(outcome, OperationOutcome::Acked { dead_lettered: true });
    let (message_id, duplicate) = match outcome {
        OperationOutcome::Pushed { id, duplicate } => (id.to_string(), *duplicate),
        OperationOutcome::Acked { .. } => (String::new(), false),
    };
    match echo {
        Echo::Push(given, queue) => Line::Push(PushLine {
            index,
            r#type: "push",
            success: true,
            transaction_id: given.clone().unwrap_or_else(|| message_id.clone()),
            message_id,
            queue_name: queue.as_str(),
            duplicate,
        }),
        Echo::Ack(transaction) => {
            Line::Ack(AckLine { index, r#type: "ack", success: true, transaction_id: transaction, error: None, dlq })
        }
    }
}

/// Why nothing was done, in the words clients look for.
pub(crate) fn reason(rolled_back: &RolledBack) -> String {
    match rolled_back {
        RolledBack::UnknownTransaction => "QTXN ack references unknown transactionId; transaction rolled back".into(),
        RolledBack::Duplicate { queue, partition } => {
            format!("QDUP duplicate messages in queue \"{queue}\" partition \"{partition}\"; transaction rolled back")
        }
        RolledBack::AckFailed { partition, group, error } => {
            format!("QTXN ack failed for partition {partition} group \"{group}\": {error}; transaction rolled back")
        }
        RolledBack::ForeignPartition(partition) => {
            format!("QTXN ack references partition {partition} not owned by this tenant")
        }
        RolledBack::RequiredLease => {
            "QTXN a required lease covers no acked partition: invalid or expired lease; transaction rolled back".into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::command::AckStatus;
    use tidegate_core::name::{MessageId, PartitionId};
    use tidegate_core::reply::AckError;

    const PARTITION: &str = "00000000-0000-4000-8000-000000000001";

    fn read(body: &str) -> Result<(Transaction, Vec<Echo>), String> {
        command(&Bytes::copy_from_slice(body.as_bytes()), None).map_err(|unfit| match unfit {
            Unfit::Body(failure) => failure.text(),
            Unfit::Shape(error) => error.to_owned(),
            Unfit::RolledBack(error) => error,
        })
    }

    #[test]
    fn bundles_are_flattened_and_bytes_kept() {
        let body = format!(
            r#"{{"operations":[{{"type":"push","items":[{{"queue":"a","payload": 1.0 ,"data":2,"transactionId":""}},
            {{"queue":"b","data":{{"x":1}},"transactionId":"t","traceId":"{PARTITION}"}}]}},
            {{"type":"ack","transactionId":"t","partitionId":"{PARTITION}","status":"retry","consumerGroup":"g"}},
            {{"type":"push","queue":"c","partition":"p","traceId":5}}],"requiredLeases":["","x"]}}"#
        );
        let (transaction, echoes) = read(&body).expect("a good transaction");
        assert_eq!((transaction.operations.len(), echoes.len()), (4, 4));
        assert_eq!(transaction.required_leases, [LeaseProof::Foreign]);
        let pushed = |n: usize| match &transaction.operations[n] {
            Operation::Push { queue, partition, message } => {
                (queue.as_str(), partition.as_str(), &message.payload[..], message.trace.is_some())
            }
            Operation::Ack { .. } => panic!("operation {n} is a push"),
        };
        assert_eq!(pushed(0), ("a", "Default", &b"1.0"[..], false));
        assert_eq!(pushed(1), ("b", "Default", &b"{\"x\":1}"[..], true));
        assert_eq!(pushed(3), ("c", "p", &b"{}"[..], false));
        let Operation::Ack { group, item } = &transaction.operations[2] else { panic!("an ack") };
        assert_eq!((group.as_str(), item.status), ("g", AckStatus::Retry));

        let id = MessageId(Uuid::from_u128(7));
        let outcomes = [
            OperationOutcome::Pushed { id, duplicate: false },
            OperationOutcome::Pushed { id, duplicate: true },
            OperationOutcome::Acked { dead_lettered: true },
            OperationOutcome::Pushed { id, duplicate: false },
        ];
        let text = serde_json::to_string(&Answer::done(Uuid::nil(), &echoes[..3], &outcomes)).expect("it serializes");
        assert_eq!(
            text,
            concat!(
                r#"{"transactionId":"00000000-0000-0000-0000-000000000000","success":true,"results":["#,
                r#"{"index":0,"type":"push","success":true,"transactionId":"00000000-0000-0000-0000-000000000007","#,
                r#""messageId":"00000000-0000-0000-0000-000000000007","queueName":"a"},"#,
                r#"{"index":1,"type":"push","success":true,"transactionId":"t","#,
                r#""messageId":"00000000-0000-0000-0000-000000000007","queueName":"b","duplicate":true},"#,
                r#"{"index":2,"type":"ack","success":true,"transactionId":"t","error":null,"dlq":true}]}"#,
            )
        );
        let failed = serde_json::to_string(&Answer::failed(Uuid::nil(), "e")).expect("it serializes");
        let zero = "00000000-0000-0000-0000-000000000000";
        assert_eq!(failed, format!(r#"{{"transactionId":"{zero}","success":false,"error":"e","results":[]}}"#));
    }

    #[test]
    fn what_is_unfit_is_told_apart() {
        let says = |body: &str, expected: &str| {
            let Err(text) = read(body) else { panic!("{body} is unfit") };
            assert!(text.contains(expected), "{body}: {text}");
        };
        says("[]", "bad body: invalid type: sequence, expected an object");
        for body in ["{}", r#"{"operations":null}"#, r#"{"operations":{}}"#, r#"{"operations":"[]"}"#] {
            says(body, NO_OPERATIONS);
        }
        for operation in ["{}", r#"{"type":"pop"}"#, r#"{"type":5}"#, r#"{"type":null}"#] {
            says(&format!(r#"{{"operations":[{operation}]}}"#), OTHER_OPERATION);
        }
        says(r#"{"operations":[5]}"#, "bad body: operations[0]: invalid type: integer `5`, expected an object");
        says(r#"{"operations":[{"type":"push"}]}"#, "bad body: operations[0].queue is missing");
        says(r#"{"operations":[{"type":"push","items":[{}]}]}"#, "bad body: operations[0].items[0].queue is missing");
        says(r#"{"operations":[{"type":"push","items":5}]}"#, "bad body: operations[0].items: invalid type");
        says(
            r#"{"operations":[{"type":"push","queue":5}]}"#,
            "bad body: operations[0].queue: invalid type: integer `5`",
        );
        says(
            r#"{"operations":[{"type":"ack","status":5}]}"#,
            "bad body: operations[0].status: invalid type: integer `5`",
        );
        says(r#"{"operations":[{"type":"ack","consumerGroup":5}]}"#, "bad body: operations[0].consumerGroup: ");
        says(r#"{"operations":[],"requiredLeases":[5]}"#, "bad body: requiredLeases[0]: ");
        says(r#"{"operations":[{"type":"ack","partitionId":"x"}]}"#, "QTXN ack references partition x not owned");
    }

    #[test]
    fn reasons_are_exact() {
        let partition = PartitionId(Uuid::try_parse(PARTITION).expect("a UUID"));
        let group = GroupName::new("g").expect("a name");
        let failed = RolledBack::AckFailed { partition, group, error: AckError::InvalidLease };
        let expected = "QTXN ack failed for partition 00000000-0000-4000-8000-000000000001 group \"g\": \
                        invalid or expired lease; transaction rolled back";
        assert_eq!(reason(&failed), expected);
        assert!(reason(&RolledBack::RequiredLease).contains("lease"));
    }
}
