//! What can be chosen about a store, and its start.

use std::sync::Arc;
use std::time::Duration;

use exactly::store::Wakeups;
use exactly::{StoreError, StoreErrorKind};
use sqlx::{PgConnection, PgPool, Row as _};

use super::PgStore;
use super::checks::{self, Accept};
use super::flush::PgFlush;
use super::listen::Listener;
use super::schema::{self, Place};
use super::session::Sessions;
use super::sql::Sql;
use super::sweep::{SWEEP_BATCH, Sweeper};
use super::transactional::Defaults;
use crate::batch::{BATCH_MAX, Batcher};
use crate::error::failed;
use crate::name::{InvalidName, Name};

/// Two batches under way: while the server works on one, the other is collected.
const FLUSHERS: usize = 2;
const FLUSHERS_MAX: usize = 64;

/// For sweeping. What waits for held keys opens more, and closes them again.
const IDLE_BESIDE_FLUSHERS: usize = 1;

/// How long the checks and migrations of a start may take.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// A [`PgStore`] that is not started yet.
#[derive(Debug)]
#[must_use = "nothing happens until it is started"]
pub struct PgStoreBuilder {
    pool: PgPool,
    schema: String,
    table: String,
    migrate: bool,
    accept: Accept,
    flushers: usize,
    batch_max: usize,
    sweep_batch: u32,
}

impl PgStoreBuilder {
    pub(super) fn new(pool: PgPool) -> Self {
        Self {
            pool,
            schema: "exactly".to_owned(),
            table: "calls".to_owned(),
            migrate: true,
            accept: Accept::default(),
            flushers: FLUSHERS,
            batch_max: BATCH_MAX,
            sweep_batch: SWEEP_BATCH,
        }
    }

    /// The schema of the table, `exactly` by default.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// The table, `calls` by default. A service can keep one per feature, such as `league_operations`.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// Whether to create the table or bring it up to date, which is the default. Otherwise the start only checks that
    /// someone did, with [`migrations_sql`].
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

    /// How many batches are under way at once, each on a connection of its own.
    pub fn flushers(mut self, flushers: usize) -> Self {
        self.flushers = flushers.clamp(1, FLUSHERS_MAX);
        self
    }

    /// The most steps in one batch.
    pub fn batch_max(mut self, steps: usize) -> Self {
        self.batch_max = steps.clamp(1, BATCH_MAX);
        self
    }

    /// Whether concurrent steps share statements and commits, as they do by default. Without, every step is a
    /// statement of its own: only good to measure what sharing is worth.
    pub fn group_commit(mut self, group: bool) -> Self {
        self.batch_max = if group { BATCH_MAX } else { 1 };
        self
    }

    /// How many records one statement of a sweep deletes at most. Small ones keep others from waiting.
    pub fn sweep_batch(mut self, records: u32) -> Self {
        self.sweep_batch = records.max(1);
        self
    }

    /// Checks the server and the schema, and starts the store. Refuses what would break the promise.
    pub async fn start(self) -> Result<PgStore, StoreError> {
        let place = Place {
            schema: name("schema", self.schema)?,
            table: name("table", self.table)?,
        };
        let sessions = Sessions::new(self.pool.clone(), self.accept, self.flushers + IDLE_BESIDE_FLUSHERS);
        let preparing = prepare(&self.pool, &sessions, &place, self.migrate, self.accept);
        let (defaults, channel) = tokio::time::timeout(START_TIMEOUT, preparing).await.map_err(|_| {
            let context = format!("start on PostgreSQL: no answer within {} s", START_TIMEOUT.as_secs());
            StoreError::new(StoreErrorKind::Unavailable, context)
        })??;
        let sql = Arc::new(Sql::new(&place));
        let wakeups = Wakeups::default();
        let sessions = Arc::new(sessions);
        let flush = |again| {
            PgFlush::new(
                Arc::clone(&sessions),
                Arc::clone(&sql),
                wakeups.clone(),
                Arc::clone(&channel),
                again,
            )
        };
        let batcher = Batcher::start(flush, self.flushers, self.batch_max);
        Ok(PgStore {
            batcher,
            sweeper: Arc::new(Sweeper::new(sessions, &place, self.sweep_batch)),
            _listener: Arc::new(Listener::start(self.pool.clone(), channel, wakeups.clone())),
            pool: self.pool,
            sql,
            wakeups,
            defaults: Arc::new(defaults),
            table: place.readable().into(),
        })
    }
}

/// The SQL that a start with migrations runs on an empty database, for people who migrate themselves. Running it again
/// changes nothing.
pub fn migrations_sql(schema: &Name, table: &Name) -> String {
    Place {
        schema: schema.clone(),
        table: table.clone(),
    }
    .script()
}

/// Checks both kinds of connection, since a pool may set up its own in its own way. Returns what the
/// pool's sessions start with, and the channel of notifications about the table.
async fn prepare(
    pool: &PgPool,
    sessions: &Sessions,
    place: &Place,
    migrate: bool,
    accept: Accept,
) -> Result<(Defaults, Arc<str>), StoreError> {
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

fn name(option: &str, text: String) -> Result<Name, StoreError> {
    Name::new(text).map_err(|error: InvalidName| {
        StoreError::new(StoreErrorKind::Refused, format!("read the {option} option")).with_source(error)
    })
}
