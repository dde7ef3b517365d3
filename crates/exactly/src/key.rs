//! The name a client gives to one logical operation.
//!
//! A key is opaque text that the client makes once and sends with every attempt. It differs from a request id, which is
//! new per attempt, and from the record's identity: two users may choose the same key, so a record is found by
//! [`CallId`](crate::CallId), which adds the [`Scope`](crate::Scope).
//!
//! ```
//! use exactly::key::{InvalidKeyKind, Key, KeyFormat};
//!
//! let key = Key::new("refund-2024-000017")?;
//! assert_eq!(key.as_str(), "refund-2024-000017");
//! // Whoever holds a key can ask for its stored answer, so `Debug` shows a digest only.
//! assert_eq!(format!("{key:?}"), format!("Key(#{})", key.digest()));
//!
//! let error = KeyFormat::UuidV4.check(key).unwrap_err();
//! assert_eq!(error.kind(), InvalidKeyKind::NotUuidV4);
//! # Ok::<(), exactly::key::InvalidKey>(())
//! ```

use std::fmt;
use std::sync::Arc;

use crate::digest;

#[cfg(any(feature = "client", feature = "layer"))]
mod header;
mod invalid;

#[cfg(any(feature = "client", feature = "layer"))]
pub use header::KeySyntax;
pub use invalid::{InvalidKey, InvalidKeyKind};

/// Opaque text of 1 to 255 bytes without control characters.
///
/// There is no `Display`: a key reaches a log only by its [`digest`](Key::digest).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Arc<str>);

/// What a route accepts as a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeyFormat {
    /// Any [`Key`].
    #[default]
    Opaque,
    /// A version 4 UUID, hyphenated. Upper and lower case spell the same key.
    UuidV4,
}

impl Key {
    /// The longest key, in bytes: it fits a header line, a log field and a text column of any database.
    pub const BYTES_MAX: usize = 255;

    /// Refuses empty and over-long text and control characters.
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self, InvalidKey> {
        let text = text.into();
        if text.is_empty() {
            Err(InvalidKey::new(InvalidKeyKind::Empty))
        } else if text.len() > Self::BYTES_MAX {
            Err(InvalidKey::too_long(text.len()))
        } else if text.chars().any(char::is_control) {
            Err(InvalidKey::new(InvalidKeyKind::ControlCharacter))
        } else {
            Ok(Self(text))
        }
    }

    /// The text itself. Do not log it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Twelve hex digits that stand for the key in logs and spans: the start of its SHA-256.
    ///
    /// A key with little entropy can be guessed from it. Ask clients for random keys where logs are read by people who
    /// must not ask for stored answers.
    #[must_use]
    pub fn digest(&self) -> String {
        digest::short(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key(#{})", self.digest())
    }
}

impl KeyFormat {
    /// The key in this format's one spelling.
    pub fn check(self, key: Key) -> Result<Key, InvalidKey> {
        if self == Self::Opaque {
            Ok(key)
        } else if !is_uuid_v4(key.as_str()) {
            Err(InvalidKey::new(InvalidKeyKind::NotUuidV4))
        } else {
            // A UUID is a number, and clients print it in either case.
            Ok(Key(key.as_str().to_ascii_lowercase().into()))
        }
    }
}

/// Only the hyphenated form: braces, `urn:uuid:` and bare digits would give one UUID several keys.
fn is_uuid_v4(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            14 => byte == b'4',
            19 => matches!(byte, b'8' | b'9' | b'a' | b'b' | b'A' | b'B'),
            _ => byte.is_ascii_hexdigit(),
        })
}
