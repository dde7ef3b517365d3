//! Those who wait for an outcome are told when to look again.

use std::sync::Arc;

use exactly::store::Watch;
use exactly::{Claim, OnLost, Store as _, Verdict};

use crate::StoreHarness;
use crate::answers::{FencedExt as _, VerdictExt as _, answered};
use crate::request::{KEEP, PATIENCE, Request};

/// A watcher in the same process wakes when the outcome is there.
pub async fn completing_wakes_watchers<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let (request, claim, mut watch) = watched(&*store, &*store).await;
    store.complete(&claim, &"done".into(), KEEP).await.must_apply();
    fires(&mut watch).await;
    store.begin(&request.call()).await.must_replay_exactly(b"done");
}

/// It wakes too when the key is free again, since it may now run.
pub async fn abandoning_wakes_watchers<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let (request, claim, mut watch) = watched(&*store, &*store).await;
    store.abandon(&claim).await.must_apply();
    fires(&mut watch).await;
    let _claim = store.begin(&request.call()).await.must_run();
}

/// And when the outcome became unknown: there is nothing to wait for.
pub async fn losing_wakes_watchers<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let (request, claim, mut watch) = watched(&*store, &*store).await;
    store.lose(&claim).await.must_apply();
    fires(&mut watch).await;
    assert_eq!(
        store
            .begin(&request.call().with_on_lost(OnLost::Rerun))
            .await
            .must_be_in_doubt(),
        claim
    );
}

/// Everyone who watches a record is woken, not only the first.
pub async fn every_watcher_is_woken<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let (_, claim, mut first) = watched(&*store, &*store).await;
    let mut rest: Vec<_> = (0..5).map(|_| store.watch(&claim.id)).collect();
    drop(rest.pop());
    store.complete(&claim, &"done".into(), KEEP).await.must_apply();
    fires(&mut first).await;
    for watch in &mut rest {
        fires(watch).await;
    }
}

/// A watch that was taken before the change fires, even when it is awaited only afterwards and after asking.
pub async fn a_change_between_watching_and_asking_is_not_missed<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let call = request.call();
    let claim = store.begin(&call).await.must_run();
    let mut watch = store.watch(call.id());
    store.begin(&request.call()).await.must_be_in_flight();
    let completing = {
        let (store, claim) = (Arc::clone(&store), claim.clone());
        tokio::spawn(async move { store.complete(&claim, &"done".into(), KEEP).await.must_apply() })
    };
    // A wake-up is a hint: one for another reason may come first.
    let verdict = loop {
        fires(&mut watch).await;
        match answered(store.begin(&request.call()).await) {
            Verdict::InFlight { .. } => {}
            verdict => break verdict,
        }
    };
    Ok(verdict).must_replay_exactly(b"done");
    completing.await.expect("the owner completes");
}

/// A watcher in another process wakes as well, where the store has a way to tell it.
pub async fn a_change_wakes_watchers_of_another_store<H: StoreHarness>(harness: &H) {
    if !H::WAKES_OTHER_STORES {
        return;
    }
    let (store, other) = (harness.open().await, harness.open().await);
    let (request, claim, mut watch) = watched(&*store, &*other).await;
    store.complete(&claim, &"done".into(), KEEP).await.must_apply();
    fires(&mut watch).await;
    other.begin(&request.call()).await.must_replay_exactly(b"done");

    let (request, claim, mut watch) = watched(&*store, &*other).await;
    store.abandon(&claim).await.must_apply();
    fires(&mut watch).await;
    let _claim = other.begin(&request.call()).await.must_run();

    let (request, claim, mut watch) = watched(&*store, &*other).await;
    store.lose(&claim).await.must_apply();
    fires(&mut watch).await;
    assert_eq!(other.begin(&request.call()).await.must_be_in_doubt(), claim);
}

/// A request in flight on `store`, with its claim, and a watch on it from `watcher`.
async fn watched(store: &impl exactly::Store, watcher: &impl exactly::Store) -> (Request, Claim, Watch) {
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    let watch = watcher.watch(&claim.id);
    watcher.begin(&request.call()).await.must_be_in_flight();
    (request, claim, watch)
}

async fn fires(watch: &mut Watch) {
    tokio::time::timeout(PATIENCE, watch.changed())
        .await
        .expect("a watcher was never woken");
}
