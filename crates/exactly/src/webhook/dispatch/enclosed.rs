//! What lies in the task that a delivery is.

use bytes::Bytes;
use serde::Deserialize;

use crate::webhook::{EventId, EventType, InvalidEvent};

/// What comes before the event that goes first. A body begins with a brace, so none is taken for it.
const AFTER: &str = "after ";

/// The payload of a delivery: what is sent, and what has to be sent to the same endpoint first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enclosed {
    /// The event whose delivery to the same endpoint goes first, if one does.
    pub after: Option<EventId>,
    /// What is sent, the same bytes at each attempt.
    pub body: Bytes,
}

impl Enclosed {
    /// What is sent whenever it can be.
    pub fn alone(body: Bytes) -> Self {
        Self { after: None, body }
    }

    /// Reads the payload of a delivery.
    pub fn read(payload: &Bytes) -> Result<Self, InvalidEvent> {
        let Some(rest) = payload.strip_prefix(AFTER.as_bytes()) else {
            return Ok(Self::alone(payload.clone()));
        };
        let unreadable = || InvalidEvent("stored delivery: what goes before it cannot be read".to_owned());
        let end = rest.iter().position(|byte| *byte == b'\n').ok_or_else(unreadable)?;
        let id = std::str::from_utf8(&rest[..end]).map_err(|_| unreadable())?;
        Ok(Self {
            after: Some(EventId::new(id)?),
            body: payload.slice(AFTER.len() + end + 1..),
        })
    }

    /// The type of the event that is sent, if that can be read.
    pub fn event_type(&self) -> Option<EventType> {
        #[derive(Deserialize)]
        struct Typed {
            #[serde(rename = "eventType")]
            event_type: EventType,
        }
        let typed: Option<Typed> = serde_json::from_slice(&self.body).ok();
        typed.map(|typed| typed.event_type)
    }

    /// The payload: the body, behind a line that names the event that goes first, if one does.
    pub fn written(&self) -> Bytes {
        match &self.after {
            None => self.body.clone(),
            Some(after) => [AFTER.as_bytes(), after.as_str().as_bytes(), b"\n", &self.body]
                .concat()
                .into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let body = Bytes::from_static(br#"{"eventId":"evt_2"}"#);
        let alone = Enclosed::alone(body.clone());
        assert_eq!(alone.written(), body);
        assert_eq!(Enclosed::read(&alone.written()), Ok(alone));
        let after = Some(EventId::new("evt_1").unwrap());
        let behind = Enclosed { after, body };
        assert_eq!(behind.written(), "after evt_1\n{\"eventId\":\"evt_2\"}");
        assert_eq!(Enclosed::read(&behind.written()), Ok(behind));
    }

    #[test]
    fn half_a_line_is_unreadable() {
        for payload in ["after ", "after evt_1", "after evt.1\n{}", "after \n{}"] {
            assert!(Enclosed::read(&Bytes::from(payload)).is_err(), "{payload:?}");
        }
    }
}
