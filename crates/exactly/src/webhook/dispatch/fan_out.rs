//! From an event to its deliveries.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::gathered::Gathered;
use super::lines::Lines;
use super::ordered::OrderedLanes;
use super::roster::Roster;
use super::{DeliveryName, EndpointError, EndpointId};
use crate::queue::{End, Failure, FailureKind, InspectQueue, Leased, Registry, Task};
use crate::retry::{Jitter, Schedule};
use crate::spread::Spread;
use crate::webhook::Stored;
use crate::worker::{Handler, Ran, Run};

/// The kind of the task that a delivery is.
pub const DELIVERY_KIND: &str = "exactly.delivery";

/// What was committed is always sent, so this is tried for as long as it takes.
const AGAIN: Schedule = Schedule::Doubling {
    base: Duration::from_millis(500),
    jitter: Jitter::Full,
    cap: AGAIN_AFTER_MAX,
};

/// The longest wait in between.
const AGAIN_AFTER_MAX: Duration = Duration::from_mins(5);

/// How many deliveries are made in one step, and how large they are together: a large event for many endpoints would be more
/// than a statement has time for.
const CHUNK_MAX: usize = 1000;
pub(super) const CHUNK_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Makes one delivery of an event for each endpoint that wants it.
///
/// A delivery is known by its event and its endpoint, so whatever is made again after a crash is found.
#[derive(Debug)]
pub(super) struct FanOut<Q: ?Sized> {
    pub(super) queue: Arc<Q>,
    pub(super) gathered: Gathered<Q>,
    pub(super) roster: Arc<Roster<Q>>,
    pub(super) lines: Lines<Q>,
    pub(super) lanes: OrderedLanes,
    pub(super) spread: Spread,
}

/// What became of an event.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    deliveries: usize,
    /// Whom it goes to, by id: what was made of an event is found also when endpoints are long gone. With a limit, since it is
    /// for people.
    to: Vec<EndpointId>,
}

/// How many endpoints an outcome names.
const NAMED_MAX: usize = 1000;

impl Outcome {
    pub(super) fn of(mut to: Vec<EndpointId>) -> Self {
        let deliveries = to.len();
        to.truncate(NAMED_MAX);
        Self { deliveries, to }
    }

    pub(super) fn end(&self) -> End {
        let told = serde_json::to_vec(self).expect("numbers and texts can be written");
        End::Done(told.into())
    }
}

impl<Q: Registry + InspectQueue + ?Sized> Handler for FanOut<Q> {
    fn run<'a>(&'a self, task: &'a Leased) -> Run<'a> {
        Box::pin(async move {
            let event = match Stored::read(&task.payload) {
                Ok(event) => event,
                Err(error) => return Ran::End(End::Bury(Failure::new(FailureKind::Unreadable, error.to_string()))),
            };
            if let Some(key) = &event.order_key {
                return Ran::End(self.in_order(&event, key, task).await);
            }
            Ran::End(match self.fan_out(&event, task).await {
                Ok(outcome) => outcome.end(),
                Err(error) => again(task, &error.to_string(), &self.spread),
            })
        })
    }
}

impl<Q: Registry + ?Sized> FanOut<Q> {
    async fn fan_out(&self, event: &Stored, task: &Leased) -> Result<Outcome, EndpointError> {
        let to = self.wanting(event).await?;
        let body = event.body(task.enqueued_at);
        let delivery_to = |to: &EndpointId| delivery(&DeliveryName::new(event.id.clone(), to.clone()), &body);
        let fitting = CHUNK_BYTES_MAX / body.len().max(1);
        for to in to.chunks(fitting.clamp(1, CHUNK_MAX)) {
            self.gathered.enqueue(to.iter().map(delivery_to).collect()).await?;
        }
        Ok(Outcome::of(to))
    }

    /// Who gets an event, by id.
    pub(super) async fn wanting(&self, event: &Stored) -> Result<Vec<EndpointId>, EndpointError> {
        // Read now, so that an endpoint that was there when the event was committed is in it.
        let list = self.roster.fresh().await?;
        let mut to: Vec<EndpointId> = list.wanting(&event.event_type).cloned().collect();
        to.sort_unstable();
        Ok(to)
    }
}

/// What is tried for as long as it takes.
pub(super) fn again(task: &Leased, why: &str, spread: &Spread) -> End {
    let retry = task.failures.saturating_add(1);
    let after = AGAIN.wait(retry, Duration::ZERO, Duration::MAX, spread.next());
    End::Retry {
        after: after.unwrap_or(AGAIN_AFTER_MAX),
        failure: Failure::new(FailureKind::Transient, why),
    }
}

/// A delivery of this payload, which [`Enclosed`](super::Enclosed) reads and writes.
pub(super) fn delivery(name: &DeliveryName, payload: &bytes::Bytes) -> Task {
    Task::new(DELIVERY_KIND, name.to_string(), payload.clone())
        .expect("ids are short and visible, and an event fits into a task")
        .in_lane(name.endpoint.lane())
}
