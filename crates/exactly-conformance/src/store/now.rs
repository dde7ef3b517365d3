//! The clock that judges, as operators read it.

use std::time::Duration;

use exactly::store::Inspect as _;
use exactly::{Operate as _, Store as _};

use crate::StoreHarness;
use crate::answers::{VerdictExt as _, answered};
use crate::request::{LEASE, PATIENCE, Request, assert_about};

/// It goes on, and never back.
pub async fn the_clock_moves_on<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let first = answered(store.now().await);
    let tick = Duration::from_millis(1);
    let moves = async {
        let mut last = first;
        while last == first {
            harness.elapse(tick).await;
            tokio::time::sleep(tick).await;
            let now = answered(store.now().await);
            assert!(now >= last, "the clock went back");
            last = now;
        }
    };
    tokio::time::timeout(PATIENCE, moves)
        .await
        .expect("the clock stands still");
}

/// It is the one by which records are dated and leases end.
pub async fn the_clock_is_the_one_that_dates_records<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let before = answered(store.now().await);
    let claim = store.begin(&Request::fresh().call()).await.must_run();
    let view = answered(store.get(&claim.id).await).expect("the record is there");
    let after = answered(store.now().await);
    assert!(before <= view.created_at && view.created_at <= after);
    assert_about(view.until.expect("it has a lease").since(after), LEASE);
    let elsewhere = answered(harness.open().await.now().await);
    assert!(elsewhere >= before, "two stores on one place disagree about the time");
}
