//! What a verified token says.

use compact_str::CompactString;
use serde::Deserialize;
use serde_json::Value;

use crate::router::Level;

/// Bytes of a subject: it is stored with each message.
const MAX_SUBJECT_BYTES: usize = 1_024;

/// The claims that mean something here.
pub(super) struct Claims {
    /// `exp`, in seconds since 1970, as are the next two.
    pub(super) expires: Option<i64>,
    /// `nbf`.
    pub(super) not_before: Option<i64>,
    /// `iat`.
    pub(super) issued: Option<i64>,
    /// `iss`.
    pub(super) issuer: Option<String>,
    /// `aud`, one or several.
    pub(super) audiences: Vec<String>,
    /// `sub`.
    pub(super) subject: Option<CompactString>,
    /// `role` and `roles` together.
    pub(super) roles: Roles,
}

#[derive(Deserialize)]
struct Written {
    exp: Option<f64>,
    nbf: Option<f64>,
    iat: Option<f64>,
    iss: Option<String>,
    aud: Option<OneOrMany>,
    sub: Option<String>,
    role: Option<Value>,
    roles: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Claims {
    /// Reads a token's payload. What decides whether it counts must have its type; a role that is none is no role.
    pub(super) fn read(payload: &[u8]) -> Option<Claims> {
        let written: Written = serde_json::from_slice(payload).ok()?;
        if written.sub.as_ref().is_some_and(|subject| subject.len() > MAX_SUBJECT_BYTES) {
            return None;
        }
        let mut roles = Roles::default();
        let listed = written.roles.as_ref().and_then(Value::as_array).into_iter().flatten();
        written.role.iter().chain(listed).filter_map(Value::as_str).for_each(|role| roles.add(role));
        // As numbers with a fraction are allowed; the conversion saturates.
        let seconds = |time: Option<f64>| time.map(|time| time.floor() as i64);
        Some(Claims {
            expires: seconds(written.exp),
            not_before: seconds(written.nbf),
            issued: seconds(written.iat),
            issuer: written.iss,
            audiences: match written.aud {
                None => Vec::new(),
                Some(OneOrMany::One(audience)) => vec![audience],
                Some(OneOrMany::Many(audiences)) => audiences,
            },
            subject: written.sub.map(CompactString::from),
            roles,
        })
    }
}

/// A set of roles.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Roles {
    admin: bool,
    read_write: bool,
    read_only: bool,
    write_only: bool,
}

impl Roles {
    fn add(&mut self, role: &str) {
        match role {
            "admin" => self.admin = true,
            "read-write" => self.read_write = true,
            "read-only" => self.read_only = true,
            "write-only" => self.write_only = true,
            _ => {}
        }
    }

    /// Whether one of them may call a route of this level.
    pub(super) fn pass(self, level: Level) -> bool {
        match level {
            Level::Public => true,
            Level::ReadOnly => self.read_only || self.read_write || self.admin,
            Level::WriteOnly => self.write_only || self.read_write || self.admin,
            Level::ReadWrite => self.read_write || self.admin,
            Level::Admin => self.admin,
        }
    }
}
