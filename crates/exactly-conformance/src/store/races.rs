//! Many callers at one instant: one of them runs.

use std::sync::Arc;

use exactly::{Attempt, Call, Claim, Fenced, Store, Verdict};
use futures_util::future::join_all;
use tokio::sync::Barrier;

use crate::StoreHarness;
use crate::answers::{FencedExt as _, VerdictExt as _, answered};
use crate::request::{KEEP, KEPT, LEASE, LEASE_AND_A_BIT, Request};

/// How many callers race. The sources' own acceptance test says ten.
const CALLERS: usize = 10;

/// How often a race between two is run, since one run may by chance be in order.
const ROUNDS: usize = 20;

/// A fresh key: one runs, nine are told to wait.
pub async fn of_ten_concurrent_callers_one_runs<H: StoreHarness>(harness: &H) {
    for _ in 0..3 {
        let request = Request::fresh();
        let claim = one_runs(harness, || request.call()).await;
        assert_eq!(claim.attempt, Attempt::FIRST);
    }
}

/// A lost attempt that may be rerun: one takes it over.
pub async fn of_ten_concurrent_callers_one_takes_over<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let lost = store.begin(&request.rerunnable()).await.must_run();
    harness.elapse(LEASE_AND_A_BIT).await;
    let claim = one_runs(harness, || request.rerunnable()).await;
    assert_eq!(claim.attempt, lost.attempt.next());
    store.complete(&lost, &"lost".into(), KEEP).await.must_be_superseded();
    store.complete(&claim, &"done".into(), KEEP).await.must_apply();
}

/// A forgotten outcome: one uses the key anew.
pub async fn of_ten_concurrent_callers_one_reuses_a_forgotten_key<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    let old = store.begin(&request.call()).await.must_run();
    store.complete(&old, &"old".into(), KEEP).await.must_apply();
    harness.elapse(KEPT).await;
    let claim = one_runs(harness, || request.call()).await;
    assert_eq!(claim.attempt, Attempt::FIRST);
}

/// Contents that race for one key: one content wins, and only its callers are told to wait.
pub async fn of_two_contents_one_owns_the_key<H: StoreHarness>(harness: &H) {
    for _ in 0..ROUNDS / 4 {
        let request = Request::fresh();
        let calls = (0..CALLERS).map(|n| {
            if n % 2 == 0 {
                request.call()
            } else {
                request.tampered().call()
            }
        });
        let calls: Vec<_> = calls.collect();
        let verdicts = at_once(harness, calls.clone()).await;
        let ran: Vec<_> = verdicts
            .iter()
            .filter(|verdict| matches!(verdict, Verdict::Run(_)))
            .collect();
        let [Verdict::Run(claim)] = ran[..] else {
            panic!("{} callers run", ran.len())
        };
        let winner = calls
            .iter()
            .find(|call| call.token() == claim.token)
            .expect("the runner is one of the callers");
        for (call, verdict) in calls.iter().zip(&verdicts) {
            match verdict {
                Verdict::Run(_) => {}
                Verdict::InFlight { .. } => assert_eq!(call.fingerprint(), winner.fingerprint()),
                Verdict::Mismatch { .. } => assert_ne!(call.fingerprint(), winner.fingerprint()),
                other => panic!("a race for a fresh key ended in {other:?}"),
            }
        }
    }
}

/// Repetitions of one call that overtake each other are all the same attempt.
pub async fn concurrent_repetitions_of_one_call_share_its_claim<H: StoreHarness>(harness: &H) {
    let call = Request::fresh().call();
    for verdict in at_once(harness, vec![call.clone(); CALLERS]).await {
        assert_eq!(Ok(verdict).must_run(), call.claim(Attempt::FIRST));
    }
}

/// Of many outcomes for one claim one is stored, and only its author is told so.
pub async fn of_ten_concurrent_outcomes_one_is_stored<H: StoreHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    let request = Request::fresh();
    let claim = store.begin(&request.call()).await.must_run();
    let outcomes: Vec<_> = (0..CALLERS).map(|n| bytes::Bytes::from(n.to_string())).collect();
    let completions = outcomes.iter().enumerate().map(|(n, outcome)| {
        let store = if n % 2 == 0 { &store } else { &other };
        store.complete(&claim, outcome, KEEP)
    });
    let fenced = join_all(completions).await;
    let applied = outcomes
        .iter()
        .zip(fenced)
        .filter(|(_, fenced)| matches!(fenced, Ok(Fenced::Applied)));
    let applied: Vec<_> = applied.map(|(outcome, _)| outcome).collect();
    let [stored] = applied[..] else {
        panic!("{} different outcomes were stored", applied.len())
    };
    store.begin(&request.call()).await.must_replay_exactly(stored);
}

/// An owner that finishes while someone gives its claim up for lost: one of them is told that it came too late.
pub async fn completing_and_abandoning_exclude_each_other<H: StoreHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    for _ in 0..ROUNDS {
        let request = Request::fresh();
        let claim = store.begin(&request.call()).await.must_run();
        let outcome = "done".into();
        let (completed, abandoned) = tokio::join!(store.complete(&claim, &outcome, KEEP), other.abandon(&claim));
        match (answered(completed), answered(abandoned)) {
            (Fenced::Applied, Fenced::Superseded) => {
                store.begin(&request.call()).await.must_replay_exactly(b"done");
            }
            (Fenced::Superseded, Fenced::Applied) => {
                let _claim = store.begin(&request.call()).await.must_run();
            }
            both => panic!("completing and abandoning at once answered {both:?}"),
        }
    }
}

/// An owner that finishes while another caller takes over: either its outcome counts or the other one runs.
pub async fn completing_and_taking_over_exclude_each_other<H: StoreHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    for _ in 0..ROUNDS {
        let request = Request::fresh();
        let claim = store.begin(&request.rerunnable()).await.must_run();
        harness.elapse(LEASE_AND_A_BIT).await;
        let (outcome, call) = ("late".into(), request.rerunnable());
        let (completed, begun) = tokio::join!(store.complete(&claim, &outcome, KEEP), other.begin(&call));
        match (answered(completed), answered(begun)) {
            (Fenced::Applied, Verdict::Replay(replay)) => assert_eq!(replay.outcome, "late"),
            (Fenced::Superseded, Verdict::Run(next)) => assert_eq!(next.attempt, claim.attempt.next()),
            both => panic!("completing while another takes over answered {both:?}"),
        }
    }
}

/// A renewal while another caller takes over: the claim is one's or the other's.
pub async fn renewing_and_taking_over_exclude_each_other<H: StoreHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    for _ in 0..ROUNDS {
        let request = Request::fresh();
        let claim = store.begin(&request.rerunnable()).await.must_run();
        harness.elapse(LEASE_AND_A_BIT).await;
        let call = request.rerunnable();
        let (renewed, begun) = tokio::join!(store.renew(&claim, LEASE), other.begin(&call));
        match (answered(renewed), answered(begun)) {
            (Fenced::Applied, Verdict::InFlight { .. }) => {
                store.complete(&claim, &"renewed".into(), KEEP).await.must_apply();
            }
            (Fenced::Superseded, Verdict::Run(_)) => {
                store.complete(&claim, &"stale".into(), KEEP).await.must_be_superseded();
            }
            both => panic!("renewing while another takes over answered {both:?}"),
        }
    }
}

/// Steps about many records that arrive together keep to their own records.
pub async fn concurrent_steps_do_not_mix_up_records<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let requests: Vec<_> = (0..100).map(|_| Request::fresh()).collect();
    join_all(requests.iter().enumerate().map(async |(n, request)| {
        let claim = store.begin(&request.call()).await.must_run();
        match n % 3 {
            0 => store.complete(&claim, &n.to_string().into(), KEEP).await.must_apply(),
            1 => store.abandon(&claim).await.must_apply(),
            _ => store.lose(&claim).await.must_apply(),
        }
    }))
    .await;
    join_all(requests.iter().enumerate().map(async |(n, request)| {
        let verdict = store.begin(&request.call()).await;
        match n % 3 {
            0 => verdict.must_replay_exactly(n.to_string().as_bytes()),
            1 => drop(verdict.must_run()),
            _ => drop(verdict.must_be_in_doubt()),
        }
    }))
    .await;
}

/// Races [`CALLERS`] callers, and gives back the claim of the only one that runs.
async fn one_runs<H: StoreHarness>(harness: &H, call: impl Fn() -> Call) -> Claim {
    let verdicts = at_once(harness, (0..CALLERS).map(|_| call()).collect()).await;
    let mut runner = None;
    for verdict in verdicts {
        match verdict {
            Verdict::Run(claim) => assert!(runner.replace(claim).is_none(), "two callers run"),
            Verdict::InFlight { .. } => {}
            other => panic!("a race ended in {other:?}"),
        }
    }
    runner.expect("nobody runs")
}

/// Begins all `calls` in tasks of their own, half of them through another store.
async fn at_once<H: StoreHarness>(harness: &H, calls: Vec<Call>) -> Vec<Verdict> {
    let stores = [harness.open().await, harness.open().await];
    let start = Arc::new(Barrier::new(calls.len()));
    let callers = calls.into_iter().enumerate().map(|(n, call)| {
        let (store, start) = (Arc::clone(&stores[n % stores.len()]), Arc::clone(&start));
        tokio::spawn(async move {
            start.wait().await;
            answered(store.begin(&call).await)
        })
    });
    let callers: Vec<_> = callers.collect();
    join_all(callers)
        .await
        .into_iter()
        .map(|verdict| verdict.expect("a caller panicked"))
        .collect()
}
