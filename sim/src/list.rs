//! A run written down: a world and its steps. It outlives every change of the generator, so failures are kept like this.
//!
//! ```text
//! # what went wrong
//! world seed=7 brokers=2 lease=10
//! +0 push count=2
//! +1000 pop
//! ```

use std::fmt;

use crate::setup::Setup;
use crate::step::{self, Step};

/// A world and what happens in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct List {
    /// The world.
    pub setup: Setup,
    /// What happens.
    pub steps: Vec<Step>,
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "world")?;
        let usual = Setup::default().fields();
        for ((name, value), (_, usual)) in self.setup.fields().into_iter().zip(usual) {
            if value != usual {
                write!(f, " {name}={value}")?;
            }
        }
        writeln!(f)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

/// Reads a list as it is written; lines that begin with `#` say nothing.
pub fn parse(text: &str) -> Result<List, String> {
    let mut list = List::default();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        let wrong = |what: String| format!("line {number}: {what}");
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(fields) = line.strip_prefix("world") {
            for field in fields.split_whitespace() {
                let known = field.split_once('=').and_then(|(name, value)| {
                    let value = value.parse().ok()?;
                    list.setup.set(name, value).then_some(())
                });
                known.ok_or_else(|| wrong(format!("{field:?} is not field=number of a world")))?;
            }
        } else {
            list.steps.push(step::parse(line).map_err(wrong)?);
        }
    }
    list.setup = list.setup.clamped();
    Ok(list)
}
