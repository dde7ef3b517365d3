//! What lies in the task that a delivery is.

use bytes::Bytes;
use serde::Deserialize;

use crate::webhook::{EventId, EventType, InvalidEvent};

/// What comes before a turn. A body begins with a brace, so none is taken for it.
const TURN: &str = "turn ";

/// The payload of a delivery: what is sent, and where it stands in its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enclosed {
    /// If its event is in order with others.
    pub turn: Option<Turn>,
    /// What is sent, the same bytes at each attempt.
    pub body: Bytes,
}

/// Where a delivery stands among those to one endpoint that are in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Higher than that of all before it.
    pub place: u64,
    /// The event whose delivery to the same endpoint goes first, if one does.
    pub after: Option<EventId>,
}

impl Enclosed {
    /// What is sent whenever it can be.
    pub fn alone(body: Bytes) -> Self {
        Self { turn: None, body }
    }

    /// Reads the payload of a delivery.
    pub fn read(payload: &Bytes) -> Result<Self, InvalidEvent> {
        let Some(rest) = payload.strip_prefix(TURN.as_bytes()) else {
            return Ok(Self::alone(payload.clone()));
        };
        let unreadable = || InvalidEvent("stored delivery: what goes before it cannot be read".to_owned());
        let end = rest.iter().position(|byte| *byte == b'\n').ok_or_else(unreadable)?;
        let line = std::str::from_utf8(&rest[..end]).map_err(|_| unreadable())?;
        let (place, after) = match line.split_once(' ') {
            Some((place, after)) => (place, Some(EventId::new(after)?)),
            None => (line, None),
        };
        let place = place.parse().map_err(|_| unreadable())?;
        Ok(Self {
            turn: Some(Turn { place, after }),
            body: payload.slice(TURN.len() + end + 1..),
        })
    }

    /// The event whose delivery to the same endpoint goes first, if one does.
    pub fn after(&self) -> Option<&EventId> {
        self.turn.as_ref()?.after.as_ref()
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

    /// The payload: the body, behind a line that tells its turn, if it has one.
    pub fn written(&self) -> Bytes {
        let Some(Turn { place, after }) = &self.turn else {
            return self.body.clone();
        };
        let line = match after {
            Some(after) => format!("{TURN}{place} {after}\n"),
            None => format!("{TURN}{place}\n"),
        };
        [line.as_bytes(), &self.body].concat().into()
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
        for (after, line) in [(Some("evt_1"), "turn 7 evt_1\n"), (None, "turn 7\n")] {
            let after = after.map(|id| EventId::new(id).unwrap());
            let turn = Some(Turn { place: 7, after });
            let ordered = Enclosed {
                turn,
                body: body.clone(),
            };
            assert_eq!(ordered.written(), format!("{line}{{\"eventId\":\"evt_2\"}}"));
            assert_eq!(Enclosed::read(&ordered.written()), Ok(ordered));
        }
    }

    #[test]
    fn half_a_line_is_unreadable() {
        for payload in [
            "turn ",
            "turn 7 evt_1",
            "turn 7 evt.1\n{}",
            "turn \n{}",
            "turn evt_1\n{}",
            "turn 7 \n{}",
        ] {
            assert!(Enclosed::read(&Bytes::from(payload)).is_err(), "{payload:?}");
        }
    }
}
