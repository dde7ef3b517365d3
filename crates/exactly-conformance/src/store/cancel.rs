//! Callers that give up while the store is at work.
//!
//! A future is dropped after some number of polls, and each number cuts the exchange with the store at another point:
//! before the question went out, while it was on its way, or with the answer already in the room.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use exactly::store::Reply;
use exactly::{Call, Claim, Fenced, Store, StoreError, Verdict};

use crate::StoreHarness;
use crate::answers::{FencedExt as _, VerdictExt as _, answered};
use crate::request::{KEEP, PATIENCE, Request};

/// How often a future is polled before it is dropped.
const POLLS: [u32; 8] = [1, 2, 3, 5, 10, 30, 100, 300];

/// A claim that nobody was told of is given back: the key is not blocked for a lease, and never in doubt.
pub async fn a_cancelled_begin_leaves_no_claim_behind<H: StoreHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    for polls in POLLS {
        let request = Request::fresh();
        if cut(store.begin(&request.call()), polls).await.is_none() {
            let _claim = runs_soon(&*other, || request.call()).await;
        }
    }
}

/// What is given back is the cancelled claim, not that of whoever came after it.
pub async fn a_cancelled_begin_spares_the_next_claim<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    for polls in POLLS {
        let request = Request::fresh();
        if cut(store.begin(&request.call()), polls).await.is_some() {
            continue;
        }
        let claim = runs_soon(&*store, || request.call()).await;
        busy(&*store).await;
        store.begin(&request.call()).await.must_be_in_flight();
        store.complete(&claim, &"done".into(), KEEP).await.must_apply();
        store.begin(&request.call()).await.must_replay_exactly(b"done");
    }
}

/// Nor is it that of the same call asked again: a caller may time out and repeat its question.
pub async fn a_cancelled_begin_spares_its_own_repetition<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    for polls in POLLS.into_iter().cycle().take(5 * POLLS.len()) {
        let request = Request::fresh();
        let call = request.call();
        let _ = cut(store.begin(&call), polls).await;
        let claim = runs_soon(&*store, || call.clone()).await;
        busy(&*store).await;
        store.begin(&request.call()).await.must_be_in_flight();
        store.complete(&claim, &"done".into(), KEEP).await.must_apply();
    }
}

/// Callers that give up on a key which someone else holds leave it alone.
pub async fn a_cancelled_begin_spares_the_owner<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let owner = store.begin(&request.call()).await.must_run();
    for polls in POLLS {
        let _ = cut(store.begin(&request.call()), polls).await;
    }
    busy(&*store).await;
    store.begin(&request.call()).await.must_be_in_flight();
    store.complete(&owner, &"done".into(), KEEP).await.must_apply();
    for polls in POLLS {
        let _ = cut(store.begin(&request.call()), polls).await;
    }
    busy(&*store).await;
    store.begin(&request.call()).await.must_replay_exactly(b"done");
}

/// A cancelled completion was stored or was not; the claim is good for another try either way.
pub async fn a_cancelled_complete_can_be_repeated<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let outcome = Bytes::from(vec![7; 100_000]);
    for polls in POLLS {
        let request = Request::fresh();
        let claim = store.begin(&request.call()).await.must_run();
        let _ = cut(store.complete(&claim, &outcome, KEEP), polls).await;
        match answered(store.begin(&request.call()).await) {
            Verdict::InFlight { .. } => {}
            Verdict::Replay(replay) => assert!(replay.outcome == outcome, "half an outcome was stored"),
            other => panic!("a cancelled completion left {other:?}"),
        }
        store.complete(&claim, &outcome, KEEP).await.must_apply();
        store.begin(&request.call()).await.must_replay_exactly(&outcome);
    }
}

/// When the owner changes its mind after a cancelled completion, one of the two outcomes counts, and it is told which.
pub async fn a_cancelled_complete_is_all_or_nothing<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    for polls in POLLS {
        let request = Request::fresh();
        let claim = store.begin(&request.call()).await.must_run();
        let _ = cut(store.complete(&claim, &"first".into(), KEEP), polls).await;
        let stored = match answered(store.complete(&claim, &"second".into(), KEEP).await) {
            Fenced::Applied => "second",
            Fenced::Superseded => "first",
        };
        store
            .begin(&request.call())
            .await
            .must_replay_exactly(stored.as_bytes());
        busy(&*store).await;
        store
            .begin(&request.call())
            .await
            .must_replay_exactly(stored.as_bytes());
    }
}

/// A cancelled abandonment freed the key or did not, and says so when it is repeated.
pub async fn a_cancelled_abandon_can_be_repeated<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    for polls in POLLS {
        let request = Request::fresh();
        let claim = store.begin(&request.call()).await.must_run();
        let _ = cut(store.abandon(&claim), polls).await;
        store.abandon(&claim).await.must_apply();
        let next = store.begin(&request.call()).await.must_run();
        busy(&*store).await;
        store.complete(&next, &"done".into(), KEEP).await.must_apply();
    }
}

/// Callers that give up do not keep others from being served.
pub async fn cancelled_callers_do_not_disturb_others<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    for polls in POLLS {
        let requests: Vec<_> = (0..10).map(|_| Request::fresh()).collect();
        let (given_up, served) = requests.split_at(5);
        let (given_up, served): (Vec<_>, Vec<_>) = (
            given_up.iter().map(Request::call).collect(),
            served.iter().map(Request::call).collect(),
        );
        let given_up = futures_util::future::join_all(given_up.iter().map(|call| cut(store.begin(call), polls)));
        let served = futures_util::future::join_all(served.iter().map(|call| store.begin(call)));
        let (_, verdicts) = tokio::join!(given_up, served);
        for verdict in verdicts {
            let claim = verdict.must_run();
            store.complete(&claim, &"done".into(), KEEP).await.must_apply();
        }
    }
}

/// Polls `reply` up to `polls` times, then drops it.
async fn cut<T>(mut reply: Reply<'_, T>, polls: u32) -> Option<Result<T, StoreError>> {
    for _ in 0..polls {
        if let Poll::Ready(answer) = poll_fn(|context| Poll::Ready(reply.as_mut().poll(context))).await {
            return Some(answer);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// The claim of a caller that asks again until the key is free.
async fn runs_soon(store: &impl Store, call: impl Fn() -> Call) -> Claim {
    let runs = async {
        loop {
            match answered(store.begin(&call()).await) {
                Verdict::Run(claim) => return claim,
                Verdict::InFlight { .. } => tokio::time::sleep(Duration::from_millis(10)).await,
                other => panic!("a cancelled begin left {other:?}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, runs)
        .await
        .expect("a cancelled begin blocks its key")
}

/// Gives whatever goes on behind the callers' backs its turn, by keeping the store at work for a while.
async fn busy(store: &impl Store) {
    for _ in 0..5 {
        let claim = store.begin(&Request::fresh().call()).await.must_run();
        store.abandon(&claim).await.must_apply();
    }
}
