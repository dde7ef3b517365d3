//! What a sender is told.

use std::fmt;
use std::sync::Arc;

use super::head::HEAD_BYTES_MAX;
use crate::StoreError;
use crate::queue::{InvalidTask, Task};
use crate::webhook::Rejected;

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the sender has to be told"]
pub enum Receipt {
    /// It was new, and its handler's changes are committed.
    Applied,
    /// It was there before, and there is nothing left to happen.
    Duplicate,
    /// Something newer was applied to what it is about, so it was noted and not applied.
    Stale,
    /// An event of this id came before with another body. This one is held until somebody has looked.
    Quarantined,
    /// It was not applied yet, and is tried again here.
    Deferred,
    /// It was not applied and is not tried again, before somebody has looked. Sending it again does not help.
    Parked,
    /// It is none of the sender's events, and nothing was kept of it.
    Rejected(Refused),
}

impl Receipt {
    /// Its name, as it is told to the sender.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Duplicate => "duplicate",
            Self::Stale => "stale",
            Self::Quarantined => "quarantined",
            Self::Deferred => "deferred",
            Self::Parked => "parked",
            Self::Rejected(_) => "rejected",
        }
    }
}

/// Why a request was not taken for an event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// Nothing shows that the sender sent it.
    Unverified(Rejected),
    /// It is larger than [an event may be](super::Inbox::BODY_BYTES_MAX).
    TooLarge {
        /// How many bytes it has, with what is kept of its head.
        len: usize,
    },
    /// What is [kept](super::InboxBuilder::keep_headers) of its head is too large.
    HeadTooLarge {
        /// How many bytes it has.
        len: usize,
    },
    /// Its body did not come to its end, or has more bytes than are read of one.
    Unread,
    /// It is the sender's, and its id is none that can be kept.
    Unusable(InvalidTask),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unverified(rejected) => rejected.fmt(f),
            Self::TooLarge { len } => {
                let most = Task::PAYLOAD_BYTES_MAX;
                write!(f, "receive event: the body has {len} bytes, and {most} are the most")
            }
            Self::HeadTooLarge { len } => {
                write!(
                    f,
                    "receive event: the headers that are kept have {len} bytes, and {HEAD_BYTES_MAX} are the most"
                )
            }
            Self::Unread => {
                let most = Task::PAYLOAD_BYTES_MAX;
                write!(
                    f,
                    "receive event: the body could not be read; {most} bytes are the most"
                )
            }
            Self::Unusable(invalid) => write!(f, "receive event: {invalid}"),
        }
    }
}

impl std::error::Error for Refused {}

/// Why nobody knows what became of an event: the database could not answer. Whatever happened, the event that is sent again
/// finds out, so its sender is to be asked for that.
#[derive(Debug)]
pub struct NotReceived {
    source: Arc<str>,
    error: StoreError,
}

impl NotReceived {
    pub(super) fn new(source: Arc<str>, error: StoreError) -> Self {
        Self { source, error }
    }

    /// What the database said, or that it said nothing.
    pub fn into_store_error(self) -> StoreError {
        self.error
    }
}

impl fmt::Display for NotReceived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "receive event of {}: {}", self.source, self.error)
    }
}

impl std::error::Error for NotReceived {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}
