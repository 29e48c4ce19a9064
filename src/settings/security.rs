//! What protects messages: encryption keys, tokens, tenants. No error and no log repeats a key.

use std::path::PathBuf;

use tidegate_core::seal::{Key, Keys};
use tidegate_transport_http::{Algorithms, TokenKeys, TokenRules};

use super::read::{Environment, Wrong, boolean, integer, one_of};

/// Every variable of tokens.
const TOKENS: &[&str] = &[
    "JWT_ENABLED",
    "JWT_ALGORITHM",
    "JWT_SECRET",
    "JWT_PUBLIC_KEY",
    "JWT_JWKS_FILE",
    "JWT_ISSUER",
    "JWT_AUDIENCE",
    "JWT_CLOCK_SKEW",
    "JWT_SKIP_PATHS",
];

/// How tokens are checked.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// What they must be like.
    pub rules: TokenRules,
    /// What they are signed with, the file's keys not among them.
    pub keys: TokenKeys,
    /// A JSON Web Key Set.
    pub set: Option<PathBuf>,
}

impl PartialEq for Tokens {
    /// Keys are not compared, nor shown.
    fn eq(&self, other: &Self) -> bool {
        (&self.rules, &self.set) == (&other.rules, &other.set)
    }
}

/// `QUEEN_ENCRYPTION_KEY`, and `QUEEN_ENCRYPTION_KEY_PREVIOUS` with commas between several.
pub fn encryption(environment: &Environment) -> Result<Keys, Wrong> {
    let key = |name: &str, text: &str| {
        let wrong = || Wrong(format!("{name} is no key, expected 64 hexadecimal characters (256 bits)"));
        Key::from_hex(text).ok_or_else(wrong)
    };
    let (current, previous) = ("QUEEN_ENCRYPTION_KEY", "QUEEN_ENCRYPTION_KEY_PREVIOUS");
    let former = environment.get(previous)?.unwrap_or_default().split(',').map(str::trim);
    Ok(Keys {
        current: environment.get(current)?.map(|text| key(current, text)).transpose()?,
        previous: former.filter(|text| !text.is_empty()).map(|text| key(previous, text)).collect::<Result<_, _>>()?,
    })
}

/// The `JWT_` variables. They are checked even where tokens are not.
pub fn tokens(environment: &Environment) -> Result<Option<Tokens>, Wrong> {
    let enabled = boolean(environment, "JWT_ENABLED")?.unwrap_or(false);
    let owned = |name| environment.get(name).map(|text| text.map(str::to_owned));
    let defaults = TokenRules::default();
    let rules = TokenRules {
        algorithms: one_of(environment.given(None, "JWT_ALGORITHM")?, Algorithms::WORDS)?.unwrap_or_default(),
        issuer: owned("JWT_ISSUER")?,
        audience: owned("JWT_AUDIENCE")?,
        skew_seconds: integer(environment, "JWT_CLOCK_SKEW", 0, 86_400, "seconds")?.unwrap_or(defaults.skew_seconds),
        skip_paths: skip_paths(environment)?.unwrap_or(defaults.skip_paths),
    };
    let mut keys = TokenKeys::default();
    if let Some(secret) = environment.get("JWT_SECRET")? {
        keys = keys.with_secret(secret).map_err(|wrong| Wrong(format!("JWT_SECRET {wrong}")))?;
    }
    if let Some(pem) = environment.get("JWT_PUBLIC_KEY")? {
        // Deployment files write its lines as one.
        let pem = pem.replace("\\n", "\n");
        keys = keys.with_pem(&pem).map_err(|wrong| Wrong(format!("JWT_PUBLIC_KEY {wrong}")))?;
    }
    let set = owned("JWT_JWKS_FILE")?.map(PathBuf::from);
    if !enabled {
        return Ok(None);
    }
    if environment.get("JWT_JWKS_URL")?.is_some() {
        return Err(Wrong("JWT_JWKS_URL is set, but keys are not fetched here: name a file in JWT_JWKS_FILE".into()));
    }
    if let Some(name) = environment.names().find(|name| name.starts_with("JWT_") && !TOKENS.contains(name)) {
        return Err(Wrong(format!("{name} is set, but has no meaning here; known are {}", TOKENS.join(", "))));
    }
    if set.is_none() && !keys.suit(rules.algorithms) {
        return Err(Wrong(
            "JWT_ENABLED is set without a key for JWT_ALGORITHM: HS256, HS384 and HS512 need JWT_SECRET, RS256, RS384, \
             RS512 and EdDSA need JWT_PUBLIC_KEY or JWT_JWKS_FILE"
                .into(),
        ));
    }
    Ok(Some(Tokens { rules, keys, set }))
}

/// Paths with commas between them.
fn skip_paths(environment: &Environment) -> Result<Option<Vec<String>>, Wrong> {
    let Some(given) = environment.given(None, "JWT_SKIP_PATHS")? else { return Ok(None) };
    let paths: Vec<String> =
        given.text.split(',').map(str::trim).filter(|path| !path.is_empty()).map(Into::into).collect();
    match paths.iter().all(|path| path.starts_with('/')) {
        true => Ok(Some(paths)),
        false => Err(given.wrong("paths that begin with a slash, with commas between them")),
    }
}

/// Whether a variable means nothing while tokens are not checked.
pub fn is_idle_token_variable(name: &str) -> bool {
    name.starts_with("JWT_") && name != "JWT_ENABLED"
}
