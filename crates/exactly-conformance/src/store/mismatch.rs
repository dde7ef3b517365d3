//! A key that comes back with another content is refused before anything else is looked at.

use exactly::{Inspect as _, Keep, Store as _};

use crate::StoreHarness;
use crate::answers::{FencedExt as _, VerdictExt as _, answered};
use crate::request::{KEEP, KEPT, LEASE_AND_A_BIT, Request, assert_about};

/// In flight: the wrong payload is told so, and not to try again later.
pub async fn another_content_mismatches_while_in_flight<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    assert_eq!(store.begin(&request.tampered().call()).await.must_mismatch(), None);
    store.complete(&claim, &"done".into(), KEEP).await.must_apply();
}

/// In doubt: the wrong payload learns nothing about the attempt.
pub async fn another_content_mismatches_while_in_doubt<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    harness.elapse(LEASE_AND_A_BIT).await;
    assert_eq!(store.begin(&request.tampered().call()).await.must_mismatch(), None);
    assert_eq!(store.begin(&request.call()).await.must_be_in_doubt(), claim);
}

/// Lost, and free to be rerun: but not with another content.
pub async fn another_content_mismatches_while_lost<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let first = store.begin(&request.rerunnable()).await.must_run();
    harness.elapse(LEASE_AND_A_BIT).await;
    assert_eq!(
        store.begin(&request.tampered().rerunnable()).await.must_mismatch(),
        None
    );
    let second = store.begin(&request.rerunnable()).await.must_run();
    assert_eq!(second.attempt, first.attempt.next());
}

/// Done: the stored answer belongs to another content.
pub async fn another_content_mismatches_when_done<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store.complete(&claim, &"done".into(), KEEP).await.must_apply();
    let expires_in = store.begin(&request.tampered().call()).await.must_mismatch();
    assert_about(
        expires_in.expect("the key is taken until the outcome is forgotten"),
        KEPT,
    );
    store.begin(&request.call()).await.must_replay_exactly(b"done");
}

/// A key that is taken forever has no date on which it is free.
pub async fn a_mismatch_with_a_permanent_outcome_never_ends<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store.complete(&claim, &"done".into(), Keep::Forever).await.must_apply();
    assert_eq!(store.begin(&request.tampered().call()).await.must_mismatch(), None);
}

/// A refused duplicate neither frees nor prolongs nor overwrites what its owner holds.
pub async fn a_mismatch_changes_nothing<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    let before = answered(store.get(&claim.id).await).expect("the record is there");
    store.begin(&request.tampered().call()).await.must_mismatch();
    let after = answered(store.get(&claim.id).await).expect("the record is there");
    assert_eq!(after.claim, before.claim);
    assert_eq!(after.until, before.until);
    assert_eq!(after.fingerprint, before.fingerprint);
}

/// A forgotten key is free for any content.
pub async fn a_forgotten_key_takes_another_content<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store.complete(&claim, &"done".into(), KEEP).await.must_apply();
    harness.elapse(KEPT).await;
    let claim = store.begin(&request.tampered().call()).await.must_run();
    store.complete(&claim, &"other".into(), KEEP).await.must_apply();
    store.begin(&request.call()).await.must_mismatch();
}
