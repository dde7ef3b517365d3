//! Transactions and leased calls that meet on the same keys: still explained by atomic steps.

use std::sync::Arc;

use exactly::{TransactionalStore, Verdict};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::LOCK_WAIT;
use crate::TransactionalHarness;
use crate::answers::{FencedExt as _, answered};
use crate::history::check::check;
use crate::history::workload::{KEEP, Workload};
use crate::history::{Answer, End, Step};

const SEEDS: std::ops::Range<u64> = 0..12;

/// A transaction is one step like any other, whatever happens around it.
pub async fn histories_with_transactions_are_explained_by_the_model<H: TransactionalHarness>(_: &H) {
    let workload = Workload {
        callers: 4,
        keys: 2,
        steps: 20,
        gives_up: false,
    };
    let harness = Arc::new(H::fresh().await);
    for seed in SEEDS {
        let history = workload.run(&harness, seed, Some(transact::<H::Store>)).await;
        if let Err(report) = check(&history) {
            panic!("seed {seed} of {workload:?}: {report}");
        }
    }
}

fn transact<'a, S: TransactionalStore>(store: &'a S, step: &'a Step) -> BoxFuture<'a, Answer> {
    async move {
        let mut tx = answered(store.open(LOCK_WAIT).await);
        let (answer, end) = match step {
            Step::Transact(call, outcome, end) => {
                let verdict = answered(store.begin_in(&mut tx, call).await);
                if let Verdict::Run(claim) = &verdict {
                    tokio::task::yield_now().await;
                    store.complete_in(&mut tx, claim, outcome, KEEP).await.must_apply();
                }
                // A transaction that is told to wait is not good for anything else.
                let end = if matches!(verdict, Verdict::InFlight { .. }) {
                    End::Rollback
                } else {
                    *end
                };
                (Answer::Verdict(verdict), end)
            }
            Step::CompleteIn(claim, outcome, end) => (
                Answer::Fenced(answered(store.complete_in(&mut tx, claim, outcome, KEEP).await)),
                *end,
            ),
            other => unreachable!("{other:?} is no transaction"),
        };
        answered(match end {
            End::Commit => store.commit(tx).await,
            End::Rollback => store.rollback(tx).await,
        });
        answer
    }
    .boxed()
}
