//! What cleaning up may delete, and how much of it at a time.

use std::time::Duration;

use exactly::store::record::LOST_KEEP;
use exactly::{CallId, Claim, Inspect as _, Keep, Store as _};

use crate::StoreHarness;
use crate::answers::{FencedExt as _, VerdictExt as _, answered};
use crate::request::{KEEP, KEPT, LEASE, PATIENCE, Request};

/// More than any place holds here.
const EVERYTHING: u32 = 10_000;

/// Expired outcomes go; what is in flight, in doubt, done or lost a short while ago stays.
pub async fn a_sweep_deletes_only_what_has_expired<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let mut expired = Vec::new();
    for _ in 0..3 {
        expired.push(done(&*store, Keep::For(KEPT / 4)).await.id);
    }
    let permanent = done(&*store, Keep::Forever).await;
    let in_doubt = store.begin(&Request::fresh().call()).await.must_run();
    let lost = store.begin(&Request::fresh().rerunnable()).await.must_run();
    harness.elapse(KEPT / 2).await;
    let in_flight = store.begin(&Request::fresh().call()).await.must_run();
    let kept = done(&*store, KEEP).await;

    swept::<H>(&*store, &expired).await;
    for claim in [permanent, in_doubt, lost, in_flight, kept] {
        let view = answered(store.get(&claim.id).await);
        assert!(
            view.is_some_and(|view| view.claim == claim),
            "a sweep took what had not expired"
        );
    }
}

/// A batch is as large as it may be and no larger, so that cleaning up never blocks the rest.
pub async fn a_sweep_honours_its_limit<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let mut expired = Vec::new();
    for _ in 0..5 {
        expired.push(done(&*store, KEEP).await.id);
    }
    harness.elapse(KEPT).await;
    if H::SWEEPS {
        assert_eq!(answered(store.sweep(0).await), 0);
        assert_eq!(answered(store.sweep(2).await), 2);
        assert_eq!(answered(store.sweep(2).await), 2);
        assert_eq!(answered(store.sweep(2).await), 1);
    }
    swept::<H>(&*store, &expired[..0]).await;
    gone(&*store, &expired).await;
}

/// Rerunnable attempts that nobody asks about again do not pile up.
pub async fn a_lost_rerunnable_is_swept_after_a_while<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let lost = store.begin(&request.rerunnable()).await.must_run();
    harness.elapse(LEASE + LOST_KEEP / 2).await;
    assert_eq!(answered(store.sweep(EVERYTHING).await), 0);
    assert!(
        answered(store.get(&lost.id).await).is_some(),
        "it was lost only a short while ago"
    );
    harness.elapse(LOST_KEEP / 2 + Duration::from_secs(1)).await;
    swept::<H>(&*store, &[lost.id]).await;
    let fresh = store.begin(&request.rerunnable()).await.must_run();
    assert_eq!(fresh.attempt, exactly::Attempt::FIRST);
}

/// Sweepers of two processes share the work: each record counts once.
pub async fn two_sweepers_count_every_record_once<H: StoreHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    let mut expired = Vec::new();
    for _ in 0..20 {
        expired.push(done(&*store, KEEP).await.id);
    }
    harness.elapse(KEPT).await;
    let (first, second) = tokio::join!(store.sweep(15), other.sweep(15));
    // One may pass over what the other holds at that moment; a last one finds the rest.
    let swept = answered(first) + answered(second) + answered(store.sweep(EVERYTHING).await);
    assert_eq!(swept, if H::SWEEPS { 20 } else { 0 });
    gone(&*store, &expired).await;
}

/// A key that is claimed anew while it is swept is one or the other, never claimed and deleted.
pub async fn a_sweep_spares_what_is_claimed_meanwhile<H: StoreHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    for _ in 0..10 {
        let request = Request::fresh();
        let claim = store.begin(&request.call()).await.must_run();
        store.complete(&claim, &"first".into(), KEEP).await.must_apply();
        harness.elapse(KEPT).await;
        let call = request.call();
        let (verdict, swept) = tokio::join!(store.begin(&call), other.sweep(EVERYTHING));
        answered(swept);
        let claim = verdict.must_run();
        store.begin(&request.call()).await.must_be_in_flight();
        store.complete(&claim, &"second".into(), KEEP).await.must_apply();
        store.begin(&request.call()).await.must_replay_exactly(b"second");
    }
}

async fn done(store: &impl exactly::Store, keep: Keep) -> Claim {
    let claim = store.begin(&Request::fresh().call()).await.must_run();
    store.complete(&claim, &"done".into(), keep).await.must_apply();
    claim
}

/// Sweeps exactly `expired`, or sees them go by themselves.
async fn swept<H: StoreHarness>(store: &H::Store, expired: &[CallId]) {
    let count = u32::try_from(expired.len()).expect("a handful");
    assert_eq!(
        answered(store.sweep(EVERYTHING).await),
        if H::SWEEPS { count } else { 0 }
    );
    gone(store, expired).await;
}

async fn gone(store: &impl exactly::Inspect, expired: &[CallId]) {
    let all_gone = async {
        for id in expired {
            while answered(store.get(id).await).is_some() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    };
    tokio::time::timeout(PATIENCE, all_gone)
        .await
        .expect("an expired record is still there");
}
