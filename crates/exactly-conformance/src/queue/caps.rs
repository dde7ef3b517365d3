//! A capped lane runs no more at once than its cap, over all processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use exactly::queue::{End, Lanes, Leased, Queue as _, Share, Task};
use futures_util::future::join_all;
use tokio::sync::{Barrier, Mutex};
use tokio::time::timeout;

use crate::QueueHarness;
use crate::answers::answered;
use crate::request::{LEASE, PATIENCE};
use crate::work::{RESCUES_MAX, added, ask, keys, lane, leased, lost, must_apply, retry, tasks, the_one};

/// The cap holds for all queues together, and a place that becomes free is filled.
pub async fn a_capped_lane_runs_no_more_at_once<H: QueueHarness>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    added(&*queue, &tasks("capped", 10)).await;
    answered(queue.cap_lane(&lane("capped"), Some(3)).await);
    let first = leased(&*queue, 2).await;
    let second = leased(&*other, 10).await;
    assert_eq!((first.len(), second.len()), (2, 1));
    assert_eq!(leased(&*queue, 10).await, []);
    must_apply(&*queue, first[0].lease, End::Done("done".into())).await;
    must_apply(&*queue, second[0].lease, retry("later")).await;
    assert_eq!(leased(&*other, 10).await.len(), 2);
    assert_eq!(leased(&*queue, 10).await, []);
}

/// Other lanes go on, and get what the capped one may not take.
pub async fn a_cap_holds_up_no_other_lane<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for name in ["capped", "free"] {
        added(&*queue, &tasks(name, 30)).await;
    }
    answered(queue.cap_lane(&lane("capped"), Some(3)).await);
    let leased = leased(&*queue, 20).await;
    let capped = leased.iter().filter(|leased| leased.lane == lane("capped")).count();
    assert_eq!((leased.len(), capped), (20, 3));
}

/// A lane without room is passed over also if there are more lanes than are asked for.
pub async fn a_full_lane_takes_no_turn<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for name in ["a", "b", "c", "d"] {
        added(&*queue, &tasks(name, 2)).await;
        if name != "d" {
            answered(queue.cap_lane(&lane(name), Some(1)).await);
        }
    }
    assert_eq!(leased(&*queue, 4).await.len(), 4);
    assert_eq!(keys(&leased(&*queue, 1).await), ["d-00001"]);
}

/// Lanes that may run much, and have much, leave a turn to one that may run one task at a time.
pub async fn a_lane_with_a_cap_of_one_has_its_turn_beside_others<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for (name, cap) in [("a", 20), ("b", 20), ("one", 1)] {
        added(&*queue, &tasks(name, 30)).await;
        answered(queue.cap_lane(&lane(name), Some(cap)).await);
    }
    let mut of_one = Vec::new();
    for _ in 0..3 {
        let next = leased(&*queue, 4).await;
        assert_eq!(next.len(), 4);
        of_one.extend(next.into_iter().filter(|leased| leased.lane == lane("one")));
    }
    assert_eq!(keys(&of_one), ["one-00000"]);
}

/// Of a lane with a cap a worker has no more than its share, and others get what that leaves; one that has its share, or is at
/// its cap, takes no turn of another that has not.
pub async fn a_worker_takes_no_more_of_a_capped_lane_than_its_share<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for name in ["a", "b", "c", "free"] {
        added(&*queue, &tasks(name, 30)).await;
        if name != "free" {
            answered(queue.cap_lane(&lane(name), Some(20)).await);
        }
    }
    let ask = |most, held: &[(&str, u32)]| {
        let held = held.iter().map(|(name, count)| (lane(name), *count)).collect();
        let (most_of_any, capped) = (1000, Some(4));
        ask(most).sharing(Some(Share {
            most: most_of_any,
            capped,
            held,
        }))
    };
    let first = answered(queue.lease(&ask(100, &[("a", 1), ("b", 4)])).await);
    let of = |leased: &[Leased], name| leased.iter().filter(|task| task.lane == lane(name)).count();
    assert_eq!(["a", "b", "c", "free"].map(|name| of(&first, name)), [3, 0, 4, 30]);
    // Whoever has its share of two of them gets tasks of the third each time, and of nothing else.
    for _ in 0..4 {
        let next = answered(queue.lease(&ask(1, &[("a", 4), ("c", 5)])).await);
        assert_eq!((next.len(), of(&next, "b")), (1, 1));
    }
    // Another worker has a share of its own, and the caps are for all.
    let other = answered(harness.open().await.lease(&ask(100, &[])).await);
    assert_eq!(["a", "b", "c"].map(|name| of(&other, name)), [4, 4, 4]);
    assert_eq!(leased(&*queue, 100).await.len(), 20 * 3 - 3 - 4 - 4 - 12);
    // Two are at their caps, which is known without a turn of theirs.
    answered(queue.cap_lane(&lane("c"), Some(23)).await);
    for _ in 0..3 {
        assert_eq!(of(&leased(&*queue, 1).await, "c"), 1);
    }
    assert_eq!(leased(&*queue, 1).await, []);
}

/// Of a lane without a cap a worker has no more than its share either; one that has it takes no turn of another, and another worker
/// has a share of its own.
pub async fn a_worker_takes_no_more_of_any_lane_than_its_share<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for name in ["a", "b", "c", "capped"] {
        added(&*queue, &tasks(name, 30)).await;
    }
    answered(queue.cap_lane(&lane("capped"), Some(20)).await);
    let ask = |most, held: &[(&str, u32)]| {
        let held = held.iter().map(|(name, count)| (lane(name), *count)).collect();
        let capped = None;
        ask(most).sharing(Some(Share { most: 9, capped, held }))
    };
    let of = |leased: &[Leased], name| leased.iter().filter(|task| task.lane == lane(name)).count();
    let names = ["a", "b", "c", "capped"];
    // What lanes may not take goes to others, each up to its share, whether or not it has a cap.
    let first = answered(queue.lease(&ask(100, &[("a", 2), ("b", 9)])).await);
    assert_eq!(names.map(|name| of(&first, name)), [7, 0, 9, 9]);
    let some = answered(queue.lease(&ask(10, &[("a", 7), ("c", 10), ("capped", 9)])).await);
    assert_eq!(names.map(|name| of(&some, name)), [2, 8, 0, 0]);
    for _ in 0..4 {
        let next = answered(queue.lease(&ask(1, &[("a", 9), ("b", 9), ("capped", 9)])).await);
        assert_eq!((next.len(), of(&next, "c")), (1, 1));
    }
    let other = answered(harness.open().await.lease(&ask(100, &[])).await);
    assert_eq!(names.map(|name| of(&other, name)), [9, 9, 9, 9]);
    // The same where lanes are named.
    let only = |held| ask(100, held).from_lanes(Lanes::Only(vec![lane("a"), lane("b")]));
    let chosen = answered(queue.lease(&only(&[("a", 9), ("b", 8)])).await);
    assert_eq!(names.map(|name| of(&chosen, name)), [0, 1, 0, 0]);
    // Without a share there is no limit.
    let rest = leased(&*queue, 1000).await;
    assert_eq!(names.map(|name| of(&rest, name)), [12, 12, 8, 2]);
}

/// A cap can be raised, lifted and lowered; what runs is not stopped.
pub async fn a_cap_can_be_changed<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let capped = lane("capped");
    added(&*queue, &tasks("capped", 10)).await;
    answered(queue.cap_lane(&capped, Some(0)).await);
    assert_eq!(leased(&*queue, 10).await, []);
    answered(queue.cap_lane(&capped, Some(2)).await);
    let running = leased(&*queue, 10).await;
    assert_eq!(running.len(), 2);
    answered(queue.cap_lane(&capped, Some(1)).await);
    must_apply(&*queue, running[0].lease, End::Done("done".into())).await;
    assert_eq!(leased(&*queue, 10).await, []);
    must_apply(&*queue, running[1].lease, End::Done("done".into())).await;
    assert_eq!(leased(&*queue, 10).await.len(), 1);
    answered(queue.cap_lane(&capped, None).await);
    assert_eq!(leased(&*queue, 10).await.len(), 7);
}

/// A task whose worker vanished takes its place until it is rescued.
pub async fn a_rescue_makes_room<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    added(&*queue, &tasks("capped", 2)).await;
    answered(queue.cap_lane(&lane("capped"), Some(1)).await);
    assert_eq!(leased(&*queue, 10).await.len(), 1);
    lost(harness, &*queue).await;
    assert_eq!(leased(&*queue, 10).await.len(), 1);
    assert_eq!(answered(queue.rescue(RESCUES_MAX, 10).await), []);
}

/// Ten workers at once, over two queues: never more than the cap, and all get done.
pub async fn a_cap_holds_under_concurrency<H: QueueHarness>(harness: &H) {
    let started = raced(harness, 3, 60).await;
    assert_eq!(started.len(), 60);
}

/// With a cap of one, ten workers start the tasks of a lane in the order in which they are due.
pub async fn a_cap_of_one_keeps_the_order<H: QueueHarness>(harness: &H) {
    let started = raced(harness, 1, 40).await;
    let expected: Vec<_> = tasks("capped", 40).iter().map(Task::key).map(str::to_owned).collect();
    assert_eq!(started, expected);
}

/// What is given back, or rescued, is the next to start again; what is retried waits its turn.
pub async fn a_cap_of_one_keeps_the_order_of_what_comes_back<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    answered(queue.cap_lane(&lane("capped"), Some(1)).await);
    added(&*queue, &tasks("capped", 3)).await;
    let first = the_one(&*queue).await;
    assert_eq!(&*first.key, "capped-00000");
    harness.elapse(LEASE / 2).await;
    must_apply(&*queue, first.lease, End::Release).await;
    let again = the_one(&*queue).await;
    assert_eq!(again.lease.id, first.lease.id, "what was given back goes last");
    lost(harness, &*queue).await;
    let again = the_one(&*queue).await;
    assert_eq!(again.lease.id, first.lease.id, "what was rescued goes last");
    must_apply(&*queue, again.lease, retry("again")).await;
    for n in [1, 2, 0] {
        let leased = the_one(&*queue).await;
        assert_eq!(*leased.key, format!("capped-{n:05}"));
        must_apply(&*queue, leased.lease, End::Done("done".into())).await;
    }
}

/// Ten workers do the tasks of a capped lane. Gives back the keys in the order in which they started.
async fn raced<H: QueueHarness>(harness: &H, cap: usize, count: usize) -> Vec<String> {
    let queues = [harness.open().await, harness.open().await];
    added(&*queues[0], &tasks("capped", count)).await;
    let most = u32::try_from(cap).ok();
    answered(queues[0].cap_lane(&lane("capped"), most).await);
    let start = Arc::new(Barrier::new(10));
    let running = Arc::new(AtomicUsize::new(0));
    let started = Arc::new(Mutex::new(Vec::new()));
    let workers = (0..10).map(|n| {
        let (queue, start) = (Arc::clone(&queues[n % 2]), Arc::clone(&start));
        let (running, started) = (Arc::clone(&running), Arc::clone(&started));
        tokio::spawn(async move {
            start.wait().await;
            while started.lock().await.len() < count {
                let leased = leased(&*queue, 5).await;
                let before = running.fetch_add(leased.len(), Ordering::SeqCst);
                assert!(before + leased.len() <= cap, "more run than the cap");
                for leased in leased {
                    started.lock().await.push(String::from(leased.key));
                    tokio::task::yield_now().await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    must_apply(&*queue, leased.lease, End::Done("done".into())).await;
                }
            }
        })
    });
    let workers: Vec<_> = workers.collect();
    let ended = timeout(PATIENCE * 3, join_all(workers)).await;
    for worker in ended.expect("some tasks are never started") {
        worker.expect("a worker panicked");
    }
    let started = started.lock().await;
    started.clone()
}
