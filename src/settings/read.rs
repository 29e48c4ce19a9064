//! Reading one value: where it came from, whether it parses, and the error that says both.

use std::collections::BTreeMap;
use std::fmt;

use tidegate_core::name::excerpt;

/// What is wrong with the settings, for the person who wrote them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong(pub String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

/// The environment as it was at the start. A variable that is empty counts as not set, as deployment files that pass on
/// what they do not have expect.
pub struct Environment {
    /// None for a value that is not UTF-8.
    variables: BTreeMap<String, Option<String>>,
}

/// A text and the flag or variable that it came from.
pub struct Given {
    /// A flag or a variable.
    pub origin: String,
    /// Without the space around it.
    pub text: String,
}

impl Given {
    /// That this text is not what was expected.
    pub fn wrong(&self, expected: &str) -> Wrong {
        Wrong(format!("{} is {:?}, expected {expected}", self.origin, excerpt(&self.text)))
    }
}

impl Environment {
    /// Of this process. A variable whose name is not UTF-8 is nobody's we know.
    pub fn of_process() -> Self {
        let named = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        Environment { variables: named.map(|(name, value)| (name, value.into_string().ok())).collect() }
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Result<Option<&str>, Wrong> {
        match self.variables.get(name) {
            Some(None) => Err(Wrong(format!("{name} is not valid UTF-8"))),
            Some(Some(text)) => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
            None => Ok(None),
        }
    }

    /// The names of all variables that are set, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let filled = |value: &Option<String>| value.as_ref().is_none_or(|text| !text.trim().is_empty());
        self.variables.iter().filter(move |(_, value)| filled(value)).map(|(name, _)| name.as_str())
    }

    /// A flag and its text where it was given, else the variable.
    pub fn given(&self, flag: Option<(&str, String)>, variable: &str) -> Result<Option<Given>, Wrong> {
        Ok(match flag {
            Some((origin, text)) => Some(Given { origin: origin.into(), text: text.trim().into() }),
            None => self.get(variable)?.map(|text| Given { origin: variable.into(), text: text.into() }),
        })
    }
}

#[cfg(test)]
impl Environment {
    /// An environment of these variables.
    pub fn from_pairs(variables: &[(&str, &str)]) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), Some((*value).to_owned()));
        Environment { variables: variables.iter().map(owned).collect() }
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(variables: [(&str, &str); N]) -> Self {
        Self::from_pairs(&variables)
    }
}

/// A variable that is a whole number from `min` to `max`; `unit` is what it counts.
pub fn integer(environment: &Environment, name: &str, min: i64, max: i64, unit: &str) -> Result<Option<i64>, Wrong> {
    whole(environment.given(None, name)?, min, max, unit)
}

/// A flag or variable that is a whole number from `min` to `max`; `unit` is what it counts.
pub fn whole(given: Option<Given>, min: i64, max: i64, unit: &str) -> Result<Option<i64>, Wrong> {
    let Some(given) = given else {
        return Ok(None);
    };
    match given.text.parse() {
        Ok(value) if (min..=max).contains(&value) => Ok(Some(value)),
        _ => Err(given.wrong(&format!("a whole number from {min} to {max} ({unit})"))),
    }
}

/// A variable that is true or false.
pub fn boolean(environment: &Environment, name: &str) -> Result<Option<bool>, Wrong> {
    let Some(given) = environment.given(None, name)? else {
        return Ok(None);
    };
    let says = |words: [&str; 4]| words.iter().any(|word| word.eq_ignore_ascii_case(&given.text));
    if says(["true", "1", "yes", "on"]) {
        Ok(Some(true))
    } else if says(["false", "0", "no", "off"]) {
        Ok(Some(false))
    } else {
        Err(given.wrong("true or false (or 1/0, yes/no, on/off)"))
    }
}

/// One of a few words, in any case.
pub fn one_of<T: Copy>(given: Option<Given>, words: &[(&str, T)]) -> Result<Option<T>, Wrong> {
    let Some(given) = given else {
        return Ok(None);
    };
    match words.iter().find(|(word, _)| word.eq_ignore_ascii_case(&given.text)) {
        Some((_, value)) => Ok(Some(*value)),
        None => {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            Err(given.wrong(&format!("one of {}", known.join(", "))))
        }
    }
}
