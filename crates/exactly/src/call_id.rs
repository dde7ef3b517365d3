use std::error;
use std::fmt;
use std::str::FromStr;

use crate::digest::{Digest, Hex, hex_digit};
use crate::{Key, Scope};

/// Stored with every record. Another layout of the hashed parts needs another tag.
const TAG: &str = "exactly/call/v1";

/// The identity of a call in every store: a hash of its [`Scope`] and [`Key`].
///
/// Stores index these 32 bytes and not the key, so the index holds no secret, every row has the same width, and no
/// choice of names lets one principal reach the record of another.
///
/// ```
/// use exactly::{CallId, Key, Scope};
///
/// let id = CallId::new(&Scope::new("user-1", "POST /refunds"), &Key::new("abc")?);
/// assert_eq!(id.to_string().parse(), Ok(id));
/// # Ok::<(), exactly::key::InvalidKey>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId([u8; 32]);

/// A text that is not the hex form of a [`CallId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidCallId;

impl CallId {
    /// The same scope and key always give the same id.
    #[must_use]
    pub fn new(scope: &Scope, key: &Key) -> Self {
        let mut digest = Digest::new(TAG);
        digest.optional(scope.principal().map(str::as_bytes));
        digest.part(scope.operation().as_bytes());
        digest.part(key.as_str().as_bytes());
        Self(digest.finish())
    }

    /// An id read back from a store.
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

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex(&self.0).fmt(f)
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallId({self})")
    }
}

impl FromStr for CallId {
    type Err = InvalidCallId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
            return Err(InvalidCallId);
        };
        let bytes: Option<Vec<u8>> = pairs
            .iter()
            .map(|&[high, low]| Some(hex_digit(high)? << 4 | hex_digit(low)?))
            .collect();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or(InvalidCallId)
    }
}

impl fmt::Display for InvalidCallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("call id is not 64 hex digits")
    }
}

impl error::Error for InvalidCallId {}
