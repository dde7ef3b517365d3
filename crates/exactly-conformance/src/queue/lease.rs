//! What is due is leased, in order, to one worker each.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use exactly::queue::{Ask, BATCH_MAX, InspectQueue as _, Lanes, Queue as _, TaskState, WorkerId};
use futures_util::future::join_all;
use tokio::sync::Barrier;
use tokio::time::timeout;

use crate::QueueHarness;
use crate::answers::answered;
use crate::request::{LEASE, LEASE_AND_A_BIT, PATIENCE, assert_about};
use crate::work::{PLENTY, added, ask, keys, lane, leased, shown, task, tasks, the_one};

/// A worker is told everything about its task, and the task says who has it.
pub async fn a_due_task_is_leased<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let given = task("a").in_lane(lane("north")).with_version(u32::MAX);
    added(&*queue, std::slice::from_ref(&given)).await;
    let waiting = shown(&*queue, given.id()).await;
    let worker = WorkerId::random();
    let leased = answered(queue.lease(&Ask::new(worker, 10).for_time(LEASE)).await);
    let [leased] = &leased[..] else {
        panic!("one task is due, but: {leased:?}")
    };
    assert_eq!(leased.lease.id, given.id());
    assert_eq!((&*leased.kind, &*leased.key), (given.kind(), given.key()));
    assert_eq!((&leased.lane, &leased.payload), (given.lane(), given.payload()));
    assert_eq!((leased.version, leased.failures, leased.rescues), (u32::MAX, 0, 0));
    assert_eq!(leased.enqueued_at, waiting.enqueued_at);
    assert_eq!(Some(leased.due_at), waiting.due_at);
    let view = shown(&*queue, given.id()).await;
    assert_eq!((view.state, view.worker), (TaskState::Running, Some(worker)));
    assert_eq!((view.fence, view.version), (leased.lease.fence, u32::MAX));
    let started = view.started_at.expect("it has started");
    let until = view.due_at.expect("its lease ends");
    assert_about(until.since(started), LEASE);
    assert_about(until.since(answered(queue.now().await)), LEASE);
}

/// A task is left alone until it is due.
pub async fn nothing_is_leased_before_it_is_due<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    added(&*queue, &[task("a").after(LEASE)]).await;
    assert_eq!(leased(&*queue, 10).await, []);
    harness.elapse(LEASE / 6 * 5).await;
    assert_eq!(leased(&*queue, 10).await, []);
    harness.elapse(Duration::from_mins(10)).await;
    assert_eq!(&*the_one(&*queue).await.key, "a");
}

/// However many come in one call, what was there before them starts before them.
pub async fn a_bulk_overtakes_nothing<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let bulk = tasks("lane", BATCH_MAX);
    let (first, last) = (task("first").in_lane(lane("lane")), task("last").in_lane(lane("lane")));
    added(&*queue, &[first]).await;
    added(&*queue, &bulk).await;
    added(&*queue, &[last]).await;
    let leased = leased(&*queue, 2).await;
    assert_eq!(keys(&leased), ["first", "lane-00000"]);
    let rest = answered(queue.lease(&ask(20_000)).await);
    assert_eq!(rest.len(), BATCH_MAX, "all of them are due");
    assert_eq!(rest.last().map(|leased| &*leased.key), Some("last"));
}

/// Those of one call and those of several start in the order in which they came.
pub async fn a_lane_is_leased_in_the_order_of_enqueuing<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let bulk: Vec<_> = (0..50).map(|n| task(&format!("key-{}", n * 37 % 50))).collect();
    added(&*queue, &bulk[..30]).await;
    for single in &bulk[30..] {
        added(&*queue, std::slice::from_ref(single)).await;
    }
    let mut order = Vec::new();
    while order.len() < bulk.len() {
        let portion = leased(&*queue, 7).await;
        assert!(!portion.is_empty(), "{} of {} were leased", order.len(), bulk.len());
        order.extend(portion.into_iter().map(|leased| leased.lease.id));
    }
    let enqueued: Vec<_> = bulk.iter().map(exactly::queue::Task::id).collect();
    assert_eq!(order, enqueued);
}

/// Within a lane the task that is due the longest comes first, whenever it was enqueued.
pub async fn the_longest_due_comes_first<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let after = |key, hours| task(key).after(Duration::from_hours(hours));
    added(&*queue, &[after("c", 3), after("a", 1), after("b", 2), after("d", 9)]).await;
    harness.elapse(Duration::from_hours(4)).await;
    let mut order = Vec::new();
    for _ in 0..3 {
        order.extend(leased(&*queue, 1).await);
    }
    assert_eq!(keys(&order), ["a", "b", "c"]);
    assert_eq!(leased(&*queue, 1).await, []);
}

/// Whoever asks next gets the next ones, also after the first lease has ended: rescuing is another step.
pub async fn a_leased_task_is_not_leased_again<H: QueueHarness>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    added(&*queue, &[task("a"), task("b")]).await;
    assert_eq!(keys(&leased(&*queue, 1).await), ["a"]);
    assert_eq!(keys(&leased(&*other, 10).await), ["b"]);
    assert_eq!(leased(&*queue, 10).await, []);
    harness.elapse(LEASE_AND_A_BIT).await;
    assert_eq!(leased(&*other, 10).await, []);
}

/// An ask is never exceeded.
pub async fn no_more_than_asked_for_is_leased<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for name in ["north", "south", "west"] {
        added(&*queue, &tasks(name, 10)).await;
    }
    for most in [0, 1, 2, 4, 8] {
        assert_eq!(leased(&*queue, most).await.len(), usize::try_from(most).unwrap_or(0));
    }
    assert_eq!(leased(&*queue, u32::MAX).await.len(), 15);
}

/// A worker of some lanes gets nothing of the others.
pub async fn only_the_lanes_asked_for_are_served<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for name in ["north", "south", "west"] {
        added(&*queue, &tasks(name, 3)).await;
    }
    let only = |lanes: &[&str]| ask(10).from_lanes(Lanes::Only(lanes.iter().map(|name| lane(name)).collect()));
    assert_eq!(answered(queue.lease(&only(&[])).await), []);
    assert_eq!(answered(queue.lease(&only(&["east"])).await), []);
    let leased = answered(queue.lease(&only(&["west", "east", "north", "west"])).await);
    let mut from: Vec<_> = leased.iter().map(|leased| leased.lane.as_str()).collect();
    from.sort_unstable();
    assert_eq!(from, ["north", "north", "north", "west", "west", "west"]);
    assert_eq!(answered(queue.lease(&ask(10)).await).len(), 3);
}

/// Workers that ask at once share what there is.
pub async fn ten_leasers_share_each_task_once<H: QueueHarness>(harness: &H) {
    const TASKS: usize = 500;
    let queues = [harness.open().await, harness.open().await];
    for name in ["a", "b", "c", "d", "e"] {
        added(&*queues[0], &tasks(name, TASKS / 5)).await;
    }
    let (start, left) = (Arc::new(Barrier::new(10)), Arc::new(AtomicUsize::new(TASKS)));
    let leasers = (0..10).map(|n| {
        let (queue, start, left) = (Arc::clone(&queues[n % 2]), Arc::clone(&start), Arc::clone(&left));
        tokio::spawn(async move {
            start.wait().await;
            let mut all = Vec::new();
            // One that finds nothing may have found what others had not let go of yet.
            while left.load(Ordering::SeqCst) > 0 {
                let leased = leased(&*queue, 17).await;
                left.fetch_sub(leased.len().min(left.load(Ordering::SeqCst)), Ordering::SeqCst);
                all.extend(leased.into_iter().map(|leased| leased.lease.id));
            }
            all
        })
    });
    let leasers: Vec<_> = leasers.collect();
    let leased = timeout(PATIENCE * 3, join_all(leasers)).await;
    let mut times: HashMap<_, usize> = HashMap::new();
    for ids in leased.expect("some tasks are never leased") {
        for id in ids.expect("a leaser panicked") {
            *times.entry(id).or_default() += 1;
        }
    }
    assert_eq!(times.len(), TASKS);
    assert!(times.values().all(|times| *times == 1), "a task was leased twice");
}

/// The longest lease is longer than anybody works.
pub async fn the_longest_lease_is_granted<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    added(&*queue, &[task("a")]).await;
    let leased = answered(queue.lease(&ask(1).for_time(Duration::MAX)).await);
    assert_eq!(keys(&leased), ["a"]);
    harness.elapse(Duration::from_hours(24)).await;
    assert_eq!(answered(queue.rescue(1, PLENTY).await), []);
}
