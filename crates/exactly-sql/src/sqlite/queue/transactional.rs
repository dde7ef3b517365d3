//! Tasks in the caller's transaction, which is the same that a store's records ride in.

use std::time::Duration;

use sqlx::SqliteConnection;

use exactly::queue::{End, Enqueued, Settlement, Task, TaskState, TransactionalQueue, check_batch};
use exactly::store::Reply;
use exactly::{Fenced, StoreError};

use super::SqliteQueue;
use super::change::Repeated;
use crate::error::failed;
use crate::sqlite::SqliteTransaction;
use crate::sqlite::tx::check_open;

/// Longer than a single writer waits: as many handlers as a worker has may stand in line, and standing there is no failure of
/// theirs.
const OPEN_WAIT_MAX: Duration = Duration::from_mins(1);

const ENQUEUE: &str = "enqueue tasks";
const RECORD: &str = "record task";
const RAISE: &str = "raise mark";
const SETTLE: &str = "settle tasks";

impl SqliteQueue {
    /// As [`settle_in`](TransactionalQueue::settle_in), in a transaction of your own that `connection` is in. Start
    /// it with `BEGIN IMMEDIATE`, and [`announce`](Self::announce) it after its commit.
    pub async fn settle_within(
        &self,
        connection: &mut SqliteConnection,
        settlements: &[Settlement],
    ) -> Result<Vec<Fenced>, StoreError> {
        check_batch(settlements.len(), SETTLE)?;
        check_open(connection, SETTLE).await?;
        let now = self.now_on(connection).await.map_err(failed(SETTLE))?;
        let settled = self.settle_on(connection, settlements, Repeated::Superseded, now).await;
        settled.map_err(failed(SETTLE))
    }
}

impl TransactionalQueue for SqliteQueue {
    type Tx = SqliteTransaction;

    /// Waits for every other writer of the database, and fails as unavailable after a minute. Keep it short: until it ends
    /// nobody else writes, and leases are not renewed.
    fn open(&self) -> Reply<'_, Self::Tx> {
        Box::pin(SqliteTransaction::open(&self.file, OPEN_WAIT_MAX))
    }

    fn enqueue_in<'a>(&'a self, tx: &'a mut Self::Tx, tasks: &'a [Task]) -> Reply<'a, Vec<Enqueued>> {
        Box::pin(async move {
            check_batch(tasks.len(), ENQUEUE)?;
            tx.check(ENQUEUE)?;
            tx.arrives(&self.arrivals);
            let now = self.now_on(tx).await.map_err(failed(ENQUEUE))?;
            self.enqueue_on(tx, tasks, now).await.map_err(failed(ENQUEUE))
        })
    }

    fn record_in<'a>(&'a self, tx: &'a mut Self::Tx, task: &'a Task, end: &'a End) -> Reply<'a, Enqueued> {
        Box::pin(async move {
            tx.check(RECORD)?;
            if end.state() == TaskState::Waiting {
                tx.arrives(&self.arrivals);
            }
            let now = self.now_on(tx).await.map_err(failed(RECORD))?;
            self.record_on(tx, task, end, now).await.map_err(failed(RECORD))
        })
    }

    fn raise_in<'a>(&'a self, tx: &'a mut Self::Tx, name: &'a str, number: i64) -> Reply<'a, bool> {
        Box::pin(async move {
            tx.check(RAISE)?;
            let now = self.now_on(tx).await.map_err(failed(RAISE))?;
            self.raise_on(tx, name, number, now).await.map_err(failed(RAISE))
        })
    }

    fn settle_in<'a>(&'a self, tx: &'a mut Self::Tx, settlements: &'a [Settlement]) -> Reply<'a, Vec<Fenced>> {
        Box::pin(async move {
            check_batch(settlements.len(), SETTLE)?;
            tx.check(SETTLE)?;
            tx.arrives(&self.arrivals);
            let now = self.now_on(tx).await.map_err(failed(SETTLE))?;
            self.settle_on(tx, settlements, Repeated::Superseded, now)
                .await
                .map_err(failed(SETTLE))
        })
    }

    /// Refuses a transaction in which calls were begun: those are committed by their store.
    fn commit(&self, tx: Self::Tx) -> Reply<'_, ()> {
        Box::pin(tx.commit())
    }

    fn rollback(&self, tx: Self::Tx) -> Reply<'_, ()> {
        Box::pin(async move {
            tx.rollback().await;
            Ok(())
        })
    }
}
