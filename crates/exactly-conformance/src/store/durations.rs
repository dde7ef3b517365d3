//! The ends of the scale.

use std::time::Duration;

use exactly::{Inspect as _, Keep, Store as _};

use crate::StoreHarness;
use crate::answers::{FencedExt as _, VerdictExt as _, answered};
use crate::request::{KEEP, KEPT, Request};

/// Longer than any of the suites waits.
const CENTURY: Duration = Duration::from_hours(100 * 365 * 24);

/// A lease that never ends in practice is granted, shown and renewed without overflow.
pub async fn the_longest_lease_is_granted<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call().with_lease(Duration::MAX)).await.must_run();
    assert!(store.begin(&request.call()).await.must_be_in_flight() > CENTURY);
    store.renew(&claim, Duration::MAX).await.must_apply();
    assert!(store.peek(&request.call()).await.must_be_in_flight() > CENTURY);
    assert!(answered(store.get(&claim.id).await).is_some());
    store.complete(&claim, &"done".into(), KEEP).await.must_apply();
}

/// So is a retention.
pub async fn the_longest_retention_is_kept<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    store
        .complete(&claim, &"done".into(), Keep::For(Duration::MAX))
        .await
        .must_apply();
    harness.elapse(10 * 365 * KEPT).await;
    assert_eq!(answered(store.sweep(1000).await), 0);
    let replay = store.begin(&request.call()).await.must_replay();
    assert!(replay.expires_in.expect("it is not kept forever") > CENTURY);
    assert_eq!(replay.outcome, "done");
}

/// Less than a millisecond is as good as none, and not an error.
pub async fn durations_below_a_millisecond_are_as_good_as_none<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let brief = Duration::from_nanos(1);
    let request = Request::fresh();
    let claim = store.begin(&request.call().with_lease(brief)).await.must_run();
    let _ = store.begin(&request.call()).await.must_be_in_doubt();
    store.renew(&claim, brief).await.must_apply();
    let _ = store.begin(&request.call()).await.must_be_in_doubt();
    store
        .complete(&claim, &"done".into(), Keep::For(brief))
        .await
        .must_apply();
    let _claim = store.begin(&request.call()).await.must_run();
}
