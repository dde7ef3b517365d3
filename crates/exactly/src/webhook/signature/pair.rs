//! A key that signs, and its public half, which only verifies.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use ed25519_dalek::{PUBLIC_KEY_LENGTH, SECRET_KEY_LENGTH, Signature, Signer as _};

use super::secret::{InvalidKey, KEY_BASE64, SIGNING_PREFIX, VERIFYING_PREFIX, decode};

/// An ed25519 key to sign with, for receivers that should not be able to.
///
/// It is written `whsk_` and, in base64, its seed and its public half; the seed alone is read too. There is no `Display`, so
/// that it is not shown by accident.
#[derive(Clone)]
// Boxed, since it carries a point that takes ten times the room of a secret.
pub struct SigningKey(Box<ed25519_dalek::SigningKey>);

impl SigningKey {
    /// A new one.
    pub fn random() -> Self {
        let mut seed = [0; SECRET_KEY_LENGTH];
        getrandom::fill(&mut seed).expect("the operating system has randomness once it has booted");
        Self(Box::new(ed25519_dalek::SigningKey::from_bytes(&seed)))
    }

    /// The key itself, to be kept: `whsk_…`.
    pub fn expose(&self) -> String {
        format!("{SIGNING_PREFIX}{}", KEY_BASE64.encode(self.0.to_keypair_bytes()))
    }

    /// What receivers are told.
    pub fn public(&self) -> VerifyingKey {
        VerifyingKey(self.0.verifying_key())
    }

    pub(super) fn sign(&self, message: &[u8]) -> [u8; Signature::BYTE_SIZE] {
        self.0.sign(message).to_bytes()
    }
}

impl FromStr for SigningKey {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let Some(encoded) = text.strip_prefix(SIGNING_PREFIX) else {
            return Err(InvalidKey::new("a key to sign with begins with `whsk_`"));
        };
        let bytes = decode(encoded)?;
        if let Ok(seed) = <&[u8; SECRET_KEY_LENGTH]>::try_from(&*bytes) {
            return Ok(Self(Box::new(ed25519_dalek::SigningKey::from_bytes(seed))));
        }
        let Ok(pair) = bytes.as_slice().try_into() else {
            return Err(InvalidKey(format!(
                "the key has {} bytes: a seed has 32, a seed with its public half 64",
                bytes.len()
            )));
        };
        // Who signs the same once with each of two public halves gives the key away.
        ed25519_dalek::SigningKey::from_keypair_bytes(pair)
            .map(|key| Self(Box::new(key)))
            .map_err(|_| InvalidKey::new("the public half of the key does not belong to its seed"))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey(…, {})", self.public())
    }
}

/// The public half of a [`SigningKey`], written `whpk_` and 32 bytes in base64. It is no secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct VerifyingKey(ed25519_dalek::VerifyingKey);

impl VerifyingKey {
    /// Strictly: what signers make passes, Svix's included. What is looser also takes keys and signatures of small order, with
    /// which one signature is good for messages that nobody signed.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8; Signature::BYTE_SIZE]) -> bool {
        self.0.verify_strict(message, &Signature::from_bytes(signature)).is_ok()
    }
}

impl FromStr for VerifyingKey {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let Some(encoded) = text.strip_prefix(VERIFYING_PREFIX) else {
            return Err(InvalidKey::new("a key to verify with begins with `whpk_`"));
        };
        let bytes = decode(encoded)?;
        let Ok(bytes) = <&[u8; PUBLIC_KEY_LENGTH]>::try_from(&*bytes) else {
            return Err(InvalidKey(format!(
                "the key has {} bytes, and a public key of ed25519 has {PUBLIC_KEY_LENGTH}",
                bytes.len()
            )));
        };
        match ed25519_dalek::VerifyingKey::from_bytes(bytes) {
            Ok(key) if !key.is_weak() => Ok(Self(key)),
            _ => Err(InvalidKey::new("these 32 bytes are no public key of ed25519")),
        }
    }
}

impl fmt::Display for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VERIFYING_PREFIX}{}", KEY_BASE64.encode(self.0.as_bytes()))
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifyingKey({self})")
    }
}
