//! An event as its handler sees it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::head::Head;
use crate::digest;
use crate::job::JobError;

/// An event that came in and is genuine.
///
/// There is nothing here that is not kept with the event, so a later attempt sees what the first one saw.
#[derive(Clone)]
pub struct Received {
    source: Arc<str>,
    id: Box<str>,
    head: Head,
    body: Bytes,
    attempt: u32,
}

impl Received {
    pub(super) fn new(source: Arc<str>, id: impl Into<Box<str>>, (head, body): (Head, Bytes), attempt: u32) -> Self {
        Self {
            source,
            id: id.into(),
            head,
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

    /// What a header said that is [kept](super::InboxBuilder::keep_headers), if it came and is text; the first of several lines.
    ///
    /// Of most senders it is not signed: it says how to read what was sent, not whether to believe it.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.iter();
        let (_, value) = lines.find(|(kept, _)| kept.as_str().eq_ignore_ascii_case(name))?;
        str::from_utf8(value.as_bytes()).ok()
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
            .field("headers", &self.head.len())
            .field("bytes", &self.body.len())
            .field("attempt", &self.attempt)
            .finish()
    }
}
