//! Sealed payloads: AES-256-GCM envelopes, stored in a payload's place (section 24 of the wire page).
//!
//! An envelope is a JSON object of `encrypted`, `iv` and `authTag`, each in base64. Ours says `"v":2` and is bound to
//! its place: one message, one key (derived from the master key, the iv and the queue) and one nonce, and the message's
//! address is authenticated with it, so that an envelope opens nowhere else. One without `v` is of the original broker:
//! under the master key itself, bound to nothing. What does not open is given as it is stored.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes256Gcm, KeyInit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hkdf::Hkdf;
use rand_core::Rng;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::name::{MessageId, PartitionId, QueueId};

/// Bytes of a master key.
pub const KEY_BYTES: usize = 32;
/// Bytes of an iv, whose first twelve are the nonce.
const IV_BYTES: usize = 16;
/// Bytes of a nonce.
const NONCE_BYTES: usize = 12;
/// Bytes of an authentication tag.
const TAG_BYTES: usize = 16;
/// What we write, in the members' order.
const PARTS: [&str; 4] = ["{\"encrypted\":\"", "\",\"iv\":\"", "\",\"authTag\":\"", "\",\"v\":2}"];

/// A master key. Nothing prints it, and its memory is cleared when the last holder lets go of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Arc<Zeroizing<[u8; KEY_BYTES]>>);

impl Key {
    /// The key of these bytes.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Key(Arc::new(Zeroizing::new(bytes)))
    }

    /// The key that 64 hexadecimal characters spell; none for any other text.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 2 * KEY_BYTES {
            return None;
        }
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let [high, low] = pair else { return None };
            let digit = |digit: &u8| char::from(*digit).to_digit(16);
            *byte = u8::try_from(digit(high)? << 4 | digit(low)?).ok()?;
        }
        Some(Key(Arc::new(bytes)))
    }

    /// Seals a payload for its place, under an iv that `entropy` gives and nobody else gets.
    pub fn seal(&self, place: &Place, payload: &[u8], entropy: &mut impl Rng) -> Option<Bytes> {
        let mut iv = [0; IV_BYTES];
        entropy.fill_bytes(&mut iv);
        let mut text = Vec::from(payload);
        let nonce = nonce(&iv);
        let tag = self.bound(&iv, place)?.encrypt_inout_detached(&nonce, &place.bytes(), text.as_mut_slice().into());
        // Only a text of 64 GiB is too long.
        let tag = tag.ok()?;
        let mut envelope = Vec::with_capacity(sealed_len(payload.len()));
        for (part, value) in PARTS.iter().zip([text.as_slice(), &iv, &tag]) {
            envelope.extend_from_slice(part.as_bytes());
            put_base64(&mut envelope, value)?;
        }
        envelope.extend_from_slice(PARTS[3].as_bytes());
        Some(Bytes::from(envelope))
    }

    /// The text of an envelope, if this key opens it.
    fn open(&self, place: &Place, envelope: &Envelope) -> Option<Bytes> {
        let address = place.bytes();
        let (cipher, bound): (_, &[u8]) = match envelope.version {
            Version::Bound => (self.bound(&envelope.iv, place)?, &address),
            Version::Bare => (Aes256Gcm::new_from_slice(&self.0[..]).ok()?, &[]),
        };
        let mut text = envelope.text.clone();
        let (nonce, tag) = (nonce(&envelope.iv), envelope.tag.into());
        cipher.decrypt_inout_detached(&nonce, bound, text.as_mut_slice().into(), &tag).ok()?;
        Some(Bytes::from(text))
    }

    /// The cipher of one message.
    fn bound(&self, iv: &[u8; IV_BYTES], place: &Place) -> Option<Aes256Gcm> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        Hkdf::<Sha256>::new(Some(iv), &self.0[..]).expand(place.queue.0.as_bytes(), &mut key[..]).ok()?;
        Aes256Gcm::new_from_slice(&key[..]).ok()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

fn nonce(iv: &[u8; IV_BYTES]) -> aes_gcm::Nonce<aes_gcm::aead::consts::U12> {
    let mut nonce = [0; NONCE_BYTES];
    nonce.copy_from_slice(&iv[..NONCE_BYTES]);
    nonce.into()
}

fn put_base64(to: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    let from = to.len();
    to.resize(from + base64_len(bytes.len()), 0);
    STANDARD.encode_slice(bytes, &mut to[from..]).ok()?;
    Some(())
}

const fn base64_len(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}

/// Bytes of the envelope around a payload of `payload` bytes.
pub const fn sealed_len(payload: usize) -> usize {
    let fixed = PARTS[0].len() + PARTS[1].len() + PARTS[2].len() + PARTS[3].len();
    fixed + base64_len(payload) + base64_len(IV_BYTES) + base64_len(TAG_BYTES)
}

/// Bytes of an address.
const PLACE_BYTES: usize = 48;

/// Where a message stands, which its envelope is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its queue.
    pub queue: QueueId,
    /// Its partition.
    pub partition: PartitionId,
    /// The message.
    pub message: MessageId,
}

impl Place {
    fn bytes(&self) -> [u8; PLACE_BYTES] {
        let mut bytes = [0; PLACE_BYTES];
        let ids = [self.queue.0, self.partition.0, self.message.0];
        for (to, id) in bytes.chunks_exact_mut(16).zip(ids) {
            to.copy_from_slice(id.as_bytes());
        }
        bytes
    }
}

/// The keys of a broker.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Keys {
    /// `QUEEN_ENCRYPTION_KEY`: what is sealed now. Without one, nothing is.
    pub current: Option<Key>,
    /// `QUEEN_ENCRYPTION_KEY_PREVIOUS`: what was sealed under these is still read.
    pub previous: Vec<Key>,
}

/// What became of a payload that was to be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Opened {
    /// It is no envelope, or there is no key at all.
    Plain,
    /// Its text.
    Text(Bytes),
    /// It looks like an envelope, and no key opens it: somebody's own JSON, a lost key, or tampering.
    Closed(Version),
}

impl Keys {
    /// Whether there is nothing to open with.
    pub fn is_empty(&self) -> bool {
        self.current.is_none() && self.previous.is_empty()
    }

    /// Looks at a stored payload and opens it where it is sealed.
    pub fn open(&self, place: &Place, payload: &[u8]) -> Opened {
        if self.is_empty() {
            return Opened::Plain;
        }
        let Some(envelope) = Envelope::of(payload) else { return Opened::Plain };
        let text = self.current.iter().chain(&self.previous).find_map(|key| key.open(place, &envelope));
        text.map_or(Opened::Closed(envelope.version), Opened::Text)
    }
}

/// Who wrote an envelope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// The original broker: under the master key, bound to nothing.
    Bare,
    /// We: under a key of its own, bound to its place.
    Bound,
}

/// A sealed payload, taken apart.
struct Envelope {
    text: Vec<u8>,
    iv: [u8; IV_BYTES],
    tag: [u8; TAG_BYTES],
    version: Version,
}

/// Whether a payload has the form of an envelope that we write, whatever opens it.
pub fn is_bound(payload: &[u8]) -> bool {
    Envelope::of(payload).is_some_and(|envelope| envelope.version == Version::Bound)
}

impl Envelope {
    /// Takes a payload apart if it is an object with the three texts; what else it has is not looked at.
    fn of(payload: &[u8]) -> Option<Envelope> {
        let [text, iv, tag, version] = members(payload, ["encrypted", "iv", "authTag", "v"])?;
        let decoded = |value: Option<&[u8]>| STANDARD.decode(value?.strip_prefix(b"\"")?.strip_suffix(b"\"")?).ok();
        let version = match version {
            None => Version::Bare,
            Some(b"2") => Version::Bound,
            Some(_) => return None,
        };
        let (iv, tag) = (decoded(iv)?.try_into().ok()?, decoded(tag)?.try_into().ok()?);
        Some(Envelope { text: decoded(text)?, iv, tag, version })
    }
}

/// The values of these members of a JSON object, as they are written; the last of a name counts. None for what is no
/// object. That the rest is sound JSON is not checked: what is stored was, and an envelope proves itself.
fn members<'p, const N: usize>(json: &'p [u8], names: [&str; N]) -> Option<[Option<&'p [u8]>; N]> {
    let mut found = [None; N];
    let mut rest = json.trim_ascii_start().strip_prefix(b"{")?.trim_ascii_start();
    if rest.starts_with(b"}") {
        return Some(found);
    }
    loop {
        let key = &rest[..value_len(rest).filter(|_| rest.starts_with(b"\""))?];
        rest = rest[key.len()..].trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
        let value = &rest[..value_len(rest)?];
        rest = rest[value.len()..].trim_ascii_start();
        let name = key.get(1..key.len() - 1)?;
        if let Some(at) = names.iter().position(|wanted| wanted.as_bytes() == name) {
            found[at] = Some(value);
        }
        match rest.first()? {
            b',' => rest = rest[1..].trim_ascii_start(),
            b'}' => return rest[1..].trim_ascii_start().is_empty().then_some(found),
            _ => return None,
        }
    }
}

/// Bytes of the JSON value at the beginning of `json`, which goes on behind it.
fn value_len(json: &[u8]) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    loop {
        match json.get(at)? {
            b'"' => {
                at += 1;
                while *json.get(at)? != b'"' {
                    at += if json[at] == b'\\' { 2 } else { 1 };
                }
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth > 0 => depth -= 1,
            // A number or a word goes on until something ends it.
            _ if depth == 0 => {
                let end = json[at..].iter().position(|byte| b",:}] \t\n\r\"".contains(byte))?;
                return (end > 0).then_some(at + end);
            }
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}
