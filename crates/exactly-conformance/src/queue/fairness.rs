//! No lane keeps another one waiting.

use std::collections::{BTreeMap, BTreeSet};

use exactly::queue::{Lanes, Leased, Queue as _};

use crate::QueueHarness;
use crate::answers::answered;
use crate::request::LEASE;
use crate::work::{added, ask, lane, leased, task, tasks};

/// A lane with a thousand tasks in front of it, and lanes with one each: all are served in one round.
pub async fn a_long_lane_keeps_nobody_waiting<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    added(&*queue, &tasks("long", 1000)).await;
    for n in 0..20 {
        added(&*queue, &tasks(&format!("short-{n}"), 1)).await;
    }
    let served = by_lane(&leased(&*queue, 21).await);
    assert_eq!(served.len(), 21, "only these lanes are served: {served:?}");
}

/// More lanes than are asked for take turns: after as many asks as it takes, each was served once.
pub async fn lanes_take_turns<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for n in 0..30 {
        added(&*queue, &tasks(&format!("lane-{n}"), 3)).await;
    }
    for round in 1..=3 {
        let mut served = BTreeSet::new();
        for _ in 0..3 {
            let leased = leased(&*queue, 10).await;
            assert_eq!(leased.len(), 10);
            served.extend(by_lane(&leased).into_keys());
        }
        assert_eq!(served.len(), 30, "in round {round} only these were served: {served:?}");
    }
}

/// The same for a worker that serves some lanes only.
pub async fn chosen_lanes_take_turns<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for n in 0..12 {
        added(&*queue, &tasks(&format!("lane-{n}"), 3)).await;
    }
    let ask = ask(3).from_lanes(Lanes::Only((0..9).map(|n| lane(&format!("lane-{n}"))).collect()));
    let mut served = BTreeSet::new();
    for _ in 0..3 {
        served.extend(by_lane(&answered(queue.lease(&ask).await)).into_keys());
    }
    assert_eq!(served.len(), 9, "only these lanes are served: {served:?}");
}

/// A lane in which nothing is due yet is passed over also if there are more of them than are asked for.
pub async fn a_lane_with_nothing_due_takes_no_turn<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for n in 0..10 {
        let later = task(&n.to_string()).in_lane(lane(&format!("later-{n}")));
        added(&*queue, &[later.after(LEASE)]).await;
    }
    for name in ["a", "m", "z"] {
        added(&*queue, &tasks(name, 1)).await;
    }
    let ask = ask(1);
    for _ in 0..3 {
        assert_eq!(answered(queue.lease(&ask).await).len(), 1);
    }
    assert_eq!(answered(queue.lease(&ask).await), []);
}

/// Lanes that all have enough get the same.
pub async fn lanes_share_evenly<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for name in ["a", "b", "c", "d"] {
        added(&*queue, &tasks(name, 100)).await;
    }
    let served = by_lane(&leased(&*queue, 40).await);
    assert!(
        served.len() == 4 && served.values().all(|count| *count == 10),
        "{served:?}"
    );
}

/// What some lanes cannot use goes to the others, so an ask is filled while anything is due.
pub async fn what_lanes_leave_over_goes_to_others<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for (name, count) in [("a", 1), ("b", 100), ("c", 2), ("d", 30)] {
        added(&*queue, &tasks(name, count)).await;
    }
    let served = by_lane(&leased(&*queue, 83).await);
    let told: Vec<_> = served.values().copied().collect();
    assert_eq!(told, [1, 50, 2, 30], "{served:?}");
    assert_eq!(leased(&*queue, 100).await.len(), 50);
}

/// Where lanes are served together, each is still served in its order.
pub async fn every_lane_keeps_its_order<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for (name, count) in [("a", 3), ("b", 40), ("c", 17), ("d", 1)] {
        added(&*queue, &tasks(name, count)).await;
    }
    let mut order: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for most in [1, 6, 9, 45] {
        for leased in leased(&*queue, most).await {
            let keys = order.entry(leased.lane.as_str().to_owned()).or_default();
            keys.push(leased.key.into());
        }
    }
    assert_eq!(order.values().map(Vec::len).sum::<usize>(), 61);
    for (lane, keys) in order {
        assert!(keys.is_sorted(), "lane {lane} was served as {keys:?}");
    }
}

fn by_lane(leased: &[Leased]) -> BTreeMap<String, usize> {
    let mut served = BTreeMap::new();
    for leased in leased {
        *served.entry(leased.lane.as_str().to_owned()).or_default() += 1;
    }
    served
}
