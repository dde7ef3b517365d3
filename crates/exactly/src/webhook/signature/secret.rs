//! What both sides know.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, GeneralPurpose as Engine};

/// Keys are written with padding. They are read without it too, since people copy them by hand.
pub(super) const KEY_BASE64: Engine = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(super) const SECRET_PREFIX: &str = "whsec_";
pub(super) const SIGNING_PREFIX: &str = "whsk_";
pub(super) const VERIFYING_PREFIX: &str = "whpk_";

/// A secret of a Standard Webhooks endpoint: whoever has it can verify, and can sign.
///
/// It is written `whsec_` and the key in base64. There is no `Display`, so that it is not shown by accident.
#[derive(Clone)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// The shortest key, in bytes: Standard Webhooks asks for as many, and shorter ones can be guessed.
    pub const BYTES_MIN: usize = 24;
    /// The longest key, in bytes: HMAC-SHA256 would hash a longer one down to 32.
    pub const BYTES_MAX: usize = 64;
    const BYTES_RANDOM: usize = 32;

    /// A new one.
    pub fn random() -> Self {
        let mut key = [0; Self::BYTES_RANDOM];
        getrandom::fill(&mut key).expect("the operating system has randomness once it has booted");
        Self(key.into())
    }

    /// The secret itself, for whoever has to be told: `whsec_…`.
    pub fn expose(&self) -> String {
        format!("{SECRET_PREFIX}{}", KEY_BASE64.encode(&self.0))
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.0
    }
}

impl FromStr for Secret {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        if text.starts_with(SIGNING_PREFIX) || text.starts_with(VERIFYING_PREFIX) {
            return Err(InvalidKey::new(
                "a secret is expected, `whsec_…`, and this is a key of ed25519",
            ));
        }
        let key = decode(text.strip_prefix(SECRET_PREFIX).unwrap_or(text))?;
        let (least, most) = (Self::BYTES_MIN, Self::BYTES_MAX);
        if !(least..=most).contains(&key.len()) {
            return Err(InvalidKey(format!(
                "the secret has {} bytes, and Standard Webhooks asks for {least} to {most}: encode as many random ones",
                key.len()
            )));
        }
        Ok(Self(key.into()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A secret that is used as the text it is, as Stripe and GitHub do: nothing of it is decoded, not even after `whsec_`.
#[derive(Clone)]
pub struct SharedSecret(Box<str>);

impl SharedSecret {
    /// The longest, in bytes.
    pub const BYTES_MAX: usize = 1024;

    pub(super) fn key(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl FromStr for SharedSecret {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        // With an empty one, everybody could sign. With the line break of the file that it was read from, nobody could.
        if text.is_empty() || text.len() > Self::BYTES_MAX {
            let (len, most) = (text.len(), Self::BYTES_MAX);
            return Err(InvalidKey(format!(
                "the secret has {len} bytes, and 1 to {most} are allowed"
            )));
        }
        if text.trim() != text || text.chars().any(char::is_control) {
            return Err(InvalidKey::new(
                "the secret has white space around it or control characters in it: remove them",
            ));
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedSecret(…)")
    }
}

/// The bytes of a key. What is wrong with it is not told in its own characters, which would then be in a log.
pub(super) fn decode(text: &str) -> Result<Vec<u8>, InvalidKey> {
    KEY_BASE64
        .decode(text)
        .map_err(|_| InvalidKey::new("what follows the prefix is not standard base64 (`A-Z a-z 0-9 + /`)"))
}

/// Why a secret or a key cannot be used. Nothing of it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidKey(pub(super) String);

impl InvalidKey {
    pub(super) fn new(what: &str) -> Self {
        Self(what.to_owned())
    }
}

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read webhook key: {}", self.0)
    }
}

impl std::error::Error for InvalidKey {}
