//! What people see of a record.

use exactly::clock::Timestamp;
use exactly::store::{CallView, Phase};
use exactly::{Attempt, CallId, Inspect, Keep, Store as _};

use crate::StoreHarness;
use crate::answers::{FencedExt as _, VerdictExt as _, answered};
use crate::request::{KEEP, KEPT, LEASE, LEASE_AND_A_BIT, Request, assert_about};

/// What is not there is not shown.
pub async fn an_unknown_id_shows_nothing<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let _claim = store.begin(&Request::fresh().call()).await.must_run();
    assert!(answered(store.get(Request::fresh().call().id()).await).is_none());
    assert!(answered(store.get(&CallId::from_bytes([0; 32])).await).is_none());
}

/// A call in flight shows who asked for what, which attempt runs and until when.
pub async fn a_call_in_flight_shows_its_lease<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    let view = view(&*store, &claim.id).await;
    assert_eq!(view.scope, request.scope);
    assert_eq!(view.key, request.key);
    assert_eq!(view.fingerprint, request.fingerprint);
    assert_eq!(view.phase, Phase::InFlight);
    assert_eq!(view.claim, claim);
    assert_eq!(view.outcome_len, None);
    assert_about(ends_after(&view), LEASE);
}

/// A lost attempt shows whether it waits for a person or for the next caller.
pub async fn a_lost_attempt_shows_what_it_waits_for<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let doubtful = store.begin(&Request::fresh().call()).await.must_run();
    let repeatable = store.begin(&Request::fresh().rerunnable()).await.must_run();
    assert_eq!(view(&*store, &repeatable.id).await.phase, Phase::InFlight);
    harness.elapse(LEASE_AND_A_BIT).await;
    assert_eq!(view(&*store, &doubtful.id).await.phase, Phase::InDoubt);
    assert_eq!(view(&*store, &repeatable.id).await.phase, Phase::Lost);
    assert_eq!(view(&*store, &doubtful.id).await.claim, doubtful);
}

/// A finished call shows the size of its answer, not the answer, and when it is forgotten.
pub async fn a_finished_call_shows_its_retention<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store.complete(&claim, &"twelve bytes".into(), KEEP).await.must_apply();
    let done = view(&*store, &claim.id).await;
    assert_eq!((done.phase, done.outcome_len), (Phase::Done, Some(12)));
    assert_eq!(done.claim, claim);
    assert_about(ends_after(&done), KEPT);

    let permanent = store.begin(&Request::fresh().call()).await.must_run();
    store.complete(&permanent, &"".into(), Keep::Forever).await.must_apply();
    let done = view(&*store, &permanent.id).await;
    assert_eq!((done.phase, done.outcome_len, done.until), (Phase::Done, Some(0), None));
}

/// A rerun shows its own attempt, and the day on which the key was first used.
pub async fn a_rerun_shows_when_the_key_was_first_used<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let first = store.begin(&request.rerunnable()).await.must_run();
    harness.elapse(LEASE_AND_A_BIT).await;
    let second = store.begin(&request.rerunnable()).await.must_run();
    let view = view(&*store, &first.id).await;
    assert_eq!(view.claim, second);
    assert_eq!(Some(view.claim.attempt), Attempt::new(2));
    assert_about(ends_after(&view), LEASE_AND_A_BIT + LEASE);
}

/// Looking changes nothing, however often.
pub async fn looking_changes_nothing<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    let before = view(&*store, &claim.id).await;
    harness.elapse(LEASE / 2).await;
    let after = view(&*store, &claim.id).await;
    assert_eq!(after.claim, before.claim);
    assert_about(store.begin(&request.call()).await.must_be_in_flight(), LEASE / 2);
    harness.elapse(LEASE).await;
    view(&*store, &claim.id).await;
    store.renew(&claim, LEASE).await.must_apply();
    assert_eq!(view(&*store, &claim.id).await.phase, Phase::InFlight);
}

async fn view(store: &impl Inspect, id: &CallId) -> CallView {
    answered(store.get(id).await).expect("the record is there")
}

/// How long after it was created the record ends.
fn ends_after(view: &CallView) -> std::time::Duration {
    let until: Timestamp = view.until.expect("it has an end");
    until.since(view.created_at)
}
