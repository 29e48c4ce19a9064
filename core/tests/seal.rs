//! Sealed payloads against vectors that Python's `cryptography` made, and against whoever changes a byte of one or
//! moves it.

use std::convert::Infallible;

use bytes::Bytes;
use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;
use rand_core::{SeedableRng, TryRng};
use tidegate_core::name::{MessageId, PartitionId, QueueId};
use tidegate_core::seal::{Key, Keys, Opened, Place, Version, is_bound, sealed_len};
use uuid::Uuid;

/// Payloads and the envelopes around them, under `master`, the iv 64…73 (hexadecimal) and `place`: key
/// HKDF-SHA256(salt iv, key material master, info queue id), nonce the iv's first twelve bytes, authenticated with the
/// three ids.
const BOUND: &[(&str, &str)] = &[
    ("null", r#"{"encrypted":"l9cHLQ==","iv":"ZGVmZ2hpamtsbW5vcHFycw==","authTag":"VK+txEil69k5/UyB3TDiGg==","v":2}"#),
    (
        "{\"b\":1, \"a\":1.50, \"t\":\"\\u00e9 é\"}",
        r#"{"encrypted":"goAJY8ut34E0ukrhZv64m6XvkhSohgU4RaVwRnTCvcgltw==","iv":"ZGVmZ2hpamtsbW5vcHFycw==","authTag":"Pt2v9rdf30zY9FXLSF0r9Q==","v":2}"#,
    ),
    ("\"\"", r#"{"encrypted":"24A=","iv":"ZGVmZ2hpamtsbW5vcHFycw==","authTag":"Zm+nMSXQSQaRkM+8C5DlGw==","v":2}"#),
];

/// As the original broker writes them: under `master` itself, bound to nothing.
const BARE: &[(&str, &str)] = &[
    (
        r#"{"order":7}"#,
        r#"{"encrypted": "MzmxFB2MJLwEVSI=", "iv": "ZGVmZ2hpamtsbW5vcHFycw==", "authTag": "vk1q6Masa8p6JiLl4waS1g=="}"#,
    ),
    ("12", r#"{"encrypted": "eSk=", "iv": "ZGVmZ2hpamtsbW5vcHFycw==", "authTag": "x/640YwzxnKu6c7yp8ZkzQ=="}"#),
];

fn master() -> Key {
    Key::from_hex("000102030405060708090A0b0c0d0e0f101112131415161718191a1b1c1d1e1f").expect("64 digits")
}

fn place() -> Place {
    Place {
        queue: QueueId(Uuid::from_u128(0x0198 << 112 | 1)),
        partition: PartitionId(Uuid::from_u128(2 << 64 | 7)),
        message: MessageId(Uuid::from_u128(0x0198_aaaa << 96 | 9)),
    }
}

fn reading(key: Key) -> Keys {
    Keys { current: Some(key), previous: Vec::new() }
}

fn text(text: &str) -> Opened {
    Opened::Text(Bytes::copy_from_slice(text.as_bytes()))
}

/// Gives the vectors' iv.
struct Counting;

impl TryRng for Counting {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(0)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(0)
    }

    fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), Infallible> {
        to.iter_mut().zip(100..).for_each(|(byte, value)| *byte = value);
        Ok(())
    }
}

#[test]
fn envelopes_are_those_of_another_implementation() {
    // req: OPT-22
    for (plain, envelope) in BOUND {
        let sealed = master().seal(&place(), plain.as_bytes(), &mut Counting).expect("it is short");
        assert_eq!(std::str::from_utf8(&sealed), Ok(*envelope));
        assert_eq!(sealed.len(), sealed_len(plain.len()));
        assert_eq!(reading(master()).open(&place(), envelope.as_bytes()), text(plain));
    }
    for (plain, envelope) in BARE {
        assert_eq!(reading(master()).open(&place(), envelope.as_bytes()), text(plain));
        // Wherever it stands.
        let anywhere = Place { message: MessageId(Uuid::nil()), ..place() };
        assert_eq!(reading(master()).open(&anywhere, envelope.as_bytes()), text(plain));
    }
}

#[test]
fn members_around_the_three_do_not_matter() {
    let envelope = r#" { "n" : -1.5e3 , "l":[ {"iv":"]}\\\""} , null ], "authTag":"x/640YwzxnKu6c7yp8ZkzQ==","s":"\\",
        "iv":"ZGVmZ2hpamtsbW5vcHFycw==", "o":{} ,"encrypted":"eSk=","t":true } "#;
    assert_eq!(reading(master()).open(&place(), envelope.as_bytes()), text("12"));
}

#[test]
fn what_only_looks_like_an_envelope_is_left_alone() {
    let iv = r#""iv":"ZGVmZ2hpamtsbW5vcHFycw==""#;
    let tag = r#""authTag":"VK+txEil69k5/UyB3TDiGg==""#;
    let keys = reading(master());
    let closed = [
        (format!(r#"{{"encrypted":"l9cHLQ==",{iv},{tag}}}"#), Version::Bare),
        (format!(r#"{{"encrypted":"",{iv},{tag},"v":2}}"#), Version::Bound),
        (format!(r#"{{"encrypted":"l9cHLQ==",{tag},"iv":"AAAAAAAAAAAAAAAAAAAAAA==","v":2}}"#), Version::Bound),
    ];
    for (payload, version) in &closed {
        assert_eq!(keys.open(&place(), payload.as_bytes()), Opened::Closed(*version), "{payload}");
        assert_eq!(is_bound(payload.as_bytes()), *version == Version::Bound);
    }
    let plain = [
        "".into(),
        "{".into(),
        "{}".into(),
        "null".into(),
        "\"encrypted\"".into(),
        "{\"encrypted\":".into(),
        "{\"encrypted\":\"".into(),
        "{\"a\\".into(),
        "{\"a\":[[[".into(),
        "{\"a\":}".into(),
        "{\"a\":1]".into(),
        format!(r#"[{}]"#, closed[1].0),
        format!(r#"{{"encrypted":"l9cHLQ==",{iv}}}"#),
        format!(r#"{{"encrypted":7,{iv},{tag},"v":2}}"#),
        format!(r#"{{"encrypted":null,{iv},{tag},"v":2}}"#),
        format!(r#"{{"encrypted":"l9cHLQ==",{iv},{tag},"v":3}}"#),
        format!(r#"{{"encrypted":"l9cHLQ==",{iv},{tag},"v":"2"}}"#),
        format!(r#"{{"encrypted":"l9cHLQ==","iv":"AAAA",{tag}}}"#),
        format!(r#"{{"encrypted":"l9cHLQ",{iv},{tag}}}"#),
        format!(r#"{{"encrypted":"l9cHLQ==",{iv},{tag},"v":2}} x"#),
    ];
    for payload in &plain {
        assert_eq!(keys.open(&place(), payload.as_bytes()), Opened::Plain, "{payload}");
        assert!(!is_bound(payload.as_bytes()));
    }
    // Without a key nothing is looked at.
    assert_eq!(Keys::default().open(&place(), BOUND[0].1.as_bytes()), Opened::Plain);
}

#[test]
fn keys_are_64_hexadecimal_digits_and_are_never_shown() {
    for wrong in ["", "00", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64), &"é".repeat(32), &"+1".repeat(32)] {
        assert_eq!(Key::from_hex(wrong), None, "{wrong}");
    }
    let keys = Keys { current: Some(master()), previous: vec![Key::new([7; 32])] };
    let shown =
        format!("{keys:?} {:#?}", tidegate_core::settings::Settings { keys: keys.clone(), ..Default::default() });
    assert!(!shown.contains("0, 1, 2") && !shown.contains("000102") && !shown.contains("7, 7"), "{shown}");
    assert!(shown.contains("Key(…)"));
}

#[test]
fn old_keys_read_and_only_the_current_one_seals() {
    let (old, new) = (Key::new([1; 32]), Key::new([2; 32]));
    let mut entropy = ChaCha20Rng::from_seed([3; 32]);
    let sealed = |key: &Key, entropy: &mut ChaCha20Rng| key.seal(&place(), b"[1]", entropy).expect("short");
    let (before, after) = (sealed(&old, &mut entropy), sealed(&new, &mut entropy));
    let keys = Keys { current: Some(new.clone()), previous: vec![Key::new([9; 32]), old.clone()] };
    assert_eq!(keys.open(&place(), &before), text("[1]"));
    assert_eq!(keys.open(&place(), &after), text("[1]"));
    assert_eq!(reading(new).open(&place(), &before), Opened::Closed(Version::Bound));
    assert_eq!(reading(old).open(&place(), &after), Opened::Closed(Version::Bound));
    assert_eq!(Keys { current: None, ..keys }.open(&place(), &before), text("[1]"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_payload_comes_back_and_no_two_share_an_iv(payload in proptest::collection::vec(any::<u8>(), 0..300), seed: u64) {
        let mut entropy = ChaCha20Rng::seed_from_u64(seed);
        let mut sealed = || master().seal(&place(), &payload, &mut entropy).expect("short");
        let (first, second) = (sealed(), sealed());
        prop_assert_eq!(first.len(), sealed_len(payload.len()));
        for envelope in [&first, &second] {
            prop_assert_eq!(reading(master()).open(&place(), envelope), Opened::Text(payload.clone().into()));
        }
        let iv = |envelope: &Bytes| envelope[sealed_len(payload.len()) - 24 - 13 - 24 - 8..][..24].to_vec();
        prop_assert_ne!(iv(&first), iv(&second));
    }

    /// Whatever is done to an envelope, it gives its own text or none.
    #[test]
    fn tampering_never_gives_another_text(payload in proptest::collection::vec(any::<u8>(), 0..60), to: u8, bare: bool) {
        let envelope = if bare {
            Bytes::from_static(BARE[0].1.as_bytes())
        } else {
            master().seal(&place(), &payload, &mut ChaCha20Rng::seed_from_u64(1)).expect("short")
        };
        let own = if bare { BARE[0].0.as_bytes().to_vec() } else { payload };
        for at in 0..envelope.len() {
            let mut changed = envelope.to_vec();
            changed[at] = to;
            if let Opened::Text(text) = reading(master()).open(&place(), &changed) {
                prop_assert_eq!(text, own.clone(), "byte {} as {}", at, to);
            }
            changed.truncate(at);
            prop_assert_eq!(reading(master()).open(&place(), &changed), Opened::Plain);
        }
    }

    /// An envelope opens in its own place alone, by its own key alone.
    #[test]
    fn moving_never_gives_a_text(payload in proptest::collection::vec(any::<u8>(), 0..60), other: u128, key: [u8; 32]) {
        let envelope = master().seal(&place(), &payload, &mut ChaCha20Rng::seed_from_u64(2)).expect("short");
        let other = Uuid::from_u128(other);
        let moved = [
            Place { queue: QueueId(other), ..place() },
            Place { partition: PartitionId(other), ..place() },
            Place { message: MessageId(other), ..place() },
            Place { message: place().message.nth(1), ..place() },
            Place { queue: QueueId(place().partition.0), partition: PartitionId(place().queue.0), ..place() },
        ];
        for place in moved {
            prop_assert_eq!(reading(master()).open(&place, &envelope), Opened::Closed(Version::Bound));
        }
        prop_assert_eq!(reading(Key::new(key)).open(&place(), &envelope), Opened::Closed(Version::Bound));
        // Without its version it is read as the original's, and is none of those either.
        let bare = String::from_utf8(envelope.to_vec()).expect("ASCII").replace(",\"v\":2", "");
        prop_assert_eq!(reading(master()).open(&place(), bare.as_bytes()), Opened::Closed(Version::Bare));
    }
}
