//! Tasks in a SQLite file, next to the effects.
//!
//! One table is ledger and queue at once: a row per task key that stays when the task is done, and three partial indexes: of
//! what waits, of what runs, and of what has ended. Every call is one transaction on this process's turn to write, for as
//! many tasks as the caller has; what has to be known is read in it, decided here and written back, since nobody else can
//! write in between.

mod book;
mod builder;
mod change;
mod enqueue;
mod inspect;
mod lanes;
mod lease;
mod prune;
mod registry;
mod table;
mod transactional;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sqlx::{SqliteConnection, SqlitePool};
use tokio::sync::{Mutex, MutexGuard, watch};
use tokio::time::timeout;

use exactly::clock::Timestamp;
use exactly::queue::{
    Ask, Enqueued, Lane, Lease, Leased, Queue, Rescued, Ruling, Settlement, Task, TaskId, TaskState, check_batch,
};
use exactly::store::Reply;
use exactly::{Fenced, StoreError, StoreErrorKind};

pub use self::builder::SqliteQueueBuilder;
use self::change::Repeated;
use self::table::Statements;
use super::clock::ClockRow;
use super::database::{Slot, TURN_WAIT_MAX, exec, recover_writer, write_clock};
use super::file::{Beat, File};
use super::writer::Writer;
use super::{SqliteStore, migrate};
use crate::error::failed;
use crate::name::Name;

/// Keeps tasks in tables of a SQLite database.
///
/// What was enqueued or settled is durable when the call returns: the file is in WAL mode, synced with every commit, and a
/// database with weaker settings is refused. Its clock, which judges what is due and which leases have ended, is the one
/// that a [`SqliteStore`] on the same file has.
///
/// SQLite has one writer at a time. A queue [beside](Self::beside) a store takes turns with it; against other processes and
/// other connections, SQLite's own lock decides. Workers of other processes on the same file find tasks by polling.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use exactly::queue::{Queue, Task, TransactionalQueue};
/// use exactly_sql::SqliteQueue;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.db");
/// let queue = SqliteQueue::open(&path).await?;
/// # sqlx::query("create table orders (number integer)").execute(queue.pool()).await.unwrap();
///
/// // The order and the task to ship it commit together, or neither does.
/// let mut tx = TransactionalQueue::open(&queue).await?;
/// sqlx::query("insert into orders values (1066)").execute(&mut *tx).await.unwrap();
/// let ship = Task::new("ship", "order-1066", "{}").unwrap();
/// let _ = queue.enqueue_in(&mut tx, &[ship]).await?;
/// queue.commit(tx).await?;
/// # Ok::<_, exactly::StoreError>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct SqliteQueue {
    file: Arc<File>,
    statements: Arc<Statements>,
    /// The lane that was served last by this process.
    cursor: Arc<Mutex<String>>,
    arrivals: Arc<watch::Sender<u64>>,
    _beat: Arc<Beat>,
}

/// This process's turn to write, in an open transaction. Dropping it closes the connection, which rolls back.
struct Turn<'q> {
    slot: MutexGuard<'q, Slot>,
    connection: Writer,
    clock: ClockRow,
    now: Timestamp,
}

impl SqliteQueue {
    /// A queue [at](Self::at) `path` with the defaults.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::at(path).start().await
    }

    /// A queue in the file at `path`, which may also be a `sqlite:` URL, with connections of its own and durable settings.
    /// The file is created if it is missing.
    pub fn at(path: impl AsRef<Path>) -> SqliteQueueBuilder {
        SqliteQueueBuilder::at(path.as_ref())
    }

    /// A queue in the database of `pool`, so that tasks and effects can commit together. The pool's settings are checked:
    /// they have to be durable.
    pub fn builder(pool: SqlitePool) -> SqliteQueueBuilder {
        SqliteQueueBuilder::on(pool)
    }

    /// A queue in the database of `store`, with which it takes turns to write and shares the clock. A transaction of either
    /// serves both: a handler can enqueue in the one that its call is recorded in.
    pub fn beside(store: &SqliteStore) -> SqliteQueueBuilder {
        SqliteQueueBuilder::beside(&store.database.file, &store.beat)
    }

    /// What [`migrate`](SqliteQueueBuilder::migrate) does to an empty database, as SQL text. Running it again changes
    /// nothing.
    pub fn migrations_sql(prefix: &Name) -> Result<String, StoreError> {
        Ok(migrate::sql(&migrate::TASKS, &builder::table(prefix.as_str())?))
    }

    /// The connections to the database, for effects and for reading what they did.
    pub fn pool(&self) -> &SqlitePool {
        &self.file.pool
    }

    /// Tells workers of this process that there may be something to lease. For after the commit of a transaction of your
    /// own, in which [`enqueue_within`](Self::enqueue_within) was called; without it they find out at their next poll.
    pub fn announce(&self) {
        self.arrivals.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Waits for the turn, and opens a transaction.
    async fn begin(&self, context: &'static str) -> Result<Turn<'_>, StoreError> {
        let slot = timeout(TURN_WAIT_MAX, self.file.turn.lock()).await;
        let mut slot = slot.map_err(|_| {
            let waited = TURN_WAIT_MAX.as_secs();
            let context = format!("{context}: a transaction of this process held the write lock for {waited} s");
            StoreError::new(StoreErrorKind::Unavailable, context)
        })?;
        let mut connection = self.file.take(&mut slot).await?;
        match begin(&mut connection).await {
            Ok(clock) => {
                self.file.clock.saw(clock);
                let now = self.file.clock.now(clock);
                Ok(Turn {
                    slot,
                    connection,
                    clock,
                    now,
                })
            }
            Err(error) => {
                recover_writer(&mut slot, connection, &error).await;
                Err(failed(context)(error))
            }
        }
    }

    /// Commits if all went well, and undoes everything if not.
    async fn end<T>(
        &self,
        turn: Turn<'_>,
        answer: Result<T, sqlx::Error>,
        has_changed: impl Fn(&T) -> bool,
        context: &'static str,
    ) -> Result<T, StoreError> {
        let Turn {
            mut slot,
            mut connection,
            clock,
            now,
        } = turn;
        let ended = match answer {
            // Only what changes something anyway moves the clock on, so that looking for work in vain costs no sync.
            Ok(answer) => {
                let row = self.file.clock.due(clock, now).filter(|_| has_changed(&answer));
                commit(&mut connection, row).await.map(|()| answer)
            }
            Err(error) => Err(error),
        };
        match ended {
            Ok(answer) => {
                slot.put_back(connection);
                Ok(answer)
            }
            Err(error) => {
                recover_writer(&mut slot, connection, &error).await;
                Err(failed(context)(error))
            }
        }
    }
}

impl Queue for SqliteQueue {
    fn enqueue<'a>(&'a self, tasks: &'a [Task]) -> Reply<'a, Vec<Enqueued>> {
        const CONTEXT: &str = "enqueue tasks";
        Box::pin(async move {
            check_batch(tasks.len(), CONTEXT)?;
            let mut turn = self.begin(CONTEXT).await?;
            let enqueued = self.enqueue_on(&mut turn.connection, tasks, turn.now).await;
            let enqueued = self
                .end(turn, enqueued, |answers| answers.iter().any(Enqueued::is_new), CONTEXT)
                .await?;
            if enqueued.iter().any(Enqueued::is_new) {
                self.announce();
            }
            Ok(enqueued)
        })
    }

    fn lease<'a>(&'a self, ask: &'a Ask) -> Reply<'a, Vec<Leased>> {
        const CONTEXT: &str = "lease tasks";
        Box::pin(async move {
            let mut turn = self.begin(CONTEXT).await?;
            let leased = self.lease_on(&mut turn.connection, ask, turn.now).await;
            self.end(turn, leased, |leased| !leased.is_empty(), CONTEXT).await
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Lease], lease: Duration) -> Reply<'a, Vec<Ruling>> {
        const CONTEXT: &str = "renew leases";
        Box::pin(async move {
            check_batch(leases.len(), CONTEXT)?;
            let mut turn = self.begin(CONTEXT).await?;
            let until = turn.now.after(lease);
            let renewed = self.renew_on(&mut turn.connection, leases, until).await;
            let renewed = self.end(turn, renewed, any_applied, CONTEXT).await?;
            Ok(renewed.into_iter().map(Ruling::from).collect())
        })
    }

    fn settle<'a>(&'a self, settlements: &'a [Settlement]) -> Reply<'a, Vec<Ruling>> {
        const CONTEXT: &str = "settle tasks";
        Box::pin(async move {
            check_batch(settlements.len(), CONTEXT)?;
            let mut turn = self.begin(CONTEXT).await?;
            let settled = self
                .settle_on(&mut turn.connection, settlements, Repeated::Found, turn.now)
                .await;
            let settled = self.end(turn, settled, any_applied, CONTEXT).await?;
            // Also what is done may make room in a lane that is capped.
            self.announce();
            Ok(settled.into_iter().map(Ruling::from).collect())
        })
    }

    fn rescue(&self, rescues_max: u32, limit: u32) -> Reply<'_, Vec<Rescued>> {
        const CONTEXT: &str = "rescue tasks";
        Box::pin(async move {
            let mut turn = self.begin(CONTEXT).await?;
            let now = turn.now;
            let rescued = self.rescue_on(&mut turn.connection, rescues_max, limit, now).await;
            let rescued = self.end(turn, rescued, |rescued| !rescued.is_empty(), CONTEXT).await?;
            if !rescued.is_empty() {
                self.announce();
            }
            Ok(rescued)
        })
    }

    fn revive<'a>(&'a self, ids: &'a [TaskId]) -> Reply<'a, Vec<Option<TaskState>>> {
        const CONTEXT: &str = "revive tasks";
        Box::pin(async move {
            check_batch(ids.len(), CONTEXT)?;
            let mut turn = self.begin(CONTEXT).await?;
            let revived = self.revive_on(&mut turn.connection, ids, turn.now).await;
            let revived = self.end(turn, revived, |_| true, CONTEXT).await?;
            self.announce();
            Ok(revived)
        })
    }

    fn conclude<'a>(&'a self, seen: Lease, outcome: &'a Bytes) -> Reply<'a, Fenced> {
        const CONTEXT: &str = "conclude task";
        Box::pin(async move {
            let mut turn = self.begin(CONTEXT).await?;
            let concluded = self.conclude_on(&mut turn.connection, seen, outcome, turn.now).await;
            self.end(turn, concluded, |_| true, CONTEXT).await
        })
    }

    fn hasten<'a>(&'a self, ids: &'a [TaskId]) -> Reply<'a, Vec<Option<TaskState>>> {
        const CONTEXT: &str = "hasten tasks";
        Box::pin(async move {
            check_batch(ids.len(), CONTEXT)?;
            let mut turn = self.begin(CONTEXT).await?;
            let hastened = self.hasten_on(&mut turn.connection, ids, turn.now).await;
            let hastened = self.end(turn, hastened, |_| true, CONTEXT).await?;
            self.announce();
            Ok(hastened)
        })
    }

    fn prune(&self, state: TaskState, age: Duration, limit: u32) -> Reply<'_, u32> {
        Box::pin(self.prune_older(state, age, limit))
    }

    fn prune_marks(&self, age: Duration, limit: u32) -> Reply<'_, u32> {
        Box::pin(self.prune_old_marks(age, limit))
    }

    fn pause_lane<'a>(&'a self, lane: &'a Lane) -> Reply<'a, ()> {
        Box::pin(self.set_lane(lane, lanes::Change::Paused(true)))
    }

    fn resume_lane<'a>(&'a self, lane: &'a Lane) -> Reply<'a, ()> {
        Box::pin(self.set_lane(lane, lanes::Change::Paused(false)))
    }

    fn cap_lane<'a>(&'a self, lane: &'a Lane, cap: Option<u32>) -> Reply<'a, ()> {
        Box::pin(self.set_lane(lane, lanes::Change::Cap(cap)))
    }

    fn arrivals(&self) -> watch::Receiver<u64> {
        self.arrivals.subscribe()
    }
}

/// Opens a transaction that writes, and reads the database's clock, in one trip.
async fn begin(connection: &mut SqliteConnection) -> Result<ClockRow, sqlx::Error> {
    let begin = sqlx::query("begin immediate; select store_ms, wall_ms from exactly_clock");
    let rows = begin.fetch_all(connection).await?;
    super::table::clock_row(rows.first().ok_or(sqlx::Error::RowNotFound)?)
}

/// Commits, and moves the database's clock on if that is due.
async fn commit(connection: &mut SqliteConnection, row: Option<ClockRow>) -> Result<(), sqlx::Error> {
    if let Some(row) = row {
        write_clock(connection, row).await?;
    }
    exec(connection, "commit").await
}

#[expect(clippy::ptr_arg, reason = "it is asked about the answers of a call")]
fn any_applied(answers: &Vec<Fenced>) -> bool {
    answers.contains(&Fenced::Applied)
}
