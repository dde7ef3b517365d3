//! An attempt that ended without a word, and how the doubt about it ends.

use std::time::Duration;

use exactly::store::Phase;
use exactly::{Attempt, Inspect as _, OnLost, Store as _};

use crate::StoreHarness;
use crate::answers::{FencedExt as _, VerdictExt as _, answered};
use crate::request::{KEEP, LEASE, LEASE_AND_A_BIT, Request, assert_about};

const YEAR: Duration = Duration::from_hours(365 * 24);

/// Nothing reruns what may have happened, however much time passes and whoever asks.
pub async fn an_attempt_in_doubt_is_never_rerun<H: StoreHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    for later in [LEASE_AND_A_BIT, YEAR, 10 * YEAR] {
        harness.elapse(later).await;
        assert_eq!(store.begin(&request.call()).await.must_be_in_doubt(), claim);
        assert_eq!(other.begin(&request.rerunnable()).await.must_be_in_doubt(), claim);
    }
}

/// Cleaning up is no reason to forget a doubt.
pub async fn an_attempt_in_doubt_is_never_swept<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    harness.elapse(10 * YEAR).await;
    assert_eq!(answered(store.sweep(1000).await), 0);
    let view = answered(store.get(&claim.id).await).expect("a record in doubt stays");
    assert_eq!((view.phase, view.claim), (Phase::InDoubt, claim.clone()));
    assert_eq!(store.begin(&request.call()).await.must_be_in_doubt(), claim);
}

/// The owner that was believed dead finishes late, and its word settles the matter.
pub async fn a_late_completion_settles_the_doubt<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    harness.elapse(YEAR).await;
    let _ = store.begin(&request.call()).await.must_be_in_doubt();
    store.complete(&claim, &"late".into(), KEEP).await.must_apply();
    store.begin(&request.call()).await.must_replay_exactly(b"late");
}

/// Whoever finds out that it happened completes the claim that the verdict carries.
pub async fn doubt_ends_by_completing_the_claim_it_carries<H: StoreHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    let request = Request::fresh();
    let _lost = store.begin(&request.call()).await.must_run();
    harness.elapse(LEASE_AND_A_BIT).await;
    let claim = other.begin(&request.call()).await.must_be_in_doubt();
    other
        .complete(&claim, &"found in the ledger".into(), KEEP)
        .await
        .must_apply();
    store
        .begin(&request.call())
        .await
        .must_replay_exactly(b"found in the ledger");
}

/// Whoever finds out that it did not happen abandons it, and the next caller runs.
pub async fn doubt_ends_by_abandoning_the_claim_it_carries<H: StoreHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    let request = Request::fresh();
    let _lost = store.begin(&request.call()).await.must_run();
    harness.elapse(LEASE_AND_A_BIT).await;
    let claim = other.begin(&request.call()).await.must_be_in_doubt();
    other.abandon(&claim).await.must_apply();
    let fresh = store.begin(&request.call()).await.must_run();
    assert_eq!(fresh.attempt, Attempt::FIRST);
}

/// A person settles from the view that they look at.
pub async fn doubt_ends_by_the_claim_of_its_view<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let lost = store.begin(&request.call()).await.must_run();
    store.lose(&lost).await.must_apply();
    let view = answered(store.get(&lost.id).await).expect("the record is there");
    store.complete(&view.claim, &"by hand".into(), KEEP).await.must_apply();
    store.begin(&request.call()).await.must_replay_exactly(b"by hand");
}

/// After a settlement the owner's own outcome is not the one that counts.
pub async fn an_owner_that_returns_after_completion_is_superseded<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let owner = store.begin(&request.call()).await.must_run();
    harness.elapse(LEASE_AND_A_BIT).await;
    let claim = store.begin(&request.call()).await.must_be_in_doubt();
    store.complete(&claim, &"by the probe".into(), KEEP).await.must_apply();

    store
        .complete(&owner, &"by the owner".into(), KEEP)
        .await
        .must_be_superseded();
    store.renew(&owner, LEASE).await.must_be_superseded();
    store.abandon(&owner).await.must_be_superseded();
    store.lose(&owner).await.must_be_superseded();
    store.begin(&request.call()).await.must_replay_exactly(b"by the probe");
}

/// Neither is it after the key was freed: the effect was judged not to have happened.
pub async fn an_owner_that_returns_after_abandonment_is_superseded<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let owner = store.begin(&request.call()).await.must_run();
    harness.elapse(LEASE_AND_A_BIT).await;
    let claim = store.begin(&request.call()).await.must_be_in_doubt();
    store.abandon(&claim).await.must_apply();

    store
        .complete(&owner, &"by the owner".into(), KEEP)
        .await
        .must_be_superseded();
    store.renew(&owner, LEASE).await.must_be_superseded();
    store.lose(&owner).await.must_be_superseded();
    let _fresh = store.begin(&request.call()).await.must_run();
}

/// An owner that comes back first wins against whoever is about to settle.
pub async fn a_settlement_that_comes_late_is_superseded<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let owner = store.begin(&request.call()).await.must_run();
    harness.elapse(LEASE_AND_A_BIT).await;
    let claim = store.begin(&request.call()).await.must_be_in_doubt();
    store.complete(&owner, &"by the owner".into(), KEEP).await.must_apply();

    store.abandon(&claim).await.must_be_superseded();
    store
        .complete(&claim, &"by the probe".into(), KEEP)
        .await
        .must_be_superseded();
    store.begin(&request.call()).await.must_replay_exactly(b"by the owner");
}

/// A lease of no length is in doubt from the start, not absent.
pub async fn a_claim_without_a_lease_is_in_doubt<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call().with_lease(Duration::ZERO)).await.must_run();
    assert_eq!(store.begin(&request.call()).await.must_be_in_doubt(), claim);

    let request = Request::fresh();
    let call = request.rerunnable().with_lease(Duration::ZERO);
    let claim = store.begin(&call).await.must_run();
    let next = store
        .begin(&request.rerunnable().with_on_lost(OnLost::Rerun))
        .await
        .must_run();
    assert_eq!(next.attempt, claim.attempt.next());
    assert_about(store.begin(&request.call()).await.must_be_in_flight(), LEASE);
}
