//! What can be chosen about a queue, and its start.

use std::sync::Arc;

use exactly::StoreError;
use sqlx::PgPool;

use super::PgQueue;
use super::announce::Announcer;
use super::bundles::Bundles;
use super::lease::Rounds;
use super::sql::Sql;
use crate::name::Name;
use crate::postgres::builder::{PgStoreBuilder, Source, prepare};
use crate::postgres::checks::Accept;
use crate::postgres::lend::Lender;
use crate::postgres::schema::{Layout, Place};
use crate::postgres::session::Sessions;

/// Leases, settlements, renewals and enqueuing can be under way at once; more connections are open only while used.
const SESSIONS_IDLE_MAX: usize = 4;

/// Enqueuing waits for a transaction that is about to add the same key. Less than a statement may take.
const LOCK_TIMEOUT_MS: u32 = 3_000;

/// A [`PgQueue`] that is not started yet.
#[derive(Debug)]
#[must_use = "nothing happens until it is started"]
pub struct PgQueueBuilder {
    source: Source,
    schema: String,
    table: String,
    migrate: bool,
    accept: Accept,
    bundle_from: u32,
    sheaf_from: u32,
}

impl PgQueueBuilder {
    /// How many tasks a lease is for, at least, that is written down as one row unless told otherwise.
    pub const BUNDLE_FROM_DEFAULT: u32 = 128;

    /// How many tasks of a lane that are enqueued together, at least, are named in one row unless told otherwise.
    pub const SHEAF_FROM_DEFAULT: u32 = 8;

    /// The table that tasks are kept in unless told otherwise. Others beside it start with its name.
    pub const TABLE_DEFAULT: &'static str = "tasks";

    pub(super) fn at(url: &str) -> Self {
        Self::new(Source::Server(url.parse().map(Box::new)))
    }

    pub(super) fn on(pool: PgPool) -> Self {
        Self::new(Source::Pool(pool))
    }

    fn new(source: Source) -> Self {
        Self {
            source,
            schema: PgStoreBuilder::SCHEMA_DEFAULT.to_owned(),
            table: Self::TABLE_DEFAULT.to_owned(),
            migrate: true,
            accept: Accept::default(),
            bundle_from: Self::BUNDLE_FROM_DEFAULT,
            sheaf_from: Self::SHEAF_FROM_DEFAULT,
        }
    }

    /// Keeps the tables in this schema.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Keeps the tasks in this table.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// Whether the schema is brought up to date (the default) or only checked. See [`PgQueue::migrations_sql`].
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Accepts settings under which a power cut can take back what was committed, so that work repeats or is lost.
    pub fn accept_unsynced(mut self) -> Self {
        self.accept.unsynced = true;
        self
    }

    /// Accepts an unlogged table, which a crash of the server empties.
    pub fn accept_unlogged(mut self) -> Self {
        self.accept.unlogged = true;
        self
    }

    /// Writes a lease of so many tasks or more down as one row, instead of in the row of each task: where tasks are short, that
    /// costs the database a third less. A lease that is [renewed](exactly::queue::Queue::renew) is written into the rows then.
    /// `u32::MAX` does without.
    pub fn bundle_from(mut self, tasks: u32) -> Self {
        self.bundle_from = tasks.max(1);
        self
    }

    /// Names so many tasks or more that are enqueued by one call, in one lane and without a delay, in one row for each thousand,
    /// instead of each in the index of what waits: where tasks are short and leased many at a time, that costs the database a third
    /// less. `u32::MAX` does without.
    pub fn sheaf_from(mut self, tasks: u32) -> Self {
        self.sheaf_from = tasks.max(1);
        self
    }

    /// Checks the server and the schema, and starts the queue. Refuses what would break the promise.
    pub async fn start(self) -> Result<PgQueue, StoreError> {
        let place = Place {
            schema: Name::option("schema", self.schema)?,
            table: Name::table(self.table)?,
            layout: Layout::Tasks,
        };
        place.check()?;
        let pool = self.source.pool()?;
        let sessions =
            Sessions::new(pool.clone(), self.accept, SESSIONS_IDLE_MAX).with_lock_timeout_ms(LOCK_TIMEOUT_MS);
        let (defaults, channel) = prepare(&pool, &sessions, &place, self.migrate, self.accept).await?;
        let sessions = Arc::new(sessions);
        let prune = |state| Arc::new(super::sql::prune(Arc::clone(&sessions), &place, state));
        let announcer = Announcer::start(pool.clone(), Arc::clone(&sessions), channel).await;
        Ok(PgQueue {
            sql: Arc::new(Sql::new(&place)),
            defaults: Arc::new(defaults),
            lender: Arc::new(Lender::new(pool.clone())),
            rounds: Arc::new(Rounds::default()),
            bundles: Arc::new(Bundles::new(self.bundle_from)),
            sheaf_from: self.sheaf_from,
            prune_done: prune(exactly::queue::TaskState::Done),
            prune_dead: prune(exactly::queue::TaskState::Dead),
            prune_marks: Arc::new(super::record::prune_marks(Arc::clone(&sessions), &place)),
            announcer: Arc::new(announcer),
            table: place.readable().into(),
            pool,
            sessions,
        })
    }
}
