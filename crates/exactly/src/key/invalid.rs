use std::error;
use std::fmt;

use super::Key;

/// Why a text is not a key. The message never repeats the text: it may be someone's key after all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct InvalidKey {
    kind: InvalidKeyKind,
    /// The length of the refused text, for the one message that needs it.
    bytes: usize,
}

/// The reasons a program may want to tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InvalidKeyKind {
    /// Nothing, or only white space around nothing.
    Empty,
    /// Over [`Key::BYTES_MAX`].
    TooLong,
    /// A control character, which no log, header or column carries faithfully.
    ControlCharacter,
    /// A header value outside visible ASCII.
    NotVisibleAscii,
    /// A comma in a bare header value.
    Comma,
    /// Strict syntax, and the header value is something other than a quoted string.
    NotQuoted,
    /// Opens with a quote and is no structured-field string.
    BrokenQuotedString,
    /// Not a hyphenated UUID of version 4.
    NotUuidV4,
    /// More than one header line, or two headers that disagree.
    SentTwice,
    /// A body field that is there, but not as a string.
    NotAString,
}

impl InvalidKey {
    pub(crate) fn new(kind: InvalidKeyKind) -> Self {
        Self { kind, bytes: 0 }
    }

    pub(super) fn too_long(bytes: usize) -> Self {
        Self {
            kind: InvalidKeyKind::TooLong,
            bytes,
        }
    }

    /// The reason, for programs.
    #[must_use]
    pub fn kind(&self) -> InvalidKeyKind {
        self.kind
    }
}

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            InvalidKeyKind::Empty => "key is empty",
            InvalidKeyKind::TooLong => {
                let (bytes, max) = (self.bytes, Key::BYTES_MAX);
                return write!(f, "key is {bytes} bytes long, at most {max} are accepted");
            }
            InvalidKeyKind::ControlCharacter => "key contains a control character",
            InvalidKeyKind::NotVisibleAscii => {
                "key contains a byte that is not visible ascii, which a header cannot carry safely"
            }
            InvalidKeyKind::Comma => {
                "key contains a comma, which cannot be told from two header lines joined by a proxy; quote it"
            }
            InvalidKeyKind::NotQuoted => "key is not a quoted string; send it in double quotes",
            InvalidKeyKind::BrokenQuotedString => {
                "key opens with a quote but is not a well-formed quoted string (rfc 9651)"
            }
            InvalidKeyKind::NotUuidV4 => "key is not a version 4 uuid in its hyphenated form of 36 characters",
            InvalidKeyKind::SentTwice => "key was sent more than once; send it once, in one place",
            InvalidKeyKind::NotAString => "key in the body is not a string",
        })
    }
}

impl fmt::Debug for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InvalidKey({:?}: {self})", self.kind)
    }
}

impl error::Error for InvalidKey {}
