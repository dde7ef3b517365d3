//! Opening a store.

use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, SqliteConnection, SqlitePool};
use tokio::sync::Mutex;

use exactly::StoreError;
use exactly::clock::{Clock, SteadyClock, WallClock};
use exactly::store::Wakeups;

use super::clock::{ClockRow, STEP_MAX, StoreClock};
use super::database::{self, Database, Slot};
use super::flush::Flusher;
use super::novelty::Novelty;
use super::settings::Overrides;
use super::table::Statements;
use super::{Beat, SqliteStore, migrate};
use crate::batch::{BATCH_MAX, Batcher};
use crate::error::failed;
use crate::name::Name;

/// How long SQLite waits for another process's write lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How often an idle process writes the database's clock. Well below [`STEP_MAX`], so that a process that starts next to
/// an idle one reckons the same time.
const BEAT: Duration = Duration::from_secs(STEP_MAX.as_secs() / 6);

/// Pages in the write-ahead log before a commit moves them into the database. Moving them seldom makes more of them
/// coincide, and 16 MiB are read back at once after a crash.
const WAL_PAGES: &str = "4000";

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
enum Source {
    Pool(SqlitePool),
    File(Result<Box<SqliteConnectOptions>, sqlx::Error>),
}

impl SqliteStoreBuilder {
    /// The table that records are kept in unless told otherwise.
    pub const TABLE_DEFAULT: &'static str = "exactly_calls";

    pub(super) fn at(path: &Path) -> Self {
        Self::new(Source::File(options(path).map(Box::new)))
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
        let pool = self.source.pool()?;
        let (mut connection, settings) = database::connect(&pool, self.overrides).await?;
        if self.migrate {
            migrate::migrate(&mut connection, &table, ClockRow::first(&*self.wall)).await?;
        } else {
            migrate::verify(&mut connection, &table).await?;
        }
        let row = database::read_clock(&mut connection).await;
        let row = row.map_err(failed("read the store's clock"))?;
        let database = Arc::new(Database {
            statements: Statements::new(&table),
            clock: StoreClock::start(self.steady, self.wall, row),
            pool,
            table,
            wakeups: Wakeups::default(),
            turn: Arc::new(Mutex::new(Slot::holding(connection))),
            reader: Mutex::default(),
            in_memory: settings.in_memory,
            overrides: self.overrides,
            batches: AtomicU64::new(0),
            novelty: Novelty::default(),
        });
        let batch_max = if self.group_commit { BATCH_MAX } else { 1 };
        let flusher = |again| Flusher::new(Arc::clone(&database), batch_max, again);
        let beat = tokio::spawn(beat(Arc::downgrade(&database)));
        let batcher = Batcher::start(flusher, 1, batch_max);
        Ok(SqliteStore {
            batcher,
            database,
            _beat: Arc::new(Beat(beat.abort_handle())),
        })
    }
}

impl Source {
    fn pool(self) -> Result<SqlitePool, StoreError> {
        match self {
            Self::Pool(pool) => Ok(pool),
            Self::File(Err(error)) => Err(failed("open store")(error)),
            // A connection is a thread of this process: asking whether it is alive before each use is a trip for nothing.
            Self::File(Ok(options)) => Ok(SqlitePoolOptions::new()
                .max_connections(CONNECTIONS_MAX)
                .test_before_acquire(false)
                .connect_lazy_with(*options)),
        }
    }
}

/// Connections with durable settings to the file at `path`.
fn options(path: &Path) -> Result<SqliteConnectOptions, sqlx::Error> {
    let url = path.to_str().filter(|text| text.starts_with("sqlite:"));
    let options = match url {
        // `mode=` in the URL says what to do about a missing file; without it, create one as for a path.
        Some(url) if url.contains("mode=") => SqliteConnectOptions::from_str(url)?,
        Some(url) => SqliteConnectOptions::from_str(url)?.create_if_missing(true),
        None => SqliteConnectOptions::new().filename(path).create_if_missing(true),
    };
    let options = options
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("wal_autocheckpoint", WAL_PAGES)
        // Two megabytes. What a larger one saves in reads, it costs at the end of every commit that has split a page:
        // SQLite walks through all of it then.
        .pragma("cache_size", "-2048")
        // What undoes a half-done statement is kept here; in a file it costs a third of a batch.
        .pragma("temp_store", "memory")
        // What a burst left of the log is cut off again.
        .pragma("journal_size_limit", "67108864")
        .disable_statement_logging();
    Ok(options)
}

/// Writes the database's clock from time to time, for processes that start while this one is idle.
async fn beat(database: Weak<Database>) {
    loop {
        tokio::time::sleep(BEAT).await;
        let Some(database) = database.upgrade() else { return };
        let mut turn = database.turn.lock().await;
        let Ok(mut connection) = database.take(&mut turn).await else {
            continue;
        };
        match write_clock(&database, &mut connection).await {
            Ok(()) => turn.put_back(connection),
            Err(error) => {
                tracing::debug!(%error, "write the store's clock");
                database::recover_writer(&mut turn, connection, &error).await;
            }
        }
    }
}

async fn write_clock(database: &Database, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let row = database::read_clock(connection).await?;
    match database.clock.due(row, database.clock.now(row)) {
        Some(row) => database::write_clock(connection, row).await,
        None => Ok(()),
    }
}
