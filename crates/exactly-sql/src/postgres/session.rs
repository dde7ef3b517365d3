//! The store's own connections.
//!
//! Batches do not go through the callers' pool: a pool whose connections all wait for locks, or for handlers that wait
//! for us, must not keep outcomes from being written. It also spares the pool's check before every use.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, PgPool, Postgres};

use super::checks::{Accept, check_server};
use super::failure::concerns_every_session;

/// How long to wait for a connection of the callers' pool.
pub(super) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a batch may take, after which the connection is closed and its callers are told.
pub(super) const BATCH_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a batch waits for a row that a transaction elsewhere holds. All its other callers wait with it, so not
/// long.
const LOCK_TIMEOUT_MS: u32 = 100;

/// The server ends by itself what we gave up on, also when it never learns that we are gone.
const STATEMENT_TIMEOUT_MS: u32 = 4_000;
const IDLE_IN_TRANSACTION_TIMEOUT_MS: u32 = 10_000;

/// Connections that are ready for the next batch.
#[derive(Debug)]
pub(super) struct Sessions {
    /// Only for how to connect. Asked each time, because a pool may be told about a changed password.
    pool: PgPool,
    accept: Accept,
    /// How the first session committed, and so how every later one does, whatever became of the role's settings.
    synchronous_commit: OnceLock<String>,
    /// How long statements wait for a row that a transaction elsewhere holds.
    lock_timeout_ms: u32,
    /// The most connections that are kept; more are open only while they are used.
    idle_max: usize,
    // A std mutex, since it is held for a push or a pop and never across an await.
    idle: Mutex<VecDeque<PgConnection>>,
}

impl Sessions {
    pub(super) fn new(pool: PgPool, accept: Accept, idle_max: usize) -> Self {
        Self {
            pool,
            accept,
            synchronous_commit: OnceLock::new(),
            lock_timeout_ms: LOCK_TIMEOUT_MS,
            idle_max,
            idle: Mutex::default(),
        }
    }

    /// Waits so long for rows, where nobody else's statements wait with it.
    pub(super) fn with_lock_timeout_ms(mut self, lock_timeout_ms: u32) -> Self {
        self.lock_timeout_ms = lock_timeout_ms;
        self
    }

    /// Whether the server is there, and why not.
    pub(super) async fn reach(&self) -> Result<(), sqlx::Error> {
        let options = self.pool.connect_options();
        within(CONNECT_TIMEOUT, async { options.connect().await?.close().await }).await
    }

    pub(super) async fn take(&self) -> Result<PgConnection, sqlx::Error> {
        let idle = self.idle().pop_back();
        self.or_connect(idle).await
    }

    /// For a connection on which nothing failed. Others are dropped, which closes them.
    pub(super) fn give_back(&self, conn: PgConnection) {
        let mut idle = self.idle();
        if idle.len() < self.idle_max {
            idle.push_back(conn);
        }
    }

    /// As [`take`](Self::take), from the other end of the row. Whoever takes it from there and
    /// [puts it back there](Self::give_back_first) mostly has the same one, on which its statements are planned already.
    pub(super) async fn take_first(&self) -> Result<PgConnection, sqlx::Error> {
        let idle = self.idle().pop_front();
        self.or_connect(idle).await
    }

    pub(super) fn give_back_first(&self, conn: PgConnection) {
        let mut idle = self.idle();
        if idle.len() < self.idle_max {
            idle.push_front(conn);
        }
    }

    async fn or_connect(&self, idle: Option<PgConnection>) -> Result<PgConnection, sqlx::Error> {
        match idle {
            Some(conn) => Ok(conn),
            None => within(CONNECT_TIMEOUT, self.connect()).await,
        }
    }

    /// Closes what is of no use any more after this error of one of the connections: a server that restarted ends all of
    /// them, and each would fail once.
    pub(super) fn failed(&self, error: &sqlx::Error) {
        if concerns_every_session(error) {
            self.idle().clear();
        }
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<PgConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses what a start refuses: the server may be another one by now, or have other settings.
    async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let mut options = (*self.pool.connect_options()).clone();
        if options.get_application_name().is_none() {
            options = options.application_name("exactly");
        }
        let mut conn = options.connect().await?;
        sqlx::raw_sql(AssertSqlSafe(settings(self.lock_timeout_ms)))
            .execute(&mut conn)
            .await?;
        if let Some(durable) = self.synchronous_commit.get() {
            commit_by(&mut conn, durable).await?;
        }
        let refused = |error| sqlx::Error::Configuration(Box::new(error));
        let durable = check_server(&mut conn, self.accept).await.map_err(refused)?;
        if let (Some(durable), None) = (durable, self.synchronous_commit.get()) {
            let durable = self.synchronous_commit.get_or_init(|| durable);
            // A server that is told to reload changes what was not set.
            commit_by(&mut conn, durable).await?;
        }
        Ok(conn)
    }
}

/// A connection of the callers' pool, whose own patience may be without end.
pub(super) async fn acquire(pool: &PgPool) -> Result<PoolConnection<Postgres>, sqlx::Error> {
    let acquired = tokio::time::timeout(ACQUIRE_TIMEOUT, pool.acquire()).await;
    acquired.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}

/// `answer`, or an error after `limit`.
pub(super) async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| {
        let message = format!("the server gave no answer within {} s", limit.as_secs());
        Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, message)))
    })
}

async fn commit_by(conn: &mut PgConnection, durable: &str) -> Result<(), sqlx::Error> {
    let set = sqlx::query("select set_config('synchronous_commit', $1, false)").bind(durable);
    set.execute(conn).await.map(drop)
}

/// Every statement finds its rows by primary key, whatever the statistics say: a table that was never analysed looks
/// empty, and a plan made for ten rows would read ten million. What is looked up in memory is hashed, for which the planner has to
/// believe that it fits.
fn settings(lock_timeout_ms: u32) -> String {
    format!(
        "set default_transaction_isolation = 'read committed';
         set lock_timeout = {lock_timeout_ms};
         set statement_timeout = {STATEMENT_TIMEOUT_MS};
         set idle_in_transaction_session_timeout = {IDLE_IN_TRANSACTION_TIMEOUT_MS};
         set plan_cache_mode = force_generic_plan;
         set enable_seqscan = off;
         set enable_bitmapscan = off;
         set enable_hashjoin = off;
         set enable_mergejoin = off;
         set work_mem = '64MB';
         set jit = off"
    )
}
