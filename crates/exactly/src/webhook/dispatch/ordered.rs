//! Events that are in order with others become deliveries one at a time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::fan_out::{FanOut, Outcome};
use super::lines::Joining;
use super::{EndpointError, EndpointId};
use crate::StoreError;
use crate::clock::Timestamp;
use crate::queue::{End, InspectQueue, Leased, Registry};
use crate::retry::{Jitter, Schedule};
use crate::webhook::{OrderKey, SHARDS, Stored};

/// How often a lane gets its cap, which somebody may have taken off.
const CAP_EVERY: Duration = Duration::from_mins(1);

/// How long a task is kept that was leased too early, so that what goes back and forth meanwhile is little.
const TOO_EARLY: Duration = Duration::from_millis(5);

/// How long a task is kept when our own database is in the way. Nothing of its lane overtakes it meanwhile, as it would if it was
/// to wait in the queue. Far below any lease, though that is renewed.
const KEPT: Schedule = Schedule::Doubling {
    base: Duration::from_millis(100),
    jitter: Jitter::Full,
    cap: KEPT_MAX,
};

const KEPT_MAX: Duration = Duration::from_secs(5);

/// What a process knows of the lanes of events that are in order.
#[derive(Debug, Default)]
pub(super) struct OrderedLanes([OrderedLane; SHARDS]);

#[derive(Debug, Default)]
struct OrderedLane {
    /// Tokio's, since it is held while the lane gets its cap.
    capped: Mutex<Option<Capped>>,
    /// How often our own database was in the way, one time after the other.
    failures: AtomicU32,
}

/// A lane that has its cap.
#[derive(Clone, Copy, Debug)]
struct Capped {
    /// Since when at the latest, by the queue's clock.
    since: Timestamp,
    /// When it was given the cap last.
    at: Instant,
}

impl<Q: Registry + InspectQueue + ?Sized> FanOut<Q> {
    /// Makes deliveries of an event in its turn. Whatever is in the way, the event keeps its place.
    pub(super) async fn in_order(&self, event: &Stored, key: &OrderKey, task: &Leased) -> End {
        let failures = &self.lanes.0[key.shard()].failures;
        match self.in_turn(event, key, task).await {
            Ok(Some(outcome)) => {
                failures.store(0, Ordering::Relaxed);
                outcome.end()
            }
            Ok(None) => {
                sleep(TOO_EARLY).await;
                End::Release
            }
            Err(error) => {
                tracing::warn!(task = %task.lease.id, %error, "an ordered event waits, and what is behind it");
                let retry = failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
                let kept = KEPT.wait(retry, Duration::ZERO, Duration::MAX, self.spread.next());
                sleep(kept.unwrap_or(KEPT_MAX)).await;
                End::Release
            }
        }
    }

    /// Nothing if it may not be this event's turn.
    async fn in_turn(&self, event: &Stored, key: &OrderKey, task: &Leased) -> Result<Option<Outcome>, EndpointError> {
        if !self.is_alone(key, task).await? {
            return Ok(None);
        }
        let to: Vec<EndpointId> = self.wanting(event).await?;
        let now = self.queue.now().await?;
        let body = event.body(task.enqueued_at);
        let joining = Joining {
            event: &event.id,
            key,
            body: &body,
            now,
        };
        self.lines.join(joining, &to).await?;
        if let Err(error) = self.lines.look_over(to.len(), now).await {
            tracing::debug!(%error, "lines that are not in use stay for now");
        }
        Ok(Some(Outcome::of(to)))
    }

    /// Whether this task was leased while its lane had its cap of one, so that all before it are over. The first event of a lane
    /// in a process sees to the cap: who orders nothing needs none.
    async fn is_alone(&self, key: &OrderKey, task: &Leased) -> Result<bool, StoreError> {
        let mut known = self.lanes.0[key.shard()].capped.lock().await;
        let capped = match *known {
            Some(capped) if capped.at.elapsed() < CAP_EVERY => capped,
            _ => {
                self.queue.cap_lane(&key.lane(), Some(1)).await?;
                let since = self.queue.now().await?;
                *known.insert(Capped {
                    since,
                    at: Instant::now(),
                })
            }
        };
        let view = self.queue.show(task.lease.id).await?;
        let view = view.filter(|view| view.fence == task.lease.fence);
        let is_alone = view.is_some_and(|view| view.started_at > Some(capped.since));
        if !is_alone && self.queue.now().await? < capped.since {
            tracing::warn!(lane = %task.lane, "the queue's clock has gone back");
            *known = None;
        }
        Ok(is_alone)
    }
}
