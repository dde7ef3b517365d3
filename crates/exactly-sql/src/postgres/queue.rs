//! Tasks in PostgreSQL.
//!
//! One table is ledger and queue at once: a row per task key that stays when the task is done, and three partial indexes that
//! hold only what waits, what runs, and what is held or dead. Enqueuing, leasing and settling are mostly one statement each, for
//! as many tasks as the caller has. A lease of many is one row beside the table, and theirs are written when they are settled.
//! The server's clock judges what is due and which leases have ended.

mod announce;
mod book;
mod builder;
mod bundles;
mod enqueue;
mod inspect;
mod lanes;
mod lease;
mod record;
mod registry;
mod renew;
mod settle;
mod spot;
mod sql;
mod tables;
mod transactional;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exactly::queue::{
    Ask, End, Enqueued, Lane, Lease, Leased, Queue, Rescued, Ruling, Settlement, Task, TaskId, TaskState, check_batch,
};
use exactly::store::Reply;
use exactly::{Fenced, StoreError};
use sqlx::{PgConnection, PgPool};
use tokio::sync::watch;

pub(super) use self::announce::Announcer;
pub use self::builder::PgQueueBuilder;
use self::bundles::Bundles;
use self::lease::Rounds;
pub(super) use self::record::{IDLE_TIMEOUT, least_silence};
use self::sql::Sql;
pub(super) use self::tables::{BUNDLES, CARDS, MARKS, MARKS_DATED, PUBLISH, READY, SHEAVES, TABLES, UNBUNDLED};
use super::failure::is_lock_timeout;
use super::lend::Lender;
use super::schema::{Layout, Place};
use super::session::{BATCH_TIMEOUT, Sessions, within};
use super::sweep::Sweeper;
use super::transactional::Defaults;
use crate::error::failed;
use crate::name::Name;

/// Keeps tasks in one table of a PostgreSQL database, for as many processes as share it.
///
/// Transactions that follow each other within milliseconds share a connection of the pool while that has others, so its `before_acquire` and
/// `after_release` are called around all of them: what one sets for its session, the next one finds.
///
/// Besides the pool's, it keeps up to four connections for its own statements and one that listens. They use `LISTEN` and
/// prepared statements, so between the program and the server there may be a pooler in session mode, but not in
/// transaction mode.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// use exactly::queue::{Queue, Task};
/// use exactly_sql::PgQueue;
///
/// let queue = PgQueue::builder(pool.clone()).start().await?;
///
/// // The order and the task to ship it commit together, or neither does.
/// let mut tx = pool.begin().await?;
/// sqlx::query("insert into orders values (1066)").execute(&mut *tx).await?;
/// let _ = queue.enqueue_within(&mut tx, &[Task::new("ship", "order-1066", "{}")?]).await?;
/// tx.commit().await?;
/// queue.announce();
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct PgQueue {
    pool: PgPool,
    sessions: Arc<Sessions>,
    sql: Arc<Sql>,
    defaults: Arc<Defaults>,
    lender: Arc<Lender>,
    rounds: Arc<Rounds>,
    bundles: Arc<Bundles>,
    /// How many tasks of a lane that are enqueued together, at least, are named in one row.
    sheaf_from: u32,
    prune_done: Arc<Sweeper>,
    prune_dead: Arc<Sweeper>,
    prune_marks: Arc<Sweeper>,
    announcer: Arc<Announcer>,
    table: Arc<str>,
}

impl PgQueue {
    /// A queue on the server at `url`, with a pool of its own and the defaults.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::at(url).start().await
    }

    /// A queue on the server at `url`, with a pool of its own.
    pub fn at(url: &str) -> PgQueueBuilder {
        PgQueueBuilder::at(url)
    }

    /// A queue in the database of `pool`, so that tasks and effects can commit together.
    pub fn builder(pool: PgPool) -> PgQueueBuilder {
        PgQueueBuilder::on(pool)
    }

    /// What [`migrate`](PgQueueBuilder::migrate) does to an empty database, as SQL text. Running it again changes nothing.
    pub fn migrations_sql(schema: &Name, table: &Name) -> String {
        Place {
            schema: schema.clone(),
            table: table.clone(),
            layout: Layout::Tasks,
        }
        .script()
    }

    /// The connections to the database, for effects and for reading what they did.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Tells workers everywhere that there may be something to lease. For after the commit of a transaction of your own, in
    /// which [`enqueue_within`](Self::enqueue_within) was called; without it they find out at their next poll.
    pub fn announce(&self) {
        self.announcer.announce();
    }

    async fn session(&self, context: &'static str) -> Result<PgConnection, StoreError> {
        self.sessions.take().await.map_err(failed(context))
    }

    /// Keeps a connection on which nothing failed.
    fn answered<T>(
        &self,
        conn: PgConnection,
        answer: Result<T, sqlx::Error>,
        context: &'static str,
    ) -> Result<T, StoreError> {
        match &answer {
            Ok(_) => self.sessions.give_back(conn),
            Err(error) => self.sessions.failed(error),
        }
        answer.map_err(failed(context))
    }
}

impl fmt::Debug for PgQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The pool would show how to connect, password included.
        f.debug_struct("PgQueue")
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

impl Queue for PgQueue {
    fn enqueue<'a>(&'a self, tasks: &'a [Task]) -> Reply<'a, Vec<Enqueued>> {
        const CONTEXT: &str = "enqueue tasks";
        Box::pin(async move {
            check_batch(tasks.len(), CONTEXT)?;
            let mut conn = self.session(CONTEXT).await?;
            let enqueued = within(BATCH_TIMEOUT, self.enqueue_on(&mut conn, tasks)).await;
            let enqueued = self.answered(conn, enqueued, CONTEXT)?;
            if enqueued.iter().any(Enqueued::is_new) {
                self.announce();
            }
            Ok(enqueued)
        })
    }

    fn lease<'a>(&'a self, ask: &'a Ask) -> Reply<'a, Vec<Leased>> {
        const CONTEXT: &str = "lease tasks";
        Box::pin(async move {
            // The statements that lease take the server longer to plan than any others, so they have a connection to themselves.
            let mut conn = self.sessions.take_first().await.map_err(failed(CONTEXT))?;
            let leased = within(BATCH_TIMEOUT, self.lease_on(&mut conn, ask)).await;
            match &leased {
                Ok(_) => self.sessions.give_back_first(conn),
                Err(error) => self.sessions.failed(error),
            }
            leased.map_err(failed(CONTEXT))
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Lease], lease: Duration) -> Reply<'a, Vec<Ruling>> {
        const CONTEXT: &str = "renew leases";
        Box::pin(async move {
            check_batch(leases.len(), CONTEXT)?;
            let mut conn = self.session(CONTEXT).await?;
            let renewed = within(BATCH_TIMEOUT, self.renew_on(&mut conn, leases, lease)).await;
            self.answered(conn, renewed, CONTEXT)
        })
    }

    fn settle<'a>(&'a self, settlements: &'a [Settlement]) -> Reply<'a, Vec<Ruling>> {
        const CONTEXT: &str = "settle tasks";
        Box::pin(async move {
            check_batch(settlements.len(), CONTEXT)?;
            let mut conn = self.session(CONTEXT).await?;
            let mut settled = within(BATCH_TIMEOUT, self.settle_on(&mut conn, settlements)).await;
            if settled.as_ref().is_err_and(is_lock_timeout) {
                // The session is as good as before: an error ends a statement, not a connection.
                settled = within(BATCH_TIMEOUT, self.settle_free_on(&mut conn, settlements)).await;
            }
            let settled = self.answered(conn, settled, CONTEXT)?;
            if settlements.iter().any(|settlement| is_due_again(&settlement.end)) {
                self.announce();
            }
            Ok(settled)
        })
    }

    fn rescue(&self, rescues_max: u32, limit: u32) -> Reply<'_, Vec<Rescued>> {
        const CONTEXT: &str = "rescue tasks";
        Box::pin(async move {
            let mut conn = self.session(CONTEXT).await?;
            let rescued = within(BATCH_TIMEOUT, self.rescue_on(&mut conn, rescues_max, limit)).await;
            let rescued = self.answered(conn, rescued, CONTEXT)?;
            if rescued.iter().any(|task| task.waits) {
                self.announce();
            }
            Ok(rescued)
        })
    }

    fn revive<'a>(&'a self, ids: &'a [TaskId]) -> Reply<'a, Vec<Option<TaskState>>> {
        const CONTEXT: &str = "revive tasks";
        Box::pin(async move {
            check_batch(ids.len(), CONTEXT)?;
            let mut conn = self.session(CONTEXT).await?;
            let revived = within(BATCH_TIMEOUT, self.revive_on(&mut conn, ids)).await;
            let revived = self.answered(conn, revived, CONTEXT)?;
            self.announce();
            Ok(revived)
        })
    }

    fn conclude<'a>(&'a self, seen: Lease, outcome: &'a Bytes) -> Reply<'a, Fenced> {
        const CONTEXT: &str = "conclude task";
        Box::pin(async move {
            let mut conn = self.session(CONTEXT).await?;
            let concluded = within(BATCH_TIMEOUT, self.conclude_on(&mut conn, seen, outcome)).await;
            self.answered(conn, concluded, CONTEXT)
        })
    }

    fn hasten<'a>(&'a self, ids: &'a [TaskId]) -> Reply<'a, Vec<Option<TaskState>>> {
        const CONTEXT: &str = "hasten tasks";
        Box::pin(async move {
            check_batch(ids.len(), CONTEXT)?;
            let mut conn = self.session(CONTEXT).await?;
            let hastened = within(BATCH_TIMEOUT, self.hasten_on(&mut conn, ids)).await;
            let hastened = self.answered(conn, hastened, CONTEXT)?;
            self.announce();
            Ok(hastened)
        })
    }

    fn prune(&self, state: TaskState, age: Duration, limit: u32) -> Reply<'_, u32> {
        Box::pin(async move {
            match state {
                TaskState::Done => self.prune_done.sweep_older(age, limit).await,
                TaskState::Dead => self.prune_dead.sweep_older(age, limit).await,
                TaskState::Waiting | TaskState::Running | TaskState::Held => Ok(0),
            }
        })
    }

    fn prune_marks(&self, age: Duration, limit: u32) -> Reply<'_, u32> {
        Box::pin(self.prune_marks.sweep_older(age, limit))
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
        self.announcer.arrivals()
    }
}

/// Whether a task can be leased at once after this. What is to wait is found when it is due: telling everybody now would be for nothing.
fn is_due_again(end: &End) -> bool {
    match end {
        End::Release => true,
        End::Retry { after, .. } | End::Defer { after } => after.is_zero(),
        End::Done(_) | End::Bury(_) | End::Hold(_) => false,
    }
}
