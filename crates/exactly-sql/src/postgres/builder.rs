//! What can be chosen about a store, and its start.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use exactly::store::Wakeups;
use exactly::{StoreError, StoreErrorKind};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgConnection, PgPool, Row as _};

use super::PgStore;
use super::checks::{self, Accept};
use super::flush::PgFlush;
use super::lend::Lender;
use super::listen::{Listener, waking};
use super::operate::Trail;
use super::schema::{self, Layout, Place};
use super::session::Sessions;
use super::sql::Sql;
use super::sweep::Sweeper;
use super::transactional::Defaults;
use crate::batch::{BATCH_MAX, Batcher};
use crate::error::failed;
use crate::name::Name;

/// Two batches under way: while the server works on one, the other is collected.
const FLUSHERS: usize = 2;
const FLUSHERS_MAX: usize = 64;

/// For sweeping. What waits for held keys opens more, and closes them again.
const IDLE_BESIDE_FLUSHERS: usize = 1;

/// For sessions of our own pool, whose transactions hold keys: when the server takes their process for dead.
const LET_GO: &str = "set tcp_keepalives_idle = 30; set tcp_keepalives_interval = 10; set tcp_keepalives_count = 3;
                      set idle_in_transaction_session_timeout = '5min'";

/// How long the checks and migrations of a start may take.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// A [`PgStore`] that is not started yet.
#[derive(Debug)]
#[must_use = "nothing happens until it is started"]
pub struct PgStoreBuilder {
    source: Source,
    schema: String,
    table: String,
    migrate: bool,
    accept: Accept,
    flushers: usize,
    group_commit: bool,
}

/// Where the connections come from.
pub(super) enum Source {
    Pool(PgPool),
    Server(Result<Box<PgConnectOptions>, sqlx::Error>),
}

impl PgStoreBuilder {
    /// The schema of the table unless told otherwise.
    pub const SCHEMA_DEFAULT: &'static str = "exactly";

    /// The table that records are kept in unless told otherwise.
    pub const TABLE_DEFAULT: &'static str = "calls";

    pub(super) fn at(url: &str) -> Self {
        Self::new(Source::Server(url.parse().map(Box::new)))
    }

    pub(super) fn on(pool: PgPool) -> Self {
        Self::new(Source::Pool(pool))
    }

    fn new(source: Source) -> Self {
        Self {
            source,
            schema: Self::SCHEMA_DEFAULT.to_owned(),
            table: Self::TABLE_DEFAULT.to_owned(),
            migrate: true,
            accept: Accept::default(),
            flushers: FLUSHERS,
            group_commit: true,
        }
    }

    /// Keeps the table in this schema.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Keeps the records in this table, so that a service can have one per feature.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// Whether the schema is brought up to date (the default) or only checked. See [`PgStore::migrations_sql`].
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Accepts settings under which a power cut can take back what was committed, so that effects repeat.
    pub fn accept_unsynced(mut self) -> Self {
        self.accept.unsynced = true;
        self
    }

    /// Accepts an unlogged table, which a crash of the server empties, so that effects repeat.
    pub fn accept_unlogged(mut self) -> Self {
        self.accept.unlogged = true;
        self
    }

    /// How many batches are under way at once, each on a connection of its own: from 1 to 64.
    pub fn flushers(mut self, flushers: usize) -> Self {
        self.flushers = flushers;
        self
    }

    /// Whether calls share statements and commits (the default). Without it every call pays for its own, which is slower
    /// under load and no safer.
    pub fn group_commit(mut self, group_commit: bool) -> Self {
        self.group_commit = group_commit;
        self
    }

    /// Checks the server and the schema, and starts the store. Refuses what would break the promise.
    pub async fn start(self) -> Result<PgStore, StoreError> {
        let place = Place {
            schema: Name::option("schema", self.schema)?,
            table: Name::table(self.table)?,
            layout: Layout::Calls,
        };
        place.check()?;
        check_flushers(self.flushers)?;
        let pool = self.source.pool()?;
        let sessions = Sessions::new(pool.clone(), self.accept, self.flushers + IDLE_BESIDE_FLUSHERS);
        let (defaults, channel) = prepare(&pool, &sessions, &place, self.migrate, self.accept).await?;
        let sql = Arc::new(Sql::new(&place));
        let wakeups = Wakeups::default();
        let sessions = Arc::new(sessions);
        let flush = |_, again| {
            PgFlush::new(
                Arc::clone(&sessions),
                Arc::clone(&sql),
                wakeups.clone(),
                Arc::clone(&channel),
                again,
            )
        };
        let batch_max = if self.group_commit { BATCH_MAX } else { 1 };
        let batcher = Batcher::start(flush, self.flushers, batch_max);
        Ok(PgStore {
            batcher,
            trail: Arc::new(Trail::new(Arc::clone(&sessions), &place)),
            sweeper: Arc::new(Sweeper::new(sessions, &place)),
            _listener: Arc::new(Listener::start(pool.clone(), channel, waking(wakeups.clone()))),
            lender: Arc::new(Lender::new(pool.clone())),
            pool,
            sql,
            wakeups,
            defaults: Arc::new(defaults),
            table: place.readable().into(),
        })
    }
}

impl Source {
    /// The pool, which connects when it is used.
    pub(super) fn pool(self) -> Result<PgPool, StoreError> {
        match self {
            Self::Pool(pool) => Ok(pool),
            Self::Server(options) => {
                let options = options.map_err(failed("read the address of PostgreSQL"))?;
                let pool = PgPoolOptions::new().after_connect(|conn, _| {
                    // Not in the connection's options, which poolers refuse.
                    Box::pin(async move { sqlx::raw_sql(LET_GO).execute(conn).await.map(drop) })
                });
                Ok(pool.connect_lazy_with(*options))
            }
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Either would show how to connect, password included.
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

fn check_flushers(flushers: usize) -> Result<(), StoreError> {
    if (1..=FLUSHERS_MAX).contains(&flushers) {
        return Ok(());
    }
    let context = format!("read the flushers option: {flushers} is not from 1 to {FLUSHERS_MAX}");
    Err(StoreError::new(StoreErrorKind::Refused, context))
}

/// Checks both kinds of connection, since a pool may set up its own in its own way. Returns what the
/// pool's sessions start with, and the channel of notifications about the table.
pub(super) async fn prepare(
    pool: &PgPool,
    sessions: &Sessions,
    place: &Place,
    migrate: bool,
    accept: Accept,
) -> Result<(Defaults, Arc<str>), StoreError> {
    let preparing = prepare_patiently(pool, sessions, place, migrate, accept);
    tokio::time::timeout(START_TIMEOUT, preparing).await.map_err(|_| {
        let context = format!("start on PostgreSQL: no answer within {} s", START_TIMEOUT.as_secs());
        StoreError::new(StoreErrorKind::Unavailable, context)
    })?
}

async fn prepare_patiently(
    pool: &PgPool,
    sessions: &Sessions,
    place: &Place,
    migrate: bool,
    accept: Accept,
) -> Result<(Defaults, Arc<str>), StoreError> {
    let options = pool.connect_options();
    let context = format!("connect to PostgreSQL at {}:{}", options.get_host(), options.get_port());
    // A pool tries for long, and then does not say what it tried.
    sessions.reach().await.map_err(failed(context))?;
    let mut conn = pool.acquire().await.map_err(failed("connect to PostgreSQL"))?;
    let durable = checks::check_server(&mut conn, accept).await?;
    schema::prepare(&mut conn, place, migrate).await?;
    checks::check_table(&mut conn, place, accept).await?;
    let defaults = Defaults::read(&mut conn, durable)
        .await
        .map_err(failed("read session defaults"))?;
    let mut own = sessions.take().await.map_err(failed("connect to PostgreSQL"))?;
    let channel = channel(&mut own, place).await.map_err(failed("read the table's oid"))?;
    sessions.give_back(own);
    Ok((defaults, channel))
}

/// By the table's oid and not by its name: two names together can be too long for a channel's.
async fn channel(conn: &mut PgConnection, place: &Place) -> Result<Arc<str>, sqlx::Error> {
    let row = sqlx::query("select 'exactly_' || to_regclass($1)::oid")
        .bind(place.quoted())
        .fetch_one(conn)
        .await?;
    row.try_get::<String, _>(0).map(Into::into)
}
