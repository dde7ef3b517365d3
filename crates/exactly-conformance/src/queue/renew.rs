//! A lease goes on for as long as its worker says so.

use std::time::Duration;

use exactly::Fenced;
use exactly::queue::{End, Fence, InspectQueue, Queue as _, TaskId};

use crate::QueueHarness;
use crate::answers::answered;
use crate::request::{LEASE, LEASE_AND_A_BIT, assert_about};
use crate::work::{PLENTY, RESCUES_MAX, added, leased, must_apply, renewed, running, shown, tasks};

/// A renewal counts from now, whatever was left.
pub async fn a_renewal_counts_from_now<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let lease = running(&*queue, "a").await.lease;
    harness.elapse(LEASE / 2).await;
    assert_eq!(renewed(&*queue, lease, LEASE).await, Fenced::Applied);
    assert_about(left(&*queue, lease.id).await, LEASE);
    harness.elapse(LEASE / 2).await;
    harness.elapse(LEASE / 4).await;
    assert_eq!(answered(queue.rescue(RESCUES_MAX, PLENTY).await), []);
    assert_eq!(renewed(&*queue, lease, LEASE / 8).await, Fenced::Applied);
    assert_about(left(&*queue, lease.id).await, LEASE / 8);
}

/// A lease that has ended goes on if it is renewed before anybody rescued its task.
pub async fn a_renewal_revives_a_lease_that_ended<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let lease = running(&*queue, "a").await.lease;
    harness.elapse(LEASE_AND_A_BIT).await;
    assert_eq!(renewed(&*queue, lease, LEASE).await, Fenced::Applied);
    assert_eq!(answered(queue.rescue(RESCUES_MAX, PLENTY).await), []);
    must_apply(&*queue, lease, End::Done("done".into())).await;
}

/// Many leases are renewed at once; an answer for each, in order, and each for its own.
pub async fn leases_are_renewed_in_bulk<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    added(&*queue, &tasks("bulk", 300)).await;
    let mut leases: Vec<_> = leased(&*queue, 300).await.iter().map(|leased| leased.lease).collect();
    must_apply(&*queue, leases[7], End::Done("done".into())).await;
    for n in [13, 200] {
        leases[n].fence = Fence::new(leases[n].fence.get() + 1);
    }
    leases.reverse();
    harness.elapse(LEASE / 2).await;
    let fenced = answered(queue.renew(&leases[..250], LEASE).await);
    assert_eq!(fenced.len(), 250);
    for (n, fenced) in fenced.into_iter().enumerate() {
        let superseded = [299 - 200].contains(&n);
        let expected = if superseded {
            Fenced::Superseded
        } else {
            Fenced::Applied
        };
        assert_eq!(fenced, expected, "{n}");
    }
    harness.elapse(LEASE / 2 + Duration::from_mins(1)).await;
    // The fifty that were not renewed, without the one that is done, and the one whose fence was wrong.
    assert_eq!(answered(queue.rescue(RESCUES_MAX, PLENTY).await).len(), 50);
}

/// Nothing is renewed that does not run.
pub async fn a_settled_lease_is_not_renewed<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for (n, end) in crate::work::every_end().into_iter().enumerate() {
        added(&*queue, &tasks(&n.to_string(), 1)).await;
        let lease = leased(&*queue, 1).await[0].lease;
        must_apply(&*queue, lease, end).await;
        let before = shown(&*queue, lease.id).await;
        assert_eq!(renewed(&*queue, lease, LEASE).await, Fenced::Superseded);
        assert_eq!(shown(&*queue, lease.id).await, before);
    }
}

/// How long a task's lease goes on.
async fn left(queue: &impl InspectQueue, id: TaskId) -> Duration {
    let until = shown(queue, id).await.due_at.expect("its lease ends");
    until.since(answered(queue.now().await))
}
