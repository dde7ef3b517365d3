//! The database: who may write to it, and how a batch gets into it.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, Connection, SqlStr, SqliteConnection, SqlitePool};
use tokio::sync::Mutex;
use tokio::time::Instant;

use exactly::StoreError;
use exactly::clock::Timestamp;
use exactly::store::Wakeups;

use super::clock::ClockRow;
use super::decide::{Plan, Rows};
use super::file::File;
use super::novelty::Novelty;
use super::scribe::Scribe;
use super::settings::{self, Overrides, Settings};
use super::table::{self, Completed, Saved, Statements, timestamp};
use super::writer::Writer;
use crate::batch::Step;
use crate::error::{Shared, failed};
use crate::name::Name;

/// How long a batch waits for this process's turn to write.
pub(super) const TURN_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long to try to connect while another process holds a lock that cannot be waited for.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(5);

const CONNECT_PAUSE: Duration = Duration::from_millis(10);

/// One SQLite database as the store uses it.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) file: Arc<File>,
    pub(super) table: Name,
    pub(super) statements: Statements,
    pub(super) wakeups: Wakeups,
    /// Reads for those who need no turn.
    pub(super) reader: Mutex<Slot>,
    /// How many batches were carried out, for a sweep to notice that it is not alone.
    pub(super) batches: AtomicU64,
    pub(super) novelty: Novelty,
    /// Writes what needs no look, where the store has the file to itself in this process.
    pub(super) scribe: Option<Scribe>,
}

impl Deref for Database {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

/// A connection, unless it is broken or someone gave up in the midst of using it.
#[derive(Debug, Default)]
pub(super) struct Slot {
    connection: Option<Writer>,
    /// A commit failed, and nothing was written since.
    unsealed: bool,
}

/// When a batch takes the write lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lock {
    /// With the first change, so that a batch that only reads never waits for a writer. Fails if another process wrote
    /// between the batch's first read and its first change.
    WhenNeeded,
    /// At once, after waiting for another process to let go of it.
    AtOnce,
}

/// The rows of a batch, read in a transaction that is still open.
pub(super) struct Loaded {
    pub(super) rows: Rows,
    pub(super) clock: ClockRow,
    pub(super) now: Timestamp,
}

impl Database {
    /// Opens a transaction and reads the rows that `steps` are about.
    pub(super) async fn load(
        &self,
        connection: &mut SqliteConnection,
        steps: &[Step],
        lock: Lock,
    ) -> Result<Loaded, sqlx::Error> {
        let (power, _) = table::size(steps.len());
        let sql = match lock {
            Lock::WhenNeeded => &self.statements.load[power],
            Lock::AtOnce => &self.statements.load_to_write[power],
        };
        let mut arguments = SqliteArguments::default();
        arguments.reserve(steps.len(), 0);
        for step in steps {
            arguments
                .add(step.id().as_bytes().as_slice())
                .map_err(sqlx::Error::Encode)?;
        }
        let found = sqlx::query_with(sql.clone(), arguments).fetch_all(connection).await?;
        let (clock, rows) = split(&found)?;
        self.clock.saw(clock);
        Ok(Loaded {
            rows,
            clock,
            now: self.clock.now(clock),
        })
    }

    /// Writes the plan's changes and completions, and commits. Fails with [`is_constraint`] if a completion's claim does
    /// not hold, and nothing is changed then.
    pub(super) async fn save(
        &self,
        connection: &mut SqliteConnection,
        plan: &Plan,
        completions: &[Completed<'_>],
        loaded: (ClockRow, Timestamp),
    ) -> Result<(), sqlx::Error> {
        let (clock, now) = loaded;
        if let Some(row) = self.clock.due(clock, now) {
            write_clock(connection, row).await?;
        }
        for id in plan.deletes() {
            let delete = sqlx::query(self.statements.delete.clone()).bind(id.as_bytes().as_slice());
            delete.execute(&mut *connection).await?;
        }
        let (stored, fresh): (Vec<_>, Vec<_>) = plan.saves(now).partition(|saved| saved.stored);
        if !stored.is_empty() {
            self.save_rows(connection, &stored).await?;
        }
        if fresh.is_empty() && completions.is_empty() {
            return exec(connection, "commit").await;
        }
        self.add_and_complete(connection, &fresh, completions, now).await
    }

    async fn add_and_complete(
        &self,
        connection: &mut SqliteConnection,
        fresh: &[Saved<'_>],
        completions: &[Completed<'_>],
        now: Timestamp,
    ) -> Result<(), sqlx::Error> {
        let mut arguments = SqliteArguments::default();
        table::bind_rows(&mut arguments, fresh)?;
        table::bind_completions(&mut arguments, completions, now)?;
        let statement = self.statements.add_and_complete(fresh.len(), completions.len());
        run(connection, statement, arguments).await
    }

    /// Writes records and commits, in one trip if there is one.
    pub(super) async fn save_and_commit<'a>(
        &self,
        connection: &mut SqliteConnection,
        saves: impl Iterator<Item = Saved<'a>>,
    ) -> Result<(), sqlx::Error> {
        let mut last = None;
        for saved in saves {
            if let Some(earlier) = last.replace(saved) {
                self.save_rows(connection, &[earlier]).await?;
            }
        }
        let Some(last) = last else {
            return exec(connection, "commit").await;
        };
        let mut arguments = SqliteArguments::default();
        table::bind_rows(&mut arguments, &[last])?;
        run(connection, &self.statements.save_and_commit, arguments).await
    }

    /// Writes up to [`BATCH_MAX`](crate::batch::BATCH_MAX) records and leaves the transaction open.
    pub(super) async fn save_rows(
        &self,
        connection: &mut SqliteConnection,
        rows: &[Saved<'_>],
    ) -> Result<(), sqlx::Error> {
        let (power, _) = table::size(rows.len());
        let mut arguments = SqliteArguments::default();
        table::bind_rows(&mut arguments, rows)?;
        run(connection, &self.statements.save[power], arguments).await
    }
}

impl Slot {
    pub(super) fn holding(connection: Writer) -> Self {
        Self {
            connection: Some(connection),
            unsealed: false,
        }
    }

    pub(super) fn take(&mut self) -> Option<Writer> {
        self.connection.take()
    }

    pub(super) fn is_unsealed(&self) -> bool {
        self.unsealed
    }

    /// What a failed commit left was written over.
    pub(super) fn sealed(&mut self) {
        self.unsealed = false;
    }

    /// Keeps the connection for whoever comes next. No transaction may be open on it.
    pub(super) fn put_back(&mut self, connection: Writer) {
        connection.release();
        self.connection = Some(connection);
    }

    /// A commit failed on the connection that was taken.
    pub(super) fn unseal(&mut self) {
        self.unsealed = true;
    }
}

/// A connection like the pool's own that no pool takes back, with settings that are accepted.
pub(super) async fn connect(pool: &SqlitePool, accept: Overrides) -> Result<(Writer, Settings), StoreError> {
    let context = "connect to the database";
    let until = Instant::now() + CONNECT_WAIT_MAX;
    let connection = loop {
        match pool.acquire().await {
            // Where processes make the same file at once, one takes a lock that SQLite does not let the others wait for.
            Err(error) if is_busy(&error) && Instant::now() < until => tokio::time::sleep(CONNECT_PAUSE).await,
            connection => break connection,
        }
    };
    let mut connection = connection.map_err(failed(context))?.detach();
    let settings = settings::check(&mut connection, accept).await?;
    // sqlx counts open transactions, to make those that a handler nests into ours savepoints. Ours begin and end in the
    // text of statements, which it does not count, so it is told once, and for good, that there is one.
    std::mem::forget(connection.begin().await.map_err(failed(context))?);
    exec(&mut connection, "rollback").await.map_err(failed(context))?;
    let writer = Writer::new(connection).await.map_err(failed(context))?;
    Ok((writer, settings))
}

async fn run(connection: &mut SqliteConnection, sql: &SqlStr, arguments: SqliteArguments) -> Result<(), sqlx::Error> {
    let query = sqlx::query_with(sql.clone(), arguments);
    query.execute(connection).await.map(drop)
}

/// Begins or ends a transaction.
pub(super) async fn exec(connection: &mut SqliteConnection, how: &'static str) -> Result<(), sqlx::Error> {
    sqlx::query(how).execute(connection).await.map(drop)
}

/// Ends whatever transaction an error left behind, and puts the connection back if that worked.
pub(super) async fn recover(slot: &mut Slot, mut connection: Writer, error: &sqlx::Error) {
    if is_refused(error) && exec(&mut connection, "rollback").await.is_ok() {
        slot.put_back(connection);
    } else if let Err(error) = connection.into_connection().close().await {
        // It is closed all the same, and closing rolls back.
        tracing::debug!(%error, "close a broken connection");
    }
}

/// Writes over what a failed commit may have left at the end of the log. SQLite does not look at it while anybody has the
/// database open, but whoever opens it first after that would find a commit that nobody was told of.
pub(super) async fn seal(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    exec(connection, "begin immediate").await?;
    // A millisecond, because a page that does not change is not written.
    exec(connection, "update exactly_clock set store_ms = store_ms + 1").await?;
    exec(connection, "commit").await
}

/// The same after a failure to commit.
pub(super) async fn recover_writer(turn: &mut Slot, connection: Writer, error: &sqlx::Error) {
    turn.unsealed |= !is_refused(error);
    recover(turn, connection, error).await;
}

/// Whether nothing was written, and the connection is as good as before.
pub(super) fn is_refused(error: &sqlx::Error) -> bool {
    // A database that can only be read.
    is_busy(error) || primary_code(error) == Some(8)
}

/// Whether somebody else was at work, so that trying again can help.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    // Busy and locked.
    matches!(primary_code(error), Some(5 | 6))
}

/// Whether a row did not pass a check of its table, or is there already.
pub(super) fn is_constraint(error: &sqlx::Error) -> bool {
    primary_code(error) == Some(19)
}

/// Whether a statement makes no sense where it was run.
pub(super) fn is_misplaced(error: &sqlx::Error) -> bool {
    primary_code(error) == Some(1)
}

/// SQLite's primary code, the low byte of the extended ones.
fn primary_code(error: &sqlx::Error) -> Option<u32> {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code)?;
    code.parse::<u32>().ok().map(|code| code & 0xff)
}

/// Moves the database's clock on.
pub(super) async fn write_clock(connection: &mut SqliteConnection, row: ClockRow) -> Result<(), sqlx::Error> {
    sqlx::query("update exactly_clock set store_ms = max(store_ms, ?), wall_ms = ?")
        .bind(timestamp(row.store))
        .bind(timestamp(row.wall))
        .execute(connection)
        .await
        .map(drop)
}

/// Parts what a trip brought home: the clock comes first, then the rows.
pub(super) fn split(found: &[SqliteRow]) -> Result<(ClockRow, Rows), sqlx::Error> {
    let (clock, rows) = found.split_first().ok_or(sqlx::Error::RowNotFound)?;
    let mut records = HashMap::with_capacity(rows.len());
    for row in rows {
        records.insert(table::stored_id(row)?, table::stored(row).map_err(Shared::new));
    }
    Ok((table::clock_row(clock)?, records))
}

/// The database's clock as it was last written.
pub(super) async fn read_clock(connection: &mut SqliteConnection) -> Result<ClockRow, sqlx::Error> {
    table::clock_row(&sqlx::query(table::CLOCK).fetch_one(connection).await?)
}
