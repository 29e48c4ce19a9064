//! Who may do what: JSON Web Tokens, as section 27 of the wire page has them. Nothing else knows about tokens.
//!
//! A broker that a request was sent on to checks its token again: what another broker says about a client is not asked,
//! so nobody can say it in its place.

mod claims;
mod keys;
mod remembered;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use compact_str::CompactString;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use tidegate_core::time::Timestamp;

pub use keys::{Algorithms, TokenKeys, WrongKey};

use crate::error::Failure;
use crate::router::Level;
use claims::Claims;
use remembered::Remembered;

/// Open to anyone besides the routes that are public: paths of the original's console.
const OPEN: &[&str] = &["/auth/me", "/auth/login", "/auth/logout"];
/// Beginnings of such paths. `/queue/v1` has its own tokens (36.24).
const OPEN_BELOW: &[&str] = &["/assets/", "/favicon", "/queue/v1/"];

/// What a token must be like.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenRules {
    /// `JWT_ALGORITHM`: what it may be signed with.
    pub algorithms: Algorithms,
    /// `JWT_ISSUER`: its `iss`; none takes every issuer's.
    pub issuer: Option<String>,
    /// `JWT_AUDIENCE`: among its `aud`; none takes tokens for anyone.
    pub audience: Option<String>,
    /// `JWT_CLOCK_SKEW`: seconds by which the issuer's clock may differ.
    pub skew_seconds: i64,
    /// `JWT_SKIP_PATHS`: paths that need no token; one that ends in a slash stands for all below it.
    pub skip_paths: Vec<String>,
}

impl Default for TokenRules {
    fn default() -> Self {
        TokenRules {
            algorithms: Algorithms::default(),
            issuer: None,
            audience: None,
            skew_seconds: 30,
            skip_paths: ["/health", "/metrics/prometheus", "/metrics", "/"].map(str::to_owned).to_vec(),
        }
    }
}

/// Checks tokens.
pub struct Authenticator {
    rules: TokenRules,
    /// Held for reading until what they verified is remembered: nothing that replaced keys verified may come after them.
    keys: RwLock<TokenKeys>,
    /// Tokens whose signature was good.
    remembered: Remembered,
    /// The wall clock.
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Authenticator {
    /// One that takes tokens signed by `keys`, and tells from `now` whether they are over.
    pub fn new(rules: TokenRules, keys: TokenKeys, now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Authenticator { rules, keys: RwLock::new(keys), remembered: Remembered::default(), now: Box::new(now) }
    }

    /// Takes tokens signed by these keys from now on, and by no others.
    pub fn replace_keys(&self, keys: TokenKeys) {
        let mut current = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        *current = keys;
        self.remembered.forget();
    }

    /// Lets a request to a route of this level pass, and tells its token's subject; or says why not.
    pub(crate) fn admit(
        &self,
        level: Level,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Option<CompactString>, Failure> {
        if level == Level::Public || self.skips(path) {
            return Ok(None);
        }
        let claims = self.verified(token(headers)?)?;
        self.check_time(&claims)?;
        match claims.roles.pass(level) {
            true => Ok(claims.subject.clone()),
            false => Err(Failure::forbidden()),
        }
    }

    fn skips(&self, path: &str) -> bool {
        let skip = |entry: &String| path == entry || entry.len() > 1 && entry.ends_with('/') && path.starts_with(entry);
        self.rules.skip_paths.iter().any(skip)
            || OPEN.contains(&path)
            || OPEN_BELOW.iter().any(|beginning| path.starts_with(beginning))
    }

    /// What a token says, whose signature, issuer and audience are good.
    fn verified(&self, token: &str) -> Result<Arc<Claims>, Failure> {
        if let Some(claims) = self.remembered.get(token) {
            return Ok(claims);
        }
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let payload = keys.verify(self.rules.algorithms, token)?;
        let claims = Claims::read(&payload).ok_or_else(|| Failure::unauthorized("Invalid token claims"))?;
        // A token that is over is told so before anything else is.
        self.check_time(&claims)?;
        if self.rules.issuer.is_some() && claims.issuer != self.rules.issuer {
            return Err(Failure::unauthorized("Invalid token issuer"));
        }
        if self.rules.audience.as_ref().is_some_and(|audience| !claims.audiences.contains(audience)) {
            return Err(Failure::unauthorized("Invalid token audience"));
        }
        let claims = Arc::new(claims);
        self.remembered.put(token, Arc::clone(&claims));
        Ok(claims)
    }

    fn check_time(&self, claims: &Claims) -> Result<(), Failure> {
        let now = (self.now)().as_micros().div_euclid(1_000_000);
        let (early, late) = (now.saturating_sub(self.rules.skew_seconds), now.saturating_add(self.rules.skew_seconds));
        if claims.expires.is_some_and(|at| at <= early) {
            return Err(Failure::unauthorized("Token has expired"));
        }
        if claims.not_before.is_some_and(|at| at > late) {
            return Err(Failure::unauthorized("Token not yet valid"));
        }
        if claims.issued.is_some_and(|at| at > late) {
            return Err(Failure::unauthorized("Token issued in the future"));
        }
        Ok(())
    }
}

/// The token of a request: behind `Bearer`, or bare.
fn token(headers: &HeaderMap) -> Result<&str, Failure> {
    let missing = || Failure::unauthorized("Authentication required");
    let header = headers.get(AUTHORIZATION).ok_or_else(missing)?;
    let text = header.to_str().map_err(|_| Failure::unauthorized("Bad token header"))?.trim();
    let bearer = text.split_once(' ').filter(|(word, _)| word.eq_ignore_ascii_case("bearer"));
    let token = bearer.map_or(text, |(_, token)| token.trim_start());
    if token.is_empty() || token.eq_ignore_ascii_case("bearer") { Err(missing()) } else { Ok(token) }
}

#[cfg(test)]
mod tests;
