//! Why a request is not believed.

use std::fmt;
use std::time::Duration;

/// Why a request is not taken for an event of the sender that it names.
///
/// It tells what was expected, and never what the right signature would be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rejected {
    /// A header that has to be there is not.
    MissingHeader(&'static str),
    /// A header is not what it has to be.
    Malformed {
        /// Which one.
        header: &'static str,
        /// What it has to be.
        expected: &'static str,
    },
    /// It was signed too long ago, and may be a copy.
    TooOld {
        /// How long ago.
        age: Duration,
        /// How long ago is taken.
        tolerance: Duration,
    },
    /// It was signed in what is the future here.
    TooNew {
        /// How far ahead.
        ahead: Duration,
        /// How far ahead is taken.
        tolerance: Duration,
    },
    /// No signature is by a secret or key that is known here, over what was received.
    WrongSignature,
    /// The signature is right, and there is no id in the body by which the event could be known.
    NoEventId,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("verify webhook: ")?;
        match self {
            Self::MissingHeader(name) => write!(f, "the header `{name}` is missing"),
            Self::Malformed { header, expected } => write!(f, "the header `{header}` is malformed: expected {expected}"),
            Self::TooOld { age, tolerance } => {
                let (age, most) = (age.as_secs(), tolerance.as_secs());
                write!(f, "it was signed {age} s ago, and {most} s are the most: sign each attempt anew, check both clocks")
            }
            Self::TooNew { ahead, tolerance } => {
                let (ahead, most) = (ahead.as_secs(), tolerance.as_secs());
                write!(f, "it was signed {ahead} s ahead of time, and {most} s are the most: check both clocks")
            }
            Self::WrongSignature => f.write_str(
                "no signature is by a secret or key known here: compare the secrets, and sign the bytes as they are sent",
            ),
            Self::NoEventId => f.write_str("the body has no `id` of 1 to 256 visible ASCII characters"),
        }
    }
}

impl std::error::Error for Rejected {}
