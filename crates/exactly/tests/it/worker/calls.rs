//! A queue that does not answer.

use std::sync::Arc;

use exactly::queue::{FailureKind, Queue as _, Task, TaskState};
use exactly::worker::from_fn;
use tokio::time::sleep;

use super::{
    Counting, Fault, RiggedQueue, SECOND, Verb, builder, count, done, enqueue, history, reach, show, transient,
};

const FAULTS: [Option<Fault>; 5] = [
    None,
    Some(Fault::Refuses),
    Some(Fault::LosesReply),
    Some(Fault::Hangs),
    Some(Fault::Panics),
];

#[tokio::test(start_paused = true)]
async fn settling_that_fails_in_any_way_loses_nothing_and_repeats_nothing() {
    // The first three calls in every combination.
    for first in FAULTS {
        for second in FAULTS {
            for third in FAULTS {
                let faults = [first, second, third];
                let queue = Arc::new(RiggedQueue::new());
                queue.script(Verb::Settle, faults);
                let ids = enqueue(&queue, "work", 9).await;
                let handler = Counting::default();
                let running = builder(&queue, handler.clone())
                    .concurrency(3)
                    .prefetch(0)
                    .start()
                    .unwrap();
                reach(&queue, TaskState::Done, 9).await;
                handler.assert_once_each(9);
                assert_eq!(handler.starts(), 9, "{faults:?}");
                for id in ids {
                    assert_eq!(history(&queue, id).await, [], "{faults:?}");
                }
                assert_eq!(running.drain().await.left, 0, "{faults:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_whose_reply_was_lost_uses_up_one_attempt() {
    for fault in [Fault::Refuses, Fault::LosesReply, Fault::Hangs] {
        let queue = Arc::new(RiggedQueue::new());
        queue.script(Verb::Settle, [Some(fault)]);
        let ids = enqueue(&queue, "work", 1).await;
        let handler = from_fn(|task| {
            let first = task.failures == 0;
            Box::pin(async move { if first { transient(60 * SECOND) } else { done() } })
        });
        let _running = builder(&queue, handler).start().unwrap();
        reach(&queue, TaskState::Done, 1).await;
        let history = history(&queue, ids[0]).await;
        assert_eq!(history.len(), 1, "{fault:?}");
        assert_eq!(history[0].failure.kind, FailureKind::Transient);
    }
}

#[tokio::test(start_paused = true)]
async fn while_settlements_cannot_be_written_nothing_more_is_begun() {
    let queue = Arc::new(RiggedQueue::new());
    enqueue(&queue, "work", 1000).await;
    let handler = Counting::default();
    queue.break_with(Verb::Settle, Fault::Refuses);
    let _running = builder(&queue, handler.clone())
        .concurrency(4)
        .prefetch(4)
        .start()
        .unwrap();
    sleep(120 * SECOND).await;
    // What was in hand when the first call failed, and no more.
    assert!(handler.starts() <= 16, "{} were begun", handler.starts());
    assert!(count(&queue, TaskState::Running).await <= 24);
    // Tried now and then, not all the time.
    let tries = queue.calls(Verb::Settle).len();
    assert!((20..=40).contains(&tries), "tried {tries} times");
    queue.mend();
    reach(&queue, TaskState::Done, 1000).await;
    handler.assert_once_each(1000);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_down_for_a_while_costs_time_only() {
    let queue = Arc::new(RiggedQueue::new());
    enqueue(&queue, "work", 500).await;
    let handler = Counting::taking(SECOND / 10);
    let running = builder(&queue, handler.clone()).concurrency(10).start().unwrap();
    for down_for in [1, 10, 25] {
        sleep(SECOND / 2).await;
        queue.go_down();
        sleep(down_for * SECOND).await;
        queue.mend();
    }
    reach(&queue, TaskState::Done, 500).await;
    handler.assert_once_each(500);
    assert_eq!(handler.starts(), 500);
    running.drain().await;
}

#[tokio::test(start_paused = true)]
async fn outcomes_outlive_a_queue_that_is_down_for_longer_than_a_lease() {
    let queue = Arc::new(RiggedQueue::new());
    enqueue(&queue, "work", 5).await;
    let handler = Counting::taking(SECOND);
    let _running = builder(&queue, handler.clone()).start().unwrap();
    sleep(SECOND / 2).await;
    // Others would rescue them, but let everybody have a word first.
    let other = Counting::default();
    let _others: Vec<_> = (0..10)
        .map(|_| builder(&queue, other.clone()).start().unwrap())
        .collect();
    queue.go_down();
    sleep(300 * SECOND).await;
    assert_eq!((handler.ends(), count(&queue, TaskState::Done).await), (5, 0));
    queue.mend();
    reach(&queue, TaskState::Done, 5).await;
    assert_eq!((handler.starts(), other.starts()), (5, 0));
}

#[tokio::test(start_paused = true)]
async fn a_settlement_that_the_queue_never_takes_is_given_up_and_costs_no_other() {
    let queue = Arc::new(RiggedQueue::new());
    let ids = enqueue(&queue, "work", 200).await;
    queue.refuse(ids[17]);
    let handler = Counting::default();
    let running = builder(&queue, handler.clone()).rescues_max(1).start().unwrap();
    let took = reach(&queue, TaskState::Done, 199).await;
    assert!(took < 60 * SECOND, "took {took:?}");
    // Its lease ends, twice, and then somebody has to look at it.
    reach(&queue, TaskState::Dead, 1).await;
    assert_eq!(show(&queue, ids[17]).await.rescues, 2);
    assert_eq!(handler.starts(), 201);
    assert_eq!(running.drain().await.left, 0);
}

#[tokio::test(start_paused = true)]
async fn leasing_that_fails_is_tried_again_with_pauses() {
    for fault in [Fault::Refuses, Fault::Panics] {
        let queue = Arc::new(RiggedQueue::new());
        queue.break_with(Verb::Lease, fault);
        let _running = builder(&queue, Counting::default()).start().unwrap();
        sleep(60 * SECOND).await;
        let tries = queue.calls(Verb::Lease).len();
        assert!((14..=24).contains(&tries), "tried {tries} times");
        enqueue(&queue, "work", 10).await;
        queue.mend();
        let took = reach(&queue, TaskState::Done, 10).await;
        assert!(took <= 5 * SECOND, "took {took:?}");
    }
}

/// A lost commit that has not come to its end yet, say.
#[tokio::test(start_paused = true)]
async fn a_settlement_of_a_locked_task_holds_up_no_other() {
    let queue = Arc::new(RiggedQueue::new());
    let ids = enqueue(&queue, "work", 50).await;
    queue.lock(Some(ids[3]));
    let handler = Counting::default();
    let _running = builder(&queue, handler.clone()).concurrency(4).start().unwrap();
    assert!(reach(&queue, TaskState::Done, 49).await < SECOND);
    // Nor what comes while it is locked.
    let later = (0..30).map(|n| Task::new("work", format!("later {n}"), "").unwrap());
    let _ = queue.enqueue(&later.collect::<Vec<_>>()).await.unwrap();
    assert!(reach(&queue, TaskState::Done, 79).await < SECOND);
    sleep(5 * SECOND).await;
    let last = queue.calls(Verb::Settle).pop();
    assert_eq!(last, Some(1), "it is not told alone");
    queue.lock(None);
    assert!(reach(&queue, TaskState::Done, 80).await < 2 * SECOND);
    handler.assert_once_each(80);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_stays_locked_is_left_to_its_lease() {
    let queue = Arc::new(RiggedQueue::new());
    let ids = enqueue(&queue, "work", 1).await;
    queue.lock(Some(ids[0]));
    // Who rescues passes over what is locked.
    queue.break_with(Verb::Rescue, Fault::Refuses);
    let handler = Counting::default();
    let running = builder(&queue, handler.clone()).start().unwrap();
    sleep(40 * SECOND).await;
    let calls = queue.calls(Verb::Settle).len();
    assert!((20..40).contains(&calls), "{calls} times in a lease");
    assert_eq!(running.drain().await.left, 0, "it is still in hand");
}
