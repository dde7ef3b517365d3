//! What happened, as it is told to others.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::OrderKey;
use crate::clock::Timestamp;
use crate::queue::Task;

/// Something that happened, to be [published](super::Outbox::publish) with the change that made it so.
#[derive(Clone, Debug)]
pub struct Event {
    id: EventId,
    kind: EventType,
    timestamp: Option<Timestamp>,
    order_key: Option<OrderKey>,
    data: Box<RawValue>,
}

impl Event {
    /// The largest content, in bytes of JSON.
    pub const DATA_BYTES_MAX: usize = 512 * 1024;

    /// An event with an id of its own. Published twice, it is two events.
    pub fn new(event_type: EventType, data: &impl Serialize) -> Result<Self, InvalidEvent> {
        Self::with_id(EventId::random(), event_type, data)
    }

    /// The event of this id. Published twice with the same content, it is one.
    pub fn with_id(id: EventId, event_type: EventType, data: &impl Serialize) -> Result<Self, InvalidEvent> {
        let data =
            serde_json::value::to_raw_value(data).map_err(|error| InvalidEvent(format!("write data: {error}")))?;
        let (len, most) = (data.get().len(), Self::DATA_BYTES_MAX);
        if len > most {
            return Err(InvalidEvent(format!(
                "the data has {len} bytes, and {most} are the most"
            )));
        }
        Ok(Self {
            id,
            kind: event_type,
            timestamp: None,
            order_key: None,
            data,
        })
    }

    /// When it happened, if that is not when it is published. It is then part of what may not change under its id.
    #[must_use]
    pub fn at(mut self, timestamp: Timestamp) -> Self {
        self.timestamp = Some(timestamp);
        self
    }

    /// Sent to each endpoint after what was published before it under the same key, and was sent there or given up. It is part
    /// of what may not change under its id.
    #[must_use]
    pub fn ordered_by(mut self, key: OrderKey) -> Self {
        self.order_key = Some(key);
        self
    }

    /// What it is known by.
    pub fn id(&self) -> &EventId {
        &self.id
    }

    /// What kind of thing happened.
    pub fn event_type(&self) -> &EventType {
        &self.kind
    }

    /// What it is in order with, if it is with anything.
    pub fn order_key(&self) -> Option<&OrderKey> {
        self.order_key.as_ref()
    }

    /// What is kept of it: the same bytes each time, so that another content under the same id is noticed.
    pub(super) fn stored(&self, source: &str) -> Bytes {
        let stored = Stored {
            id: self.id.clone(),
            event_type: self.kind.clone(),
            timestamp: self.timestamp.map(rfc3339),
            source: source.into(),
            order_key: self.order_key.clone(),
            data: self.data.clone(),
        };
        serde_json::to_vec(&stored)
            .expect("texts and JSON can be written as JSON")
            .into()
    }
}

/// An event as it lies in the ledger.
///
/// Without the time at which it was published, which the ledger knows: publishing again is then the same event.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Stored {
    /// What it is known by.
    #[serde(rename = "eventId")]
    pub id: EventId,
    /// What kind of thing happened.
    #[serde(rename = "eventType")]
    pub event_type: EventType,
    /// When it happened, if that was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// Who told of it.
    pub source: Box<str>,
    /// What it is in order with, if that was said.
    #[serde(rename = "orderKey", skip_serializing_if = "Option::is_none")]
    pub order_key: Option<OrderKey>,
    /// What there is to tell.
    pub data: Box<RawValue>,
}

impl Stored {
    /// Reads what the ledger holds.
    pub fn read(payload: &[u8]) -> Result<Self, InvalidEvent> {
        serde_json::from_slice(payload).map_err(|error| InvalidEvent(format!("stored event: {error}")))
    }

    /// What is sent of it, the same bytes to everybody and each time. What it is in order with is nobody else's business.
    pub fn body(&self, published_at: Timestamp) -> Bytes {
        let sent = Stored {
            timestamp: self.timestamp.clone().or_else(|| Some(rfc3339(published_at))),
            order_key: None,
            ..self.clone()
        };
        serde_json::to_vec(&sent)
            .expect("texts and JSON can be written as JSON")
            .into()
    }
}

fn rfc3339(at: Timestamp) -> String {
    let millis = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
    let at = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
    format!("{at:.3}")
}

/// What an event is known by, everywhere and for good.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct EventId(Box<str>);

impl EventId {
    /// The longest, in bytes.
    pub const BYTES_MAX: usize = 128;

    /// A new one.
    pub fn random() -> Self {
        Self(format!("evt_{}", Uuid::new_v4().simple()).into())
    }

    /// One that comes from elsewhere, or that is made of what the event is about.
    pub fn new(id: impl Into<Box<str>>) -> Result<Self, InvalidEvent> {
        let id = id.into();
        if id.is_empty() || id.len() > Self::BYTES_MAX {
            let (len, most) = (id.len(), Self::BYTES_MAX);
            return Err(InvalidEvent(format!(
                "an event's id has 1 to {most} bytes, and this one {len}"
            )));
        }
        // A signature is over the id, a dot and what follows: with a dot in it, another id would have the same one.
        if let Some(other) = id.chars().find(|c| !c.is_ascii_graphic() || *c == '.') {
            return Err(InvalidEvent(format!(
                "an event's id contains {other:?}: use visible ASCII without a dot"
            )));
        }
        Ok(Self(id))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for EventId {
    type Error = InvalidEvent;

    fn try_from(id: String) -> Result<Self, InvalidEvent> {
        Self::new(id)
    }
}

impl From<EventId> for String {
    fn from(id: EventId) -> Self {
        id.0.into()
    }
}

impl FromStr for EventId {
    type Err = InvalidEvent;

    fn from_str(id: &str) -> Result<Self, InvalidEvent> {
        Self::new(id)
    }
}

/// What kind of thing happened: words with dots between them, as `invoice.paid`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct EventType(Box<str>);

impl EventType {
    /// The longest, in bytes.
    pub const BYTES_MAX: usize = 128;

    /// The type of this name.
    pub fn new(name: impl Into<Box<str>>) -> Result<Self, InvalidEvent> {
        let name = name.into();
        let is_word = |word: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
            !word.is_empty() && word.bytes().all(plain)
        };
        if name.len() > Self::BYTES_MAX || !name.split('.').all(is_word) {
            let most = Self::BYTES_MAX;
            return Err(InvalidEvent(format!(
                "{name:?} is no event type: use words of a-z, 0-9, _ and - with dots between them, {most} bytes at most"
            )));
        }
        Ok(Self(name))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for EventType {
    type Error = InvalidEvent;

    fn try_from(name: String) -> Result<Self, InvalidEvent> {
        Self::new(name)
    }
}

impl From<EventType> for String {
    fn from(event_type: EventType) -> Self {
        event_type.0.into()
    }
}

impl FromStr for EventType {
    type Err = InvalidEvent;

    fn from_str(name: &str) -> Result<Self, InvalidEvent> {
        Self::new(name)
    }
}

/// What was wrong with an event, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidEvent(pub(super) String);

impl fmt::Display for InvalidEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read event: {}", self.0)
    }
}

impl std::error::Error for InvalidEvent {}

// An event with its names and its time fits into a task.
const _: () = assert!(Event::DATA_BYTES_MAX + 64 * 1024 < Task::PAYLOAD_BYTES_MAX);
