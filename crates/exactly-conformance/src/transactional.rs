//! The promises of stores whose records commit with the effect, one function each.

pub mod commit;
pub mod histories;
pub mod lost_commit;
pub mod takeover;
pub mod verdicts;
pub mod wait;

use std::time::Duration;

use exactly::{Call, Claim, StoreError, StoreErrorKind, TransactionalStore, Verdict};

use crate::answers::{FencedExt as _, VerdictExt as _, answered};
use crate::request::{KEEP, Request};
use crate::{StoreHarness, TransactionalHarness};

/// Longer than any transaction here is open on purpose.
const LOCK_WAIT: Duration = Duration::from_secs(8);

/// What a transaction that waits gives up after, where it is meant to give up.
const LOCK_WAIT_SHORT: Duration = Duration::from_millis(100);

type Tx<H> = <<H as StoreHarness>::Store as TransactionalStore>::Tx;

/// An open transaction in which the request ran, had its effect and was completed with its key as the outcome.
async fn carried_out<H: TransactionalHarness>(harness: &H, store: &H::Store, request: &Request) -> Tx<H> {
    let mut tx = answered(store.open(LOCK_WAIT).await);
    let claim = store.begin_in(&mut tx, &request.call()).await.must_run();
    carry_out(harness, store, &mut tx, request, &claim).await;
    tx
}

async fn carry_out<H: TransactionalHarness>(
    harness: &H,
    store: &H::Store,
    tx: &mut Tx<H>,
    request: &Request,
    claim: &Claim,
) {
    // Whoever does not wait for this one gets its chance.
    tokio::task::yield_now().await;
    harness.effect(tx, request.key.as_str()).await;
    store
        .complete_in(tx, claim, &outcome_of(request), KEEP)
        .await
        .must_apply();
}

fn outcome_of(request: &Request) -> bytes::Bytes {
    request.key.as_str().to_owned().into()
}

async fn effects<H: TransactionalHarness>(harness: &H, request: &Request) -> u64 {
    harness.effects(request.key.as_str()).await
}

/// What one transaction is told, and then undone.
async fn told<S: TransactionalStore>(store: &S, call: &Call) -> Verdict {
    let mut tx = answered(store.open(LOCK_WAIT).await);
    let verdict = answered(store.begin_in(&mut tx, call).await);
    answered(store.rollback(tx).await);
    verdict
}

/// Opens a transaction and begins in it. `None`: another one was in the way for the whole wait, which a store with one
/// writer says when it opens and others when they begin.
async fn begun<H: TransactionalHarness>(store: &H::Store, call: &Call, wait: Duration) -> Option<(Tx<H>, Verdict)> {
    let mut tx = match store.open(wait).await {
        Err(error) if !H::WRITES_IN_PARALLEL && is_busy(&error) => return None,
        opened => answered(opened),
    };
    match answered(store.begin_in(&mut tx, call).await) {
        Verdict::InFlight { .. } => {
            answered(store.rollback(tx).await);
            None
        }
        verdict => Some((tx, verdict)),
    }
}

fn is_busy(error: &StoreError) -> bool {
    error.kind() == StoreErrorKind::Unavailable
}
