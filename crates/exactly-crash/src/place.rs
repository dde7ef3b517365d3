//! Where a round keeps its records and its effects.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use exactly_redis::RedisStore;
use exactly_sql::{PgQueue, PgStore, SqliteQueue, SqliteStore};
use serde::Serialize;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::failure::{Failure, Result, failed};
use crate::history::{Effect, Guarantee, Ledger};
use crate::ledger;

/// So few that leases and what waits are written down in both ways here.
const AT_ONCE: u32 = 4;

/// The most connections for handlers' transactions, per victim.
const CONNECTIONS_MAX: u32 = 8;

/// A durable store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StoreKind {
    /// A file.
    Sqlite,
    /// A server, shared by both victims.
    Postgres,
    /// A server with an append-only file, shared by both victims.
    Redis,
}

impl StoreKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Redis => "redis",
        }
    }

    pub(crate) fn promises(self, guarantee: Guarantee) -> bool {
        self != Self::Redis || guarantee == Guarantee::AtMostOnce
    }
}

/// A fresh place for one round.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) store: StoreKind,
    /// The server's address; none for a file.
    pub(crate) url: String,
    /// The schema or the prefix, which no other round has.
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
}

impl Place {
    /// Does `work` at a fresh place, which is gone afterwards. It must be over within `limit`.
    pub(crate) async fn fresh<T>(
        store: StoreKind,
        url: &str,
        limit: Duration,
        work: impl AsyncFnOnce(&Self) -> Result<T>,
    ) -> Result<T> {
        let folder = TempDir::with_prefix("exactly-crash-").map_err(failed("create folder"))?;
        let place = Self {
            store,
            url: url.to_owned(),
            name: format!("crash_{}_{:08x}", std::process::id(), fastrand::u32(..)),
            folder: folder.path().to_owned(),
        };
        place.prepare().await?;
        let worked = timeout(limit, work(&place)).await;
        let worked = worked.unwrap_or_else(|_| Err(Failure::new(format!("not over after {limit:?}"))));
        let discarded = place.discard().await;
        // What went wrong first tells more.
        let worked = worked?;
        discarded?;
        Ok(worked)
    }

    pub(crate) fn ledger_file(&self) -> PathBuf {
        self.folder.join("ledger")
    }

    pub(crate) fn effects_table(&self) -> String {
        match self.store {
            StoreKind::Postgres => format!("{}.crash_effects", self.name),
            StoreKind::Sqlite | StoreKind::Redis => "crash_effects".to_owned(),
        }
    }

    /// Where what no transaction of a queue reaches is written to.
    pub(crate) fn letters_table(&self) -> String {
        match self.store {
            StoreKind::Postgres => format!("{}.crash_letters", self.name),
            StoreKind::Sqlite | StoreKind::Redis => "crash_letters".to_owned(),
        }
    }

    /// Makes room for effects. The records' own tables are left to the victims, who may be killed in the midst of it.
    async fn prepare(&self) -> Result<()> {
        let (effects, letters) = (self.effects_table(), self.letters_table());
        // No key and no index for effects, on purpose: nothing but the store under test may keep one from being there
        // twice. A letter is there once, and it matters whose.
        let effects = format!(
            "create table {effects} (key text, nonce text, amount bigint);
             create table {letters} (key text primary key, nonce text, fence bigint)"
        );
        match self.store {
            StoreKind::Sqlite => {
                let mut connection = self.sqlite().connect().await.map_err(failed("create database"))?;
                let made = sqlx::raw_sql(AssertSqlSafe(effects)).execute(&mut connection).await;
                made.map_err(failed("create table of effects"))?;
                connection.close().await.map_err(failed("close database"))
            }
            StoreKind::Postgres => {
                self.on_postgres(format!("create schema {}; {effects}", self.name))
                    .await
            }
            StoreKind::Redis => Ok(()),
        }
    }

    /// Leaves nothing behind on a server that is not ours.
    async fn discard(&self) -> Result<()> {
        match self.store {
            StoreKind::Postgres => self.on_postgres(format!("drop schema {} cascade", self.name)).await,
            // The folder goes by itself, and what is in Redis expires.
            StoreKind::Sqlite | StoreKind::Redis => Ok(()),
        }
    }

    /// What really happened here.
    pub(crate) async fn ledger(&self, guarantee: Guarantee) -> Result<Ledger> {
        if guarantee == Guarantee::AtMostOnce {
            return ledger::read(&self.ledger_file());
        }
        Ok(Ledger {
            effects: self.rows(&self.effects_table(), "amount").await?,
            ..Ledger::default()
        })
    }

    /// The effects that transactions left: key and nonce.
    pub(crate) async fn effects(&self) -> Result<Vec<(String, String)>> {
        let effects = self.rows(&self.effects_table(), "amount").await?;
        Ok(effects.into_iter().map(|effect| (effect.key, effect.nonce)).collect())
    }

    /// What was written last for each key outside of them: key and nonce.
    pub(crate) async fn letters(&self) -> Result<Vec<(String, String)>> {
        let letters = self.rows(&self.letters_table(), "cast(1 as bigint)").await?;
        Ok(letters.into_iter().map(|letter| (letter.key, letter.nonce)).collect())
    }

    async fn rows(&self, table: &str, amount: &str) -> Result<Vec<Effect>> {
        let context = "read table of effects";
        let select = format!("select key, nonce, {amount} from {table}");
        let effects = match self.store {
            StoreKind::Sqlite => {
                let mut connection = self.sqlite().connect().await.map_err(failed(context))?;
                let rows = sqlx::query(AssertSqlSafe(select)).fetch_all(&mut connection).await;
                let rows = rows.map_err(failed(context))?;
                rows.iter().map(effect).collect::<Result<_, _>>()
            }
            StoreKind::Postgres | StoreKind::Redis => {
                let mut connection = self.postgres()?.connect().await.map_err(failed(context))?;
                let rows = sqlx::query(AssertSqlSafe(select)).fetch_all(&mut connection).await;
                let rows = rows.map_err(failed(context))?;
                rows.iter().map(effect).collect::<Result<_, _>>()
            }
        };
        effects.map_err(failed(context))
    }

    pub(crate) async fn open_sqlite(&self) -> Result<SqliteStore> {
        SqliteStore::open(self.sqlite_file())
            .await
            .map_err(failed("open SQLite store"))
    }

    pub(crate) async fn open_postgres(&self) -> Result<PgStore> {
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS_MAX);
        let pool = pool.connect_lazy_with(self.postgres()?);
        let store = PgStore::builder(pool).schema(&self.name).start().await;
        store.map_err(failed("open PostgreSQL store"))
    }

    pub(crate) async fn open_redis(&self) -> Result<RedisStore> {
        let store = RedisStore::at(&self.url).prefix(&self.name).start().await;
        store.map_err(failed("open Redis store"))
    }

    pub(crate) async fn open_sqlite_queue(&self) -> Result<SqliteQueue> {
        SqliteQueue::open(self.sqlite_file())
            .await
            .map_err(failed("open SQLite queue"))
    }

    pub(crate) async fn open_postgres_queue(&self) -> Result<PgQueue> {
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS_MAX);
        let pool = pool.connect_lazy_with(self.postgres()?);
        let queue = PgQueue::builder(pool).schema(&self.name);
        let queue = queue.bundle_from(AT_ONCE).sheaf_from(AT_ONCE);
        queue.start().await.map_err(failed("open PostgreSQL queue"))
    }

    fn sqlite_file(&self) -> PathBuf {
        Path::new(&self.folder).join("shop.db")
    }

    fn sqlite(&self) -> SqliteConnectOptions {
        SqliteConnectOptions::new()
            .filename(self.sqlite_file())
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
    }

    fn postgres(&self) -> Result<PgConnectOptions> {
        self.url
            .parse()
            .map_err(|error: sqlx::Error| failed("read PostgreSQL url")(error))
    }

    async fn on_postgres(&self, sql: String) -> Result<()> {
        let mut connection = self
            .postgres()?
            .connect()
            .await
            .map_err(failed("connect to PostgreSQL"))?;
        let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await;
        done.map_err(failed("prepare schema"))?;
        connection.close().await.map_err(failed("disconnect from PostgreSQL"))
    }
}

fn effect<'r, R>(row: &'r R) -> Result<Effect, Box<dyn std::error::Error + Send + Sync>>
where
    R: sqlx::Row,
    usize: sqlx::ColumnIndex<R>,
    String: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    i64: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
{
    Ok(Effect {
        key: row.try_get(0)?,
        nonce: row.try_get(1)?,
        amount: row.try_get::<i64, _>(2)?.try_into()?,
    })
}
