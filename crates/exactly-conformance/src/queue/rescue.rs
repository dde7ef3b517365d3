//! Tasks whose worker vanished come back, but not for ever.

use std::collections::HashSet;

use exactly::queue::{End, FailureKind, Queue as _, RESCUED_FOR_EVER, Rescued, Task, TaskState};

use crate::QueueHarness;
use crate::answers::answered;
use crate::request::{LEASE, LEASE_AND_A_BIT};
use crate::work::{
    PLENTY, RESCUES_MAX, added, ask, history, keys, lane, leased, must_apply, retry, running, shown, task, tasks,
    the_one,
};

/// Nothing is taken from a worker whose lease goes on; once it has ended, the task waits again.
pub async fn a_task_is_rescued_after_its_lease<H: QueueHarness>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    let lease = running(&*queue, "a").await.lease;
    assert_eq!(answered(other.rescue(RESCUES_MAX, PLENTY).await), []);
    harness.elapse(LEASE / 6 * 5).await;
    assert_eq!(answered(other.rescue(RESCUES_MAX, PLENTY).await), []);
    harness.elapse(LEASE / 6).await;
    let rescued = Rescued {
        id: lease.id,
        kind: "offer".into(),
        key: "a".into(),
        waits: true,
    };
    assert_eq!(answered(other.rescue(RESCUES_MAX, PLENTY).await), [rescued]);
    assert_eq!(answered(other.rescue(RESCUES_MAX, PLENTY).await), []);
    let view = shown(&*queue, lease.id).await;
    assert_eq!((view.state, view.failures, view.rescues), (TaskState::Waiting, 0, 1));
    let again = the_one(&*queue).await;
    assert_eq!((again.failures, again.rescues), (0, 1));
}

/// A task that makes its workers vanish is dead after so many rescues, and whoever rescues is told.
pub async fn a_task_is_dead_after_its_rescues<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    added(&*queue, &[task("a")]).await;
    for waits in [true, true, false] {
        assert_eq!(leased(&*queue, 10).await.len(), 1);
        harness.elapse(LEASE_AND_A_BIT).await;
        let rescued = answered(queue.rescue(2, PLENTY).await);
        assert!(rescued.len() == 1 && rescued[0].waits == waits, "{rescued:?}");
    }
    let view = shown(&*queue, task("a").id()).await;
    assert_eq!((view.state, view.rescues, view.failures), (TaskState::Dead, 3, 0));
    assert_eq!(view.failure.map(|failure| failure.kind), Some(FailureKind::Lost));
    assert!(view.ended_at.is_some() && view.due_at.is_none());
    assert_eq!(leased(&*queue, 10).await, []);
}

/// What the product itself has promised goes on, however many workers vanish with it.
pub async fn what_is_promised_is_rescued_for_ever<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let promised = RESCUED_FOR_EVER.map(|kind| Task::new(kind, "a", "").expect("a task"));
    let other = Task::new("exactly.delivery", "a", "").expect("a task");
    added(&*queue, &promised).await;
    added(&*queue, std::slice::from_ref(&other)).await;
    for (expected, waiting) in [(4, 4), (4, 3), (3, 3), (3, 3)] {
        assert_eq!(leased(&*queue, 10).await.len(), expected);
        harness.elapse(LEASE_AND_A_BIT).await;
        let rescued = answered(queue.rescue(1, PLENTY).await);
        let waits = rescued.iter().filter(|rescued| rescued.waits).count();
        assert_eq!((rescued.len(), waits), (expected, waiting));
    }
    for task in &promised {
        let view = shown(&*queue, task.id()).await;
        assert_eq!((view.state, view.rescues), (TaskState::Waiting, 4), "{}", task.kind());
    }
    assert_eq!(shown(&*queue, other.id()).await.state, TaskState::Dead);
}

/// With no rescues to spare, the first loss is the last.
pub async fn no_rescues_leave_it_dead_at_once<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let lease = running(&*queue, "a").await.lease;
    harness.elapse(LEASE_AND_A_BIT).await;
    let rescued = answered(queue.rescue(0, PLENTY).await);
    assert!(rescued.len() == 1 && !rescued[0].waits, "{rescued:?}");
    assert_eq!(shown(&*queue, lease.id).await.state, TaskState::Dead);
}

/// Failures of the work and losses of workers are counted apart.
pub async fn rescues_are_not_failures<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    added(&*queue, &[task("a")]).await;
    for n in 0..3 {
        let leased = the_one(&*queue).await;
        assert_eq!((leased.failures, leased.rescues), (n, n));
        must_apply(&*queue, leased.lease, retry("again")).await;
        let _ = the_one(&*queue).await;
        harness.elapse(LEASE_AND_A_BIT).await;
        let rescued = answered(queue.rescue(RESCUES_MAX, PLENTY).await);
        assert!(rescued.len() == 1 && rescued[0].waits, "{rescued:?}");
    }
    let view = shown(&*queue, task("a").id()).await;
    assert_eq!((view.failures, view.rescues), (3, 3));
}

/// The history says that the attempt was lost, by whom, and what became of the task.
pub async fn a_lost_attempt_is_noted<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let lease = running(&*queue, "a").await.lease;
    let worker = shown(&*queue, lease.id).await.worker;
    harness.elapse(LEASE_AND_A_BIT).await;
    assert_eq!(answered(queue.rescue(1, PLENTY).await).len(), 1);
    let attempts = history(&*queue, lease.id).await;
    assert_eq!(attempts.len(), 1);
    assert_eq!((attempts[0].fence, attempts[0].worker), (lease.fence, worker));
    assert_eq!(attempts[0].then, TaskState::Waiting);
    assert_eq!(attempts[0].failure.kind, FailureKind::Lost);
    assert!(attempts[0].ended_at.since(attempts[0].started_at) >= LEASE);
}

/// No more are rescued than asked for; the others are still there for the next.
pub async fn a_rescue_honours_its_limit<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    added(&*queue, &tasks("bulk", 25)).await;
    assert_eq!(leased(&*queue, 25).await.len(), 25);
    harness.elapse(LEASE_AND_A_BIT).await;
    assert_eq!(answered(queue.rescue(RESCUES_MAX, 0).await), []);
    for expected in [10, 10, 5, 0] {
        assert_eq!(answered(queue.rescue(RESCUES_MAX, 10).await).len(), expected);
    }
}

/// Only what is lost is rescued, from among what runs, waits and has ended.
pub async fn a_rescue_spares_everything_else<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let mut others = Vec::new();
    for state in TaskState::ALL {
        if state != TaskState::Running {
            others.push(crate::work::in_state(&*queue, state.as_str(), state).await);
        }
    }
    let lost = running(&*queue, "lost").await.lease.id;
    added(&*queue, &[task("long")]).await;
    let long = answered(queue.lease(&ask(10).for_time(LEASE * 10)).await);
    assert_eq!(long.len(), 1);
    others.push(long[0].lease.id);
    harness.elapse(LEASE_AND_A_BIT).await;
    let mut before = Vec::new();
    for id in &others {
        before.push(shown(&*queue, *id).await);
    }
    let rescued = answered(queue.rescue(RESCUES_MAX, PLENTY).await);
    assert!(rescued.len() == 1 && rescued[0].id == lost, "{rescued:?}");
    for (id, before) in others.iter().zip(before) {
        assert_eq!(shown(&*queue, *id).await, before);
    }
}

/// Whoever asks for what was rescued less gets what comes behind the rest, but not in a lane that has a cap: there the order counts.
pub async fn what_was_rescued_often_can_be_left_out<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let (free, capped) = (tasks("free", 14), tasks("capped", 2));
    answered(queue.cap_lane(&lane("capped"), Some(1)).await);
    added(&*queue, &free[..12]).await;
    added(&*queue, &capped[..1]).await;
    for _ in 0..2 {
        assert_eq!(leased(&*queue, 20).await.len(), 13);
        harness.elapse(LEASE_AND_A_BIT).await;
        assert_eq!(answered(queue.rescue(RESCUES_MAX, PLENTY).await).len(), 13);
    }
    added(&*queue, &free[12..]).await;
    added(&*queue, &capped[1..]).await;
    let below = |rescues| ask(4).rescued_below(Some(rescues));
    let fresh = answered(queue.lease(&below(2)).await);
    assert_eq!(keys(&fresh), ["free-00012", "free-00013"]);
    assert_eq!(answered(queue.lease(&below(2)).await), []);
    let others = answered(queue.lease(&below(3)).await);
    assert!(
        others.len() == 4 && others.iter().all(|task| task.rescues == 2),
        "{others:?}"
    );
    assert!(others.iter().any(|task| &*task.key == "capped-00000"), "{others:?}");
}

/// Rescuers that work at once rescue each task once.
pub async fn two_rescuers_rescue_each_task_once<H: QueueHarness>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    added(&*queue, &tasks("bulk", 100)).await;
    assert_eq!(leased(&*queue, 100).await.len(), 100);
    harness.elapse(LEASE_AND_A_BIT).await;
    let mut rescued = Vec::new();
    for _ in 0..20 {
        let (one, two) = tokio::join!(queue.rescue(RESCUES_MAX, 30), other.rescue(RESCUES_MAX, 30));
        rescued.extend(answered(one));
        rescued.extend(answered(two));
    }
    let ids: HashSet<_> = rescued.iter().map(|rescued| rescued.id).collect();
    assert_eq!((rescued.len(), ids.len()), (100, 100));
    for id in ids {
        assert_eq!(shown(&*queue, id).await.rescues, 1);
    }
}

/// A worker that finishes while its task is rescued: one of the two counts.
pub async fn settling_and_rescuing_exclude_each_other<H: QueueHarness>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    for round in 0..20 {
        let lease = running(&*queue, &round.to_string()).await.lease;
        harness.elapse(LEASE_AND_A_BIT).await;
        let (fenced, rescued) = tokio::join!(
            crate::work::settled(&*queue, lease, End::Done("done".into())),
            other.rescue(0, PLENTY),
        );
        let expected = match (fenced, answered(rescued).len()) {
            (exactly::Fenced::Applied, 0) => TaskState::Done,
            (exactly::Fenced::Superseded, 1) => TaskState::Dead,
            both => panic!("settling while rescued answered {both:?}"),
        };
        assert_eq!(shown(&*queue, lease.id).await.state, expected);
    }
}
