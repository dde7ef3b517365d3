//! How endpoints are doing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex as Turn;
use tokio::time::Instant;

use super::{EndpointError, EndpointId, Endpoints};
use crate::StoreError;
use crate::clock::{Clock, Timestamp, WallClock};
use crate::queue::{Failure, InspectQueue, Registry, Revision, TaskState};
use crate::webhook::EventId;

/// What the names of notes begin with among what a queue remembers.
const PREFIX: &str = "health/";

/// How often a process notes that an endpoint does well: the time of its last success is about that exact.
const SUCCESS_EVERY: Duration = Duration::from_secs(10);

/// How often it notes failures. Those in between are noted with the next.
const FAILURES_EVERY: Duration = Duration::from_secs(1);

/// How many failures are kept.
const FAILURES_MAX: usize = 5;

/// How much of what is told of a failure is kept, in bytes.
const WHY_BYTES_MAX: usize = 512;

/// How often a note is written again because another process's came first. It is a note, and not worth more.
const ROUNDS_MAX: u32 = 3;

/// How an endpoint is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EndpointHealth {
    /// How many deliveries wait for it.
    pub waiting: u64,
    /// How many are under way.
    pub running: u64,
    /// How many have failed for good.
    pub dead: u64,
    /// It failed all the time, and is left alone until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked_until_ms: Option<u64>,
    /// When it last took something, to within a few seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_success_ms: Option<u64>,
    /// What it last failed at, the newest first. Of many at once some are left out.
    pub last_failures: Vec<EndpointFailure>,
}

/// An attempt at a delivery that failed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct EndpointFailure {
    /// When it ended.
    pub at_ms: u64,
    /// What was sent.
    pub event: EventId,
    /// The status of the answer, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What to tell people.
    pub why: String,
}

/// What is kept of an endpoint.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Note {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parked_until_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_success_ms: Option<u64>,
    #[serde(default)]
    failures: Vec<EndpointFailure>,
}

impl<Q: Registry + InspectQueue + ?Sized> Endpoints<Q> {
    /// How an endpoint is doing, whether it is there or not.
    pub async fn health(&self, id: &EndpointId) -> Result<EndpointHealth, EndpointError> {
        let queue = self.queue();
        let (note, _) = read(&**queue, id).await?;
        let mut health = EndpointHealth {
            last_success_ms: note.last_success_ms,
            last_failures: note.failures,
            ..EndpointHealth::default()
        };
        let lane = id.lane();
        for depth in queue.depths().await?.iter().filter(|depth| depth.lane == lane) {
            match depth.state {
                TaskState::Waiting => health.waiting = depth.tasks,
                TaskState::Running => health.running = depth.tasks,
                TaskState::Dead => health.dead = depth.tasks,
                TaskState::Held | TaskState::Done => {}
            }
        }
        // Whoever resumes it ends its rest.
        let is_closed = queue.lanes().await?.iter().any(|view| view.lane == lane && view.paused);
        let is_active = self
            .get(id)
            .await?
            .is_some_and(|endpoint| endpoint.standing.is_active());
        let now = WallClock.now().as_millis();
        health.parked_until_ms = note
            .parked_until_ms
            .filter(|until| is_closed && is_active && *until > now);
        Ok(health)
    }
}

/// Notes how endpoints are doing, seldom enough that it costs nothing. What cannot be noted is left out.
#[derive(Debug)]
pub(super) struct Notes<Q: ?Sized> {
    queue: Arc<Q>,
    // A std mutex, since it is held for a look and never across an await.
    recent: Mutex<HashMap<EndpointId, Recent>>,
    /// Whoever has it writes that an endpoint does well.
    turn: Turn<()>,
}

/// What this process has noted of an endpoint, and has yet to.
#[derive(Debug, Default)]
struct Recent {
    success_at: Option<Instant>,
    failures_at: Option<Instant>,
    failures: Vec<EndpointFailure>,
}

impl Note {
    fn worked(&mut self, at_ms: u64) {
        self.last_success_ms = self.last_success_ms.max(Some(at_ms));
        // Unless it has failed since.
        if self.failures.iter().all(|failure| failure.at_ms <= at_ms) {
            self.parked_until_ms = None;
        }
    }
}

impl<Q: Registry + ?Sized + 'static> Notes<Q> {
    pub(super) fn new(queue: Arc<Q>) -> Self {
        Self {
            queue,
            recent: Mutex::default(),
            turn: Turn::default(),
        }
    }

    /// The endpoint has taken something. No delivery waits until that is noted, and of many endpoints it is one after the other: a
    /// process that starts has something to note of all of them at once.
    pub(super) fn worked(self: &Arc<Self>, id: &EndpointId) {
        if self.recent(id, |recent| is_due(&mut recent.success_at, SUCCESS_EVERY)) {
            let (notes, id, now) = (Arc::clone(self), id.clone(), WallClock.now().as_millis());
            tokio::spawn(async move {
                let _turn = notes.turn.lock().await;
                notes.write(&id, |note| note.worked(now)).await;
            });
        }
    }

    /// An attempt at it has failed; if it is left alone from here on, until when.
    pub(super) async fn failed(
        &self,
        id: &EndpointId,
        event: &EventId,
        (status, failure): (Option<u16>, &Failure),
        parked_for: Option<Duration>,
    ) {
        let now = WallClock.now();
        let why = &failure.message;
        let failed = EndpointFailure {
            at_ms: now.as_millis(),
            event: event.clone(),
            status,
            why: why[..why.floor_char_boundary(WHY_BYTES_MAX)].to_owned(),
        };
        let told = self.recent(id, |recent| {
            // Its next success is worth a note.
            recent.success_at = None;
            recent.failures.insert(0, failed);
            recent.failures.truncate(FAILURES_MAX);
            let is_due = is_due(&mut recent.failures_at, FAILURES_EVERY) || parked_for.is_some();
            is_due.then(|| std::mem::take(&mut recent.failures))
        });
        let Some(told) = told else { return };
        let until = parked_for.map(|parked_for| now.after(parked_for));
        self.write(id, |note| {
            note.failures.extend(told.iter().cloned());
            note.failures.sort_by_key(|failure| std::cmp::Reverse(failure.at_ms));
            note.failures.truncate(FAILURES_MAX);
            note.parked_until_ms = until.map(Timestamp::as_millis).max(note.parked_until_ms);
        })
        .await;
    }

    fn recent<T>(&self, id: &EndpointId, look: impl FnOnce(&mut Recent) -> T) -> T {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        // Most are known, and their names are then not copied.
        match recent.get_mut(id) {
            Some(known) => look(known),
            None => look(recent.entry(id.clone()).or_default()),
        }
    }

    async fn write(&self, id: &EndpointId, change: impl Fn(&mut Note) + Send) {
        for _ in 0..ROUNDS_MAX {
            match self.try_write(id, &change).await {
                Ok(false) => {}
                Ok(true) => return,
                Err(error) => {
                    tracing::debug!(endpoint = %id, %error, "how an endpoint is doing could not be noted");
                    return;
                }
            }
        }
    }

    async fn try_write(&self, id: &EndpointId, change: &(impl Fn(&mut Note) + Send)) -> Result<bool, StoreError> {
        let (mut note, over) = read(&*self.queue, id).await?;
        change(&mut note);
        let value = serde_json::to_vec(&note).expect("a note is made of texts and numbers");
        let written = self.queue.write_card(&name(id), &value.into(), over).await?;
        Ok(written.is_some())
    }
}

fn is_due(at: &mut Option<Instant>, every: Duration) -> bool {
    let is_due = at.is_none_or(|at| at.elapsed() >= every);
    if is_due {
        *at = Some(Instant::now());
    }
    is_due
}

/// One that cannot be read is worth nothing, and is written anew.
async fn read<Q: Registry + ?Sized>(queue: &Q, id: &EndpointId) -> Result<(Note, Option<Revision>), StoreError> {
    let card = queue.read_card(&name(id)).await?;
    Ok(card.map_or_else(Default::default, |card| {
        let note = serde_json::from_slice(&card.value).unwrap_or_default();
        (note, Some(card.revision))
    }))
}

pub(super) fn name(id: &EndpointId) -> String {
    format!("{PREFIX}{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A success may be noted after a failure that came after it.
    #[test]
    fn a_success_ends_no_rest_that_began_after_it() {
        let failure = EndpointFailure {
            at_ms: 20,
            event: EventId::random(),
            status: Some(503),
            why: "busy".to_owned(),
        };
        let mut note = Note {
            parked_until_ms: Some(100),
            failures: vec![failure],
            ..Note::default()
        };
        note.worked(10);
        assert_eq!((note.last_success_ms, note.parked_until_ms), (Some(10), Some(100)));
        note.worked(30);
        assert_eq!((note.last_success_ms, note.parked_until_ms), (Some(30), None));
    }
}
