//! Effect and record are there together, or neither is.

use std::time::Duration;

use exactly::store::Phase;
use exactly::{Attempt, Inspect as _, Keep, Store as _, TransactionalStore as _};
use tokio::time::timeout;

use super::{LOCK_WAIT, carried_out, effects, told};
use crate::TransactionalHarness;
use crate::answers::{FencedExt as _, VerdictExt as _, answered};
use crate::request::{KEEP, KEPT, LEASE, PATIENCE, Request, assert_about};

/// After the commit the effect is there once, and its outcome replays through every door.
pub async fn effect_and_record_commit_together<H: TransactionalHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    let request = Request::fresh();
    let tx = carried_out(harness, &*store, &request).await;
    answered(store.commit(tx).await);

    assert_eq!(effects(harness, &request).await, 1);
    let outcome = request.key.as_str().as_bytes();
    store.begin(&request.call()).await.must_replay_exactly(outcome);
    other.begin(&request.call()).await.must_replay_exactly(outcome);
    other.peek(&request.call()).await.must_replay_exactly(outcome);
    Ok(told(&*store, &request.call()).await).must_replay_exactly(outcome);
    Ok(told(&*other, &request.call()).await).must_replay_exactly(outcome);
    let view = answered(store.get(request.call().id()).await).expect("the record is there");
    assert_eq!((view.phase, view.claim.attempt), (Phase::Done, Attempt::FIRST));
}

/// After a rollback neither is there, and the next caller runs as the first.
pub async fn a_rollback_undoes_effect_and_record<H: TransactionalHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let tx = carried_out(harness, &*store, &request).await;
    answered(store.rollback(tx).await);

    assert_eq!(effects(harness, &request).await, 0);
    assert!(
        answered(store.get(request.call().id()).await).is_none(),
        "a rollback left a record"
    );
    let tx = carried_out(harness, &*store, &request).await;
    answered(store.commit(tx).await);
    assert_eq!(effects(harness, &request).await, 1);
}

/// A handler that panics or is cancelled drops its transaction, which undoes both.
pub async fn a_dropped_transaction_is_undone<H: TransactionalHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    drop(carried_out(harness, &*store, &request).await);
    // The next transaction waits until the dropped one has ended.
    let tx = carried_out(harness, &*store, &request).await;
    assert_eq!(effects(harness, &request).await, 0);
    answered(store.commit(tx).await);
    assert_eq!(effects(harness, &request).await, 1);
}

/// Until the commit nobody else sees anything.
pub async fn nothing_shows_before_the_commit<H: TransactionalHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    let request = Request::fresh();
    let tx = carried_out(harness, &*store, &request).await;
    for store in [&store, &other] {
        assert!(
            answered(store.peek(&request.call()).await).is_none(),
            "an outcome shows before its commit"
        );
        assert!(
            answered(store.get(request.call().id()).await).is_none(),
            "a record shows before its commit"
        );
    }
    assert_eq!(effects(harness, &request).await, 0);
    answered(store.commit(tx).await);
    other.begin(&request.call()).await.must_replay();
}

/// Several calls of one transaction stand and fall together.
pub async fn several_calls_commit_together<H: TransactionalHarness>(harness: &H) {
    let store = harness.open().await;
    let requests = [Request::fresh(), Request::fresh(), Request::fresh()];
    for commits in [false, true] {
        let mut tx = answered(store.open(LOCK_WAIT).await);
        for request in &requests {
            let claim = store.begin_in(&mut tx, &request.call()).await.must_run();
            super::carry_out(harness, &*store, &mut tx, request, &claim).await;
        }
        answered(if commits {
            store.commit(tx).await
        } else {
            store.rollback(tx).await
        });
        for request in &requests {
            assert_eq!(effects(harness, request).await, u64::from(commits));
        }
    }
    for request in &requests {
        store
            .begin(&request.call())
            .await
            .must_replay_exactly(request.key.as_str().as_bytes());
    }
}

/// A claim that commits without an outcome is a claim like any other: leased, fenced, and in doubt when it is lost.
pub async fn a_claim_that_commits_unfinished_is_leased<H: TransactionalHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let mut tx = answered(store.open(LOCK_WAIT).await);
    let claim = store.begin_in(&mut tx, &request.call()).await.must_run();
    answered(store.commit(tx).await);
    assert_about(store.begin(&request.call()).await.must_be_in_flight(), LEASE);
    harness.elapse(2 * LEASE).await;
    assert_eq!(store.begin(&request.call()).await.must_be_in_doubt(), claim);
    store.complete(&claim, &"late".into(), KEEP).await.must_apply();
}

/// Retention is the same for outcomes that came by a transaction.
pub async fn a_committed_outcome_has_its_retention<H: TransactionalHarness>(harness: &H) {
    let store = harness.open().await;
    for keep in [Keep::For(KEPT / 2), Keep::Forever] {
        let request = Request::fresh();
        let mut tx = answered(store.open(LOCK_WAIT).await);
        let claim = store.begin_in(&mut tx, &request.call()).await.must_run();
        store
            .complete_in(&mut tx, &claim, &"done".into(), keep)
            .await
            .must_apply();
        answered(store.commit(tx).await);
        match (keep, store.begin(&request.call()).await.must_replay().expires_in) {
            (Keep::For(kept), Some(expires_in)) => assert_about(expires_in, kept),
            (Keep::Forever, None) => {}
            (keep, expires_in) => panic!("kept {keep:?}, and expires in {expires_in:?}"),
        }
        harness.elapse(KEPT).await;
        match keep {
            Keep::For(_) => drop(Ok(told(&*store, &request.call()).await).must_run()),
            Keep::Forever => Ok(told(&*store, &request.call()).await).must_replay_exactly(b"done"),
        }
    }
}

/// No byte of an outcome is taken for text.
pub async fn a_committed_outcome_replays_exactly<H: TransactionalHarness>(harness: &H) {
    let store = harness.open().await;
    for outcome in [bytes::Bytes::new(), (0..=u8::MAX).collect()] {
        let request = Request::fresh();
        let mut tx = answered(store.open(LOCK_WAIT).await);
        let claim = store.begin_in(&mut tx, &request.call()).await.must_run();
        store.complete_in(&mut tx, &claim, &outcome, KEEP).await.must_apply();
        answered(store.commit(tx).await);
        store.begin(&request.call()).await.must_replay_exactly(&outcome);
        Ok(told(&*store, &request.call()).await).must_replay_exactly(&outcome);
    }
}

/// A commit wakes those who wait for the outcome.
pub async fn a_commit_wakes_watchers<H: TransactionalHarness>(harness: &H) {
    if !H::COMMITS_WAKE {
        return;
    }
    let (store, other) = (harness.open().await, harness.open().await);
    let request = Request::fresh();
    let id = *request.call().id();
    let mut watches = vec![store.watch(&id)];
    if H::WAKES_OTHER_STORES {
        watches.push(other.watch(&id));
    }
    let tx = carried_out(harness, &*store, &request).await;
    answered(store.commit(tx).await);
    for watch in &mut watches {
        timeout(PATIENCE, watch.changed())
            .await
            .expect("a watcher was never woken");
    }
    other.begin(&request.call()).await.must_replay();
}

/// Transactions are given back: far more of them than any pool holds can follow each other.
pub async fn transactions_do_not_run_out<H: TransactionalHarness>(harness: &H) {
    let store = harness.open().await;
    for n in 0..60 {
        let request = Request::fresh();
        let opened = timeout(PATIENCE, carried_out(harness, &*store, &request)).await;
        let tx = opened.unwrap_or_else(|_| panic!("transaction {n} could not be opened"));
        match n % 3 {
            0 => answered(store.commit(tx).await),
            1 => answered(store.rollback(tx).await),
            _ => drop(tx),
        }
    }
    let still_here = timeout(Duration::from_secs(5), store.begin(&Request::fresh().call())).await;
    let _claim = still_here.expect("the store is stuck").must_run();
}
