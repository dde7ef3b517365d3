//! Leases: kept, lost, and what becomes of handlers then.

use std::sync::{Arc, Mutex};

use exactly::Fenced;
use exactly::queue::{Ask, End, Failure, FailureKind, Queue, Settlement, TaskState, WorkerId};
use exactly::worker::from_fn;
use tokio::time::{Instant, sleep};

use super::{Counting, Fault, RiggedQueue, SECOND, Verb, builder, done, enqueue, history, reach, show};

#[tokio::test(start_paused = true)]
async fn a_heartbeat_keeps_what_runs_and_what_waits() {
    let queue = Arc::new(RiggedQueue::new());
    let handler = Counting::taking(600 * SECOND);
    enqueue(&queue, "work", 6).await;
    let _running = builder(&queue, handler.clone()).concurrency(3).start().unwrap();
    // Another worker would rescue whatever is lost.
    let other = Counting::default();
    let _other = builder(&queue, other.clone()).start().unwrap();
    reach(&queue, TaskState::Done, 6).await;
    handler.assert_once_each(6);
    assert_eq!(other.starts(), 0);
    // One call for all of them.
    let renewals = queue.calls(Verb::Renew);
    assert!(renewals.iter().take(50).all(|leases| *leases == 6), "{renewals:?}");
}

#[tokio::test(start_paused = true)]
async fn what_ends_after_its_task_was_taken_changes_nothing() {
    let queue = Arc::new(RiggedQueue::new());
    let ids = enqueue(&queue, "work", 1).await;
    let handler = Counting::taking(5 * SECOND);
    let _running = builder(&queue, handler.clone()).start().unwrap();
    sleep(SECOND).await;
    queue.break_with(Verb::Lease, Fault::Refuses);
    // Before the next heartbeat it is given back by somebody, and leased by somebody else.
    let lease = exactly::queue::Lease {
        id: ids[0],
        fence: show(&queue, ids[0]).await.fence,
    };
    let back = Settlement::new(lease, End::Release);
    assert_eq!(queue.inner.settle(&[back]).await.unwrap(), [Fenced::Applied]);
    let other = WorkerId::random();
    let taken = queue.inner.lease(&Ask::new(other, 1)).await.unwrap();
    sleep(6 * SECOND).await;
    assert_eq!(handler.ends(), 1);
    let view = show(&queue, ids[0]).await;
    assert_eq!(
        (view.state, view.worker, view.outcome),
        (TaskState::Running, Some(other), None)
    );
    let own = Settlement::new(taken[0].lease, End::Done("the other's".into()));
    assert_eq!(queue.inner.settle(&[own]).await.unwrap(), [Fenced::Applied]);
}

#[tokio::test(start_paused = true)]
async fn a_superseded_handler_is_stopped_at_the_next_heartbeat() {
    let queue = Arc::new(RiggedQueue::new());
    let ids = enqueue(&queue, "work", 2).await;
    let handler = Counting::taking(3600 * SECOND);
    let _running = builder(&queue, handler.clone()).concurrency(1).start().unwrap();
    sleep(SECOND).await;
    let taken = show(&queue, ids[0]).await;
    assert_eq!(taken.state, TaskState::Running);
    // An operator holds it, say.
    let lease = exactly::queue::Lease {
        id: ids[0],
        fence: taken.fence,
    };
    let held = Settlement::new(lease, End::Hold(Failure::new(FailureKind::Unknown, "look at it first")));
    assert_eq!(queue.inner.settle(&[held]).await.unwrap(), [Fenced::Applied]);
    sleep(11 * SECOND).await;
    // The first was stopped, and the second has its place.
    assert_eq!((handler.now(), handler.starts(), handler.ends()), (1, 2, 0));
    let view = show(&queue, ids[0]).await;
    assert_eq!(view.state, TaskState::Held);
    assert_eq!(view.fence, taken.fence);
    assert_eq!(show(&queue, ids[1]).await.state, TaskState::Running);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_taken_while_it_waited_is_not_started() {
    let queue = Arc::new(RiggedQueue::new());
    let ids = enqueue(&queue, "work", 3).await;
    let handler = Counting::taking(15 * SECOND);
    let _running = builder(&queue, handler.clone()).concurrency(1).start().unwrap();
    sleep(SECOND).await;
    let lease = exactly::queue::Lease {
        id: ids[1],
        fence: show(&queue, ids[1]).await.fence,
    };
    let elsewhere = Settlement::new(lease, End::Done("elsewhere".into()));
    assert_eq!(queue.inner.settle(&[elsewhere]).await.unwrap(), [Fenced::Applied]);
    reach(&queue, TaskState::Done, 3).await;
    sleep(60 * SECOND).await;
    assert_eq!(handler.starts(), 2);
    assert_eq!(show(&queue, ids[1]).await.outcome.unwrap(), "elsewhere");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_cannot_renew_stops_its_handlers_when_their_leases_may_have_ended() {
    for fault in [Fault::Refuses, Fault::Hangs, Fault::Panics] {
        let queue = Arc::new(RiggedQueue::new());
        enqueue(&queue, "work", 4).await;
        let handler = Counting::taking(3600 * SECOND);
        let running = builder(&queue, handler.clone()).concurrency(2).start().unwrap();
        sleep(SECOND).await;
        queue.break_with(Verb::Renew, fault);
        let lane = exactly::queue::Lane::new("work").unwrap();
        queue.inner.pause_lane(&lane).await.unwrap();
        sleep(28 * SECOND + SECOND / 2).await;
        assert_eq!(handler.now(), 2, "{fault:?}: stopped too early");
        sleep(SECOND).await;
        assert_eq!(handler.now(), 0, "{fault:?}: runs on");
        // What was not begun is given back, and what was is rescued.
        reach(&queue, TaskState::Waiting, 4).await;
        drop(running);
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_now_and_then_loses_nothing() {
    let queue = Arc::new(RiggedQueue::new());
    enqueue(&queue, "work", 4).await;
    let handler = Counting::taking(300 * SECOND);
    let _running = builder(&queue, handler.clone()).concurrency(2).start().unwrap();
    let faults = [Some(Fault::Refuses), Some(Fault::LosesReply), None, Some(Fault::Hangs)];
    queue.script(Verb::Renew, faults.into_iter().cycle().take(200));
    reach(&queue, TaskState::Done, 4).await;
    handler.assert_once_each(4);
    assert_eq!(handler.starts(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_makes_workers_vanish_ends_dead_with_an_alert() {
    let queue = Arc::new(RiggedQueue::new());
    let ids = enqueue(&queue, "work", 1).await;
    let alerts = Arc::new(Mutex::new(Vec::new()));
    let started = Instant::now();
    let mut vanished = 0;
    while show(&queue, ids[0]).await.state != TaskState::Dead {
        let handler = Counting::taking(3600 * SECOND);
        let alerts = Arc::clone(&alerts);
        let running = builder(&queue, handler.clone())
            .rescues_max(3)
            .on_buried(move |dead| alerts.lock().unwrap().push(dead.clone()))
            .start()
            .unwrap();
        while handler.now() == 0 && show(&queue, ids[0]).await.state != TaskState::Dead {
            sleep(SECOND / 10).await;
        }
        vanished += handler.now();
        drop(running);
        assert!(started.elapsed() < 3600 * SECOND);
    }
    // Begun once, and three times more after a rescue.
    assert_eq!(vanished, 4);
    let view = show(&queue, ids[0]).await;
    assert_eq!((view.failures, view.rescues), (0, 4));
    let alerts = alerts.lock().unwrap().clone();
    assert_eq!(alerts.len(), 1);
    assert_eq!((alerts[0].id, &*alerts[0].kind, &*alerts[0].key), (ids[0], "work", "0"));
    assert_eq!(Some(&alerts[0].failure), view.failure.as_ref());
    let history = history(&queue, ids[0]).await;
    assert_eq!(history.len(), 4);
    assert!(history.iter().all(|attempt| attempt.failure.kind == FailureKind::Lost));
}

#[tokio::test(start_paused = true)]
async fn tasks_whose_lease_was_never_answered_for_are_rescued() {
    let queue = Arc::new(RiggedQueue::new());
    let ids = enqueue(&queue, "work", 2).await;
    let first = show(&queue, ids[0]).await.fence.get();
    let started = Arc::new(Mutex::new(Vec::new()));
    let handler = from_fn({
        let started = Arc::clone(&started);
        move |task| {
            started.lock().unwrap().push(task.lease.fence.get());
            Box::pin(async { done() })
        }
    });
    // The reply is lost: both are leased, and nobody knows.
    queue.script(Verb::Lease, [Some(Fault::LosesReply)]);
    let _running = builder(&queue, handler).start().unwrap();
    reach(&queue, TaskState::Done, 2).await;
    // The lost lease, the rescue, the next lease.
    assert_eq!(*started.lock().unwrap(), [first + 3; 2]);
}

/// A handler's own transaction, say, that is about to commit.
#[tokio::test(start_paused = true)]
async fn a_task_that_is_locked_at_a_heartbeat_stops_no_handler() {
    let queue = Arc::new(RiggedQueue::new());
    let ids = enqueue(&queue, "work", 3).await;
    let handler = Counting::taking(100 * SECOND);
    let _running = builder(&queue, handler.clone()).start().unwrap();
    sleep(SECOND).await;
    for heartbeat in 0..9 {
        // Every other heartbeat finds it locked, and the next one keeps it.
        queue.lock((heartbeat % 2 == 0).then_some(ids[1]));
        sleep(10 * SECOND).await;
    }
    queue.lock(None);
    reach(&queue, TaskState::Done, 3).await;
    handler.assert_once_each(3);
    assert_eq!(handler.starts(), 3);
}

/// Its lease ends when it would have: nobody has renewed it.
#[tokio::test(start_paused = true)]
async fn a_task_that_stays_locked_loses_its_lease_and_no_other_does() {
    let queue = Arc::new(RiggedQueue::new());
    let ids = enqueue(&queue, "work", 3).await;
    let handler = Counting::taking(100 * SECOND);
    let _running = builder(&queue, handler.clone()).start().unwrap();
    sleep(SECOND).await;
    queue.lock(Some(ids[1]));
    // Who rescues passes over what is locked.
    queue.break_with(Verb::Rescue, Fault::Refuses);
    sleep(25 * SECOND).await;
    assert_eq!(handler.now(), 3);
    sleep(6 * SECOND).await;
    assert_eq!(
        handler.now(),
        2,
        "a lease that was not renewed is taken for one that was"
    );
    queue.lock(None);
    queue.mend();
    reach(&queue, TaskState::Done, 3).await;
    handler.assert_once_each(3);
    let history = history(&queue, ids[1]).await;
    assert_eq!(history[0].failure.kind, FailureKind::Lost);
    assert_eq!(handler.starts(), 4);
}
