//! Records in a SQLite file, next to the effects.

mod builder;
mod clock;
mod database;
mod decide;
mod file;
mod flush;
mod inspect;
#[cfg(feature = "journal")]
mod journal;
mod migrate;
mod novelty;
mod operate;
mod queue;
mod scribe;
mod settings;
mod sweep;
mod table;
mod turns;
mod tx;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sqlx::SqlitePool;

use exactly::store::{Reply, Watch};
use exactly::{Call, CallId, Claim, Fenced, Keep, Store, StoreError, Verdict};

pub use self::builder::SqliteStoreBuilder;
use self::database::Database;
use self::file::Beat;
#[cfg(feature = "journal")]
pub use self::journal::SqliteJournal;
pub use self::queue::{SqliteQueue, SqliteQueueBuilder};
pub use self::tx::SqliteTransaction;
use crate::batch::{Batcher, Write};
use crate::name::Name;

/// Keeps records in one table of a SQLite database.
///
/// A claim or an outcome is durable when the call returns: the file is in WAL mode, synced with every commit, and a
/// database with weaker settings is refused. Unlike a store that commits once per call, this one lets calls that arrive
/// during a commit share the next one, and answers replays from a snapshot that waits for no writer.
///
/// SQLite has one writer at a time. Batches and transactions of this process take turns in the order of their arrival;
/// against other processes and other connections, SQLite's own lock decides.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use exactly::{Call, Fingerprint, Keep, Key, Scope, TransactionalStore, Verdict};
/// use exactly_sql::SqliteStore;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.db");
/// let store = SqliteStore::open(&path).await?;
/// # sqlx::query("create table orders (tickets integer)").execute(store.pool()).await.unwrap();
/// let key = Key::new("order-1066").unwrap();
/// let call = Call::new(Scope::new("customer-7", "order.place"), key, Fingerprint::of("two tickets"));
///
/// // Effect and record commit together, or neither does.
/// let mut tx = store.open(std::time::Duration::from_secs(5)).await?;
/// let Verdict::Run(claim) = store.begin_in(&mut tx, &call).await? else { unreachable!("the key is fresh") };
/// sqlx::query("insert into orders values (2)").execute(&mut *tx).await.unwrap();
/// let _ = store.complete_in(&mut tx, &claim, &"ticket 12 and 13".into(), Keep::DAY).await?;
/// store.commit(tx).await?;
/// # Ok::<_, exactly::StoreError>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct SqliteStore {
    database: Arc<Database>,
    batcher: Batcher,
    beat: Arc<Beat>,
}

impl SqliteStore {
    /// A store [at](Self::at) `path` with the defaults.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::at(path).start().await
    }

    /// A store in the file at `path`, which may also be a `sqlite:` URL, with connections of its own and durable settings.
    /// The file is created if it is missing.
    pub fn at(path: impl AsRef<Path>) -> SqliteStoreBuilder {
        SqliteStoreBuilder::at(path.as_ref())
    }

    /// A store in the database of `pool`, so that a handler's effects and its records can commit together. The pool's
    /// settings are checked: they have to be durable.
    pub fn builder(pool: SqlitePool) -> SqliteStoreBuilder {
        SqliteStoreBuilder::on(pool)
    }

    /// What [`migrate`](SqliteStoreBuilder::migrate) does to an empty database, as SQL text. Running it again changes
    /// nothing.
    pub fn migrations_sql(table: &Name) -> String {
        migrate::sql(&migrate::CALLS, table)
    }

    /// The connections to the database, for effects and for reading what they did.
    pub fn pool(&self) -> &SqlitePool {
        &self.database.pool
    }

    /// Wakes those who wait for `id` in this process. For after the commit of a transaction of your own, in which
    /// [`complete_within`](Self::complete_within) was called; without it they find out at their next poll.
    pub fn wake(&self, id: &CallId) {
        self.database.wakeups.wake(id);
    }
}

impl Store for SqliteStore {
    fn begin<'a>(&'a self, call: &'a Call) -> Reply<'a, Verdict> {
        Box::pin(self.batcher.begin(call))
    }

    fn peek<'a>(&'a self, call: &'a Call) -> Reply<'a, Option<Verdict>> {
        Box::pin(self.batcher.peek(call))
    }

    fn renew<'a>(&'a self, claim: &'a Claim, lease: Duration) -> Reply<'a, Fenced> {
        Box::pin(self.batcher.write(Write::Renew {
            claim: claim.clone(),
            lease,
        }))
    }

    fn complete<'a>(&'a self, claim: &'a Claim, outcome: &'a Bytes, keep: Keep) -> Reply<'a, Fenced> {
        Box::pin(self.batcher.write(Write::Complete {
            claim: claim.clone(),
            outcome: outcome.clone(),
            keep,
        }))
    }

    fn abandon<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        Box::pin(self.batcher.write(Write::Abandon { claim: claim.clone() }))
    }

    fn lose<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        Box::pin(self.batcher.write(Write::Lose { claim: claim.clone() }))
    }

    fn sweep(&self, limit: u32) -> Reply<'_, u32> {
        Box::pin(self.database.sweep(limit))
    }

    fn watch(&self, id: &CallId) -> Watch {
        self.database.wakeups.watch(id)
    }
}
