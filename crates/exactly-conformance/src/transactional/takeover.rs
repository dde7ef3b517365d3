//! Records that were there before the transaction.

use exactly::{Attempt, Store as _, TransactionalStore as _};

use super::{LOCK_WAIT, carried_out, carry_out, effects, outcome_of};
use crate::TransactionalHarness;
use crate::answers::{FencedExt as _, VerdictExt as _, answered};
use crate::request::{KEEP, KEPT, LEASE, LEASE_AND_A_BIT, Request, assert_about};

/// A forgotten outcome gives way to a new operation.
pub async fn a_forgotten_key_runs_in_a_transaction<H: TransactionalHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    for n in 1..=2 {
        let tx = carried_out(harness, &*store, &request).await;
        answered(store.commit(tx).await);
        assert_eq!(effects(harness, &request).await, n);
        harness.elapse(KEPT).await;
    }
}

/// A lost attempt that may be repeated is taken over as the next one, and fenced off.
pub async fn a_lost_rerunnable_is_taken_over_in_a_transaction<H: TransactionalHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let lost = store.begin(&request.rerunnable()).await.must_run();
    harness.elapse(LEASE_AND_A_BIT).await;
    let mut tx = answered(store.open(LOCK_WAIT).await);
    let claim = store.begin_in(&mut tx, &request.rerunnable()).await.must_run();
    assert_eq!(claim.attempt, lost.attempt.next());
    carry_out(harness, &*store, &mut tx, &request, &claim).await;
    answered(store.commit(tx).await);
    store.complete(&lost, &"stale".into(), KEEP).await.must_be_superseded();
    store
        .begin(&request.call())
        .await
        .must_replay_exactly(&outcome_of(&request));
    assert_eq!(effects(harness, &request).await, 1);
}

/// A rollback gives the record back as it was, not as absent.
pub async fn a_rollback_restores_what_was_taken_over<H: TransactionalHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let lost = store.begin(&request.rerunnable()).await.must_run();
    harness.elapse(LEASE_AND_A_BIT).await;
    for _ in 0..2 {
        let mut tx = answered(store.open(LOCK_WAIT).await);
        let claim = store.begin_in(&mut tx, &request.rerunnable()).await.must_run();
        assert_eq!(claim.attempt, lost.attempt.next());
        answered(store.rollback(tx).await);
    }
    // Nobody took over for good, so the first owner may still finish.
    store.complete(&lost, &"late".into(), KEEP).await.must_apply();
    store.begin(&request.call()).await.must_replay_exactly(b"late");
}

/// A claim made outside is completed inside, together with the effect.
pub async fn a_leased_claim_completes_in_a_transaction<H: TransactionalHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    let mut tx = answered(store.open(LOCK_WAIT).await);
    carry_out(harness, &*store, &mut tx, &request, &claim).await;
    answered(store.rollback(tx).await);
    assert_about(store.begin(&request.call()).await.must_be_in_flight(), LEASE);
    assert_eq!(effects(harness, &request).await, 0);

    let mut tx = answered(store.open(LOCK_WAIT).await);
    carry_out(harness, &*store, &mut tx, &request, &claim).await;
    answered(store.commit(tx).await);
    assert_eq!(effects(harness, &request).await, 1);
    store
        .begin(&request.call())
        .await
        .must_replay_exactly(&outcome_of(&request));
}

/// The fence holds inside a transaction: a zombie is told so before it commits its effect.
pub async fn a_superseded_claim_cannot_complete_in_a_transaction<H: TransactionalHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let stale = store.begin(&request.rerunnable()).await.must_run();
    harness.elapse(LEASE_AND_A_BIT).await;
    let owner = store.begin(&request.rerunnable()).await.must_run();

    let mut tx = answered(store.open(LOCK_WAIT).await);
    store
        .complete_in(&mut tx, &stale, &"stale".into(), KEEP)
        .await
        .must_be_superseded();
    answered(store.commit(tx).await);
    store.begin(&request.call()).await.must_be_in_flight();
    store.complete(&owner, &"owner's".into(), KEEP).await.must_apply();

    let mut tx = answered(store.open(LOCK_WAIT).await);
    store
        .complete_in(&mut tx, &stale, &"stale".into(), KEEP)
        .await
        .must_be_superseded();
    store
        .complete_in(&mut tx, &stale, &"owner's".into(), KEEP)
        .await
        .must_be_superseded();
    let absent = Request::fresh().call().claim(Attempt::FIRST);
    store
        .complete_in(&mut tx, &absent, &"invented".into(), KEEP)
        .await
        .must_be_superseded();
    answered(store.commit(tx).await);
    store.begin(&request.call()).await.must_replay_exactly(b"owner's");
}

/// The claim of a transaction that was undone owns nothing afterwards.
pub async fn the_claim_of_an_undone_transaction_owns_nothing<H: TransactionalHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let mut tx = answered(store.open(LOCK_WAIT).await);
    let undone = store.begin_in(&mut tx, &request.call()).await.must_run();
    answered(store.rollback(tx).await);
    store
        .complete(&undone, &"undone".into(), KEEP)
        .await
        .must_be_superseded();
    store.renew(&undone, LEASE).await.must_be_superseded();
    let tx = carried_out(harness, &*store, &request).await;
    answered(store.commit(tx).await);
    store
        .complete(&undone, &"undone".into(), KEEP)
        .await
        .must_be_superseded();
    store
        .begin(&request.call())
        .await
        .must_replay_exactly(&outcome_of(&request));
}
