//! Transactions that meet at one key.

use std::sync::Arc;
use std::time::Duration;

use exactly::{Call, Store as _, StoreError, TransactionalStore as _, Verdict};
use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{LOCK_WAIT, LOCK_WAIT_SHORT, begun, carried_out, carry_out, effects, is_busy, outcome_of};
use crate::TransactionalHarness;
use crate::answers::{VerdictExt as _, answered};
use crate::request::{PATIENCE, Request};

/// Long enough for an answer that should not come to come.
const A_WHILE: Duration = Duration::from_millis(150);

/// How often a transaction that stood in another's way tries again.
const TRIES_MAX: usize = 10;

/// A duplicate waits for the first transaction, and is answered with what that one committed.
pub async fn a_second_transaction_waits_and_replays<H: TransactionalHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    let request = Request::fresh();
    let tx = carried_out(harness, &*store, &request).await;
    let mut waiting = waiter::<H>(&other, request.call());
    assert!(
        timeout(A_WHILE, &mut waiting).await.is_err(),
        "it does not wait for the first transaction"
    );
    answered(store.commit(tx).await);
    Ok(ended(waiting).await).must_replay_exactly(&outcome_of(&request));
    assert_eq!(effects(harness, &request).await, 1);
}

/// If the first transaction is undone, the duplicate runs in its place.
pub async fn a_second_transaction_waits_and_runs<H: TransactionalHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    let request = Request::fresh();
    for by_dropping in [false, true] {
        let tx = carried_out(harness, &*store, &request).await;
        let mut waiting = waiter::<H>(&other, request.call());
        assert!(
            timeout(A_WHILE, &mut waiting).await.is_err(),
            "it does not wait for the first transaction"
        );
        if by_dropping {
            drop(tx);
        } else {
            answered(store.rollback(tx).await);
        }
        let _claim = Ok(ended(waiting).await).must_run();
    }
    assert_eq!(effects(harness, &request).await, 0);
}

/// Nobody waits longer than asked; the first transaction is none the worse for it.
pub async fn a_second_transaction_waits_no_longer_than_asked<H: TransactionalHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    let request = Request::fresh();
    let tx = carried_out(harness, &*store, &request).await;
    for store in [&store, &other] {
        let call = request.call();
        let bounded = timeout(PATIENCE, begun::<H>(store, &call, LOCK_WAIT_SHORT)).await;
        let begun = bounded.expect("it waits longer than asked");
        assert!(begun.is_none(), "it is told {:?}", begun.map(|(_, verdict)| verdict));
    }
    answered(store.commit(tx).await);
    other
        .begin(&request.call())
        .await
        .must_replay_exactly(&outcome_of(&request));
    assert_eq!(effects(harness, &request).await, 1);
}

/// Ten transactions at once: one effect, and nine that replay its outcome.
pub async fn of_ten_transactions_one_has_the_effect<H: TransactionalHarness>(harness: &H) {
    let stores = [harness.open().await, harness.open().await];
    let request = Request::fresh();
    let served = (0..10).map(|n| serve(harness, &stores[n % 2], &request));
    let ran = join_all(served).await.into_iter().filter(|ran| *ran).count();
    assert_eq!((ran, effects(harness, &request).await), (1, 1));
}

/// The same when the first of them are undone on the way.
pub async fn of_ten_transactions_with_failures_one_has_the_effect<H: TransactionalHarness>(harness: &H) {
    let stores = [harness.open().await, harness.open().await];
    let request = Request::fresh();
    let callers = (0..10).map(async |n| {
        let store = &stores[n % 2];
        if n < 5 {
            // A handler that fails: whatever it was told, it undoes everything.
            if let Some((mut tx, Verdict::Run(claim))) = begun::<H>(store, &request.call(), LOCK_WAIT).await {
                carry_out(harness, store, &mut tx, &request, &claim).await;
                answered(store.rollback(tx).await);
            }
            false
        } else {
            serve(harness, store, &request).await
        }
    });
    let ran = join_all(callers).await.into_iter().filter(|ran| *ran).count();
    assert_eq!((ran, effects(harness, &request).await), (1, 1));
}

/// A transaction holds up its own key only, however many leased callers ask for that one.
pub async fn other_keys_do_not_wait_for_a_transaction<H: TransactionalHarness>(harness: &H) {
    if !H::WRITES_IN_PARALLEL {
        return;
    }
    let (store, other) = (harness.open().await, harness.open().await);
    let (held, free) = (Request::fresh(), Request::fresh());
    let tx = carried_out(harness, &*store, &held).await;
    let duplicates = (0..10).map(|_| {
        let (other, call) = (Arc::clone(&other), held.call());
        tokio::spawn(async move { other.begin(&call).await })
    });
    let duplicates: Vec<_> = duplicates.collect();
    let calls = [(); 20].map(|()| Request::fresh().call());
    let (verdicts, also) = tokio::join!(
        timeout(PATIENCE, join_all(calls.iter().map(|call| other.begin(call)))),
        timeout(PATIENCE, carried_out(harness, &*other, &free)),
    );
    for verdict in verdicts.expect("other keys wait for a transaction") {
        let _claim = verdict.must_run();
    }
    answered(
        other
            .commit(also.expect("another transaction waits for this one"))
            .await,
    );
    answered(store.commit(tx).await);
    for duplicate in duplicates {
        assert_not_run(
            timeout(PATIENCE, duplicate)
                .await
                .expect("it waits without end")
                .expect("a caller panicked"),
        );
    }
    assert_eq!((effects(harness, &held).await, effects(harness, &free).await), (1, 1));
}

/// A leased caller does not run beside a transaction, and replays what it committed.
pub async fn a_leased_caller_never_runs_beside_a_transaction<H: TransactionalHarness>(harness: &H) {
    let stores = [harness.open().await, harness.open().await];
    for asking in &stores {
        let request = Request::fresh();
        let tx = carried_out(harness, &*stores[0], &request).await;
        let (store, call) = (Arc::clone(asking), request.call());
        let mut asked = tokio::spawn(async move { store.begin(&call).await });
        let early = timeout(A_WHILE, &mut asked).await.ok();
        answered(stores[0].commit(tx).await);
        let verdict = match early {
            Some(verdict) => verdict.expect("the caller panicked"),
            None => timeout(PATIENCE, asked)
                .await
                .expect("it waits without end")
                .expect("the caller panicked"),
        };
        assert_not_run(verdict);
        asking
            .begin(&request.call())
            .await
            .must_replay_exactly(&outcome_of(&request));
    }
}

/// Two that wait for each other's keys both come to an end, and each key has one effect after their retries.
pub async fn transactions_that_wait_for_each_other_end<H: TransactionalHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    let (ann, bob) = (Request::fresh(), Request::fresh());
    let both = async {
        tokio::join!(
            serve_both(harness, &*store, [&ann, &bob]),
            serve_both(harness, &*other, [&bob, &ann])
        );
    };
    timeout(3 * PATIENCE, both)
        .await
        .expect("two transactions wait for each other without end");
    assert_eq!((effects(harness, &ann).await, effects(harness, &bob).await), (1, 1));
}

/// A caller that gives up waiting leaves nothing behind that would hold the key.
pub async fn a_cancelled_wait_holds_nothing<H: TransactionalHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    let request = Request::fresh();
    let tx = carried_out(harness, &*store, &request).await;
    let call = request.call();
    let _ = timeout(A_WHILE, begun::<H>(&*other, &call, LOCK_WAIT)).await;
    answered(store.rollback(tx).await);
    assert!(serve(harness, &other, &request).await);
    assert_eq!(effects(harness, &request).await, 1);
}

/// A transaction holds no lease, so a leased caller may also be told that the store cannot answer yet.
#[track_caller]
fn assert_not_run(verdict: Result<Verdict, StoreError>) {
    match verdict {
        Ok(Verdict::InFlight { .. } | Verdict::Replay(_)) => {}
        Err(error) if is_busy(&error) => {}
        other => panic!("a leased caller beside a transaction is told {other:?}"),
    }
}

/// What a server does with one request: says whether it ran.
async fn serve<H: TransactionalHarness>(harness: &H, store: &H::Store, request: &Request) -> bool {
    let call = request.call();
    match begun::<H>(store, &call, LOCK_WAIT).await {
        Some((mut tx, Verdict::Run(claim))) => {
            carry_out(harness, store, &mut tx, request, &claim).await;
            answered(store.commit(tx).await);
            true
        }
        Some((tx, verdict)) => {
            Ok(verdict).must_replay_exactly(&outcome_of(request));
            answered(store.rollback(tx).await);
            false
        }
        None => panic!("the others took longer than {LOCK_WAIT:?}"),
    }
}

/// Carries out both requests in one transaction, in this order, and tries again when it stood in another's way.
async fn serve_both<H: TransactionalHarness>(harness: &H, store: &H::Store, requests: [&Request; 2]) {
    'again: for _ in 0..TRIES_MAX {
        // Not in step with the other one, or they meet again in the same way.
        tokio::time::sleep(Duration::from_millis(fastrand::u64(..20))).await;
        let mut tx = answered(store.open(LOCK_WAIT).await);
        for request in requests {
            match store.begin_in(&mut tx, &request.call()).await {
                Ok(Verdict::Run(claim)) => carry_out(harness, store, &mut tx, request, &claim).await,
                Ok(Verdict::Replay(_)) => {}
                // The database noticed, or the wait was over.
                Ok(Verdict::InFlight { .. }) | Err(_) => {
                    let _ = store.rollback(tx).await;
                    continue 'again;
                }
                Ok(other) => panic!("a fresh request is told {other:?}"),
            }
            // Lets the other one take its first key too.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        return answered(store.commit(tx).await);
    }
    panic!("after {TRIES_MAX} tries two transactions still stand in each other's way")
}

/// A transaction in a task of its own: what it is told, after which it is undone.
fn waiter<H: TransactionalHarness>(store: &Arc<H::Store>, call: Call) -> JoinHandle<Option<Verdict>> {
    let store = Arc::clone(store);
    tokio::spawn(async move {
        let (tx, verdict) = begun::<H>(&*store, &call, LOCK_WAIT).await?;
        answered(store.rollback(tx).await);
        Some(verdict)
    })
}

async fn ended(waiting: JoinHandle<Option<Verdict>>) -> Verdict {
    let ended = timeout(PATIENCE, waiting).await.expect("it still waits");
    ended
        .expect("the waiter panicked")
        .expect("it was told that the key is held")
}
