//! The keys that tokens are signed with, and the signature's check.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, crypto};
use serde::Deserialize;
use serde_json::Value;

use crate::error::Failure;

/// What tokens may be signed with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithms {
    /// This one; `RS256` stands for all three of RSA.
    Only(Algorithm),
    /// Whatever a token's header says and there is a key for.
    Any,
}

impl Default for Algorithms {
    fn default() -> Self {
        Algorithms::Only(Algorithm::HS256)
    }
}

impl Algorithms {
    /// The words of `JWT_ALGORITHM` and their meaning.
    pub const WORDS: &[(&str, Algorithms)] = &[
        ("HS256", Algorithms::Only(Algorithm::HS256)),
        ("HS384", Algorithms::Only(Algorithm::HS384)),
        ("HS512", Algorithms::Only(Algorithm::HS512)),
        ("RS256", Algorithms::Only(Algorithm::RS256)),
        ("RS384", Algorithms::Only(Algorithm::RS384)),
        ("RS512", Algorithms::Only(Algorithm::RS512)),
        ("EdDSA", Algorithms::Only(Algorithm::EdDSA)),
        ("auto", Algorithms::Any),
    ];

    fn take(self, algorithm: Algorithm) -> bool {
        match self {
            Algorithms::Any => true,
            Algorithms::Only(Algorithm::RS256) => algorithm.family() == AlgorithmFamily::Rsa,
            Algorithms::Only(only) => algorithm == only,
        }
    }

    /// Whether a key of this family could check a token that is taken.
    fn use_family(self, family: AlgorithmFamily) -> bool {
        match self {
            Algorithms::Any => true,
            Algorithms::Only(only) => only.family() == family,
        }
    }
}

/// Why a text is no key; the text itself is not repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WrongKey {
    /// A secret without a character.
    Empty,
    /// Neither an RSA nor an Ed25519 public key in PEM.
    NotPem,
    /// No JSON object with an array `keys`.
    NotSet,
    /// None of a set's keys is an RSA, Ed25519 or symmetric key for signatures.
    NoneUsable,
}

impl fmt::Display for WrongKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WrongKey::Empty => "is empty",
            WrongKey::NotPem => "is no public key, expected an RSA or Ed25519 public key in PEM",
            WrongKey::NotSet => "is no JSON Web Key Set, expected an object with an array \"keys\"",
            WrongKey::NoneUsable => "holds no usable key, expected RSA, Ed25519 or symmetric keys for signatures",
        })
    }
}

impl std::error::Error for WrongKey {}

/// Keys, of which a token needs one.
#[derive(Clone, Default)]
pub struct TokenKeys(Vec<TokenKey>);

#[derive(Clone)]
struct TokenKey {
    key: DecodingKey,
    /// Whether it is one of a set, where tokens name theirs.
    in_set: bool,
    id: Option<String>,
    /// The one algorithm it is for.
    algorithm: Option<Algorithm>,
}

impl fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenKeys({} keys)", self.0.len())
    }
}

impl TokenKeys {
    fn with(mut self, key: DecodingKey) -> Self {
        self.0.push(TokenKey { key, in_set: false, id: None, algorithm: None });
        self
    }

    /// These and `JWT_SECRET`, for the HS algorithms.
    pub fn with_secret(self, secret: &str) -> Result<Self, WrongKey> {
        Ok(self.with(DecodingKey::from_secret(secret.as_bytes()).map_err(|_| WrongKey::Empty)?))
    }

    /// These and `JWT_PUBLIC_KEY`, for the RS algorithms or EdDSA.
    pub fn with_pem(self, pem: &str) -> Result<Self, WrongKey> {
        // The library would take the public half of it; whoever put a private key here has lost it.
        if pem.contains("PRIVATE KEY") {
            return Err(WrongKey::NotPem);
        }
        let key = DecodingKey::from_rsa_pem(pem.as_bytes()).or_else(|_| DecodingKey::from_ed_pem(pem.as_bytes()));
        Ok(self.with(key.map_err(|_| WrongKey::NotPem)?))
    }

    /// These and a JSON Web Key Set's. Keys of other kinds in it are somebody else's.
    pub fn with_set(mut self, json: &[u8]) -> Result<Self, WrongKey> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Value>,
        }
        let set: Set = serde_json::from_slice(json).map_err(|_| WrongKey::NotSet)?;
        let before = self.0.len();
        self.0.extend(set.keys.into_iter().filter_map(key_of_set));
        if self.0.len() == before { Err(WrongKey::NoneUsable) } else { Ok(self) }
    }

    /// Whether any could check a token that `algorithms` take.
    pub fn suit(&self, algorithms: Algorithms) -> bool {
        self.0.iter().any(|key| algorithms.use_family(key.key.family()))
    }

    /// The payload of a token that one of the keys has signed.
    pub(super) fn verify(&self, algorithms: Algorithms, token: &str) -> Result<Vec<u8>, Failure> {
        let malformed = || Failure::unauthorized("Bad token header");
        let (message, signature) = token.rsplit_once('.').ok_or_else(malformed)?;
        let (head, payload) = message.split_once('.').ok_or_else(malformed)?;
        let head = URL_SAFE_NO_PAD.decode(head).map_err(|_| malformed())?;
        let head: Head = serde_json::from_slice(&head).map_err(|_| malformed())?;
        if head.crit.is_some() {
            return Err(malformed());
        }
        let algorithm = algorithm_named(&head.alg).filter(|algorithm| algorithms.take(*algorithm));
        let unsupported = || Failure::unauthorized("Unsupported token algorithm");
        let algorithm = algorithm.ok_or_else(unsupported)?;
        let family = |key: &&TokenKey| key.key.family() == algorithm.family();
        let mut family = self.0.iter().filter(family).peekable();
        // A key is only ever used for algorithms of its own kind: a public key is no secret.
        if family.peek().is_none() {
            return Err(unsupported());
        }
        let named = |key: &&TokenKey| !key.in_set || head.kid.is_none() || key.id == head.kid;
        let fits = |key: &&TokenKey| key.algorithm.is_none_or(|only| only == algorithm);
        let mut named = family.filter(named).filter(fits).peekable();
        if named.peek().is_none() {
            return Err(Failure::unauthorized("Unknown key ID"));
        }
        let signed = |key: &TokenKey| crypto::verify(signature, message.as_bytes(), &key.key, algorithm);
        if !named.any(|key| matches!(signed(key), Ok(true))) {
            return Err(Failure::unauthorized("Invalid token signature"));
        }
        URL_SAFE_NO_PAD.decode(payload).map_err(|_| Failure::unauthorized("Invalid token claims"))
    }
}

/// A token's header.
#[derive(Deserialize)]
struct Head {
    alg: String,
    kid: Option<String>,
    /// Extensions that must be understood: none is.
    crit: Option<Value>,
}

/// The algorithms that are known here.
fn algorithm_named(name: &str) -> Option<Algorithm> {
    Algorithms::WORDS.iter().find_map(|(word, meaning)| match meaning {
        Algorithms::Only(algorithm) if *word == name => Some(*algorithm),
        Algorithms::Only(_) | Algorithms::Any => None,
    })
}

fn key_of_set(written: Value) -> Option<TokenKey> {
    let jwk: Jwk = serde_json::from_value(written).ok()?;
    if matches!(jwk.common.public_key_use, Some(PublicKeyUse::Encryption | PublicKeyUse::Other(_))) {
        return None;
    }
    let key = DecodingKey::from_jwk(&jwk).ok().filter(|key| key.family() != AlgorithmFamily::Ec)?;
    let algorithm = match jwk.common.key_algorithm {
        // One that is for another algorithm than those known here.
        Some(named) => Some(algorithm_named(&named.to_string())?),
        None => None,
    };
    Some(TokenKey { key, in_set: true, id: jwk.common.key_id, algorithm })
}
