//! Ending well, and not so well.

use std::sync::Arc;
use std::time::Duration;

use exactly::queue::{Failure, FailureKind, Queue, TaskState};
use exactly::worker::Drained;
use tokio::time::{Instant, sleep};

use super::{Counting, Fault, RiggedQueue, SECOND, Verb, builder, count, enqueue, history, reach, show};

#[tokio::test(start_paused = true)]
async fn draining_finishes_what_runs_and_gives_back_the_rest_at_once() {
    let queue = Arc::new(RiggedQueue::new());
    let handler = Counting::taking(10 * SECOND);
    let ids = enqueue(&queue, "work", 20).await;
    let first = builder(&queue, handler.clone())
        .concurrency(4)
        .lane_concurrency(4)
        .prefetch(8)
        .start()
        .unwrap();
    sleep(SECOND).await;
    assert_eq!(count(&queue, TaskState::Running).await, 12);
    let started = Instant::now();
    let second_handler = Counting::default();
    let (drained, ()) = tokio::join!(first.drain(), async {
        // The second one gets them at once, not when the first is through.
        let second = builder(&queue, second_handler.clone()).start().unwrap();
        let took = reach(&queue, TaskState::Done, 16).await;
        assert!(took < SECOND, "took {took:?}");
        second.drain().await;
    });
    assert_eq!(
        drained,
        Drained {
            released: 8,
            stopped: 0,
            left: 0
        }
    );
    assert_eq!(started.elapsed().as_secs(), 9);
    assert_eq!(count(&queue, TaskState::Done).await, 20);
    handler.assert_once_each(4);
    second_handler.assert_once_each(16);
    for id in ids {
        let view = show(&queue, id).await;
        assert_eq!((view.failures, view.rescues), (0, 0));
        assert_eq!(history(&queue, id).await, []);
    }
}

#[tokio::test(start_paused = true)]
async fn draining_stops_what_takes_too_long_and_another_worker_tries_it_again_at_once() {
    let queue = Arc::new(RiggedQueue::new());
    let handler = Counting::taking(3600 * SECOND);
    let ids = enqueue(&queue, "work", 3).await;
    let running = builder(&queue, handler.clone()).drain_for(20 * SECOND).start().unwrap();
    sleep(60 * SECOND).await;
    let started = Instant::now();
    let drained = running.drain().await;
    assert_eq!((drained.stopped, drained.left), (3, 0));
    assert_eq!(started.elapsed().as_secs(), 20);
    assert_eq!((handler.now(), handler.ends()), (0, 0));
    let view = show(&queue, ids[0]).await;
    // Noted, but no failure of its own.
    assert_eq!((view.state, view.failures), (TaskState::Waiting, 0));
    assert_eq!(view.failure, Some(Failure::stopped()));
    assert_eq!(history(&queue, ids[0]).await[0].failure.kind, FailureKind::Stopped);
    let _second = builder(&queue, Counting::default()).start().unwrap();
    let took = reach(&queue, TaskState::Done, 3).await;
    assert!(took < SECOND, "took {took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_leased_while_draining_begins_is_given_back() {
    let queue = Arc::new(RiggedQueue::new());
    enqueue(&queue, "work", 10).await;
    let handler = Counting::default();
    let running = builder(&queue, handler.clone()).start().unwrap();
    // Before the worker has had a chance to see the answer to its first question.
    let drained = running.drain().await;
    assert_eq!(drained.left, 0);
    assert_eq!(handler.starts() + count(&queue, TaskState::Waiting).await, 10);
}

#[tokio::test(start_paused = true)]
async fn draining_writes_down_what_could_not_be_written_before() {
    let queue = Arc::new(RiggedQueue::new());
    enqueue(&queue, "work", 10).await;
    let handler = Counting::default();
    let running = builder(&queue, handler.clone()).start().unwrap();
    queue.break_with(Verb::Settle, Fault::Refuses);
    sleep(5 * SECOND).await;
    assert_eq!((handler.ends(), count(&queue, TaskState::Done).await), (10, 0));
    let (drained, ()) = tokio::join!(running.drain(), async {
        sleep(10 * SECOND).await;
        queue.mend();
    });
    assert_eq!(drained.left, 0);
    assert_eq!(count(&queue, TaskState::Done).await, 10);
}

#[tokio::test(start_paused = true)]
async fn draining_ends_even_if_the_queue_never_answers() {
    let queue = Arc::new(RiggedQueue::new());
    enqueue(&queue, "work", 10).await;
    for fault in [Fault::Refuses, Fault::Hangs] {
        let running = builder(&queue, Counting::default()).drain_for(SECOND).start().unwrap();
        queue.break_with(Verb::Settle, fault);
        sleep(SECOND).await;
        let started = Instant::now();
        let drained = running.drain().await;
        assert_eq!(drained.left, 10);
        assert!(started.elapsed() <= 7 * SECOND, "took {:?}", started.elapsed());
        queue.mend();
        sleep(60 * SECOND).await;
        assert_eq!(queue.inner.rescue(5, 100).await.unwrap().len(), 10);
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_handle_stops_handlers_and_the_tasks_are_rescued() {
    let queue = Arc::new(RiggedQueue::new());
    let handler = Counting::taking(3600 * SECOND);
    let ids = enqueue(&queue, "work", 10).await;
    let running = builder(&queue, handler.clone())
        .concurrency(4)
        .lane_concurrency(4)
        .prefetch(6)
        .start()
        .unwrap();
    sleep(SECOND).await;
    assert_eq!(handler.now(), 4);
    drop(running);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(handler.now(), 0);
    assert_eq!(count(&queue, TaskState::Running).await, 10);

    let second = Counting::default();
    let _running = builder(&queue, second.clone()).start().unwrap();
    let took = reach(&queue, TaskState::Done, 10).await;
    // The lease, and a sweep after it.
    assert!((28 * SECOND..=36 * SECOND).contains(&took), "took {took:?}");
    second.assert_once_each(10);
    let view = show(&queue, ids[0]).await;
    assert_eq!((view.failures, view.rescues), (0, 1));
    assert_eq!(history(&queue, ids[0]).await[0].failure.kind, FailureKind::Lost);
}
