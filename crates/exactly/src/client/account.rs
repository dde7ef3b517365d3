//! What happened on the way, attempt by attempt.

use std::time::Duration;

use http::StatusCode;

use super::error::ErrorKind;
use crate::Key;
use crate::retry::{Ended, Stop};

/// How a call went.
#[derive(Clone, Debug, Default)]
pub struct Account {
    pub(super) key: Option<Key>,
    pub(super) attempts: Vec<Attempt>,
    pub(super) stop: Option<Stop>,
    pub(super) took: Duration,
}

/// One attempt of a call.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Counted from 1.
    pub number: u32,
    /// How long was waited before it.
    pub delay: Duration,
    /// How long it took.
    pub took: Duration,
    /// How far it came.
    pub ended: Ended,
    /// The error code of its answer, as the server wrote it.
    pub code: Option<String>,
    /// What went wrong, if no whole answer came or it points where the call must not go.
    pub error: Option<ErrorKind>,
    /// The same in words.
    pub note: Option<String>,
}

impl Account {
    /// The key that every attempt carried. Keep it, if the call may have to go on later.
    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// Every attempt, in order; none, if the call was not worth sending.
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// Why there was no further attempt; none, if there was none at all.
    pub fn stop(&self) -> Option<Stop> {
        self.stop
    }

    /// From the start of the call to its end.
    pub fn took(&self) -> Duration {
        self.took
    }
}

impl Attempt {
    /// The status of its answer, if one began.
    pub fn status(&self) -> Option<StatusCode> {
        StatusCode::from_u16(self.ended.heard()?.status).ok()
    }
}
