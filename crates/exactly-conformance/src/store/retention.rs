//! How long an outcome is kept, and that it is forgotten in time.

use std::time::Duration;

use exactly::{Attempt, Inspect as _, Keep, Store as _};

use crate::StoreHarness;
use crate::answers::{FencedExt as _, VerdictExt as _, answered};
use crate::request::{KEEP, KEPT, LEASE, Request, SLACK, assert_about};

const MINUTE: Duration = Duration::from_mins(1);

/// The effect may have taken long. Retention counts from when its outcome was stored.
pub async fn retention_starts_when_the_outcome_is_stored<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call().with_lease(10 * LEASE)).await.must_run();
    harness.elapse(5 * LEASE).await;
    store
        .complete(&claim, &"done".into(), Keep::For(LEASE))
        .await
        .must_apply();
    harness.elapse(11 * SLACK).await;
    store.begin(&request.call()).await.must_replay_exactly(b"done");
    harness.elapse(SLACK).await;
    let _claim = store.begin(&request.call()).await.must_run();
}

/// An expired row neither blocks its key nor replays, whether or not anyone swept.
pub async fn an_expired_outcome_is_forgotten_before_the_sweep<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let first = store.begin(&request.call()).await.must_run();
    store.complete(&first, &"first".into(), KEEP).await.must_apply();
    harness.elapse(KEPT).await;
    assert!(
        answered(store.peek(&request.call()).await).is_none(),
        "a begin would run"
    );
    let call = request.call();
    let second = store.begin(&call).await.must_run();
    assert_eq!(second, call.claim(Attempt::FIRST));
    assert_about(store.begin(&request.call()).await.must_be_in_flight(), LEASE);
    store.complete(&second, &"second".into(), KEEP).await.must_apply();
    store.begin(&request.call()).await.must_replay_exactly(b"second");
}

/// Repeating a completion must not keep a key from being forgotten.
pub async fn completing_again_does_not_prolong_retention<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store
        .complete(&claim, &"done".into(), Keep::For(30 * MINUTE))
        .await
        .must_apply();
    harness.elapse(20 * MINUTE).await;
    store
        .complete(&claim, &"done".into(), Keep::For(30 * MINUTE))
        .await
        .must_apply();
    store.begin(&request.call()).await.must_replay_exactly(b"done");
    harness.elapse(20 * MINUTE).await;
    let _claim = store.begin(&request.call()).await.must_run();
}

/// Replays are reads: asking often does not keep a key alive.
pub async fn replaying_does_not_prolong_retention<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store
        .complete(&claim, &"done".into(), Keep::For(30 * MINUTE))
        .await
        .must_apply();
    for _ in 0..2 {
        harness.elapse(14 * MINUTE).await;
        store.begin(&request.call()).await.must_replay_exactly(b"done");
    }
    harness.elapse(14 * MINUTE).await;
    let _claim = store.begin(&request.call()).await.must_run();
}

/// Routes keep their outcomes for as long as each of them says.
pub async fn every_outcome_has_its_own_retention<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let (short, long) = (Request::fresh(), Request::fresh());
    for (request, keep) in [(&short, 10 * MINUTE), (&long, 3 * KEPT)] {
        let claim = store.begin(&request.call()).await.must_run();
        store
            .complete(&claim, &"done".into(), Keep::For(keep))
            .await
            .must_apply();
    }
    harness.elapse(10 * MINUTE).await;
    let _claim = store.begin(&short.call()).await.must_run();
    let replay = store.begin(&long.call()).await.must_replay();
    let expires_in = replay.expires_in.expect("it is not kept forever");
    assert_about(expires_in + 10 * MINUTE, 3 * KEPT);
}

/// Forever has no end, and no sweep ends it.
pub async fn a_permanent_outcome_is_never_forgotten<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store.complete(&claim, &"done".into(), Keep::Forever).await.must_apply();
    harness.elapse(10 * 365 * KEPT).await;
    assert_eq!(answered(store.sweep(1000).await), 0);
    let replay = store.begin(&request.call()).await.must_replay();
    assert_eq!(replay.outcome, "done");
    assert_eq!(replay.expires_in, None);
    let view = answered(store.get(&claim.id).await).expect("the record is there");
    assert_eq!(view.until, None);
}

/// A lease that has ended is no reason to forget the outcome that was stored in time.
pub async fn an_outcome_outlives_the_lease_of_its_attempt<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    for call in [Request::fresh().call(), Request::fresh().rerunnable()] {
        let claim = store.begin(&call).await.must_run();
        store.complete(&claim, &"done".into(), KEEP).await.must_apply();
        harness.elapse(KEPT / 2).await;
        store.begin(&call.again()).await.must_replay_exactly(b"done");
    }
}

/// An outcome that nobody keeps is forgotten at once.
pub async fn an_outcome_kept_for_no_time_is_forgotten_at_once<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store
        .complete(&claim, &"done".into(), Keep::For(Duration::ZERO))
        .await
        .must_apply();
    let fresh = store.begin(&request.call()).await.must_run();
    assert_ne!(fresh.token, claim.token);
}

/// The same key, used again after it was forgotten, is as young as its new operation.
pub async fn a_forgotten_key_is_created_anew<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store.complete(&claim, &"first".into(), KEEP).await.must_apply();
    harness.elapse(KEPT).await;
    let claim = store.begin(&request.call()).await.must_run();
    let view = answered(store.get(&claim.id).await).expect("the record is there");
    let lease_until = view.until.expect("a lease has an end");
    assert_about(lease_until.since(view.created_at), LEASE);
    assert_eq!(view.outcome_len, None);
}
