//! A task that is settled with the effect that it was for.

use std::time::Duration;

use exactly::Fenced;
use exactly::queue::{End, InspectQueue as _, Queue, Ruling, Settlement, TaskState, TransactionalQueue};
use tokio::time::{sleep, timeout};

use super::{A_WHILE, Tx, settled_in};
use crate::TransactionalQueueHarness;
use crate::answers::answered;
use crate::request::{LEASE, LEASE_AND_A_BIT, PATIENCE};
use crate::work::{
    PLENTY, all_new, every_end, failure, history, leased, lost, must_apply, must_be_superseded, running, settled,
    shown, state_after, task, the_one,
};

/// Effect and outcome commit together.
pub async fn effect_and_outcome_commit_together<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let lease = running(&*queue, "a").await.lease;
    let tx = done_in(harness, &*queue, lease).await;
    assert_eq!(shown(&*queue, lease.id).await.state, TaskState::Running);
    answered(queue.commit(tx).await);
    assert_eq!(harness.effects("a").await, 1);
    let view = shown(&*queue, lease.id).await;
    assert_eq!((view.state, view.outcome), (TaskState::Done, Some("done".into())));
    must_apply(&*queue, lease, End::Done("done".into())).await;
}

/// A rollback undoes both: the task runs on, and its lease still owns it.
pub async fn a_rollback_leaves_the_task_running<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let lease = running(&*queue, "a").await.lease;
    let tx = done_in(harness, &*queue, lease).await;
    answered(queue.rollback(tx).await);
    runs_on(harness, &*queue, lease).await;
}

/// So does dropping the transaction.
pub async fn a_dropped_transaction_leaves_the_task_running<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let lease = running(&*queue, "a").await.lease;
    drop(done_in(harness, &*queue, lease).await);
    runs_on(harness, &*queue, lease).await;
}

/// Every end is as good in a transaction as without one.
pub async fn every_end_commits<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for (n, end) in every_end().into_iter().enumerate() {
        let _ = all_new(queue.enqueue(&[task(&n.to_string())]).await);
        let lease = leased(&*queue, 1).await[0].lease;
        let mut tx = answered(queue.open().await);
        assert_eq!(settled_in(&*queue, &mut tx, lease, end.clone()).await, Fenced::Applied);
        answered(queue.commit(tx).await);
        assert_eq!(shown(&*queue, lease.id).await.state, state_after(&end));
        let noted = history(&*queue, lease.id).await.len();
        assert_eq!(noted, usize::from(end.failure().is_some()));
        must_apply(&*queue, lease, end).await;
    }
}

/// A worker that was too slow is told in its transaction, before it commits an effect that another one makes.
pub async fn a_superseded_worker_is_told_in_its_transaction<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let stale = running(&*queue, "a").await.lease;
    lost(harness, &*queue).await;
    let fresh = the_one(&*queue).await.lease;
    let mut tx = answered(queue.open().await);
    harness.effect(&mut tx, "a").await;
    for end in every_end() {
        assert_eq!(settled_in(&*queue, &mut tx, stale, end).await, Fenced::Superseded);
    }
    answered(queue.rollback(tx).await);
    assert_eq!(harness.effects("a").await, 0);
    must_apply(&*queue, fresh, End::Done("done".into())).await;
}

/// Who settles a task a second time, in the same transaction or another one, has made its effect a second time, and is told.
pub async fn a_task_is_settled_with_one_effect_only<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let lease = running(&*queue, "a").await.lease;
    let mut tx = done_in(harness, &*queue, lease).await;
    let again = settled_in(&*queue, &mut tx, lease, End::Done("done".into())).await;
    assert_eq!(again, Fenced::Superseded);
    answered(queue.commit(tx).await);
    let mut tx = answered(queue.open().await);
    harness.effect(&mut tx, "a").await;
    let again = settled_in(&*queue, &mut tx, lease, End::Done("done".into())).await;
    assert_eq!(again, Fenced::Superseded);
    answered(queue.rollback(tx).await);
    assert_eq!(harness.effects("a").await, 1);
    assert_eq!(shown(&*queue, lease.id).await.outcome, Some("done".into()));
    // Without an effect it can be said again.
    must_apply(&*queue, lease, End::Done("done".into())).await;
}

/// Whoever names a stale lease beside the fresh one is told which is which, and of two ends for one lease the first counts.
pub async fn leases_are_told_apart_in_a_transaction<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let stale = running(&*queue, "a").await.lease;
    lost(harness, &*queue).await;
    let fresh = the_one(&*queue).await.lease;
    let ends = [
        Settlement::new(stale, End::Done("stale".into())),
        Settlement::new(fresh, End::Done("fresh".into())),
        Settlement::new(fresh, End::Bury(failure("never"))),
    ];
    let mut tx = answered(queue.open().await);
    assert_eq!(
        answered(queue.settle_in(&mut tx, &ends).await),
        [Fenced::Superseded, Fenced::Applied, Fenced::Superseded]
    );
    answered(queue.commit(tx).await);
    let view = shown(&*queue, fresh.id).await;
    assert_eq!((view.state, view.outcome), (TaskState::Done, Some("fresh".into())));
}

/// A task can be settled and its successor enqueued in one transaction.
pub async fn a_task_and_its_successor_commit_together<H: TransactionalQueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let lease = running(&*queue, "a").await.lease;
    for commits in [false, true] {
        let mut tx = done_in(harness, &*queue, lease).await;
        let _ = all_new(queue.enqueue_in(&mut tx, &[task("b")]).await);
        if commits {
            answered(queue.commit(tx).await);
        } else {
            answered(queue.rollback(tx).await);
        }
        assert_eq!(answered(queue.show(task("b").id()).await).is_some(), commits);
    }
    assert_eq!(&*the_one(&*queue).await.key, "b");
}

/// A rescue and a transaction that settles: either the effect counts or somebody else makes it.
pub async fn a_rescue_and_a_transaction_exclude_each_other<H: TransactionalQueueHarness>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    let lease = running(&*queue, "a").await.lease;
    harness.elapse(LEASE_AND_A_BIT).await;
    let tx = done_in(harness, &*queue, lease).await;
    let rescuing = tokio::spawn(async move { answered(other.rescue(1, PLENTY).await).len() });
    tokio::time::sleep(A_WHILE).await;
    answered(queue.commit(tx).await);
    let rescued = timeout(PATIENCE, rescuing).await.expect("it still waits");
    assert_eq!(
        rescued.expect("the rescuer panicked"),
        0,
        "a task that is settled was rescued"
    );
    assert_eq!(shown(&*queue, lease.id).await.state, TaskState::Done);
    assert_eq!(harness.effects("a").await, 1);
}

/// Whether a lost commit happened is found out by releasing, which waits for it.
pub async fn a_lost_commit_is_learnt_by_releasing<H: TransactionalQueueHarness>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    let lease = running(&*queue, "a").await.lease;
    let tx = done_in(harness, &*queue, lease).await;
    let mut learning = tokio::spawn(async move { settled(&*other, lease, End::Release).await });
    assert!(
        timeout(A_WHILE, &mut learning).await.is_err(),
        "it does not wait for the commit"
    );
    answered(queue.commit(tx).await);
    let learnt = timeout(PATIENCE, learning).await.expect("it still waits");
    assert_eq!(learnt.expect("the caller panicked"), Fenced::Superseded);
    assert_eq!(shown(&*queue, lease.id).await.state, TaskState::Done);
    must_be_superseded(&*queue, lease, End::Release).await;
}

/// An open transaction with the task's effect, in which it is done.
async fn done_in<H: TransactionalQueueHarness>(harness: &H, queue: &H::Queue, lease: exactly::queue::Lease) -> Tx<H> {
    let mut tx = answered(queue.open().await);
    harness.effect(&mut tx, "a").await;
    let fenced = settled_in(queue, &mut tx, lease, End::Done("done".into())).await;
    assert_eq!(fenced, Fenced::Applied);
    tx
}

async fn runs_on<H: TransactionalQueueHarness>(harness: &H, queue: &H::Queue, lease: exactly::queue::Lease) {
    let renewed = timeout(PATIENCE, renewed_when_free(queue, lease)).await;
    assert_eq!(renewed.expect("it is still busy"), Ruling::Applied);
    let view = shown(queue, lease.id).await;
    assert_eq!((view.state, view.outcome), (TaskState::Running, None));
    assert_eq!(harness.effects("a").await, 0);
    must_apply(queue, lease, End::Done("at last".into())).await;
}

/// A transaction that was dropped may be on its way back, and keeps the task busy until it is.
async fn renewed_when_free(queue: &impl Queue, lease: exactly::queue::Lease) -> Ruling {
    loop {
        match answered(queue.renew(&[lease], LEASE).await)[..] {
            [Ruling::Busy] => sleep(Duration::from_millis(1)).await,
            [ruling] => return ruling,
            ref rulings => panic!("one lease has one answer, not {rulings:?}"),
        }
    }
}
