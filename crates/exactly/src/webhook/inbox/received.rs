//! An event as its handler sees it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::digest;
use crate::job::JobError;

/// An event that came in and is genuine.
///
/// There is nothing here that is not kept with the event, so a later attempt sees what the first one saw. Headers are not, and
/// of most senders they are not signed either.
#[derive(Clone)]
pub struct Received {
    source: Arc<str>,
    id: Box<str>,
    body: Bytes,
    attempt: u32,
}

impl Received {
    pub(super) fn new(source: Arc<str>, id: impl Into<Box<str>>, body: Bytes, attempt: u32) -> Self {
        Self {
            source,
            id: id.into(),
            body,
            attempt,
        }
    }

    /// Who sent it.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// What its sender knows it by.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The bytes that were sent.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// What they are as JSON. If they are none, or not of this type, they never will be.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, JobError> {
        serde_json::from_slice(&self.body).map_err(|error| JobError::logic(format!("read event: {error}")))
    }

    /// Counted from 1, which is the one that its sender waits for.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is in it is for its handler alone.
        f.debug_struct("Received")
            .field("source", &self.source)
            .field("id", &digest::short(&self.id))
            .field("bytes", &self.body.len())
            .field("attempt", &self.attempt)
            .finish()
    }
}
