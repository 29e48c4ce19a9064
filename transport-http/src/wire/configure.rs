//! Configuring a queue: always the whole of it. (queen-http.md 11)

use schemars::JsonSchema;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use tidegate_core::name::{QueueId, QueueName, excerpt};
use tidegate_core::options::{Kind, Labels, OPTIONS, OptionSpec, OptionValue, QueueOptions, RawValue as Given};

use crate::body::{Entries, Text, parse};
use crate::error::Failure;

/// A `configure` that can be ordered.
#[derive(Debug)]
pub(crate) struct Configure {
    pub(crate) queue: QueueName,
    pub(crate) options: QueueOptions,
    pub(crate) labels: Labels,
}

/// Reads a body: the options stand in `options`, or where that is no object, beside `queue`.
pub(crate) fn read(body: &[u8]) -> Result<Configure, Failure> {
    let Entries(top) = parse::<Entries>(body)?;
    let top: Vec<Entry<'_>> = top.iter().map(|(key, raw)| (&**key, raw.get())).collect();
    let queue = find(&top, "queue")?.and_then(|raw| serde_json::from_str::<Text>(raw).ok());
    let queue = queue.ok_or_else(|| Failure::bad_request("queue is required"))?;
    let queue = QueueName::new(&queue).map_err(|error| Failure::bad_name("queue", error))?;

    let nested = find(&top, "options")?.filter(|raw| raw.starts_with('{'));
    let nested = nested.map(|raw| parse::<Entries>(raw.as_bytes())).transpose()?;
    let nested: Option<Vec<Entry<'_>>> =
        nested.as_ref().map(|Entries(entries)| entries.iter().map(|(key, raw)| (&**key, raw.get())).collect());
    let source = nested.as_ref().unwrap_or(&top);

    let mut options = QueueOptions::configured();
    for spec in &OPTIONS {
        if let Some(raw) = find(source, spec.name)? {
            set(spec, &mut options, raw)?;
        }
    }
    let resolved = |name| match find(source, name)? {
        None | Some("null") => label(name, find(&top, name)?),
        Some(raw) => label(name, Some(raw)),
    };
    let labels = Labels { namespace: resolved("namespace")?.into(), task: resolved("task")?.into() };
    Ok(Configure { queue, options, labels })
}

/// A key and the JSON text of its value.
type Entry<'a> = (&'a str, &'a str);

fn find<'a>(entries: &[Entry<'a>], key: &str) -> Result<Option<&'a str>, Failure> {
    let mut values = entries.iter().filter(|(name, _)| *name == key).map(|(_, raw)| *raw);
    let value = values.next();
    match values.next() {
        None => Ok(value),
        Some(_) => Err(Failure::bad_body(format!("{key} is given twice"))),
    }
}

fn set(spec: &OptionSpec, options: &mut QueueOptions, raw: &str) -> Result<(), Failure> {
    let text;
    let given = match raw.as_bytes().first() {
        Some(b'n') => Given::Null,
        Some(b't') => Given::Boolean(true),
        Some(b'f') => Given::Boolean(false),
        Some(b'"') => {
            text = string(spec.name, raw)?;
            Given::Text(&text)
        }
        Some(b'-' | b'0'..=b'9') => Given::Number(raw),
        _ => Given::Other(raw),
    };
    spec.set(options, &given).map_err(|error| Failure::bad_body(error.to_string()))
}

/// A label: like a name, a string of limited length; null and absent are the empty one.
fn label(name: &str, raw: Option<&str>) -> Result<String, Failure> {
    let Some(raw) = raw.filter(|raw| *raw != "null") else { return Ok(String::new()) };
    if !raw.starts_with('"') {
        return Err(Failure::bad_body(format!("{name} must be a string, got {}", excerpt(raw))));
    }
    let text = string(name, raw)?;
    QueueName::new(&text).map_err(|error| Failure::bad_name(name, error))?;
    Ok(text.0.into_owned())
}

fn string<'a>(name: &str, raw: &'a str) -> Result<Text<'a>, Failure> {
    serde_json::from_str(raw).map_err(|error| Failure::bad_body(format!("{name}: {error}")))
}

/// The answer: the queue as it now is.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Configured<'a> {
    configured: bool,
    queue_id: String,
    /// A configure creates no partition.
    partition_id: Option<String>,
    queue: &'a str,
    namespace: &'a str,
    task: &'a str,
    storage: &'static str,
    options: Echo<'a>,
}

impl<'a> Configured<'a> {
    pub(crate) fn new(queue: &'a QueueName, id: QueueId, labels: &'a Labels, options: &'a QueueOptions) -> Self {
        Configured {
            configured: true,
            queue_id: id.to_string(),
            partition_id: None,
            queue: queue.as_str(),
            namespace: &labels.namespace,
            task: &labels.task,
            storage: "segments",
            options: Echo(options),
        }
    }
}

/// A body as the document tells it.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub(crate) struct ConfigureBody {
    queue: String,
    namespace: Option<String>,
    task: Option<String>,
    options: Option<GivenOptions>,
}

struct GivenOptions;

impl JsonSchema for GivenOptions {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "GivenOptions".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        options_schema(true)
    }
}

impl JsonSchema for Echo<'_> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Options".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        options_schema(false)
    }
}

/// The option table as a schema. A body may leave each option out, or say null.
fn options_schema(given: bool) -> schemars::Schema {
    let mut properties = serde_json::Map::new();
    let mut names = Vec::new();
    for spec in &OPTIONS {
        let name = if given { vec!["null"] } else { Vec::new() };
        let kinds = |kind| [&[kind][..], &name].concat();
        let schema = match spec.kind {
            Kind::Integer { min, max, .. } => {
                serde_json::json!({"type": kinds("integer"), "minimum": min, "maximum": max, "description": spec.help})
            }
            Kind::Boolean => serde_json::json!({"type": kinds("boolean"), "description": spec.help}),
        };
        properties.insert(spec.name.to_owned(), schema);
        names.push(spec.name);
    }
    if given {
        for label in ["namespace", "task"] {
            properties.insert(label.to_owned(), serde_json::json!({"type": ["string", "null"]}));
        }
        schemars::json_schema!({"type": "object", "properties": properties})
    } else {
        schemars::json_schema!({"type": "object", "properties": properties, "required": names})
    }
}

/// Every option by its name, in the table's order.
struct Echo<'a>(&'a QueueOptions);

impl Serialize for Echo<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(OPTIONS.len()))?;
        for spec in &OPTIONS {
            match spec.get(self.0) {
                OptionValue::Integer(value) => map.serialize_entry(spec.name, &value)?,
                OptionValue::Boolean(value) => map.serialize_entry(spec.name, &value)?,
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn check(body: &str) -> Result<Configure, String> {
        read(body.as_bytes()).map_err(|failure| failure.text())
    }

    fn refused(body: &str, expected: &str) {
        let text = check(body).expect_err(body);
        assert!(text.contains(expected), "{body}: {text}");
    }

    #[test]
    fn options_stand_in_options_or_beside_the_queue() {
        let nested = check(
            r#"{"queue":"q","leaseTime":7,"namespace":"n","task":null,"options":{"retryLimit":"120","task":"t","x":1,
               "deadLetterQueue":"off","encryptionEnabled":1,"minPopWaitTime":99999999999999999999,"priority":-5}}"#,
        )
        .expect("a good configure");
        assert_eq!((nested.options.lease_time, nested.options.retry_limit), (300, 120));
        assert_eq!((nested.labels.namespace.as_str(), nested.labels.task.as_str()), ("n", "t"));
        assert!(!nested.options.dead_letter_queue && nested.options.encryption_enabled);
        assert_eq!((nested.options.min_pop_wait_time, nested.options.priority), (60_000, -5));

        let flat = check(r#"{"queue":"","options":5,"leaseTime":0,"namespace":"\u0061","retryLimit":null}"#);
        let flat = flat.expect("a good configure");
        assert_eq!((flat.options.lease_time, flat.options.retry_limit), (0, 3));
        assert_eq!(flat.labels.namespace, "a");

        let inner = check(r#"{"queue":"q","namespace":"outer","options":{"namespace":""}}"#).expect("good");
        assert_eq!(inner.labels.namespace, "", "an empty label in the options is a label");
    }

    #[test]
    fn refusals_name_the_option() {
        for body in ["{}", r#"{"queue":null}"#, r#"{"queue":5}"#, r#"{"queue":["q"]}"#] {
            refused(body, "queue is required");
        }
        refused("[]", "bad body: invalid type: sequence, expected an object");
        refused("x", "bad body: ");
        refused(r#"{"queue":"q","options":{"leaseTime":1.5}}"#, "option leaseTime must be a whole number, got 1.5");
        refused(r#"{"queue":"q","leaseTime":true}"#, "leaseTime");
        refused(r#"{"queue":"q","leaseTime":-1}"#, "option leaseTime must be a whole number from 0 to 2147483647");
        refused(r#"{"queue":"q","leaseTime":"abc"}"#, "leaseTime");
        refused(r#"{"queue":"q","leaseTime":"\ud800"}"#, "leaseTime: ");
        refused(r#"{"queue":"q","leaseTime":{}}"#, "leaseTime");
        refused(r#"{"queue":"q","leaseTime":1e20}"#, "leaseTime");
        refused(r#"{"queue":"q","dedupWindowSeconds":-1}"#, "dedupWindowSeconds");
        refused(r#"{"queue":"q","deadLetterQueue":2}"#, "deadLetterQueue");
        refused(r#"{"queue":"q","namespace":5}"#, "namespace must be a string, got 5");
        refused(r#"{"queue":"q","options":{"task":[]}}"#, "task must be a string, got []");
        refused(r#"{"queue":"q","task":"a\u0000"}"#, "task contains U+0000");
        refused(r#"{"queue":"q","queue":"r"}"#, "queue is given twice");
        refused(r#"{"queue":"q","leaseTime":1,"leaseTime":2}"#, "leaseTime is given twice");
        let long = "x".repeat(65_536);
        refused(&format!(r#"{{"queue":"{long}"}}"#), "queue is 65536 bytes long, at most 1024");
        refused(&format!(r#"{{"queue":"q","options":{{"namespace":"{long}"}}}}"#), "namespace is 65536 bytes long");
    }

    #[test]
    fn the_answer_echoes_every_option() {
        let (queue, labels) = (QueueName::new("q").expect("a name"), Labels::default());
        let options = QueueOptions::configured();
        let answer = Configured::new(&queue, QueueId(Uuid::nil()), &labels, &options);
        assert_eq!(
            serde_json::to_string(&answer).expect("it serializes"),
            concat!(
                r#"{"configured":true,"queueId":"00000000-0000-0000-0000-000000000000","partitionId":null,"queue":"q","#,
                r#""namespace":"","task":"","storage":"segments","options":{"leaseTime":300,"retryLimit":3,"#,
                r#""retryDelay":1000,"priority":0,"maxSize":0,"ttl":3600,"deadLetterQueue":true,"#,
                r#""dlqAfterMaxRetries":true,"delayedProcessing":0,"windowBuffer":0,"retentionEnabled":false,"#,
                r#""retentionSeconds":0,"completedRetentionSeconds":0,"maxWaitTimeSeconds":0,"minPopWaitTime":0,"#,
                r#""encryptionEnabled":false,"dedupWindowSeconds":3600}}"#,
            )
        );
    }
}
