//! A lease that was taken away changes nothing any more.

use exactly::Fenced;
use exactly::queue::{End, Fence, InspectQueue, Lease, Queue as _, Settlement, TaskId};

use crate::QueueHarness;
use crate::answers::answered;
use crate::request::LEASE;
use crate::work::{
    added, every_end, failure, history, in_state, leased, lost, must_apply, must_be_superseded, renewed, running,
    shown, task, the_one,
};

/// After a rescue the worker that was too slow owns nothing.
pub async fn a_rescued_lease_changes_nothing<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let stale = running(&*queue, "a").await.lease;
    lost(harness, &*queue).await;
    changes_nothing(&*queue, stale).await;
    assert_eq!(&*the_one(&*queue).await.key, "a");
}

/// Nor does it while another worker has the task, whose lease is none the worse for it.
pub async fn a_stale_lease_changes_nothing<H: QueueHarness>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    let stale = running(&*queue, "a").await.lease;
    lost(harness, &*queue).await;
    let fresh = the_one(&*other).await.lease;
    changes_nothing(&*queue, stale).await;
    must_apply(&*other, fresh, End::Done("done".into())).await;
    changes_nothing(&*queue, stale).await;
}

/// Nor after the task was retried, and given to somebody else.
pub async fn a_settled_lease_changes_nothing_later<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let first = running(&*queue, "a").await.lease;
    must_apply(&*queue, first, End::Release).await;
    let second = the_one(&*queue).await.lease;
    changes_nothing(&*queue, first).await;
    must_apply(&*queue, second, End::Bury(failure("never"))).await;
    changes_nothing(&*queue, first).await;
    let _ = answered(queue.revive(&[first.id]).await);
    changes_nothing(&*queue, first).await;
    changes_nothing(&*queue, second).await;
}

/// Fences rise with each lease, each rescue and each revival, so that an effect can refuse what is lower.
pub async fn a_fence_only_rises<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    added(&*queue, &[task("a")]).await;
    let id = task("a").id();
    let mut fences = vec![shown(&*queue, id).await.fence];
    for step in ["release", "rescue", "revive"] {
        let lease = the_one(&*queue).await.lease;
        fences.push(lease.fence);
        match step {
            "release" => must_apply(&*queue, lease, End::Release).await,
            "rescue" => {
                lost(harness, &*queue).await;
                fences.push(shown(&*queue, id).await.fence);
            }
            _ => {
                must_apply(&*queue, lease, End::Hold(failure("ask"))).await;
                assert_eq!(shown(&*queue, id).await.fence, lease.fence);
                let _ = answered(queue.revive(&[id]).await);
                fences.push(shown(&*queue, id).await.fence);
            }
        }
    }
    fences.push(the_one(&*queue).await.lease.fence);
    assert!(fences.is_sorted_by(|earlier, later| earlier < later), "{fences:?}");
}

/// A lease that nobody was given owns no task, whether the task is there or not.
pub async fn an_invented_lease_owns_nothing<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let real = running(&*queue, "a").await.lease;
    let number = real.fence.get();
    for fence in [0, number - 1, number + 1, u64::MAX] {
        let fence = Fence::new(fence);
        changes_nothing(&*queue, Lease { fence, ..real }).await;
    }
    let id = TaskId::of("offer", "never enqueued");
    for end in every_end() {
        must_be_superseded(&*queue, Lease { id, ..real }, end).await;
    }
    assert_eq!(renewed(&*queue, Lease { id, ..real }, LEASE).await, Fenced::Superseded);
    assert_eq!(answered(queue.show(id).await), None);
    must_apply(&*queue, real, End::Done("done".into())).await;
}

/// A task that does not run cannot be settled by naming its fence.
pub async fn a_waiting_task_has_no_lease<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    added(&*queue, &[task("a")]).await;
    let (id, fence) = (task("a").id(), shown(&*queue, task("a").id()).await.fence);
    let invented = Lease { id, fence };
    for end in every_end().into_iter().filter(|end| !end.is_given_back()) {
        must_be_superseded(&*queue, invented, end).await;
    }
    assert_eq!(renewed(&*queue, invented, LEASE).await, Fenced::Superseded);
    assert_eq!(&*the_one(&*queue).await.key, "a");
}

/// Whatever becomes of one task, those beside it stay as they are.
pub async fn a_settlement_touches_its_own_task_only<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let mut others = Vec::new();
    for state in exactly::queue::TaskState::ALL {
        others.push(in_state(&*queue, state.as_str(), state).await);
    }
    let mut before = Vec::new();
    for id in &others {
        before.push(shown(&*queue, *id).await);
    }
    for (n, end) in every_end().into_iter().enumerate() {
        added(&*queue, &[task(&n.to_string())]).await;
        let leased = leased(&*queue, 10).await.pop().expect("a task is due");
        must_apply(&*queue, leased.lease, end).await;
    }
    for (id, before) in others.iter().zip(before) {
        assert_eq!(shown(&*queue, *id).await, before);
    }
}

/// Whoever names a stale lease beside the fresh one is told which is which.
pub async fn a_stale_lease_beside_a_fresh_one_is_told_apart<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let stale = running(&*queue, "a").await.lease;
    lost(harness, &*queue).await;
    let fresh = the_one(&*queue).await.lease;
    let (applied, superseded) = (Fenced::Applied, Fenced::Superseded);
    assert_eq!(
        answered(queue.renew(&[stale, fresh], LEASE).await),
        [superseded, applied]
    );
    assert_eq!(
        answered(queue.renew(&[fresh, stale], LEASE).await),
        [applied, superseded]
    );
    let done = |lease| Settlement::new(lease, End::Done("done".into()));
    assert_eq!(
        answered(queue.settle(&[done(stale), done(fresh)]).await),
        [superseded, applied]
    );
    assert_eq!(
        answered(queue.settle(&[done(fresh), done(stale)]).await),
        [applied, superseded]
    );
}

/// Neither settling nor renewing does anything.
async fn changes_nothing(queue: &impl InspectQueue, stale: Lease) {
    let (before, attempts) = (shown(queue, stale.id).await, history(queue, stale.id).await);
    for end in every_end() {
        must_be_superseded(queue, stale, end).await;
    }
    assert_eq!(renewed(queue, stale, LEASE).await, Fenced::Superseded);
    assert_eq!(shown(queue, stale.id).await, before);
    assert_eq!(history(queue, stale.id).await, attempts);
}
