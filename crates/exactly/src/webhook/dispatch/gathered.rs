//! Deliveries of many events are made by one call.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Mutex as Turn, oneshot};
use tokio::time::sleep;

use super::fan_out::CHUNK_BYTES_MAX;
use crate::queue::{Queue, Task};
use crate::{StoreError, StoreErrorKind};

/// How many tasks are enqueued at once, unless one event has more.
const TASKS_MAX: usize = 2000;

/// How long others are waited for who are likely to come.
const GATHERED_FOR: Duration = Duration::from_millis(1);

/// Enqueues for many at once: what comes while a call is under way goes with the next one. An event mostly makes few deliveries, and
/// a call costs the queue about as much for one as for a hundred.
#[derive(Debug)]
pub(super) struct Gathered<Q: ?Sized> {
    queue: Arc<Q>,
    /// A std mutex, since it is never held across an await.
    waiting: Mutex<VecDeque<Waiting>>,
    /// Whoever has it makes the call, for all that wait. It is for how many the last one was made.
    turn: Turn<usize>,
}

#[derive(Debug)]
struct Waiting {
    tasks: Vec<Task>,
    told: oneshot::Sender<Enqueued>,
}

/// What became of somebody's tasks.
#[derive(Debug)]
enum Enqueued {
    /// They are in the queue.
    Done,
    /// The queue did not take them, together with others. Alone it may.
    Back(Vec<Task>),
}

impl<Q: Queue + ?Sized> Gathered<Q> {
    pub(super) fn new(queue: Arc<Q>) -> Self {
        Self {
            queue,
            waiting: Mutex::default(),
            turn: Turn::new(0),
        }
    }

    /// Returns once these are in the queue, or were there.
    pub(super) async fn enqueue(&self, tasks: Vec<Task>) -> Result<(), StoreError> {
        let (told, mut answer) = oneshot::channel();
        self.waiting().push_back(Waiting { tasks, told });
        let mut turn = self.turn.lock().await;
        loop {
            match answer.try_recv() {
                Ok(Enqueued::Done) => return Ok(()),
                Ok(Enqueued::Back(tasks)) => {
                    drop(turn);
                    return self.queue.enqueue(&tasks).await.map(drop);
                }
                Err(TryRecvError::Empty) => {
                    // Those who came together come together again, a moment after their last call.
                    if *turn > 1 {
                        sleep(GATHERED_FOR).await;
                    }
                    *turn = self.enqueue_waiting().await;
                }
                Err(TryRecvError::Closed) => {
                    let context = "enqueue tasks: whoever enqueued them for others as well was stopped";
                    return Err(StoreError::new(StoreErrorKind::Unavailable, context));
                }
            }
        }
    }

    /// For how many.
    async fn enqueue_waiting(&self) -> usize {
        let (mut all, mut whose) = (Vec::new(), Vec::new());
        for Waiting { mut tasks, told } in self.next() {
            whose.push((tasks.len(), told));
            all.append(&mut tasks);
        }
        let enqueued = self.queue.enqueue(&all).await.is_ok();
        let (mut all, made_for) = (all.into_iter(), whose.len());
        for (count, told) in whose {
            let tasks = all.by_ref().take(count);
            let answer = if enqueued {
                tasks.for_each(drop);
                Enqueued::Done
            } else {
                Enqueued::Back(tasks.collect())
            };
            // Whoever has stopped meanwhile needs no answer: these are found by whoever leases its event.
            let _ = told.send(answer);
        }
        made_for
    }

    /// Those that have waited longest, one at least.
    fn next(&self) -> VecDeque<Waiting> {
        let mut waiting = self.waiting();
        // Whoever has stopped may have lost its event to somebody else, who makes these: later they could be made a second time.
        waiting.retain(|next| !next.told.is_closed());
        let (mut tasks, mut bytes) = (0, 0);
        let fitting = waiting.iter().take_while(|next| {
            tasks += next.tasks.len();
            bytes += next.tasks.iter().map(|task| task.payload().len()).sum::<usize>();
            tasks <= TASKS_MAX && bytes <= CHUNK_BYTES_MAX
        });
        let later = fitting.count().max(1).min(waiting.len());
        let later = waiting.split_off(later);
        mem::replace(&mut *waiting, later)
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{InspectQueue as _, MemoryQueue};

    /// Its event is somebody else's by then, who makes the same tasks. Made later they could be there a second time.
    #[tokio::test]
    async fn what_somebody_wanted_who_has_stopped_is_not_enqueued() {
        let gathered = Arc::new(Gathered::new(Arc::new(MemoryQueue::new())));
        let turn = gathered.turn.lock().await;
        let task = |key: &str| Task::new("delivery", key, "{}").unwrap();
        let stopped = tokio::spawn({
            let (gathered, tasks) = (Arc::clone(&gathered), vec![task("stopped")]);
            async move { gathered.enqueue(tasks).await }
        });
        while gathered.waiting().is_empty() {
            tokio::task::yield_now().await;
        }
        stopped.abort();
        assert!(stopped.await.unwrap_err().is_cancelled());
        drop(turn);
        gathered.enqueue(vec![task("next")]).await.unwrap();
        let there = async |key: &str| gathered.queue.show(task(key).id()).await.unwrap().is_some();
        assert!(there("next").await && !there("stopped").await);
    }
}
