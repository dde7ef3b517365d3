//! The acceptance tests that the source documents ask of every idempotent operation, at the level of the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use exactly::{Call, Store, Verdict};
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::StoreHarness;
use crate::answers::{FencedExt as _, VerdictExt as _, answered};
use crate::request::{KEEP, PATIENCE, Request};

/// How often a waiter asks before it gives up.
const TRIES_MAX: u32 = 100;

/// The same request twice: one effect, the same answer.
pub async fn a_duplicate_request_has_one_effect<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let (request, effects) = (Request::fresh(), AtomicU32::new(0));
    let first = answer(&*store, &request.call(), &effects).await;
    let second = answer(&*store, &request.call(), &effects).await;
    assert_eq!(first, second);
    assert_eq!(effects.into_inner(), 1);
}

/// A failure in the middle that left nothing behind: the retry runs, and what happened once is answered from then on.
pub async fn a_retry_after_a_failure_runs<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let (request, effects) = (Request::fresh(), AtomicU32::new(0));
    // The first attempt fails before its effect, and says so.
    let claim = store.begin(&request.call()).await.must_run();
    store.abandon(&claim).await.must_apply();
    let retried = answer(&*store, &request.call(), &effects).await;
    assert_eq!(answer(&*store, &request.call(), &effects).await, retried);
    assert_eq!(effects.into_inner(), 1);
}

/// Ten requests at once: one runs and nine get its answer.
pub async fn of_ten_requests_one_runs_and_nine_get_its_answer<H: StoreHarness>(harness: &H) {
    let stores = [harness.open().await, harness.open().await];
    let (request, effects) = (Request::fresh(), Arc::new(AtomicU32::new(0)));
    let callers = (0..10).map(|n| {
        let (store, request, effects) = (Arc::clone(&stores[n % 2]), request.clone(), Arc::clone(&effects));
        tokio::spawn(async move { answer(&*store, &request.call(), &effects).await })
    });
    let callers: Vec<_> = callers.collect();
    for answer in join_all(callers).await {
        assert_eq!(answer.expect("a caller panicked"), "effect 0");
    }
    assert_eq!(effects.load(Ordering::SeqCst), 1);
}

/// What a server does with one request: run, replay, or wait for whoever runs.
async fn answer(store: &impl Store, call: &Call, effects: &AtomicU32) -> Bytes {
    let mut watch = store.watch(call.id());
    for _ in 0..TRIES_MAX {
        match answered(store.begin(call).await) {
            Verdict::Run(claim) => {
                let outcome = Bytes::from(format!("effect {}", effects.fetch_add(1, Ordering::SeqCst)));
                tokio::task::yield_now().await;
                store.complete(&claim, &outcome, KEEP).await.must_apply();
                return outcome;
            }
            Verdict::Replay(replay) => return replay.outcome,
            // A wake-up is a hint, and one from another store may never come.
            Verdict::InFlight { .. } => drop(timeout(PATIENCE / TRIES_MAX, watch.changed()).await),
            other => panic!("one of several equal requests is told {other:?}"),
        }
    }
    panic!("nobody finishes within {PATIENCE:?}")
}
