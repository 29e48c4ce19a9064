//! The OpenAPI document: every route answers as it says, whatever is sent.

use hyper::Method;
use serde_json::{Value, json};

use crate::world::{World, ids, item};

behaviour!(the_document_is_served, wrong_types_and_extremes_are_refused, answers_fit_the_document);

const METHODS: [&str; 3] = ["get", "post", "delete"];

async fn document(world: &World) -> Value {
    let answer = world.get("/openapi.json").await.expect(200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    answer.json()
}

/// Each operation of the document.
fn operations(document: &Value) -> Vec<(Method, String, Value)> {
    let paths = document["paths"].as_object().expect("paths");
    let all = paths.iter().flat_map(|(path, operations)| {
        METHODS.iter().filter_map(move |method| {
            let operation = operations.get(method)?.clone();
            Some((method.to_uppercase().parse().expect("a method"), path.clone(), operation))
        })
    });
    all.collect()
}

async fn the_document_is_served(world: World) {
    let document = document(&world).await;
    assert_eq!(document["openapi"], "3.1.0");
    assert!(operations(&document).len() > 50);
    let push = &document["paths"]["/api/v1/push"]["post"];
    assert_eq!((&push["x-level"], &push["responses"]["201"]["content"].is_object()), (&json!("write-only"), &true));
}

/// A path with its parameters filled in.
fn filled(path: &str) -> String {
    let segment = |segment: &str| match segment {
        "{partitionId}" | "{id}" => "00000000-0000-4000-8000-000000000001".to_owned(),
        other if other.starts_with('{') => "some".to_owned(),
        other => other.to_owned(),
    };
    path.split('/').map(segment).collect::<Vec<_>>().join("/")
}

/// Values of every type, and extremes of them.
fn hostile() -> Vec<Value> {
    let big: Value = serde_json::from_str("1e300").expect("a number");
    vec![
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(1.5),
        big,
        json!(""),
        json!("\u{0}"),
        json!("é😀"),
        json!("x".repeat(70_000)),
        json!([]),
        json!({}),
        json!([[[{}]]]),
    ]
}

/// A status that the document knows for an operation, and none that means a defect.
#[track_caller]
fn known(operation: &Value, status: u16, what: &str) {
    assert!(operation["responses"].get(status.to_string()).is_some(), "{what}: {status} is not in the document");
}

async fn wrong_types_and_extremes_are_refused(world: World) {
    let document = document(&world).await;
    for (method, path, operation) in operations(&document) {
        let path = filled(&path);
        if path.contains("/system/maintenance") {
            // A body that is right would switch everything off.
            continue;
        }
        for parameter in operation["parameters"].as_array().expect("parameters") {
            if parameter["in"] != "query" {
                continue;
            }
            let name = parameter["name"].as_str().expect("a name");
            for text in ["", "x", "-1", "1.5", "99999999999999999999999", "%00", "%ff", "true", "%F0%9F%98%80"] {
                let what = format!("{method} {path}?{name}={text}");
                let answer = world.call(method.clone(), &format!("{path}?{name}={text}"), "").await;
                known(&operation, answer.status, &what);
            }
        }
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        if schema.is_null() {
            continue;
        }
        for body in ["", "x", "[", "null", "5", "\"a\"", "[]", "{}"] {
            let answer = world.call(method.clone(), &path, body).await;
            known(&operation, answer.status, &format!("{method} {path} {body}"));
        }
        let mut bodies = Vec::new();
        hurt(schema, &|value| value, &mut bodies);
        for body in bodies {
            let answer = world.call(method.clone(), &path, body.to_string()).await;
            let shown: String = body.to_string().chars().take(120).collect();
            known(&operation, answer.status, &format!("{method} {path} {shown}"));
            if answer.status >= 400 {
                assert!(answer.json()["error"].is_string(), "{shown}: {}", answer.text());
            }
        }
    }
    // It has survived all of that.
    world.put("still", &["here"]).await;
    assert_eq!(world.pop("still", "").await.ids(), ["here"]);
}

/// Bodies in which one field each has a value that it should not have.
fn hurt(schema: &Value, place: &dyn Fn(Value) -> Value, bodies: &mut Vec<Value>) {
    let Some(properties) = schema["properties"].as_object() else {
        if schema["items"].is_object() {
            hurt(&schema["items"], &|value| place(json!([value])), bodies);
        }
        return;
    };
    for (name, field) in properties {
        let within = |value: Value| {
            let mut object = sample(schema);
            object[name] = value;
            place(object)
        };
        bodies.extend(hostile().into_iter().map(within));
        hurt(field, &within, bodies);
    }
}

/// Something that fits a schema: its required fields alone.
fn sample(schema: &Value) -> Value {
    if let Some(options) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
        return sample(&options[0]);
    }
    if !schema["const"].is_null() {
        return schema["const"].clone();
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
    match kind {
        Some("object") => {
            let mut object = json!({});
            for name in schema["required"].as_array().into_iter().flatten() {
                let name = name.as_str().expect("a name");
                object[name] = sample(&schema["properties"][name]);
            }
            object
        }
        Some("array") if schema["items"].is_object() => json!([sample(&schema["items"])]),
        Some("array") => json!([]),
        Some("string") if schema["format"] == "uuid" => json!("00000000-0000-4000-8000-000000000001"),
        Some("string") => json!("some"),
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        _ => json!({"any": ["thing"]}),
    }
}

/// Whether a value fits a schema, as far as the document's own schemas go.
fn fits(document: &Value, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let schema = document.pointer(name.trim_start_matches('#')).expect("a schema");
        return fits(document, schema, value, place);
    }
    if schema.as_bool() == Some(true) {
        return Ok(());
    }
    if let Some(options) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
        let fitting = options.iter().any(|option| fits(document, option, value, place).is_ok());
        return if fitting { Ok(()) } else { Err(format!("{place}: {value} fits no option")) };
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => return Ok(()),
    };
    let is = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let fitting = kinds.contains(&is) || is == "integer" && kinds.contains(&"number");
    if !fitting {
        return Err(format!("{place}: {value} is of type {is}, not {kinds:?}"));
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if is == "object" && value.get(name).is_none() {
            return Err(format!("{place}: {name} is missing in {value}"));
        }
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(value) = value.get(name) {
            fits(document, field, value, &format!("{place}.{name}"))?;
        }
    }
    if let Some(object) = value.as_object() {
        let known = schema["properties"].as_object();
        for (name, value) in object.iter().filter(|(name, _)| known.is_none_or(|known| !known.contains_key(*name))) {
            match &schema["additionalProperties"] {
                Value::Object(_) => {
                    fits(document, &schema["additionalProperties"], value, &format!("{place}.{name}"))?;
                }
                _ if known.is_some() => return Err(format!("{place}: the document does not know {name}")),
                _ => {}
            }
        }
    }
    for (n, value) in value.as_array().into_iter().flatten().enumerate() {
        if schema["items"].is_object() {
            fits(document, &schema["items"], value, &format!("{place}[{n}]"))?;
        }
    }
    Ok(())
}

async fn answers_fit_the_document(world: World) {
    let document = document(&world).await;
    world.put("some", &ids("x", 4)).await;
    let popped = world.pop("some", "consumerGroup=some&batch=2").await;
    let partition = popped.partition_id().to_owned();
    world.ack_batch("some", vec![item(popped.message("x1"), "dlq")]).await;
    let trace = json!({"transactionId": "x1", "partitionId": partition, "data": {}, "traceNames": "some"});
    world.post("/api/v1/traces", trace).await.expect(201);
    world.sleep(60).await;
    let calls = [
        (Method::POST, "/api/v1/push".to_owned(), json!({"items": [{"queue": "some", "payload": 1}]})),
        (Method::POST, "/api/v1/configure".to_owned(), json!({"queue": "some"})),
        (Method::POST, "/api/v1/ack".to_owned(), json!({"transactionId": "x2", "partitionId": partition})),
        (
            Method::POST,
            "/api/v1/transaction".to_owned(),
            json!({"operations": [{"type": "push", "queue": "some", "payload": 1}]}),
        ),
        (Method::GET, "/api/v1/pop/queue/some".to_owned(), Value::Null),
        (Method::GET, format!("/api/v1/messages/{partition}/x1"), Value::Null),
        (Method::GET, format!("/api/v1/traces/{partition}/x1"), Value::Null),
        (Method::POST, format!("/api/v1/messages/{partition}/x1/retry"), json!({})),
        (Method::DELETE, "/api/v1/dlq?queue=some".to_owned(), Value::Null),
        (Method::POST, "/api/v1/consumer-groups/some/queues/some/seek".to_owned(), json!({"toEnd": true})),
        (Method::POST, "/api/v1/consumer-groups/some/queues/nope/seek".to_owned(), json!({"toEnd": true})),
        (
            Method::POST,
            "/api/v1/consumer-groups/some/queues/some/partitions/Default/seek".to_owned(),
            json!({"toEnd": true}),
        ),
        (Method::POST, "/api/v1/lease/x/extend".to_owned(), json!({"seconds": 5})),
        (Method::POST, "/api/v1/stats/refresh".to_owned(), json!({})),
        (Method::POST, "/api/v1/system/maintenance".to_owned(), json!({"enabled": false})),
        (Method::POST, "/api/v1/system/maintenance/pop".to_owned(), json!({"enabled": false})),
    ];
    let list = operations(&document);
    let reads = list.iter().filter(|(method, path, _)| method == Method::GET && !path.contains("/pop"));
    let reads: Vec<_> = reads.map(|(method, path, _)| (method.clone(), filled(path), Value::Null)).collect();
    for (method, path, body) in calls.into_iter().chain(reads) {
        let bare = path.split('?').next().unwrap_or_default().to_owned();
        let matches = |template: &str| {
            let (a, b): (Vec<&str>, Vec<&str>) = (template.split('/').collect(), bare.split('/').collect());
            a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.starts_with('{') || a == b)
        };
        let mut found = list.iter().filter(|(of, template, _)| *of == method && matches(template));
        // A path of fixed words wins.
        let (_, _, operation) = found.clone().find(|(_, path, _)| *path == bare).or(found.next()).expect(&bare);
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let answer = world.call(method.clone(), &path, text).await;
        let what = format!("{method} {path}");
        known(operation, answer.status, &what);
        let content = &operation["responses"][answer.status.to_string()]["content"];
        let schema = &content["application/json"]["schema"];
        if !schema.is_null() {
            fits(&document, schema, &answer.json(), &what).unwrap_or_else(|error| panic!("{error}\n{}", answer.text()));
        }
    }
}
