//! How long a claim lasts.

use std::time::Duration;

use exactly::{Attempt, OnLost, Store as _};

use crate::StoreHarness;
use crate::answers::{FencedExt as _, VerdictExt as _};
use crate::request::{KEEP, LEASE, LEASE_AND_A_BIT, Request, assert_about};

const THIRD: Duration = LEASE.checked_div(3).expect("three is not zero");

/// Whoever waits is told how long the lease still lasts, not how long it lasted at first.
pub async fn in_flight_tells_the_remaining_lease<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let _claim = store.begin(&request.call()).await.must_run();
    harness.elapse(THIRD).await;
    assert_about(store.begin(&request.call()).await.must_be_in_flight(), 2 * THIRD);
    assert_about(store.peek(&request.call()).await.must_be_in_flight(), 2 * THIRD);
}

/// The owner's lease is the owner's: callers who wait do not prolong it.
pub async fn waiting_does_not_prolong_a_lease<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    for _ in 0..3 {
        store.begin(&request.call()).await.must_be_in_flight();
        harness.elapse(THIRD + Duration::from_secs(1)).await;
    }
    assert_eq!(store.begin(&request.call()).await.must_be_in_doubt(), claim);
}

/// A renewed claim lasts as long from now as it asks for, longer or shorter than before.
pub async fn a_renewal_counts_from_now<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    harness.elapse(2 * THIRD).await;
    store.renew(&claim, LEASE).await.must_apply();
    harness.elapse(2 * THIRD).await;
    assert_about(store.begin(&request.call()).await.must_be_in_flight(), THIRD);
    store.renew(&claim, 5 * LEASE).await.must_apply();
    assert_about(store.begin(&request.call()).await.must_be_in_flight(), 5 * LEASE);
    store.renew(&claim, THIRD).await.must_apply();
    assert_about(store.begin(&request.call()).await.must_be_in_flight(), THIRD);
    harness.elapse(LEASE).await;
    assert_eq!(store.begin(&request.call()).await.must_be_in_doubt(), claim);
}

/// An owner that was slow and not dead carries on, while nobody took over.
pub async fn a_renewal_revives_a_lost_claim<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    for on_lost in [OnLost::Doubt, OnLost::Rerun] {
        let request = Request::fresh();
        let claim = store.begin(&request.call().with_on_lost(on_lost)).await.must_run();
        harness.elapse(LEASE_AND_A_BIT).await;
        store.renew(&claim, LEASE).await.must_apply();
        assert_about(
            store
                .begin(&request.call().with_on_lost(on_lost))
                .await
                .must_be_in_flight(),
            LEASE,
        );
        store.complete(&claim, &"slow".into(), KEEP).await.must_apply();
        store.begin(&request.call()).await.must_replay_exactly(b"slow");
    }
}

/// A lost attempt that may be repeated is run again, and says which attempt it is.
pub async fn a_lost_rerunnable_runs_as_the_next_attempt<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let mut attempt = Attempt::FIRST;
    for _ in 0..3 {
        let call = request.rerunnable();
        let claim = store.begin(&call).await.must_run();
        assert_eq!(claim, call.claim(attempt));
        harness.elapse(LEASE_AND_A_BIT).await;
        attempt = attempt.next();
    }
    let claim = store.begin(&request.rerunnable()).await.must_run();
    store.complete(&claim, &"fourth".into(), KEEP).await.must_apply();
    store.begin(&request.rerunnable()).await.must_replay_exactly(b"fourth");
}

/// Whether a lost attempt may be repeated was decided by the one who made it.
pub async fn the_lost_attempt_decides_whether_it_is_rerun<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let doubtful = Request::fresh();
    let claim = store.begin(&doubtful.call()).await.must_run();
    let repeatable = Request::fresh();
    let first = store.begin(&repeatable.rerunnable()).await.must_run();

    harness.elapse(LEASE_AND_A_BIT).await;
    assert_eq!(store.begin(&doubtful.rerunnable()).await.must_be_in_doubt(), claim);
    let second = store.begin(&repeatable.call()).await.must_run();
    assert_eq!(second.attempt, first.attempt.next());

    // The second attempt made no promise to be repeatable.
    harness.elapse(LEASE_AND_A_BIT).await;
    assert_eq!(store.begin(&repeatable.rerunnable()).await.must_be_in_doubt(), second);
}

/// Saying "unknown" ends the lease at once: doubt is not waited for.
pub async fn losing_a_claim_ends_its_lease_at_once<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store.lose(&claim).await.must_apply();
    assert_eq!(store.begin(&request.call()).await.must_be_in_doubt(), claim);
    // Repeatable, since the reply may be lost.
    store.lose(&claim).await.must_apply();

    let request = Request::fresh();
    let claim = store.begin(&request.rerunnable()).await.must_run();
    store.lose(&claim).await.must_apply();
    let next = store.begin(&request.rerunnable()).await.must_run();
    assert_eq!(next.attempt, claim.attempt.next());
}

/// A clock that was set back stretches no lease: the owner gets one whole lease from now, and no more.
pub async fn a_clock_set_back_stretches_no_lease<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    harness.rewind(10 * LEASE).await;
    assert_about(store.peek(&request.call()).await.must_be_in_flight(), LEASE);
    assert_about(store.begin(&request.call()).await.must_be_in_flight(), LEASE);
    harness.elapse(THIRD).await;
    assert_about(store.begin(&request.call()).await.must_be_in_flight(), 2 * THIRD);
    harness.elapse(LEASE).await;
    assert_eq!(store.begin(&request.call()).await.must_be_in_doubt(), claim);
}

/// And the owner notices nothing of it.
pub async fn a_clock_set_back_leaves_the_claim_to_its_owner<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    harness.rewind(10 * LEASE).await;
    store.begin(&request.call()).await.must_be_in_flight();
    store.renew(&claim, LEASE).await.must_apply();
    store.complete(&claim, &"done".into(), KEEP).await.must_apply();
    store.begin(&request.call()).await.must_replay_exactly(b"done");
}
