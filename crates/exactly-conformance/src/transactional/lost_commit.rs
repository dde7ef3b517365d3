//! A commit whose answer was lost. The caller does not know; the database does, and says so to whoever begins again.

use std::future::poll_fn;
use std::task::Poll;

use exactly::{Store as _, TransactionalStore, Verdict};

use super::{LOCK_WAIT, carried_out, carry_out, effects, outcome_of};
use crate::answers::{VerdictExt as _, answered};
use crate::request::Request;
use crate::{Fault, TransactionalHarness};

/// The connection broke before or after the commit took effect: beginning again finds out which, and ends in one effect.
pub async fn a_lost_commit_is_learnt_by_beginning_again<H: TransactionalHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    for fault in Fault::ALL {
        let request = Request::fresh();
        let tx = carried_out(harness, &*store, &request).await;
        match fault {
            Fault::FailsBefore => drop(tx),
            Fault::ReplyLost => answered(store.commit(tx).await),
        }
        let ran = begin_again(harness, &*other, &request).await;
        assert_eq!(ran, fault == Fault::FailsBefore);
    }
}

/// A commit that is given up half way is all or nothing, and beginning again waits until that is decided.
pub async fn a_cancelled_commit_is_all_or_nothing<H: TransactionalHarness>(harness: &H) {
    let (store, other) = (harness.open().await, harness.open().await);
    for polls in [1, 2, 3, 5, 10, 30] {
        let request = Request::fresh();
        let tx = carried_out(harness, &*store, &request).await;
        let mut commit = store.commit(tx);
        for _ in 0..polls {
            if poll_fn(|context| Poll::Ready(commit.as_mut().poll(context)))
                .await
                .is_ready()
            {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(commit);
        begin_again(harness, &*other, &request).await;
    }
}

/// A retry that was learnt to run does so once more if its own commit is lost, and so on: still one effect.
pub async fn commits_lost_in_a_row_leave_one_effect<H: TransactionalHarness>(harness: &H) {
    let store = harness.open().await;
    let request = Request::fresh();
    for _ in 0..3 {
        drop(carried_out(harness, &*store, &request).await);
    }
    let tx = carried_out(harness, &*store, &request).await;
    answered(store.commit(tx).await);
    assert!(!begin_again(harness, &*store, &request).await);
}

/// Does what a retry does. Whether it ran or replayed, there is one effect with its outcome afterwards.
async fn begin_again<H: TransactionalHarness>(harness: &H, store: &H::Store, request: &Request) -> bool {
    let mut tx = answered(store.open(LOCK_WAIT).await);
    let ran = match answered(store.begin_in(&mut tx, &request.call()).await) {
        Verdict::Run(claim) => {
            assert_eq!(
                effects(harness, request).await,
                0,
                "the effect is there, and runs once more"
            );
            carry_out(harness, store, &mut tx, request, &claim).await;
            true
        }
        Verdict::Replay(replay) => {
            assert_eq!(replay.outcome, outcome_of(request));
            false
        }
        other => panic!("beginning again after a lost commit says {other:?}"),
    };
    answered(store.commit(tx).await);
    assert_eq!(effects(harness, request).await, 1);
    store
        .begin(&request.call())
        .await
        .must_replay_exactly(&outcome_of(request));
    ran
}
