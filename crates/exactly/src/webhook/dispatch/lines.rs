//! Who goes after whom: a line for each order key at each endpoint.
//!
//! A line is a card that names the last event in it. Whoever adds an event makes its delivery behind that one, and then writes
//! the card. A delivery keeps what it was made behind, so one that is there already says where its event stands in the line,
//! whoever made it and however long ago: the card is moved on from there and from nowhere else, and never goes back.

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::fan_out::{CHUNK_BYTES_MAX, delivery};
use super::{DeliveryName, Enclosed, EndpointId, Turn};
use crate::clock::Timestamp;
use crate::queue::{Card, Enqueued, Found, InspectQueue, Registry, Revision, Task, TaskState};
use crate::webhook::{EventId, OrderKey};
use crate::{StoreError, StoreErrorKind};

/// What the names of lines begin with among what a queue remembers.
const PREFIX: &str = "order/";

/// How many lines are joined in one step.
const CHUNK_MAX: usize = 256;

/// How many cards are read or written at once.
const AT_ONCE: usize = 16;

/// How often a line is looked at again because somebody else has changed it.
const ROUNDS_MAX: u32 = 16;

/// How long a line stays to which nothing is added.
const IDLE_MAX: Duration = Duration::from_hours(24);

/// How many lines are looked over after an event at least and at most.
const LOOK_OVER: (usize, usize) = (4, 1000);

/// All lines of a queue.
#[derive(Debug)]
pub(super) struct Lines<Q: ?Sized> {
    queue: Arc<Q>,
    /// The line that was looked over last. A std mutex, since it is never held across an await.
    looked_over: Mutex<Box<str>>,
}

/// An event that is added to the lines of its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joining<'a> {
    pub(super) event: &'a EventId,
    pub(super) key: &'a OrderKey,
    pub(super) body: &'a Bytes,
    /// When it joins, by the queue's clock.
    pub(super) now: Timestamp,
}

/// The end of a line.
#[derive(Debug)]
struct Tail {
    endpoint: EndpointId,
    /// The last event in it; none if the line is new, or cannot be read.
    last: Option<EventId>,
    /// The place of that one.
    place: u64,
    revision: Option<Revision>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Value {
    last: EventId,
    place: u64,
    /// When it joined, by the clock that says how long ago that is; a card's own date may be by another.
    at_ms: u64,
}

impl<Q: Registry + InspectQueue + ?Sized> Lines<Q> {
    pub(super) fn new(queue: Arc<Q>) -> Self {
        Self {
            queue,
            // Wherever, so that processes that are started often look over all of them all the same.
            looked_over: Mutex::new(format!("{PREFIX}{}", Uuid::new_v4().simple()).into()),
        }
    }

    /// Makes a delivery of an event for each of these endpoints, behind the last one of its key.
    pub(super) async fn join(&self, joining: Joining<'_>, to: &[EndpointId]) -> Result<(), StoreError> {
        let fitting = CHUNK_BYTES_MAX / joining.body.len().max(1);
        for chunk in to.chunks(fitting.clamp(1, CHUNK_MAX)) {
            let mut left = chunk.to_vec();
            let mut rounds = 0..ROUNDS_MAX;
            while !left.is_empty() {
                if rounds.next().is_none() {
                    let why = "add to lines: somebody else changed them each time";
                    return Err(StoreError::new(StoreErrorKind::Other, why));
                }
                left = self.join_once(joining, &left).await?;
            }
        }
        Ok(())
    }

    /// Tells which of the lines have to be looked at again.
    async fn join_once(&self, joining: Joining<'_>, to: &[EndpointId]) -> Result<Vec<EndpointId>, StoreError> {
        let mut tails = Vec::with_capacity(to.len());
        for some in to.chunks(AT_ONCE) {
            tails.extend(try_join_all(some.iter().map(|to| self.tail(joining.key, to))).await?);
        }
        let deliveries: Vec<_> = tails.iter().map(|tail| tail.next(joining)).collect();
        let enqueued = self.queue.enqueue(&deliveries).await?;
        let mut again = Vec::new();
        let made: Vec<(Tail, Enqueued)> = tails.into_iter().zip(enqueued).collect();
        for some in made.chunks(AT_ONCE) {
            let advanced = some.iter().map(|(tail, made)| self.advance(joining, tail, made));
            let advanced = try_join_all(advanced).await?;
            let late = some.iter().zip(advanced).filter(|(_, advanced)| !advanced);
            again.extend(late.map(|((tail, _), _)| tail.endpoint.clone()));
        }
        Ok(again)
    }

    /// Makes the event the last one, if nobody has gone on from where it stands. False if somebody has changed the line since
    /// it was looked at.
    async fn advance(&self, joining: Joining<'_>, tail: &Tail, made: &Enqueued) -> Result<bool, StoreError> {
        let place = match made {
            Enqueued::New(_) => tail.place + 1,
            Enqueued::Found(found) => match self.place_behind(joining, found, tail).await? {
                Some(place) => place,
                None => return Ok(true),
            },
        };
        let value = Value {
            last: joining.event.clone(),
            place,
            at_ms: joining.now.as_millis(),
        };
        let value = serde_json::to_vec(&value).expect("ids and numbers can be written");
        let name = name(&tail.endpoint, joining.key);
        let written = self.queue.write_card(&name, &value.into(), tail.revision).await?;
        Ok(written.is_some())
    }

    /// The place of a delivery that is there, if it was made behind this end of the line. Otherwise the line has gone on since.
    async fn place_behind(&self, joining: Joining<'_>, found: &Found, tail: &Tail) -> Result<Option<u64>, StoreError> {
        // A line is forgotten when all of it is over, and what is over needs no place.
        if tail.last.is_none() && is_over(found.state) {
            return Ok(None);
        }
        let view = self.queue.show(found.id).await?;
        let turn = view.and_then(|view| Enclosed::read(&view.payload).ok()?.turn);
        let behind = turn.filter(|turn| match &tail.last {
            None => true,
            // As a rule it is where the line says.
            Some(last) if last == joining.event => turn.place > tail.place,
            last => turn.after == *last,
        });
        Ok(behind.map(|turn| turn.place))
    }

    async fn tail(&self, key: &OrderKey, to: &EndpointId) -> Result<Tail, StoreError> {
        let card = self.queue.read_card(&name(to, key)).await?;
        let value = card.as_ref().and_then(read);
        Ok(Tail {
            endpoint: to.clone(),
            place: value.as_ref().map_or(0, |value| value.place),
            last: value.map(|value| value.last),
            revision: card.map(|card| card.revision),
        })
    }

    /// Looks over some lines, and forgets those whose last delivery is over and to which nothing was added for a while. More of
    /// them than an event may have begun, so that there are never many more than are in use.
    pub(super) async fn look_over(&self, joined: usize, now: Timestamp) -> Result<(), StoreError> {
        let (least, most) = LOOK_OVER;
        let limit = u32::try_from((2 * joined).clamp(least, most)).unwrap_or(u32::MAX);
        let after = self.cursor().clone();
        let cards = self.queue.cards(PREFIX, &after, limit).await?;
        // From the beginning again, after the last one.
        *self.cursor() = cards.last().map(|card| card.name.clone()).unwrap_or_default();
        let is_idle = |card: &&Card| {
            let at = read(card).map(|value| Timestamp::from_millis(value.at_ms));
            at.is_none_or(|at| now.since(at) > IDLE_MAX)
        };
        let idle: Vec<_> = cards.iter().filter(is_idle).collect();
        for some in idle.chunks(AT_ONCE) {
            try_join_all(some.iter().map(|card| self.forget_if_over(card))).await?;
        }
        Ok(())
    }

    async fn forget_if_over(&self, card: &Card) -> Result<(), StoreError> {
        if let Some(last) = last_delivery(card) {
            let view = self.queue.show(last.task_id()).await?;
            if view.is_some_and(|view| !is_over(view.state)) {
                return Ok(());
            }
        }
        // Whoever has added to it since has written another revision.
        self.queue.erase_card(&card.name, card.revision).await.map(drop)
    }

    fn cursor(&self) -> std::sync::MutexGuard<'_, Box<str>> {
        self.looked_over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tail {
    /// The delivery that comes next. Where its event is the last already it is there, unless it was forgotten with its event, and
    /// the event was published anew: then nothing goes before it.
    fn next(&self, joining: Joining<'_>) -> Task {
        let before = self.last.as_ref().filter(|last| *last != joining.event);
        let enclosed = Enclosed {
            turn: Some(Turn {
                place: self.place + 1,
                after: before.cloned(),
            }),
            body: joining.body.clone(),
        };
        let name = DeliveryName::new(joining.event.clone(), self.endpoint.clone());
        delivery(&name, &enclosed.written())
    }
}

fn name(to: &EndpointId, key: &OrderKey) -> String {
    // In no order, so that those that are looked over first are others each time.
    format!("{PREFIX}{}/{to}", key.digest())
}

/// Whether nobody waits for a delivery any more.
pub(super) fn is_over(state: TaskState) -> bool {
    matches!(state, TaskState::Done | TaskState::Dead)
}

fn read(card: &Card) -> Option<Value> {
    serde_json::from_slice(&card.value).ok()
}

fn last_delivery(card: &Card) -> Option<DeliveryName> {
    let (_, endpoint) = card.name.strip_prefix(PREFIX)?.split_once('/')?;
    Some(DeliveryName::new(read(card)?.last, EndpointId::new(endpoint).ok()?))
}
