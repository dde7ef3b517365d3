//! Outcomes that an operator has forgotten before their time.

use exactly::{Attempt, Claim, Fenced, Inspect as _, Keep, Operate as _, Store, Verdict};
use futures_util::future::{join_all, join3};

use crate::StoreHarness;
use crate::answers::{FencedExt as _, VerdictExt as _, answered};
use crate::request::{KEEP, LEASE_AND_A_BIT, PATIENCE, Request};

/// The same key is a new operation then, whatever its content, and however long its outcome was to be kept.
pub async fn forgetting_an_outcome_frees_its_key<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    for keep in [KEEP, Keep::Forever] {
        let request = Request::fresh();
        let claim = store.begin(&request.call()).await.must_run();
        store.complete(&claim, &"first".into(), keep).await.must_apply();
        store.forget(&claim).await.must_apply();
        assert!(answered(store.get(&claim.id).await).is_none());

        let again = store.begin(&request.tampered().call()).await.must_run();
        assert_eq!(again.attempt, Attempt::FIRST);
        store.complete(&again, &"second".into(), KEEP).await.must_apply();
        store
            .begin(&request.tampered().call())
            .await
            .must_replay_exactly(b"second");
    }
}

/// Only the outcome that the operator has seen is forgotten, and not the one that took its place.
pub async fn a_stale_claim_cannot_forget<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let first = store.begin(&request.rerunnable()).await.must_run();
    harness.elapse(LEASE_AND_A_BIT).await;
    let second = store.begin(&request.rerunnable()).await.must_run();
    store.complete(&second, &"second".into(), KEEP).await.must_apply();
    store.forget(&first).await.must_be_superseded();
    store.begin(&request.call()).await.must_replay_exactly(b"second");

    store.forget(&second).await.must_apply();
    let third = store.begin(&request.call()).await.must_run();
    store.complete(&third, &"third".into(), KEEP).await.must_apply();
    store.forget(&second).await.must_be_superseded();
    store.begin(&request.call()).await.must_replay_exactly(b"third");
}

/// What is in flight, in doubt or lost has no outcome to forget, and goes on as if nobody had asked.
pub async fn forgetting_what_is_not_done_changes_nothing<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let (doubtful, repeatable) = (Request::fresh(), Request::fresh());
    let claim = store.begin(&doubtful.call()).await.must_run();
    let lost = store.begin(&repeatable.rerunnable()).await.must_run();
    store.forget(&claim).await.must_be_superseded();
    store.begin(&doubtful.call()).await.must_be_in_flight();

    harness.elapse(LEASE_AND_A_BIT).await;
    store.forget(&claim).await.must_be_superseded();
    assert_eq!(store.begin(&doubtful.call()).await.must_be_in_doubt(), claim);
    store.forget(&lost).await.must_be_superseded();
    let rerun = store.begin(&repeatable.rerunnable()).await.must_run();
    assert_eq!(Some(rerun.attempt), Attempt::new(2));
    store.complete(&claim, &"late".into(), KEEP).await.must_apply();
}

/// A lost reply is asked for again, and the second time is as good as the first.
pub async fn forgetting_what_is_gone_is_applied<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let claim = store.begin(&Request::fresh().call()).await.must_run();
    store.complete(&claim, &"done".into(), KEEP).await.must_apply();
    for _ in 0..3 {
        store.forget(&claim).await.must_apply();
    }
}

/// Those who look at the record look again.
pub async fn forgetting_wakes_watchers<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let claim = store.begin(&Request::fresh().call()).await.must_run();
    store.complete(&claim, &"done".into(), KEEP).await.must_apply();
    let mut watch = store.watch(&claim.id);
    store.forget(&claim).await.must_apply();
    tokio::time::timeout(PATIENCE, watch.changed())
        .await
        .expect("a watcher was never woken");
}

/// Of ten who wait for a key to be forgotten one runs, and who forgets it once more does it no harm.
pub async fn of_ten_callers_one_runs_what_was_forgotten<H: StoreHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    for _ in 0..5 {
        let request = Request::fresh();
        let claim = store.begin(&request.call()).await.must_run();
        store.complete(&claim, &"done".into(), KEEP).await.must_apply();
        let callers = join_all((0..10).map(|_| begun_anew(&*store, &request)));
        let callers = tokio::time::timeout(PATIENCE, callers);
        let (forgotten, callers, again) = join3(other.forget(&claim), callers, store.forget(&claim)).await;
        let forgotten = [answered(forgotten), answered(again)];
        assert!(forgotten.contains(&Fenced::Applied), "nobody forgot the outcome");
        let callers = callers.expect("a forgotten outcome replays for ever");
        let running: Vec<_> = callers.into_iter().flatten().collect();
        assert_eq!(running.len(), 1, "of ten callers one runs");
        store.complete(&running[0], &"again".into(), KEEP).await.must_apply();
        store.begin(&request.call()).await.must_replay_exactly(b"again");
    }
}

/// Begins until the old outcome is gone. `None`: someone else runs.
async fn begun_anew(store: &impl Store, request: &Request) -> Option<Claim> {
    loop {
        match answered(store.begin(&request.call()).await) {
            Verdict::Run(claim) => return Some(claim),
            Verdict::InFlight { .. } => return None,
            Verdict::Replay(_) => tokio::task::yield_now().await,
            verdict => panic!("the store says {verdict:?}"),
        }
    }
}
