//! The words that requests are made of, each with its limits.
//!
//! What is out of bounds is refused where it is read, so that the refusal names the field. `schema` says the same limits
//! to readers of `/openapi.json`.

mod integer;
mod schema;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use exactly::clock::Timestamp;
use exactly::{CallId, Hex, Keep, Key};
use serde::{Deserialize, Serialize};

use self::integer::Integer;

/// The largest outcome, in bytes.
pub(crate) const OUTCOME_MAX: usize = 1 << 20;

/// Whose key it is.
pub(crate) type PrincipalText = Text<255>;
/// Why something was done.
pub(crate) type Reason = Text<500>;
/// What records are found by. What a library chose as operation may be longer than what this API accepts.
pub(crate) type FilterText = Text<1024>;
pub(crate) type IdText = HexBytes<32>;
pub(crate) type FingerprintText = HexBytes<32>;
pub(crate) type TokenText = HexBytes<16>;
pub(crate) type ClaimName = HexBytes<8>;
pub(crate) type LeaseMs = Whole<1_000, 86_400_000>;
/// Up to ten years.
pub(crate) type KeepMs = Whole<1_000, 315_360_000_000>;
/// A place in the trail: what JSON numbers hold exactly.
pub(crate) type Number = Whole<0, 9_007_199_254_740_991>;
pub(crate) type Limit = Count<1000>;
pub(crate) type AttemptNumber = Count<{ u32::MAX }>;
pub(crate) type Status = Whole<200, 599>;

/// Text of 1 to `MAX` characters, none of which is a control character.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Text<const MAX: usize>(String);

/// What a call asks for. Without spaces: a name with one, such as `POST /refunds`, is a route of the gateway, whose
/// stored answers are not this API's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct OperationName(String);

/// Which one of its kind it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct KeyText(String);

/// `N` bytes in hex.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct HexBytes<const N: usize>(pub(crate) [u8; N]);

/// Bytes in base64, at most [`OUTCOME_MAX`].
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Base64(pub(crate) Bytes);

/// A whole number within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Integer", into = "u64")]
pub(crate) struct Whole<const MIN: u64, const MAX: u64>(u64);

/// How many of something: from one to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Integer", into = "u32")]
pub(crate) struct Count<const MAX: u32>(u32);

/// An instant as RFC 3339 writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Instant(pub(crate) Timestamp);

/// Who does something to a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Actor(String);

impl<const MAX: usize> TryFrom<String> for Text<MAX> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let characters = text.chars().count();
        if !(1..=MAX).contains(&characters) {
            return Err(format!("has {characters} characters, accepted are 1 to {MAX}"));
        }
        if text.chars().any(char::is_control) {
            return Err("has a control character, accepted is text without any".to_owned());
        }
        Ok(Self(text))
    }
}

impl TryFrom<String> for OperationName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if (1..=255).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(Self(text));
        }
        Err("accepted are 1 to 255 visible ASCII characters without spaces, such as `mail.welcome`".to_owned())
    }
}

impl TryFrom<String> for KeyText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if (1..=Key::BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return Ok(Self(text));
        }
        Err("accepted are 1 to 255 visible ASCII characters and spaces".to_owned())
    }
}

impl<const N: usize> TryFrom<String> for HexBytes<N> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let refused = || format!("accepted are {} hex digits", 2 * N);
        let mut bytes = [0; N];
        if text.len() != 2 * N || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(refused());
        }
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| refused())?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Base64 {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bytes = STANDARD
            .decode(text)
            .map_err(|error| format!("is not base64 with padding: {error}"))?;
        if bytes.len() > OUTCOME_MAX {
            return Err(format!("has {} bytes, accepted are up to {OUTCOME_MAX}", bytes.len()));
        }
        Ok(Self(bytes.into()))
    }
}

impl<const MIN: u64, const MAX: u64> TryFrom<u64> for Whole<MIN, MAX> {
    type Error = String;

    fn try_from(ms: u64) -> Result<Self, String> {
        if (MIN..=MAX).contains(&ms) {
            return Ok(Self(ms));
        }
        Err(format!("is {ms}, accepted are {MIN} to {MAX}"))
    }
}

impl<const MAX: u32> TryFrom<u32> for Count<MAX> {
    type Error = String;

    fn try_from(count: u32) -> Result<Self, String> {
        if (1..=MAX).contains(&count) {
            return Ok(Self(count));
        }
        Err(format!("is {count}, accepted are 1 to {MAX}"))
    }
}

impl<const MIN: u64, const MAX: u64> TryFrom<Integer> for Whole<MIN, MAX> {
    type Error = String;

    fn try_from(integer: Integer) -> Result<Self, String> {
        Self::try_from(integer.0)
    }
}

impl<const MAX: u32> TryFrom<Integer> for Count<MAX> {
    type Error = String;

    fn try_from(integer: Integer) -> Result<Self, String> {
        let count = u32::try_from(integer.0).map_err(|_| format!("is {}, accepted are 1 to {MAX}", integer.0))?;
        Self::try_from(count)
    }
}

impl TryFrom<String> for Instant {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let at: jiff::Timestamp = text
            .parse()
            .map_err(|_| "accepted is an instant such as 2026-01-31T12:00:00Z".to_owned())?;
        // Nothing is older than the epoch.
        Ok(Self(Timestamp::from_millis(
            u64::try_from(at.as_millisecond()).unwrap_or(0),
        )))
    }
}

impl TryFrom<String> for Actor {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._@+-".contains(&byte);
        if (1..=64).contains(&text.len()) && text.bytes().all(known) {
            return Ok(Self(text));
        }
        Err("accepted are 1 to 64 of A-Z a-z 0-9 . _ @ + -".to_owned())
    }
}

impl<const MIN: u64, const MAX: u64> Whole<MIN, MAX> {
    pub(crate) fn get(self) -> u64 {
        self.0
    }

    /// As milliseconds.
    pub(crate) fn duration(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0)
    }
}

impl<const MAX: u32> Count<MAX> {
    pub(crate) fn get(self) -> u32 {
        self.0
    }
}

impl HexBytes<32> {
    pub(crate) fn id(self) -> CallId {
        CallId::from_bytes(self.0)
    }
}

impl KeyText {
    pub(crate) fn key(&self) -> Key {
        Key::new(self.0.as_str()).expect("a visible text of 1 to 255 bytes is a key")
    }
}

impl<const MAX: usize> AsRef<str> for Text<MAX> {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for OperationName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Actor {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl<const MAX: usize> From<Text<MAX>> for String {
    fn from(text: Text<MAX>) -> Self {
        text.0
    }
}

impl From<OperationName> for String {
    fn from(name: OperationName) -> Self {
        name.0
    }
}

impl From<KeyText> for String {
    fn from(key: KeyText) -> Self {
        key.0
    }
}

impl From<Actor> for String {
    fn from(actor: Actor) -> Self {
        actor.0
    }
}

impl<const N: usize> From<HexBytes<N>> for String {
    fn from(bytes: HexBytes<N>) -> Self {
        Hex(&bytes.0).to_string()
    }
}

impl From<Base64> for String {
    fn from(bytes: Base64) -> Self {
        STANDARD.encode(&bytes.0)
    }
}

impl<const MIN: u64, const MAX: u64> From<Whole<MIN, MAX>> for u64 {
    fn from(ms: Whole<MIN, MAX>) -> Self {
        ms.0
    }
}

impl<const MAX: u32> From<Count<MAX>> for u32 {
    fn from(count: Count<MAX>) -> Self {
        count.0
    }
}

impl From<Instant> for String {
    fn from(at: Instant) -> Self {
        rfc3339(at.0)
    }
}

impl<const N: usize> std::fmt::Debug for HexBytes<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // It may be a token.
        write!(f, "HexBytes<{N}>(…)")
    }
}

impl std::fmt::Debug for Base64 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Base64({} bytes)", self.0.len())
    }
}

/// An instant in UTC, to the millisecond. What is beyond the year 9999 is shown as its end.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    let at = i64::try_from(at.as_millis())
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    format!("{:.3}", at.unwrap_or(jiff::Timestamp::MAX))
}

/// How long an outcome is kept; without a number forever.
pub(crate) fn keep(keep: Option<KeepMs>) -> Keep {
    keep.map_or(Keep::Forever, |ms| Keep::For(ms.duration()))
}
