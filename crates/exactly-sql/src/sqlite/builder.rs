//! Opening a store.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, SqlitePool};
use tokio::sync::Mutex;

use exactly::clock::{Clock, SteadyClock, WallClock};
use exactly::store::Wakeups;
use exactly::{StoreError, StoreErrorKind};

use super::SqliteStore;
use super::clock::{ClockRow, StoreClock};
use super::database::{self, Database, Slot};
use super::file::{Beat, File};
use super::flush::Flusher;
use super::migrate::{self, Layout};
use super::novelty::Novelty;
use super::scribe::Scribe;
use super::settings::Overrides;
use super::table::Statements;
use super::turns::Turns;
use crate::batch::{BATCH_MAX, Batcher};
use crate::error::failed;
use crate::name::Name;

/// How long SQLite waits for another process's write lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// What is set on every connection of ours, beside durability.
pub(super) const PRAGMAS: [(&str, &str); 4] = [
    // Pages in the write-ahead log before a commit moves them into the database. Moving them seldom makes more of them
    // coincide, and 40 MiB are read back at once after a crash.
    ("wal_autocheckpoint", "10000"),
    // Two megabytes. What a larger one saves in reads, it costs at the end of every commit that has split a page: SQLite
    // walks through all of it then.
    ("cache_size", "-2048"),
    // What undoes a half-done statement is kept here; in a file it costs a third of a batch.
    ("temp_store", "memory"),
    // What a burst left of the log is cut off again.
    ("journal_size_limit", "67108864"),
];

/// The most connections for transactions and for looking at records; batches have their own.
const CONNECTIONS_MAX: u32 = 8;

/// A [`SqliteStore`] that is not started yet.
#[derive(Debug)]
#[must_use = "nothing happens until it is started"]
pub struct SqliteStoreBuilder {
    source: Source,
    table: String,
    migrate: bool,
    overrides: Overrides,
    group_commit: bool,
    steady: Box<dyn Clock>,
    wall: Box<dyn Clock>,
}

/// Where the connections come from.
#[derive(Debug)]
pub(super) enum Source {
    Pool(SqlitePool),
    File {
        options: Result<Box<SqliteConnectOptions>, sqlx::Error>,
        /// Whether nothing is asked for but the file itself, so that any driver opens it alike.
        plain: bool,
    },
}

impl SqliteStoreBuilder {
    /// The table that records are kept in unless told otherwise.
    pub const TABLE_DEFAULT: &'static str = "exactly_calls";

    pub(super) fn at(path: &Path) -> Self {
        Self::new(Source::at(path))
    }

    pub(super) fn on(pool: SqlitePool) -> Self {
        Self::new(Source::Pool(pool))
    }

    fn new(source: Source) -> Self {
        Self {
            source,
            table: Self::TABLE_DEFAULT.into(),
            migrate: true,
            overrides: Overrides::default(),
            group_commit: true,
            steady: Box::new(SteadyClock::default()),
            wall: Box::new(WallClock),
        }
    }

    /// Keeps the records in this table, so that a service can have one per feature.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// Whether the schema is brought up to date (the default) or only checked. See [`SqliteStore::migrations_sql`].
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Whether calls share commits (the default). Without it every call pays for its own, which is slower under load and
    /// no safer.
    pub fn group_commit(mut self, group_commit: bool) -> Self {
        self.group_commit = group_commit;
        self
    }

    /// Accepts settings under which a power cut can take back what was committed, so that effects repeat.
    pub fn accept_unsynced(mut self) -> Self {
        self.overrides.unsynced = true;
        self
    }

    /// Accepts a database in memory, which every restart forgets. Its connections have to share a cache.
    pub fn accept_in_memory(mut self) -> Self {
        self.overrides.in_memory = true;
        self
    }

    /// What time passes by while this process runs. The default follows no step of the wall clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.steady = Box::new(clock);
        self
    }

    /// What says how much time passed while no process ran, of which at most an hour is counted.
    pub fn wall_clock(mut self, clock: impl Clock) -> Self {
        self.wall = Box::new(clock);
        self
    }

    /// Checks the settings, brings the schema up to date and starts the store.
    pub async fn start(self) -> Result<SqliteStore, StoreError> {
        let table = Name::table(self.table)?;
        let opening = Opening {
            overrides: self.overrides,
            migrate: self.migrate,
            steady: self.steady,
            wall: self.wall,
        };
        let plain = self.source.is_plain();
        let file = opening.open(self.source, &migrate::CALLS, &table).await?;
        let wakeups = Wakeups::default();
        let scribe = (plain && !file.in_memory)
            .then(|| Scribe::start(file.path.clone().into(), &table, wakeups.clone()))
            .transpose();
        let unstarted =
            |error| StoreError::new(StoreErrorKind::Unavailable, "start the store's thread").with_source(error);
        let database = Arc::new(Database {
            statements: Statements::new(&table),
            file: Arc::clone(&file),
            table,
            wakeups,
            reader: Mutex::default(),
            batches: AtomicU64::new(0),
            novelty: Novelty::default(),
            scribe: scribe.map_err(unstarted)?,
        });
        let batch_max = if self.group_commit { BATCH_MAX } else { 1 };
        let flusher = |queue, again| Flusher::new(Arc::clone(&database), batch_max, queue, again);
        let batcher = Batcher::start(flusher, 1, batch_max);
        Ok(SqliteStore {
            batcher,
            database,
            beat: Beat::start(&file),
        })
    }
}

/// How a database is opened.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) overrides: Overrides,
    pub(super) migrate: bool,
    pub(super) steady: Box<dyn Clock>,
    pub(super) wall: Box<dyn Clock>,
}

impl Opening {
    /// Checks the settings, brings `table` up to date and starts the database's clock.
    pub(super) async fn open(self, source: Source, layout: &Layout, table: &Name) -> Result<Arc<File>, StoreError> {
        let pool = source.pool()?;
        let (mut connection, settings) = database::connect(&pool, self.overrides).await?;
        if self.migrate {
            migrate::migrate(&mut connection, layout, table, ClockRow::first(&*self.wall)).await?;
        } else {
            migrate::verify(&mut connection, layout, table).await?;
        }
        let row = database::read_clock(&mut connection).await;
        let row = row.map_err(failed("read the store's clock"))?;
        Ok(Arc::new(File {
            clock: StoreClock::start(self.steady, self.wall, row),
            pool,
            turn: Turns::new(Slot::holding(connection)),
            in_memory: settings.in_memory(),
            path: settings.path,
            overrides: self.overrides,
        }))
    }
}

impl Source {
    pub(super) fn at(path: &Path) -> Self {
        let query = url(path).and_then(|url| url.split_once('?')).map(|(_, query)| query);
        Self::File {
            options: options(path).map(Box::new),
            plain: query.is_none_or(|query| matches!(query, "mode=rw" | "mode=rwc")),
        }
    }

    fn is_plain(&self) -> bool {
        matches!(self, Self::File { plain: true, .. })
    }

    fn pool(self) -> Result<SqlitePool, StoreError> {
        match self {
            Self::Pool(pool) => Ok(pool),
            Self::File {
                options: Err(error), ..
            } => Err(failed("open store")(error)),
            // A connection is a thread of this process: asking whether it is alive before each use is a trip for nothing.
            Self::File {
                options: Ok(options), ..
            } => Ok(SqlitePoolOptions::new()
                .max_connections(CONNECTIONS_MAX)
                .test_before_acquire(false)
                .connect_lazy_with(*options)),
        }
    }
}

/// The path, if it is a URL.
fn url(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.starts_with("sqlite:"))
}

/// Connections with durable settings to the file at `path`.
fn options(path: &Path) -> Result<SqliteConnectOptions, sqlx::Error> {
    let options = match url(path) {
        // `mode=` in the URL says what to do about a missing file; without it, create one as for a path.
        Some(url) if url.contains("mode=") => SqliteConnectOptions::from_str(url)?,
        Some(url) => SqliteConnectOptions::from_str(url)?.create_if_missing(true),
        None => SqliteConnectOptions::new().filename(path).create_if_missing(true),
    };
    let options = options
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging();
    let set = |options: SqliteConnectOptions, (name, value)| options.pragma(name, value);
    Ok(PRAGMAS.into_iter().fold(options, set))
}
