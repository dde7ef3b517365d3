//! What a worker promises, on a queue in memory that can be told to fail, and with time that passes when everybody waits.

mod calls;
mod drain;
mod lanes;
mod leases;
mod rigged;
mod schedules;
mod suspects;
mod telemetry;
mod turns;
mod work;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use exactly::queue::{
    AttemptView, End, Failure, FailureKind, InspectQueue, Leased, Queue, Task, TaskFilter, TaskId, TaskPage, TaskState,
    TaskView,
};
use exactly::worker::{Builder, Handler, Ran, Run, Worker};
use tokio::time::{Instant, sleep, timeout};

pub(crate) use rigged::{Fault, RiggedQueue, Verb};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A worker that handles the kind `work`.
fn builder(queue: &Arc<RiggedQueue>, handler: impl Handler) -> Builder {
    Worker::builder(Arc::<RiggedQueue>::clone(queue)).handle("work", handler)
}

/// Adds so many tasks of a kind, with the keys 0, 1, 2 and so on.
async fn enqueue(queue: &RiggedQueue, kind: &str, count: usize) -> Vec<TaskId> {
    let tasks: Vec<Task> = (0..count)
        .map(|number| Task::new(kind, number.to_string(), "").unwrap())
        .collect();
    for tasks in tasks.chunks(10_000) {
        assert!(
            queue
                .inner
                .enqueue(tasks)
                .await
                .unwrap()
                .iter()
                .all(exactly::queue::Enqueued::is_new)
        );
    }
    tasks.iter().map(Task::id).collect()
}

pub(crate) async fn show(queue: &RiggedQueue, id: TaskId) -> TaskView {
    queue.inner.show(id).await.unwrap().unwrap()
}

pub(crate) async fn history(queue: &RiggedQueue, id: TaskId) -> Vec<AttemptView> {
    queue.inner.attempts(id).await.unwrap()
}

/// How many tasks are in this state.
async fn count(queue: &RiggedQueue, state: TaskState) -> usize {
    let filter = TaskFilter {
        state: Some(state),
        ..TaskFilter::default()
    };
    let page = TaskPage {
        after: None,
        limit: u32::MAX,
    };
    queue.inner.list(&filter, page).await.unwrap().len()
}

/// Waits until so many tasks are in this state, and says how long that took.
async fn reach(queue: &RiggedQueue, state: TaskState, tasks: usize) -> Duration {
    let started = Instant::now();
    let reached = timeout(3600 * SECOND, async {
        while count(queue, state).await != tasks {
            sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(
        reached.await.is_ok(),
        "{} {state} and not {tasks}",
        count(queue, state).await
    );
    started.elapsed()
}

fn done() -> Ran {
    Ran::End(End::Done("done".into()))
}

fn transient(after: Duration) -> Ran {
    Ran::End(End::Retry {
        after,
        failure: Failure::new(FailureKind::Transient, "not now"),
    })
}

/// A handler that counts who runs, and takes as long as it is told.
#[derive(Clone, Debug, Default)]
struct Counting(Arc<Counted>);

#[derive(Debug, Default)]
struct Counted {
    takes: Duration,
    /// The key of a task that never ends.
    stuck: Option<&'static str>,
    now: AtomicUsize,
    most: AtomicUsize,
    started: Mutex<BTreeMap<String, usize>>,
    ended: Mutex<BTreeMap<String, usize>>,
}

impl Counting {
    fn taking(takes: Duration) -> Self {
        Self(Arc::new(Counted {
            takes,
            ..Counted::default()
        }))
    }

    fn stuck_at(key: &'static str) -> Self {
        Self(Arc::new(Counted {
            stuck: Some(key),
            ..Counted::default()
        }))
    }

    /// How many run right now.
    fn now(&self) -> usize {
        self.0.now.load(Ordering::SeqCst)
    }

    /// How many ran at once at most.
    fn most(&self) -> usize {
        self.0.most.load(Ordering::SeqCst)
    }

    /// How often tasks were begun.
    fn starts(&self) -> usize {
        self.0.started.lock().unwrap().values().sum()
    }

    /// How often tasks were carried out to their end.
    fn ends(&self) -> usize {
        self.0.ended.lock().unwrap().values().sum()
    }

    /// Whether each of so many tasks was carried out once.
    fn assert_once_each(&self, tasks: usize) {
        let ended = self.0.ended.lock().unwrap();
        assert_eq!(ended.len(), tasks);
        let twice: Vec<_> = ended.iter().filter(|(_, runs)| **runs != 1).collect();
        assert!(twice.is_empty(), "ran more than once: {twice:?}");
    }
}

struct Here(Arc<Counted>);

impl Drop for Here {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Handler for Counting {
    fn run<'a>(&'a self, task: &'a Leased) -> Run<'a> {
        Box::pin(async move {
            let now = self.0.now.fetch_add(1, Ordering::SeqCst) + 1;
            let _here = Here(Arc::clone(&self.0));
            self.0.most.fetch_max(now, Ordering::SeqCst);
            *self.0.started.lock().unwrap().entry(task.key.to_string()).or_default() += 1;
            if self.0.stuck == Some(&*task.key) {
                std::future::pending::<()>().await;
            }
            if !self.0.takes.is_zero() {
                sleep(self.0.takes).await;
            }
            *self.0.ended.lock().unwrap().entry(task.key.to_string()).or_default() += 1;
            done()
        })
    }
}
