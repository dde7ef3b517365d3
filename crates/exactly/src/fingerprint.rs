//! What a call asked for, in 32 bytes.
//!
//! A key that comes back must come back with the same request; the fingerprint is how a store knows. The obvious
//! alternative, a hash of the body, fails both ways. It calls two requests equal that differ only in their path or
//! query, and it calls a retry different because its client wrote the members of an object in another order.
//!
//! Two rules hold here, and the first wins. Two requests that a handler could tell apart never share a fingerprint. Two
//! encodings of one request (the order and white space of JSON, the percent-encoding of a form, the boundary of a
//! multipart body) do. Where a canonical form could lose a difference, the bytes are hashed as they came.
//!
//! ```
//! use exactly::Fingerprint;
//!
//! let first = Fingerprint::of("join league 7 as ann");
//! assert_eq!(first, Fingerprint::of("join league 7 as ann"));
//! assert_ne!(first, Fingerprint::of("join league 7 as bob"));
//! ```

use std::fmt;

use crate::digest::{Digest, Hex};

#[cfg(feature = "layer")]
mod form;
#[cfg(feature = "layer")]
mod json;
#[cfg(feature = "layer")]
mod leave_out;
#[cfg(feature = "layer")]
mod multipart;
#[cfg(feature = "layer")]
mod parameters;
#[cfg(feature = "layer")]
mod request;

#[cfg(feature = "layer")]
pub use json::canonical_json;
#[cfg(feature = "layer")]
pub use leave_out::{InvalidPointer, LeaveOut};
#[cfg(feature = "layer")]
pub use request::FingerprintInput;

/// Fingerprints are stored and compared for as long as a key is kept, so another way to compute them needs another tag.
/// It differs from the tag of HTTP requests: a payload that spells out a request is not that request.
const TAG: &str = "exactly/payload/v1";

/// A hash of everything that a handler could tell two requests apart by.
///
/// Bytes and not text, so that every store keeps it in a column of fixed width. It shows in full in logs: it is the
/// hash of a whole request, compared and never used to find a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of a payload outside HTTP, taken byte for byte: bring it into one form first if it has several.
    #[must_use]
    pub fn of(payload: impl AsRef<[u8]>) -> Self {
        let mut digest = Digest::new(TAG);
        digest.part(payload.as_ref());
        Self(digest.finish())
    }

    /// A fingerprint read back from a store.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes to store.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({})", Hex(&self.0))
    }
}
