//! Records in a handler's transaction.
//!
//! The transaction runs on the connection that batches are written on. A second one would have to find the lock free, which
//! SQLite polls for, and would find the pages that it remembers outdated by the other's commits.

use std::collections::HashMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sqlx::SqliteConnection;
use tokio::sync::{OwnedMutexGuard, watch};
use tokio::time::{Instant, timeout_at};

use exactly::store::Reply;
use exactly::{Call, CallId, Claim, Fenced, Keep, StoreError, StoreErrorKind, TransactionalStore, Verdict};

use super::SqliteStore;
use super::database::{Database, Slot, exec, is_busy, is_misplaced, split};
use super::decide::Entry;
use super::file::File;
use super::writer::Writer;
use crate::batch::Write;
use crate::error::failed;

/// What a trip to the connection's thread is given even when nobody is to be waited for.
const TRIP_WAIT_MIN: Duration = Duration::from_millis(250);

/// An open transaction, and this process's turn to write.
///
/// It derefs to the connection, so `&mut *tx` runs the effect's statements. Dropping it rolls back. It commits through
/// [`commit`](TransactionalStore::commit) only: a `commit` among the statements fails, and so does every later write if
/// SQLite rolled the transaction back under a statement, as it does when the disk is full. For this the connection
/// carries the store's commit and rollback hooks; do not replace them.
pub struct SqliteTransaction {
    // Both are `None` once the transaction has ended, or while its rollback is under way.
    connection: Option<Writer>,
    turn: Option<OwnedMutexGuard<Slot>>,
    /// The records that this transaction has begun or completed, as it leaves them. Nobody else can see them before the
    /// commit, so they are written with it, in one trip.
    entries: HashMap<CallId, Entry>,
    /// Whom to wake after the end.
    settled: Vec<CallId>,
    /// The queues that something has come to.
    arrivals: Vec<Arc<watch::Sender<u64>>>,
}

impl Deref for SqliteTransaction {
    type Target = SqliteConnection;

    fn deref(&self) -> &Self::Target {
        self.connection.as_ref().expect("the transaction is open")
    }
}

impl DerefMut for SqliteTransaction {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.connection.as_mut().expect("the transaction is open")
    }
}

impl AsMut<SqliteConnection> for SqliteTransaction {
    fn as_mut(&mut self) -> &mut SqliteConnection {
        self
    }
}

impl fmt::Debug for SqliteTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteTransaction")
            .field("settled", &self.settled)
            .finish_non_exhaustive()
    }
}

impl Drop for SqliteTransaction {
    fn drop(&mut self) {
        let (Some(mut connection), Some(mut turn)) = (self.connection.take(), self.turn.take()) else {
            return;
        };
        // Outside of a runtime the connection is closed, which rolls back as well.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            if exec(&mut connection, "rollback").await.is_ok() {
                turn.put_back(connection);
            }
        });
    }
}

impl SqliteTransaction {
    /// SQLite's lock is on the whole database, so this is where a transaction waits for others, and `begin_in` never does.
    pub(super) async fn open(file: &File, lock_wait: Duration) -> Result<Self, StoreError> {
        let held = || {
            let context = format!(
                "open transaction: another one held the write lock for {} ms",
                lock_wait.as_millis()
            );
            StoreError::new(StoreErrorKind::Unavailable, context)
        };
        let until = Instant::now() + lock_wait;
        let mut turn = timeout_at(until, file.turn.lock_owned()).await.map_err(|_| held())?;
        let mut connection = file.take(&mut turn).await?;
        // The turn keeps this process's writers away; only another process, or a connection of the handler's own, can
        // hold SQLite's lock.
        let begin = exec(&mut connection, "begin immediate");
        match timeout_at(until.max(Instant::now() + TRIP_WAIT_MIN), begin).await {
            Ok(Ok(())) => {
                connection.lend();
                let (connection, turn) = (Some(connection), Some(turn));
                Ok(Self {
                    connection,
                    turn,
                    entries: HashMap::new(),
                    settled: Vec::new(),
                    arrivals: Vec::new(),
                })
            }
            Ok(Err(error)) if is_busy(&error) => {
                turn.put_back(connection);
                Err(held().with_source(error))
            }
            Ok(Err(error)) => Err(failed("open transaction")(error)),
            // Its thread is still waiting for the lock. The connection is given up, so that nobody waits for the thread.
            Err(_) => Err(held()),
        }
    }

    /// Commits what has no records of a store in it.
    pub(super) async fn commit(mut self) -> Result<(), StoreError> {
        let context = "commit transaction";
        if !self.entries.is_empty() {
            let context = "commit transaction: there are calls in it; commit it by the store that began them";
            return Err(StoreError::new(StoreErrorKind::Refused, context));
        }
        let (Some(mut connection), Some(mut turn)) = (self.connection.take(), self.turn.take()) else {
            return Ok(());
        };
        if !connection.let_commit() {
            return Err(ended(context));
        }
        // On an error the connection is closed, which rolls back whatever is left to.
        if let Err(error) = exec(&mut connection, "commit").await {
            turn.unseal();
            return Err(failed(context)(error));
        }
        turn.put_back(connection);
        drop(turn);
        self.announce();
        Ok(())
    }

    pub(super) async fn rollback(mut self) {
        let (Some(mut connection), Some(mut turn)) = (self.connection.take(), self.turn.take()) else {
            return;
        };
        match exec(&mut connection, "rollback").await {
            Ok(()) => turn.put_back(connection),
            Err(error) => tracing::debug!(%error, "roll back by closing the connection"),
        }
    }

    /// Fails if the transaction is over.
    pub(super) fn check(&self, context: &str) -> Result<(), StoreError> {
        if self.connection.as_ref().is_none_or(Writer::has_ended) {
            return Err(ended(context));
        }
        Ok(())
    }

    /// There is something to tell these watchers of once it has committed.
    pub(super) fn arrives(&mut self, arrivals: &Arc<watch::Sender<u64>>) {
        if !self.arrivals.iter().any(|known| Arc::ptr_eq(known, arrivals)) {
            self.arrivals.push(Arc::clone(arrivals));
        }
    }

    fn announce(&self) {
        for arrivals in &self.arrivals {
            arrivals.send_modify(|count| *count = count.wrapping_add(1));
        }
    }
}

impl SqliteStore {
    /// [`TransactionalStore::begin_in`] for a transaction of your own on the same database. Start it with
    /// `BEGIN IMMEDIATE`: one that has read before it writes fails when another wrote in between. It is there that a
    /// transaction waits for others, up to the connection's `busy_timeout`, so nothing is left to wait for here.
    pub async fn begin_within(&self, connection: &mut SqliteConnection, call: &Call) -> Result<Verdict, StoreError> {
        check_open(connection, "begin record").await?;
        let mut entry = self.database.entry(connection, call.id(), "begin record").await?;
        let verdict = entry.begin(call, self.database.clock.reckon());
        self.database.save_entry(connection, &entry, "begin record").await?;
        Ok(verdict)
    }

    /// [`TransactionalStore::complete_in`] for a transaction of your own on the same database. After its commit,
    /// [`wake`](Self::wake) those who wait.
    pub async fn complete_within(
        &self,
        connection: &mut SqliteConnection,
        claim: &Claim,
        outcome: &Bytes,
        keep: Keep,
    ) -> Result<Fenced, StoreError> {
        check_open(connection, "complete record").await?;
        let mut entry = self.database.entry(connection, &claim.id, "complete record").await?;
        let complete = Write::Complete {
            claim: claim.clone(),
            outcome: outcome.clone(),
            keep,
        };
        let fenced = entry.write(&complete, self.database.clock.reckon());
        self.database.save_entry(connection, &entry, "complete record").await?;
        Ok(fenced)
    }

    async fn commit_tx(&self, mut tx: SqliteTransaction) -> Result<(), StoreError> {
        let context = "commit transaction";
        let (Some(mut connection), Some(mut turn)) = (tx.connection.take(), tx.turn.take()) else {
            return Ok(());
        };
        if !connection.let_commit() {
            return Err(ended(context));
        }
        let now = self.database.clock.reckon();
        let saves = tx.entries.values().filter_map(|entry| entry.saved(now));
        // On an error the connection is closed, which rolls back whatever is left to.
        if let Err(error) = self.database.save_and_commit(&mut connection, saves).await {
            turn.unseal();
            return Err(failed(context)(error));
        }
        turn.put_back(connection);
        drop(turn);
        tx.announce();
        tx.settled.iter().for_each(|id| self.database.wakeups.wake(id));
        Ok(())
    }
}

impl TransactionalStore for SqliteStore {
    type Tx = SqliteTransaction;

    const LOCKS_BY_KEY: bool = false;

    /// Waits at most `lock_wait` for every other writer of the database, and fails as unavailable after that;
    /// [`begin_in`](Self::begin_in) then finds nobody left to wait for.
    fn open(&self, lock_wait: Duration) -> Reply<'_, Self::Tx> {
        Box::pin(SqliteTransaction::open(&self.database.file, lock_wait))
    }

    fn begin_in<'a>(&'a self, tx: &'a mut Self::Tx, call: &'a Call) -> Reply<'a, Verdict> {
        Box::pin(async move {
            let entry = self.database.entry_in(tx, call.id(), "begin record").await?;
            Ok(entry.begin(call, self.database.clock.reckon()))
        })
    }

    fn complete_in<'a>(
        &'a self,
        tx: &'a mut Self::Tx,
        claim: &'a Claim,
        outcome: &'a Bytes,
        keep: Keep,
    ) -> Reply<'a, Fenced> {
        Box::pin(async move {
            tx.settled.push(claim.id);
            let entry = self.database.entry_in(tx, &claim.id, "complete record").await?;
            let complete = Write::Complete {
                claim: claim.clone(),
                outcome: outcome.clone(),
                keep,
            };
            Ok(entry.write(&complete, self.database.clock.reckon()))
        })
    }

    fn commit(&self, tx: Self::Tx) -> Reply<'_, ()> {
        Box::pin(self.commit_tx(tx))
    }

    fn rollback(&self, tx: Self::Tx) -> Reply<'_, ()> {
        Box::pin(async move {
            tx.rollback().await;
            Ok(())
        })
    }
}

impl Database {
    /// The record as `tx` has left it so far.
    async fn entry_in<'t>(
        &self,
        tx: &'t mut SqliteTransaction,
        id: &CallId,
        context: &'static str,
    ) -> Result<&'t mut Entry, StoreError> {
        tx.check(context)?;
        if !tx.entries.contains_key(id) {
            let entry = self.entry(tx, id, context).await?;
            tx.entries.insert(*id, entry);
        }
        Ok(tx.entries.get_mut(id).expect("it was inserted above"))
    }

    /// The record as it stands inside the open transaction.
    async fn entry(
        &self,
        connection: &mut SqliteConnection,
        id: &CallId,
        context: &'static str,
    ) -> Result<Entry, StoreError> {
        let load = sqlx::query(self.statements.load_one.clone()).bind(id.as_bytes().as_slice());
        let found = load.fetch_all(connection).await.map_err(failed(context))?;
        let (clock, mut rows) = split(&found).map_err(failed(context))?;
        let row = rows.remove(id).transpose().map_err(|error| error.told(context))?;
        Ok(Entry::new(*id, row, self.clock.now(clock)))
    }

    /// Writes what became of the record, if anything did.
    async fn save_entry(
        &self,
        connection: &mut SqliteConnection,
        entry: &Entry,
        context: &'static str,
    ) -> Result<(), StoreError> {
        let Some(saved) = entry.saved(self.clock.reckon()) else {
            return Ok(());
        };
        self.save_rows(connection, &[saved]).await.map_err(failed(context))
    }
}

/// Refuses a connection without an open transaction, on which the record would be committed without the effect: SQLite
/// may have ended the caller's transaction under a statement whose error was not cared for.
pub(super) async fn check_open(connection: &mut SqliteConnection, context: &'static str) -> Result<(), StoreError> {
    // There is no way to ask, but a transaction cannot begin within another, and failing to changes nothing.
    match exec(connection, "begin").await {
        Err(error) if is_misplaced(&error) => Ok(()),
        Err(error) => Err(failed(context)(error)),
        Ok(()) => {
            exec(connection, "rollback").await.map_err(failed(context))?;
            let context = format!("{context}: no transaction is open on the connection, or SQLite has rolled it back");
            Err(StoreError::new(StoreErrorKind::Other, context))
        }
    }
}

fn ended(context: &str) -> StoreError {
    let context = format!("{context}: the transaction was rolled back under one of the handler's statements");
    StoreError::new(StoreErrorKind::Unavailable, context)
}
