//! What an endpoint's events are signed with and verified by, told apart by how it is written.

use std::str::FromStr;

use super::secret::{SIGNING_PREFIX, VERIFYING_PREFIX};
use super::{InvalidKey, Secret, SigningKey, VerifyingKey};

/// What signs.
#[derive(Clone, Debug)]
pub enum Signer {
    /// HMAC-SHA256: `whsec_…`.
    V1(Secret),
    /// ed25519: `whsk_…`.
    V1a(SigningKey),
}

impl FromStr for Signer {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        if text.starts_with(VERIFYING_PREFIX) {
            return Err(InvalidKey::new(
                "`whpk_…` is a public key, which cannot sign: use `whsec_…` or `whsk_…`",
            ));
        }
        if text.starts_with(SIGNING_PREFIX) {
            return text.parse().map(Self::V1a);
        }
        text.parse().map(Self::V1)
    }
}

/// What verifies.
#[derive(Clone, Debug)]
pub enum VerifyWith {
    /// HMAC-SHA256: `whsec_…`.
    Secret(Secret),
    /// ed25519: `whpk_…`.
    Key(VerifyingKey),
}

impl FromStr for VerifyWith {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        if text.starts_with(SIGNING_PREFIX) {
            return Err(InvalidKey::new(
                "`whsk_…` signs, and whoever only verifies should not have it: use its public half, `whpk_…`",
            ));
        }
        if text.starts_with(VERIFYING_PREFIX) {
            return text.parse().map(Self::Key);
        }
        text.parse().map(Self::Secret)
    }
}
