//! What deliveries are known by.

use std::fmt;

use super::{DELIVERY_KIND, EndpointId, ReplayId};
use crate::queue::TaskId;
use crate::webhook::EventId;

/// What a delivery is known by among those of its [kind](DELIVERY_KIND): its event, its endpoint, and the replay that made it,
/// if one did.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryName {
    /// What is sent.
    pub event: EventId,
    /// To whom.
    pub endpoint: EndpointId,
    /// Once more, because of this.
    pub replay: Option<ReplayId>,
}

impl DeliveryName {
    /// What the event itself makes.
    pub fn new(event: EventId, endpoint: EndpointId) -> Self {
        Self {
            event,
            endpoint,
            replay: None,
        }
    }

    /// Of the key of a task.
    pub fn of_key(key: &str) -> Option<Self> {
        let mut words = key.split(' ');
        let (event, endpoint) = (words.next()?, words.next()?);
        let replay = words.next().map(ReplayId::new).transpose().ok()?;
        let name = Self {
            event: EventId::new(event).ok()?,
            endpoint: EndpointId::new(endpoint).ok()?,
            replay,
        };
        words.next().is_none().then_some(name)
    }

    /// The same delivery as this replay makes it.
    #[must_use]
    pub fn again(&self, replay: &ReplayId) -> Self {
        Self {
            replay: Some(replay.clone()),
            ..self.clone()
        }
    }

    /// The same delivery as the event made it.
    #[must_use]
    pub fn original(&self) -> Self {
        Self {
            replay: None,
            ..self.clone()
        }
    }

    /// The task that it is.
    pub fn task_id(&self) -> TaskId {
        TaskId::of(DELIVERY_KIND, &self.to_string())
    }
}

/// As its task's key.
impl fmt::Display for DeliveryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.event, self.endpoint)?;
        match &self.replay {
            Some(replay) => write!(f, " {replay}"),
            None => Ok(()),
        }
    }
}
