//! The client's journal in a SQLite file.

mod rules;

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteRow, SqliteSynchronous};
use sqlx::{ConnectOptions, Row, Sqlite, SqliteConnection, SqlitePool, Transaction};
use tokio::time::{Instant, sleep};

use exactly::client::journal::{Close, Entry, Journal, Opened, Unsettled};
use exactly::clock::{Clock, Timestamp, WallClock};
use exactly::retry::Ending;
use exactly::store::Reply;
use exactly::{Key, StoreError, StoreErrorKind};

use self::rules::{Change, Written};
use super::database::is_busy;
use super::settings::{self, Overrides};
use super::table::{instant, timestamp};
use crate::error::failed;

const SCHEMA: &str = include_str!("migrations/journal.sql");

/// The version of the schema that this build writes.
const VERSION: i64 = 1;

/// How long to wait for another process that writes or makes the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const CONNECT_PAUSE: Duration = Duration::from_millis(10);

/// Keeps a client's calls in a SQLite file, so that a process that is killed half way goes on with the same key.
///
/// What [`open`](Journal::open) wrote is durable before it returns: the file is in WAL mode and synced with every commit.
/// Any number of processes may share it; each step is one immediate transaction. Keys are in the file, and whoever holds a
/// key can ask for its answer, so a file that is made here is readable by its owner only.
///
/// Over a restart there is no clock but the wall clock, so that is what expiry is judged by. Set forward, it makes calls
/// expire early: they are reported and not sent. Set back, it makes a key seem to stand for its call when the server may
/// have forgotten it already.
///
/// ```no_run
/// # async fn refund() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use exactly::client::Client;
/// use exactly_sql::SqliteJournal;
///
/// let journal = SqliteJournal::open("calls.journal").await?;
/// let client = Client::builder().journal(Arc::new(journal)).build()?;
/// // Killed here and started again, it refunds once.
/// let call = client.post("https://payments.example/refunds").operation("refund-of-order-17");
/// let answer = call.body(r#"{"charge_id":"ch_9ab"}"#).send().await.applied()?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct SqliteJournal {
    pool: SqlitePool,
    clock: Box<dyn Clock>,
}

impl SqliteJournal {
    /// A journal in the file at `path`, which is made if it is missing.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        make(path)?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY_TIMEOUT)
            .disable_statement_logging();
        // One connection: SQLite has one writer, and those who wait for it here are served in the order of their arrival.
        let pool = SqlitePoolOptions::new().max_connections(1).connect_lazy_with(options);
        Self::on(pool).await
    }

    /// A journal in the database of `pool`, whose settings have to be durable.
    pub async fn on(pool: SqlitePool) -> Result<Self, StoreError> {
        let mut connection = connect(&pool).await?;
        settings::check(&mut connection, Overrides::default()).await?;
        migrate(&mut connection).await?;
        drop(connection);
        Ok(Self {
            pool,
            clock: Box::new(WallClock),
        })
    }

    /// What expiry is judged by, instead of the wall clock.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// A transaction that holds the write lock from its start, so that nothing changes between its look and its change.
    async fn begin(&self) -> Result<Transaction<'static, Sqlite>, sqlx::Error> {
        self.pool.begin_with("begin immediate").await
    }

    async fn write_opening(&self, entry: &Entry) -> Result<Opened, sqlx::Error> {
        let mut tx = self.begin().await?;
        let now = self.clock.now();
        let found = find(&mut tx, &entry.operation).await?;
        let is_key_taken = is_key_taken(&mut tx, entry).await?;
        let (opened, change) = rules::open(found, entry, is_key_taken, now);
        match change {
            Change::None => {}
            Change::Write => write(&mut tx, entry, now).await?,
            Change::Reopen { due } => reopen(&mut tx, &entry.operation, due).await?,
        }
        tx.commit().await?;
        Ok(opened)
    }

    async fn write_closing(&self, close: &Close) -> Result<Ending, sqlx::Error> {
        let mut tx = self.begin().await?;
        let now = self.clock.now();
        let found = find(&mut tx, &close.operation).await?;
        let Some(found) = found.filter(|found| found.key == close.key) else {
            return Ok(close.ending);
        };
        let ending = rules::close(&found, close);
        let expires = close.expires_in.map_or(found.expires, |left| now.after(left));
        sqlx::query("update exactly_journal set ending = ?, expires_at = ? where operation = ?")
            .bind(ending.as_str())
            .bind(timestamp(expires))
            .bind(&close.operation)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(ending)
    }

    async fn list(&self, limit: u32) -> Result<Vec<Unsettled>, sqlx::Error> {
        let now = self.clock.now();
        let sql = "select operation, key, method, place, opened_at, expires_at from exactly_journal \
                   where (ending is null or ending = 'unknown') and (ending is not null or due_at <= ?) \
                   order by opened_at, operation limit ?";
        let rows = sqlx::query(sql).bind(timestamp(now)).bind(i64::from(limit));
        let rows = rows.fetch_all(&self.pool).await?;
        rows.iter().map(|row| unsettled(row, now)).collect()
    }

    async fn forget(&self, limit: u32) -> Result<u32, sqlx::Error> {
        let sql = "delete from exactly_journal where operation in (select operation from exactly_journal \
                   where ending in ('applied', 'not_applied') and expires_at <= ? order by expires_at limit ?)";
        let forgotten = sqlx::query(sql)
            .bind(timestamp(self.clock.now()))
            .bind(i64::from(limit))
            .execute(&self.pool)
            .await?;
        Ok(u32::try_from(forgotten.rows_affected()).unwrap_or(limit))
    }
}

impl Journal for SqliteJournal {
    fn open<'a>(&'a self, entry: &'a Entry) -> Reply<'a, Opened> {
        Box::pin(async {
            self.write_opening(entry)
                .await
                .map_err(failed("open a call in the journal"))
        })
    }

    fn close<'a>(&'a self, close: &'a Close) -> Reply<'a, Ending> {
        Box::pin(async {
            self.write_closing(close)
                .await
                .map_err(failed("close a call in the journal"))
        })
    }

    fn unsettled(&self, limit: u32) -> Reply<'_, Vec<Unsettled>> {
        Box::pin(async move {
            self.list(limit)
                .await
                .map_err(failed("list unsettled calls of the journal"))
        })
    }

    fn prune(&self, limit: u32) -> Reply<'_, u32> {
        Box::pin(async move { self.forget(limit).await.map_err(failed("prune the journal")) })
    }
}

/// Makes the file, for its owner only. What SQLite puts beside it is given the same rights.
fn make(path: &Path) -> Result<(), StoreError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => {
            let context = format!("make the journal {}", path.display());
            Err(failed(context)(sqlx::Error::Io(error)))
        }
    }
}

async fn connect(pool: &SqlitePool) -> Result<PoolConnection<Sqlite>, StoreError> {
    let until = Instant::now() + BUSY_TIMEOUT;
    loop {
        match pool.acquire().await {
            // Where processes make the same file at once, one takes a lock that SQLite does not let the others wait for.
            Err(error) if is_busy(&error) && Instant::now() < until => sleep(CONNECT_PAUSE).await,
            connection => return connection.map_err(failed("open the journal")),
        }
    }
}

/// Makes the schema, or refuses one that a newer build made.
async fn migrate(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    let context = "make the journal's schema";
    let version = version(connection).await.map_err(failed(context))?;
    match version {
        Some(VERSION) => Ok(()),
        Some(version) => Err(StoreError::new(
            StoreErrorKind::Refused,
            format!(
                "open the journal: it is at version {version}, and this build knows version {VERSION}; start the newer \
                 build, since this one would not keep all of its promises"
            ),
        )),
        None => {
            // Every statement can be repeated, so of two processes that come here at once the second changes nothing.
            let mut tx = sqlx::Connection::begin_with(connection, "begin immediate")
                .await
                .map_err(failed(context))?;
            let made = sqlx::raw_sql(SCHEMA).execute(&mut *tx).await;
            made.map_err(failed(context))?;
            tx.commit().await.map_err(failed(context))
        }
    }
}

async fn version(connection: &mut SqliteConnection) -> Result<Option<i64>, sqlx::Error> {
    let known = sqlx::query("select 1 from sqlite_master where type = 'table' and name = 'exactly_versions'");
    if known.fetch_optional(&mut *connection).await?.is_none() {
        return Ok(None);
    }
    let row = sqlx::query("select version from exactly_versions where table_name = 'exactly_journal'")
        .fetch_optional(connection)
        .await?;
    row.map(|row| row.try_get(0)).transpose()
}

async fn find(connection: &mut SqliteConnection, operation: &str) -> Result<Option<Written>, sqlx::Error> {
    let sql = "select key, digest, openings, due_at, expires_at, ending from exactly_journal where operation = ?";
    let row = sqlx::query(sql).bind(operation).fetch_optional(connection).await?;
    let Some(row) = row else { return Ok(None) };
    let openings: i64 = row.try_get(2)?;
    Ok(Some(Written {
        key: key(&row, 0)?,
        digest: row.try_get(1)?,
        is_shared: openings > 1,
        due: instant(&row, 3)?,
        expires: instant(&row, 4)?,
        ending: row.try_get::<Option<&str>, _>(5)?.map(ending).transpose()?,
    }))
}

/// Whether another operation on the same place has this key. One that did not happen has no use for it any more.
async fn is_key_taken(connection: &mut SqliteConnection, entry: &Entry) -> Result<bool, sqlx::Error> {
    let sql = "select 1 from exactly_journal where key = ? and method = ? and place = ? and operation <> ? \
               and ending is not 'not_applied' limit 1";
    let other = sqlx::query(sql)
        .bind(entry.key.as_str())
        .bind(&entry.method)
        .bind(&entry.place)
        .bind(&entry.operation);
    Ok(other.fetch_optional(connection).await?.is_some())
}

async fn write(connection: &mut SqliteConnection, entry: &Entry, now: Timestamp) -> Result<(), sqlx::Error> {
    let sql = "insert or replace into exactly_journal \
               (operation, key, method, place, digest, openings, opened_at, due_at, expires_at) \
               values (?, ?, ?, ?, ?, 1, ?, ?, ?)";
    sqlx::query(sql)
        .bind(&entry.operation)
        .bind(entry.key.as_str())
        .bind(&entry.method)
        .bind(&entry.place)
        .bind(entry.digest.as_slice())
        .bind(timestamp(now))
        .bind(timestamp(now.after(entry.within)))
        .bind(timestamp(now.after(entry.expires_in)))
        .execute(connection)
        .await
        .map(drop)
}

async fn reopen(connection: &mut SqliteConnection, operation: &str, due: Timestamp) -> Result<(), sqlx::Error> {
    sqlx::query("update exactly_journal set openings = openings + 1, due_at = ? where operation = ?")
        .bind(timestamp(due))
        .bind(operation)
        .execute(connection)
        .await
        .map(drop)
}

fn unsettled(row: &SqliteRow, now: Timestamp) -> Result<Unsettled, sqlx::Error> {
    Ok(Unsettled {
        operation: row.try_get(0)?,
        key: key(row, 1)?,
        method: row.try_get(2)?,
        place: row.try_get(3)?,
        age: now.since(instant(row, 4)?),
        expires_in: instant(row, 5)?.since(now),
    })
}

fn key(row: &SqliteRow, column: usize) -> Result<Key, sqlx::Error> {
    Key::new(row.try_get::<String, _>(column)?).map_err(|error| sqlx::Error::Decode(error.into()))
}

fn ending(text: &str) -> Result<Ending, sqlx::Error> {
    [Ending::Applied, Ending::NotApplied, Ending::Unknown]
        .into_iter()
        .find(|ending| ending.as_str() == text)
        .ok_or_else(|| sqlx::Error::Decode(format!("no call ends as {text:?}").into()))
}
