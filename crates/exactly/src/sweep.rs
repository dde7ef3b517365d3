//! Forgetting what may be forgotten.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::queue::{Queue, TaskState};
use crate::store::Reply;
use crate::{Store, StoreError};

/// How often [`hourly`] sweeps.
const EVERY: Duration = Duration::from_hours(1);

/// The most records per step: small enough that a step does not stand in the way of calls.
const BATCH: u32 = 1000;

/// Sweeps `store` now and every hour, in batches, until the handle is aborted. Every store with retention needs this
/// somewhere; several processes may do it at once.
pub fn hourly(store: Arc<dyn Store>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut ticks = every_hour();
        loop {
            ticks.tick().await;
            told(sweep(&*store).await, "expired records deleted");
        }
    })
}

/// Deletes everything that has expired, batch by batch, with room for other work in between.
pub async fn sweep(store: &dyn Store) -> Result<u64, StoreError> {
    in_batches(|| store.sweep(BATCH)).await
}

/// How long the ids of events are to be remembered at least: a sender may repeat one for that long.
pub const REMEMBERED_FOR: Duration = Duration::from_hours(7 * 24);

/// How long what a queue has to remember is kept. From a [`Duration`], which is how long tasks are kept that are done.
///
/// ```
/// use std::time::Duration;
/// use exactly::sweep::{REMEMBERED_FOR, Retention};
///
/// let received = Retention::of_done(REMEMBERED_FOR).marks(Duration::from_hours(30 * 24));
/// # let _ = received;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    done: Duration,
    marks: Duration,
}

impl Retention {
    /// How long [marks](Self::marks) are kept if nothing else is said: 90 days.
    pub const MARKS_DEFAULT: Duration = Duration::from_hours(90 * 24);

    /// Tasks are kept for so long after they are done. Their keys are then as if they had never been used, so it has to be longer
    /// than anybody may repeat one: an [inbox](REMEMBERED_FOR) needs 7 days.
    pub fn of_done(keep: Duration) -> Self {
        Self {
            done: keep,
            marks: Self::MARKS_DEFAULT.max(keep),
        }
    }

    /// How long the highest version of an entity is kept after an event has raised it: 90 days unless told otherwise, or as long
    /// as tasks are if that is longer, and never less than [7 days](REMEMBERED_FOR), whatever is said.
    ///
    /// An event that comes when the mark of its entity is forgotten is taken for the newest, however old it is. It comes so late
    /// only if its sender has kept it for all that time, or sends it again by hand. Take longer than that, and
    /// [`Duration::MAX`] to forget none.
    #[must_use]
    pub fn marks(mut self, keep: Duration) -> Self {
        self.marks = keep.max(REMEMBERED_FOR);
        self
    }
}

impl From<Duration> for Retention {
    fn from(done: Duration) -> Self {
        Self::of_done(done)
    }
}

/// Forgets tasks of `queue` that have been done for longer than `keep`, and [marks](Retention::marks) that were not raised for
/// long, now and every hour, in batches, until the handle is aborted.
///
/// For a queue with an inbox, `hourly_tasks(queue, REMEMBERED_FOR)` is all that is needed.
pub fn hourly_tasks(queue: Arc<dyn Queue>, keep: impl Into<Retention>) -> JoinHandle<()> {
    let keep = keep.into();
    tokio::spawn(async move {
        let mut ticks = every_hour();
        loop {
            ticks.tick().await;
            told(
                sweep_tasks(&*queue, keep).await,
                "tasks that are long done and marks that nobody raises deleted",
            );
        }
    })
}

/// Forgets what [`hourly_tasks`] does, once: how many tasks and marks.
pub async fn sweep_tasks(queue: &dyn Queue, keep: impl Into<Retention>) -> Result<u64, StoreError> {
    let keep = keep.into();
    let tasks = prune(queue, TaskState::Done, keep.done).await?;
    Ok(tasks + prune_marks(queue, keep.marks).await?)
}

/// Forgets all tasks that have been in this state, which is done or dead, for longer than `age`, batch by batch.
pub async fn prune(queue: &dyn Queue, state: TaskState, age: Duration) -> Result<u64, StoreError> {
    in_batches(|| queue.prune(state, age, BATCH)).await
}

/// Forgets all marks that nobody has raised for longer than `age`, which is taken for [7 days](REMEMBERED_FOR) if it is less, batch
/// by batch.
pub async fn prune_marks(queue: &dyn Queue, age: Duration) -> Result<u64, StoreError> {
    let age = age.max(REMEMBERED_FOR);
    in_batches(|| queue.prune_marks(age, BATCH)).await
}

async fn in_batches<'a>(mut step: impl FnMut() -> Reply<'a, u32>) -> Result<u64, StoreError> {
    let mut total = 0;
    loop {
        let swept = step().await?;
        total += u64::from(swept);
        if swept < BATCH {
            return Ok(total);
        }
        tokio::task::yield_now().await;
    }
}

fn every_hour() -> Interval {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

fn told(swept: Result<u64, StoreError>, what: &str) {
    match swept {
        Ok(0) => {}
        Ok(swept) => tracing::info!(swept, "{what}"),
        Err(error) => tracing::warn!(%error, "sweep not finished; the next one goes on"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{ManualClock, Timestamp};
    use crate::queue::{Ask, End, Enqueued, MemoryQueue, Settlement, Task, WorkerId};

    const DAY: Duration = Duration::from_hours(24);

    async fn done(queue: &MemoryQueue, keys: std::ops::Range<u32>) {
        let tasks: Vec<Task> = keys.map(|key| Task::new("k", key.to_string(), "").unwrap()).collect();
        assert!(queue.enqueue(&tasks).await.unwrap().iter().all(Enqueued::is_new));
        let leased = queue.lease(&Ask::new(WorkerId::random(), 10_000)).await.unwrap();
        let ends = leased
            .iter()
            .map(|task| Settlement::new(task.lease, End::Done("".into())));
        let _ = queue.settle(&ends.collect::<Vec<_>>()).await.unwrap();
    }

    #[tokio::test]
    async fn what_is_long_done_is_forgotten_in_batches_and_the_rest_stays() {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(0)));
        let queue = MemoryQueue::with_clock(Arc::clone(&clock));
        done(&queue, 0..2500).await;
        clock.advance(DAY * 2);
        done(&queue, 2500..2510).await;
        assert_eq!(prune(&queue, TaskState::Done, DAY).await.unwrap(), 2500);
        assert_eq!(prune(&queue, TaskState::Done, DAY).await.unwrap(), 0);
        let again = ["2500", "1"].map(|key| Task::new("k", key, "").unwrap());
        let again: Vec<bool> = queue
            .enqueue(&again)
            .await
            .unwrap()
            .iter()
            .map(Enqueued::is_new)
            .collect();
        assert_eq!(again, [false, true]);
    }
}
