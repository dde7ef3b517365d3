//! Tasks in the caller's transaction.

use std::time::Duration;

use exactly::queue::{End, Enqueued, Settlement, Task, TransactionalQueue, check_batch};
use exactly::store::Reply;
use exactly::{Fenced, StoreError};
use sqlx::PgConnection;

use super::{PgQueue, is_due_again};
use crate::error::failed;
use crate::postgres::session::{BATCH_TIMEOUT, within};
use crate::postgres::tx::{PgTransaction, forget_stale_plans};

impl TransactionalQueue for PgQueue {
    type Tx = PgTransaction;

    fn open(&self) -> Reply<'_, Self::Tx> {
        Box::pin(async move {
            let opened = PgTransaction::open(&self.lender, self.defaults.begin, Duration::ZERO).await;
            opened.map_err(failed("open transaction"))
        })
    }

    fn enqueue_in<'a>(&'a self, tx: &'a mut Self::Tx, tasks: &'a [Task]) -> Reply<'a, Vec<Enqueued>> {
        const CONTEXT: &str = "enqueue tasks";
        Box::pin(async move {
            check_batch(tasks.len(), CONTEXT)?;
            let enqueued = within(BATCH_TIMEOUT, self.enqueue_on(tx.own(), tasks)).await;
            match &enqueued {
                Ok(enqueued) => {
                    tx.sound();
                    if enqueued.iter().any(Enqueued::is_new) {
                        tx.arrives(&self.announcer);
                    }
                }
                Err(error) => tx.failed(error).await,
            }
            enqueued.map_err(failed(CONTEXT))
        })
    }

    fn record_in<'a>(&'a self, tx: &'a mut Self::Tx, task: &'a Task, end: &'a End) -> Reply<'a, Enqueued> {
        Box::pin(async move {
            let recorded = within(BATCH_TIMEOUT, self.record_on(tx.own(), task, end)).await;
            match &recorded {
                Ok(recorded) => {
                    tx.sound();
                    if recorded.is_new() && is_due_again(end) {
                        tx.arrives(&self.announcer);
                    }
                }
                Err(error) => tx.failed(error).await,
            }
            recorded.map_err(failed("record task"))
        })
    }

    fn raise_in<'a>(&'a self, tx: &'a mut Self::Tx, name: &'a str, number: i64) -> Reply<'a, bool> {
        Box::pin(async move {
            let raised = within(BATCH_TIMEOUT, self.raise_on(tx.own(), name, number)).await;
            match &raised {
                Ok(_) => tx.sound(),
                Err(error) => tx.failed(error).await,
            }
            raised.map_err(failed("raise mark"))
        })
    }

    fn settle_in<'a>(&'a self, tx: &'a mut Self::Tx, settlements: &'a [Settlement]) -> Reply<'a, Vec<Fenced>> {
        Box::pin(async move {
            check_batch(settlements.len(), "settle tasks")?;
            let settled = within(BATCH_TIMEOUT, self.settle_with_effect(tx.own(), settlements)).await;
            match &settled {
                Ok(_) => {
                    tx.sound();
                    if settlements.iter().any(|settlement| is_due_again(&settlement.end)) {
                        tx.arrives(&self.announcer);
                    }
                }
                Err(error) => tx.failed(error).await,
            }
            settled.map_err(failed("settle tasks"))
        })
    }

    /// Also wakes those who wait in this process for calls that were completed in it.
    fn commit(&self, tx: Self::Tx) -> Reply<'_, ()> {
        Box::pin(async move { tx.commit().await.map_err(failed("commit transaction")) })
    }

    fn rollback(&self, tx: Self::Tx) -> Reply<'_, ()> {
        Box::pin(async move {
            tx.rollback().await;
            Ok(())
        })
    }
}

impl PgQueue {
    /// As [`settle_in`](TransactionalQueue::settle_in), in a transaction of your own that `conn` is in. After its commit,
    /// [`announce`](Self::announce) it if a task waits again.
    ///
    /// It sets `idle_in_transaction_session_timeout` for this transaction to what is left of the lease, a second at the least,
    /// so that a process that stands still does not keep the task from being rescued.
    ///
    /// Use read committed; under a stricter isolation a task that was leased after the transaction began is superseded.
    pub async fn settle_within(
        &self,
        conn: &mut PgConnection,
        settlements: &[Settlement],
    ) -> Result<Vec<Fenced>, StoreError> {
        check_batch(settlements.len(), "settle tasks")?;
        let settled = within(BATCH_TIMEOUT, self.settle_with_effect(conn, settlements)).await;
        if let Err(error) = &settled {
            let _ = forget_stale_plans(conn, error).await;
        }
        settled.map_err(failed("settle tasks"))
    }
}
