//! What is not in its turn, and what keeps its place.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use exactly::queue::{Ask, End, Lane, Leased, Queue as _, Task, TaskState, WorkerId};
use exactly::worker::{Handler, Ran, Run, Worker};
use tokio::time::sleep;

use super::{Counting, RiggedQueue, SECOND, builder, done, enqueue, history, reach, show};

/// Gives a task back for a while, so many times.
#[derive(Clone, Debug)]
struct Deferring {
    times: usize,
    after: Duration,
    runs: Arc<AtomicUsize>,
}

impl Handler for Deferring {
    fn run<'a>(&'a self, _: &'a Leased) -> Run<'a> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst);
        let ran = if run < self.times {
            Ran::End(End::Defer { after: self.after })
        } else {
            done()
        };
        Box::pin(async move { ran })
    }
}

/// Who gives something back for a moment looks for it after that moment, and not when it would look anyway.
#[tokio::test(start_paused = true)]
async fn what_was_deferred_is_looked_for_in_time() {
    let queue = Arc::new(RiggedQueue::new());
    let ids = enqueue(&queue, "work", 1).await;
    let handler = Deferring {
        times: 10,
        after: Duration::from_millis(30),
        runs: Arc::default(),
    };
    let worker = builder(&queue, handler.clone()).poll_every(60 * SECOND);
    let _running = worker.start().unwrap();
    let took = reach(&queue, TaskState::Done, 1).await;
    assert!(took < SECOND, "took {took:?}");
    assert!(took >= Duration::from_millis(290), "took {took:?}");
    assert_eq!(handler.runs.load(Ordering::SeqCst), 11);
    let view = show(&queue, ids[0]).await;
    assert_eq!((view.failures, view.rescues), (0, 0));
    assert_eq!(history(&queue, ids[0]).await, []);
}

/// An event that is stopped goes back to its place, or the next one would overtake it.
#[tokio::test(start_paused = true)]
async fn an_event_that_is_stopped_keeps_its_place() {
    let queue = Arc::new(RiggedQueue::new());
    let lane = Lane::new("exactly.event/07").unwrap();
    queue.inner.cap_lane(&lane, Some(1)).await.unwrap();
    for key in ["first", "second"] {
        let task = Task::new("exactly.event", key, "").unwrap().in_lane(lane.clone());
        assert!(queue.inner.enqueue(&[task]).await.unwrap()[0].is_new());
        sleep(SECOND).await;
    }
    let stuck = Counting::stuck_at("first");
    let worker = Worker::builder(Arc::<RiggedQueue>::clone(&queue)).handle("exactly.event", stuck.clone());
    let running = worker.drain_for(SECOND).start().unwrap();
    sleep(SECOND).await;
    assert_eq!(stuck.now(), 1);
    assert_eq!(running.drain().await.stopped, 1);
    let next = queue.inner.lease(&Ask::new(WorkerId::random(), 10)).await.unwrap();
    assert_eq!(next.iter().map(|task| &*task.key).collect::<Vec<_>>(), ["first"]);
    assert_eq!(history(&queue, next[0].lease.id).await, []);
}
