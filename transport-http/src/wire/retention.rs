//! What retention would delete now, rule by rule. (queen-http.md 23)

use schemars::JsonSchema;
use serde::Serialize;
use tidegate_core::record::RetentionRule;
use tidegate_core::reply::{RetentionPreview, RulePreview};

use crate::time;

/// A dry run.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Preview<'a> {
    queue: &'a str,
    retention_enabled: bool,
    /// Each rule as if it were the only one.
    rules: Vec<Rule>,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    rule: &'static str,
    seconds: i64,
    /// Whether its window is set and, where it has one, its gate open.
    active: bool,
    segments: u64,
    messages: u64,
    /// Of these, the ones that no group has consumed.
    unconsumed: u64,
    oldest_message: Option<String>,
}

impl<'a> Preview<'a> {
    pub(crate) fn new(preview: &'a RetentionPreview) -> Self {
        let options = &preview.options;
        let rule = |it: &RulePreview| Rule {
            rule: it.rule.option(),
            seconds: match it.rule {
                RetentionRule::Age => options.retention_seconds,
                RetentionRule::Completed => options.completed_retention_seconds,
                RetentionRule::MaxWait => options.max_wait_time_seconds,
            },
            active: it.active,
            segments: it.tally.segments,
            messages: it.tally.messages,
            unconsumed: it.tally.unconsumed,
            oldest_message: it.oldest.map(time::millis),
        };
        Preview {
            queue: preview.queue.as_str(),
            retention_enabled: options.retention_enabled,
            rules: preview.rules.iter().map(rule).collect(),
        }
    }
}
