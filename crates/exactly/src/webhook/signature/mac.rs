//! HMAC-SHA256 over parts.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// How long a code is, in bytes.
pub(super) const BYTES: usize = 32;

/// A code that is not read out yet. The content is hashed once, for however many codes it is held against.
pub(super) struct Code(Hmac<Sha256>);

impl Code {
    pub(super) fn over(key: &[u8], parts: &[&[u8]]) -> Self {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of every length");
        for part in parts {
            mac.update(part);
        }
        Self(mac)
    }

    pub(super) fn into_bytes(self) -> [u8; BYTES] {
        self.0.finalize().into_bytes().into()
    }

    /// In a time that says nothing about how much of it is right.
    pub(super) fn is(&self, claimed: &[u8; BYTES]) -> bool {
        self.0.clone().verify_slice(claimed).is_ok()
    }
}
