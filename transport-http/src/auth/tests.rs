//! Tokens good and bad, against keys of every kind.

use std::sync::atomic::{AtomicI64, Ordering};

use hyper::header::HeaderValue;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::*;

const NOW: i64 = 1_800_000_000;
const SECRET: &str = "a secret of at least thirty-two bytes";
const RSA: &str = include_str!("keys/rsa.pem");
const RSA_PUBLIC: &str = include_str!("keys/rsa.pub.pem");
const ED: &str = include_str!("keys/ed25519.pem");
const ED_PUBLIC: &str = include_str!("keys/ed25519.pub.pem");
const SET: &str = include_str!("keys/set.json");

fn signed_as(algorithm: Algorithm, kid: Option<&str>, claims: &Value) -> String {
    let key = match algorithm {
        Algorithm::EdDSA => EncodingKey::from_ed_pem(ED.as_bytes()),
        Algorithm::RS256 | Algorithm::RS384 | Algorithm::RS512 => EncodingKey::from_rsa_pem(RSA.as_bytes()),
        _ => EncodingKey::from_secret(SECRET.as_bytes()),
    };
    let header = Header { kid: kid.map(str::to_owned), ..Header::new(algorithm) };
    encode(&header, claims, &key.expect("a key")).expect("a token")
}

fn signed(claims: &Value) -> String {
    signed_as(Algorithm::HS256, None, claims)
}

fn all_keys() -> TokenKeys {
    let keys = TokenKeys::default().with_secret(SECRET).and_then(|keys| keys.with_pem(RSA_PUBLIC));
    keys.and_then(|keys| keys.with_pem(ED_PUBLIC)).expect("keys")
}

fn taking(rules: TokenRules, keys: TokenKeys) -> Authenticator {
    Authenticator::new(rules, keys, || Timestamp::from_micros(NOW * 1_000_000 + 999_999))
}

fn by_secret() -> Authenticator {
    taking(TokenRules::default(), TokenKeys::default().with_secret(SECRET).expect("a secret"))
}

fn headers(authorization: &str) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(authorization).expect("a header"))])
}

/// The subject, or the status and text of the refusal.
fn ask(authenticator: &Authenticator, level: Level, token: &str) -> Result<Option<String>, (u16, String)> {
    let admitted = authenticator.admit(level, "/api/v1/x", &headers(&format!("Bearer {token}")));
    admitted.map(|subject| subject.map(Into::into)).map_err(|failure| (failure.status().as_u16(), failure.text()))
}

fn refused(authenticator: &Authenticator, token: &str) -> String {
    let (status, text) = ask(authenticator, Level::ReadOnly, token).expect_err(token);
    assert_eq!(status, 401, "{text}");
    text
}

#[test]
fn the_library_has_exactly_one_provider_of_cryptography() {
    assert!(jsonwebtoken::crypto::CryptoProvider::try_get_default().is_some());
}

#[test]
fn each_level_lets_its_roles_pass() {
    let authenticator = by_secret();
    let passing = [
        (Level::ReadOnly, ["admin", "read-write", "read-only"].as_slice()),
        (Level::WriteOnly, &["admin", "read-write", "write-only"]),
        (Level::ReadWrite, &["admin", "read-write"]),
        (Level::Admin, &["admin"]),
    ];
    for (level, passing) in passing {
        for role in ["admin", "read-write", "read-only", "write-only", "Admin", "root", ""] {
            for claims in [json!({"role": role}), json!({"roles": [role]}), json!({"role": 7, "roles": [null, role]})] {
                let answer = ask(&authenticator, level, &signed(&claims));
                let expected = match passing.contains(&role) {
                    true => Ok(None),
                    false => Err((403, "Insufficient permissions".to_owned())),
                };
                assert_eq!(answer, expected, "{role} at {level:?}");
            }
        }
        assert_eq!(authenticator.admit(Level::Public, "/api/v1/x", &HeaderMap::new()).ok(), Some(None));
    }
    let both = signed(&json!({"role": "read-only", "roles": ["write-only"], "sub": "billing"}));
    assert_eq!(ask(&authenticator, Level::ReadOnly, &both), Ok(Some("billing".into())));
    assert_eq!(ask(&authenticator, Level::WriteOnly, &both), Ok(Some("billing".into())));
    assert!(ask(&authenticator, Level::ReadWrite, &both).is_err());
    assert_eq!(ask(&authenticator, Level::ReadOnly, &signed(&json!({}))).map_err(|it| it.0), Err(403));
}

#[test]
fn a_token_may_stand_behind_bearer_or_alone() {
    let (authenticator, token) = (by_secret(), signed(&json!({"role": "admin"})));
    for text in [format!("Bearer {token}"), format!("bEARER   {token}"), token.clone(), format!(" {token} ")] {
        let admitted = authenticator.admit(Level::Admin, "/x", &headers(&text));
        assert!(admitted.is_ok(), "{text}");
    }
    for text in ["", " ", "Bearer", "bearer ", "Bearer  "] {
        let failure = authenticator.admit(Level::Admin, "/x", &headers(text)).expect_err(text);
        assert_eq!((failure.status().as_u16(), failure.text()), (401, "Authentication required".into()));
    }
    let failure = authenticator.admit(Level::ReadOnly, "/x", &HeaderMap::new()).expect_err("nothing");
    assert_eq!(failure.text(), "Authentication required");
    assert_eq!(failure.into_response().headers().get("www-authenticate").map(|it| it.as_bytes()), Some(&b"Bearer"[..]));
}

#[test]
fn each_algorithm_is_checked_with_its_own_key() {
    let claims = json!({"role": "read-only"});
    let every = [
        Algorithm::HS256,
        Algorithm::HS384,
        Algorithm::HS512,
        Algorithm::RS256,
        Algorithm::RS384,
        Algorithm::RS512,
        Algorithm::EdDSA,
    ];
    for (word, algorithms) in Algorithms::WORDS {
        let authenticator = taking(TokenRules { algorithms: *algorithms, ..TokenRules::default() }, all_keys());
        for algorithm in every {
            let name = format!("{algorithm:?}");
            let taken = *word == "auto" || *word == name || *word == "RS256" && name.starts_with("RS");
            let answer = ask(&authenticator, Level::ReadOnly, &signed_as(algorithm, None, &claims));
            let expected = if taken { Ok(None) } else { Err((401, "Unsupported token algorithm".into())) };
            assert_eq!(answer, expected, "{name} where {word} is set");
        }
    }
}

#[test]
fn a_public_key_is_no_secret() {
    // Signed with the text of the public key as if it were a secret: what a library that trusts the header would take.
    let rules = TokenRules { algorithms: Algorithms::Any, ..TokenRules::default() };
    let authenticator = taking(rules, TokenKeys::default().with_pem(RSA_PUBLIC).expect("a key"));
    let key = EncodingKey::from_secret(RSA_PUBLIC.as_bytes()).expect("a secret");
    let token = encode(&Header::new(Algorithm::HS256), &json!({"role": "admin"}), &key).expect("a token");
    assert_eq!(refused(&authenticator, &token), "Unsupported token algorithm");
    assert!(
        ask(&authenticator, Level::ReadOnly, &signed_as(Algorithm::RS256, None, &json!({"role": "admin"}))).is_ok()
    );
}

#[test]
fn a_header_that_is_none_or_asks_for_nothing_known_is_refused() {
    let authenticator = by_secret();
    let good = signed(&json!({"role": "admin"}));
    let (_, rest) = good.split_once('.').expect("dots");
    let with = |head: &str| format!("{}.{rest}", base64_of(head));
    for head in ["", "{", "[]", "{}", "7", r#"{"alg":7}"#, r#"{"typ":"JWT"}"#, r#"{"alg":"HS256","crit":["x"]}"#] {
        assert_eq!(refused(&authenticator, &with(head)), "Bad token header", "{head}");
    }
    for token in ["x", "x.y", "Basic YTpi", "..", ".", "é.é.é", "x.y.z.w"] {
        let failure = authenticator.admit(Level::ReadOnly, "/x", &{
            HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_bytes(token.as_bytes()).expect("bytes"))])
        });
        assert_eq!(failure.expect_err(token).text(), "Bad token header", "{token}");
    }
    for alg in ["none", "None", "", "HS1", "ES256", "PS256", "auto", "hs256"] {
        let head = json!({"alg": alg}).to_string();
        assert_eq!(refused(&authenticator, &with(&head)), "Unsupported token algorithm", "{alg}");
    }
}

fn base64_of(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text)
}

#[test]
fn any_changed_byte_of_a_token_is_noticed() {
    let authenticator = by_secret();
    let good = signed(&json!({"role": "read-only", "sub": "a"}));
    assert!(ask(&authenticator, Level::ReadOnly, &good).is_ok());
    for at in 0..good.len() {
        for other in [b'A', b'w', b'.', b'='] {
            let mut changed = good.clone().into_bytes();
            if changed[at] == other {
                continue;
            }
            changed[at] = other;
            let changed = String::from_utf8(changed).expect("ASCII");
            let text = refused(&authenticator, &changed);
            let known = ["Bad token header", "Unsupported token algorithm", "Invalid token signature"];
            assert!(known.contains(&text.as_str()), "{text}");
        }
    }
    let elsewhere = EncodingKey::from_secret(b"another").expect("a secret");
    let token = encode(&Header::default(), &json!({"role": "admin"}), &elsewhere).expect("a token");
    assert_eq!(refused(&authenticator, &token), "Invalid token signature");
}

#[test]
fn times_allow_for_thirty_seconds_of_skew() {
    let authenticator = by_secret();
    let of = |claim: &str, at: Value| {
        let token = signed(&json!({"role": "admin", claim: at}));
        ask(&authenticator, Level::Admin, &token).map_err(|(_, text)| text)
    };
    for (claim, good, bad, text) in [
        ("exp", NOW - 29, NOW - 30, "Token has expired"),
        ("nbf", NOW + 30, NOW + 31, "Token not yet valid"),
        ("iat", NOW + 30, NOW + 31, "Token issued in the future"),
    ] {
        assert_eq!(of(claim, json!(good)), Ok(None), "{claim}");
        assert_eq!(of(claim, json!(bad)), Err(text.into()), "{claim}");
        assert_eq!(of(claim, json!(good as f64 + 0.5)), Ok(None), "{claim} with a fraction");
        assert_eq!(of(claim, json!("soon")), Err("Invalid token claims".into()), "{claim}");
        assert_eq!(of(claim, json!(null)), Ok(None), "{claim}");
    }
    assert_eq!(of("exp", json!(-1e300)), Err("Token has expired".into()));
    assert_eq!(of("exp", json!(1e300)), Ok(None));
    let strict = TokenRules { skew_seconds: 0, ..TokenRules::default() };
    let strict = taking(strict, TokenKeys::default().with_secret(SECRET).expect("a secret"));
    assert_eq!(refused(&strict, &signed(&json!({"role": "admin", "exp": NOW}))), "Token has expired");
}

#[test]
fn a_remembered_token_ends_in_time_and_with_its_key() {
    let clock = Arc::new(AtomicI64::new(NOW));
    let reading = Arc::clone(&clock);
    let now = move || Timestamp::from_micros(reading.load(Ordering::Relaxed) * 1_000_000);
    let keys = TokenKeys::default().with_secret(SECRET).expect("a secret");
    let authenticator = Authenticator::new(TokenRules::default(), keys.clone(), now);
    let token = signed(&json!({"role": "admin", "exp": NOW + 5}));
    for _ in 0..3 {
        assert!(ask(&authenticator, Level::Admin, &token).is_ok());
    }
    assert_eq!(authenticator.remembered.len(), 1);
    authenticator.replace_keys(TokenKeys::default().with_secret("another").expect("a secret"));
    assert_eq!(refused(&authenticator, &token), "Invalid token signature");
    authenticator.replace_keys(keys);
    assert!(ask(&authenticator, Level::Admin, &token).is_ok());
    clock.store(NOW + 35, Ordering::Relaxed);
    assert_eq!(refused(&authenticator, &token), "Token has expired");
}

/// Keys that are replaced while a token is being checked leave nothing behind that the old ones let pass.
#[test]
fn a_token_is_not_remembered_past_the_keys_that_verified_it() {
    let keys = |secret| TokenKeys::default().with_secret(secret).expect("a secret");
    let checking = std::sync::Barrier::new(2);
    let first = std::sync::Once::new();
    // The time is asked for once the signature was found good: that is when the keys go.
    let checked = Arc::new((checking, first));
    let asked = Arc::clone(&checked);
    let now = move || {
        asked.1.call_once(|| {
            asked.0.wait();
            std::thread::sleep(std::time::Duration::from_millis(50));
        });
        Timestamp::from_micros(NOW * 1_000_000)
    };
    let authenticator = Authenticator::new(TokenRules::default(), keys(SECRET), now);
    let token = signed(&json!({"role": "admin"}));
    std::thread::scope(|scope| {
        scope.spawn(|| ask(&authenticator, Level::Admin, &token));
        checked.0.wait();
        authenticator.replace_keys(keys("another"));
    });
    assert_eq!(refused(&authenticator, &token), "Invalid token signature");
}

#[test]
fn what_is_remembered_stays_bounded_and_keeps_what_is_used() {
    let authenticator = by_secret();
    let used = signed(&json!({"role": "admin", "sub": "used"}));
    for n in 0..10_000 {
        assert!(ask(&authenticator, Level::Admin, &signed(&json!({"role": "admin", "n": n}))).is_ok());
        if n % 1_000 == 0 {
            assert_eq!(ask(&authenticator, Level::Admin, &used), Ok(Some("used".into())));
        }
    }
    assert!(authenticator.remembered.len() <= 4_096);
    assert!(authenticator.remembered.get(&used).is_some());
    let long = signed(&json!({"role": "admin", "pad": "x".repeat(4_096)}));
    assert!(ask(&authenticator, Level::Admin, &long).is_ok());
    assert!(authenticator.remembered.get(&long).is_none());
    // What did not pass is not remembered.
    let before = authenticator.remembered.len();
    refused(&authenticator, &format!("{used}x"));
    refused(&authenticator, &signed(&json!({"role": "admin", "exp": 1})));
    assert_eq!(authenticator.remembered.len(), before);
}

#[test]
fn issuer_and_audience_count_where_they_are_set() {
    let (issuer, audience) = (Some("https://issuer".to_owned()), Some("queen".to_owned()));
    let keys = || TokenKeys::default().with_secret(SECRET).expect("a secret");
    let strict = taking(TokenRules { issuer, audience, ..TokenRules::default() }, keys());
    let ok = |claims: Value| ask(&strict, Level::ReadOnly, &signed(&claims)).map_err(|(_, text)| text);
    let good = json!({"role": "admin", "iss": "https://issuer", "aud": "queen"});
    assert_eq!(ok(good.clone()), Ok(None));
    let with = |key: &str, value: Value| {
        let mut claims = good.clone();
        claims[key] = value;
        claims
    };
    assert_eq!(ok(with("aud", json!(["other", "queen"]))), Ok(None));
    for wrong in [json!(null), json!("https://issuer/"), json!("")] {
        assert_eq!(ok(with("iss", wrong)), Err("Invalid token issuer".into()));
    }
    for wrong in [json!(null), json!("other"), json!([]), json!(["queens"])] {
        assert_eq!(ok(with("aud", wrong)), Err("Invalid token audience".into()));
    }
    for wrong in [with("iss", json!(7)), with("aud", json!({})), with("sub", json!("x".repeat(1_025)))] {
        assert_eq!(ok(wrong), Err("Invalid token claims".into()));
    }
    assert_eq!(ask(&by_secret(), Level::ReadOnly, &signed(&good)), Ok(None));
}

#[test]
fn a_key_of_a_set_is_found_by_its_id() {
    let rules = || TokenRules { algorithms: Algorithms::Any, ..TokenRules::default() };
    let set = taking(rules(), TokenKeys::default().with_set(SET.as_bytes()).expect("a set"));
    let claims = json!({"role": "read-only"});
    let of = |algorithm, kid| ask(&set, Level::ReadOnly, &signed_as(algorithm, kid, &claims)).map_err(|(_, text)| text);
    assert_eq!(of(Algorithm::RS256, Some("rsa-1")), Ok(None));
    assert_eq!(of(Algorithm::RS256, None), Ok(None));
    assert_eq!(of(Algorithm::EdDSA, Some("ed-1")), Ok(None));
    assert_eq!(of(Algorithm::RS256, Some("rsa-2")), Err("Unknown key ID".into()));
    assert_eq!(of(Algorithm::EdDSA, Some("rsa-1")), Err("Unknown key ID".into()));
    // The set's RSA key says that it is for RS256 alone, and another one is for encryption.
    assert_eq!(of(Algorithm::RS512, Some("rsa-1")), Err("Unknown key ID".into()));
    assert_eq!(of(Algorithm::RS256, Some("enc-1")), Err("Unknown key ID".into()));
    assert_eq!(of(Algorithm::HS256, Some("rsa-1")), Err("Unsupported token algorithm".into()));
}

#[test]
fn keys_that_are_none_are_told_without_repeating_them() {
    let none = TokenKeys::default;
    assert_eq!(none().with_secret("").err(), Some(WrongKey::Empty));
    for pem in ["", "hunter2", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", RSA] {
        assert_eq!(none().with_pem(pem).err(), Some(WrongKey::NotPem), "{pem}");
    }
    for set in ["", "{}", "[]", "{\"keys\":{}}", SECRET] {
        assert_eq!(none().with_set(set.as_bytes()).err(), Some(WrongKey::NotSet), "{set}");
    }
    for set in [r#"{"keys":[]}"#, r#"{"keys":[{"kty":"EC"},{},7]}"#] {
        assert_eq!(none().with_set(set.as_bytes()).err(), Some(WrongKey::NoneUsable), "{set}");
    }
    assert!(!none().with_secret(SECRET).expect("a secret").suit(Algorithms::Only(Algorithm::RS256)));
    let shown = format!("{:?} {:?}", all_keys(), by_secret());
    assert!(!shown.contains("secret") && !shown.contains("BEGIN"), "{shown}");
}

#[test]
fn skipped_paths_need_no_token() {
    let rules = TokenRules { skip_paths: vec!["/status".into(), "/docs/".into(), "/".into()], ..TokenRules::default() };
    let authenticator = taking(rules, TokenKeys::default().with_secret(SECRET).expect("a secret"));
    let open = |path: &str| authenticator.admit(Level::Admin, path, &HeaderMap::new()).is_ok();
    for path in ["/", "/status", "/docs/", "/docs/a/b", "/assets/x.js", "/favicon.ico", "/auth/me", "/auth/login"] {
        assert!(open(path), "{path}");
    }
    assert!(open("/auth/logout") && open("/queue/v1/queues"));
    for path in ["/statu", "/status/", "/status/x", "/docs", "/api/v1/push", "//", "", "/auth", "/auth/x", "/Docs/"] {
        assert!(!open(path), "{path}");
    }
}
