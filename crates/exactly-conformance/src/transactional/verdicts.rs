//! What a transaction is told, and that it can go on afterwards.

use exactly::{Store as _, TransactionalStore as _};

use super::{LOCK_WAIT, carried_out, carry_out, effects, outcome_of, told};
use crate::TransactionalHarness;
use crate::answers::{FencedExt as _, VerdictExt as _, answered};
use crate::request::{KEEP, KEPT, LEASE, LEASE_AND_A_BIT, Request, assert_about};

/// Another content is refused in every state, before anything else.
pub async fn another_content_mismatches_in_a_transaction<H: TransactionalHarness>(harness: &H) {
    let store = harness.open().await;
    let [in_flight, in_doubt, lost, done] = std::array::from_fn(|_| Request::fresh());
    let _claim = store.begin(&in_doubt.call()).await.must_run();
    let _claim = store.begin(&lost.rerunnable()).await.must_run();
    harness.elapse(LEASE_AND_A_BIT).await;
    let _claim = store.begin(&in_flight.call()).await.must_run();
    let tx = carried_out(harness, &*store, &done).await;
    answered(store.commit(tx).await);
    for request in [in_flight, in_doubt, lost] {
        assert_eq!(
            Ok(told(&*store, &request.tampered().call()).await).must_mismatch(),
            None
        );
    }
    let expires_in = Ok(told(&*store, &done.tampered().call()).await).must_mismatch();
    assert_about(
        expires_in.expect("the key is taken until the outcome is forgotten"),
        KEPT,
    );
}

/// A leased claim that is in flight is seen from inside a transaction, with the lease that is left.
pub async fn a_leased_claim_is_in_flight_for_transactions<H: TransactionalHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    harness.elapse(LEASE / 2).await;
    assert_about(Ok(told(&*other, &request.call()).await).must_be_in_flight(), LEASE / 2);
    store.complete(&claim, &"done".into(), KEEP).await.must_apply();
    Ok(told(&*other, &request.call()).await).must_replay_exactly(b"done");
}

/// A doubt is a doubt inside a transaction too, and ends there with the claim that it carries.
pub async fn a_doubt_is_settled_in_a_transaction<H: TransactionalHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let lost = store.begin(&request.call()).await.must_run();
    harness.elapse(LEASE_AND_A_BIT).await;
    let mut tx = answered(store.open(LOCK_WAIT).await);
    let claim = store.begin_in(&mut tx, &request.call()).await.must_be_in_doubt();
    assert_eq!(claim, lost);
    carry_out(harness, &*store, &mut tx, &request, &claim).await;
    answered(store.commit(tx).await);
    assert_eq!(effects(harness, &request).await, 1);
    store
        .complete(&lost, &"by the owner".into(), KEEP)
        .await
        .must_be_superseded();
    store
        .begin(&request.call())
        .await
        .must_replay_exactly(&outcome_of(&request));
}

/// A transaction that is told of a replay, a mismatch or a doubt is still good for something else.
pub async fn a_transaction_goes_on_after_its_verdict<H: TransactionalHarness>(harness: &H) {
    let store = harness.open().await;
    let (done, in_doubt, fresh) = (Request::fresh(), Request::fresh(), Request::fresh());
    let tx = carried_out(harness, &*store, &done).await;
    answered(store.commit(tx).await);
    let _claim = store.begin(&in_doubt.call()).await.must_run();
    harness.elapse(LEASE_AND_A_BIT).await;

    let mut tx = answered(store.open(LOCK_WAIT).await);
    store.begin_in(&mut tx, &done.call()).await.must_replay();
    store.begin_in(&mut tx, &done.tampered().call()).await.must_mismatch();
    let _claim = store.begin_in(&mut tx, &in_doubt.call()).await.must_be_in_doubt();
    let claim = store.begin_in(&mut tx, &fresh.call()).await.must_run();
    carry_out(harness, &*store, &mut tx, &fresh, &claim).await;
    answered(store.commit(tx).await);
    assert_eq!(effects(harness, &fresh).await, 1);
    store
        .begin(&fresh.call())
        .await
        .must_replay_exactly(&outcome_of(&fresh));
}

/// Beginning the same call again in the same transaction is the same claim.
pub async fn a_repeated_begin_in_a_transaction_finds_its_claim<H: TransactionalHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let call = request.call();
    let mut tx = answered(store.open(LOCK_WAIT).await);
    let claim = store.begin_in(&mut tx, &call).await.must_run();
    assert_eq!(store.begin_in(&mut tx, &call).await.must_run(), claim);
    carry_out(harness, &*store, &mut tx, &request, &claim).await;
    store
        .begin_in(&mut tx, &call)
        .await
        .must_replay_exactly(&outcome_of(&request));
    answered(store.commit(tx).await);
    assert_eq!(effects(harness, &request).await, 1);
}

/// Completing is repeatable inside a transaction, with the same outcome only.
pub async fn completing_again_in_a_transaction_changes_nothing<H: TransactionalHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let mut tx = answered(store.open(LOCK_WAIT).await);
    let claim = store.begin_in(&mut tx, &request.call()).await.must_run();
    store
        .complete_in(&mut tx, &claim, &"first".into(), KEEP)
        .await
        .must_apply();
    store
        .complete_in(&mut tx, &claim, &"first".into(), KEEP)
        .await
        .must_apply();
    store
        .complete_in(&mut tx, &claim, &"second".into(), KEEP)
        .await
        .must_be_superseded();
    answered(store.commit(tx).await);
    store.begin(&request.call()).await.must_replay_exactly(b"first");
}
