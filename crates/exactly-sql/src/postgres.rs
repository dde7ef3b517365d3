//! Records in PostgreSQL.
//!
//! Concurrent steps of many callers travel as one statement and one commit, on connections of the store's own; steps
//! inside a caller's transaction travel on the caller's. The server's clock judges leases and retention.

mod builder;
mod checks;
mod complete;
mod deliver;
mod failure;
mod flush;
mod group;
mod held;
mod inspect;
mod lend;
mod listen;
mod operate;
mod queue;
mod row;
mod schema;
mod session;
mod settle;
mod sql;
mod sweep;
mod transactional;
mod tx;
mod work;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exactly::store::{Reply, Wakeups, Watch};
use exactly::{Call, CallId, Claim, Fenced, Keep, Store, StoreError, StoreErrorKind, Verdict};
use sqlx::PgPool;

use self::lend::Lender;
use self::listen::Listener;
use self::operate::Trail;
use self::schema::{Layout, Place};
use self::sql::Sql;
use self::sweep::Sweeper;
use self::transactional::Defaults;
use crate::batch::{Batcher, Write};
use crate::name::Name;

pub use self::builder::PgStoreBuilder;
pub use self::queue::{PgQueue, PgQueueBuilder};
pub use self::tx::PgTransaction;

/// Keeps records in one table of a PostgreSQL database.
///
/// With [`TransactionalStore`](exactly::TransactionalStore), a record commits in the same transaction as the effect.
/// Without, concurrent steps share statements and commits, and the cost of a call falls as the load rises.
///
/// Transactions that follow each other within milliseconds share a connection of the pool while that has others, so its `before_acquire` and
/// `after_release` are called around all of them: what one sets for its session, the next one finds.
///
/// Keeps up to `flushers + 2` connections open besides the pool's: one for each batch under way, one that sweeps and one
/// that listens. One more is open while records are asked for that transactions elsewhere hold, and up to four while batches wait for keys
/// that transactions are making. They use `LISTEN` and prepared statements, so between the
/// program and the server there may be a pooler in session mode, but not in transaction mode.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use exactly::{Call, Fingerprint, Keep, Key, Scope, TransactionalStore, Verdict};
/// use exactly_sql::PgStore;
///
/// let store = PgStore::open("postgres://localhost/shop").await?;
/// let key = Key::new("order-1066")?;
/// let call = Call::new(Scope::new("customer-7", "order.place"), key, Fingerprint::of("two tickets"));
///
/// // Effect and record commit together, or neither does.
/// let mut tx = store.open(std::time::Duration::from_secs(5)).await?;
/// if let Verdict::Run(claim) = store.begin_in(&mut tx, &call).await? {
///     sqlx::query("insert into orders values (2)").execute(&mut *tx).await?;
///     let _ = store.complete_in(&mut tx, &claim, &"ticket 12 and 13".into(), Keep::DAY).await?;
///     store.commit(tx).await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct PgStore {
    pool: PgPool,
    sql: Arc<Sql>,
    batcher: Batcher,
    wakeups: Wakeups,
    sweeper: Arc<Sweeper>,
    trail: Arc<Trail>,
    defaults: Arc<Defaults>,
    lender: Arc<Lender>,
    table: Arc<str>,
    _listener: Arc<Listener>,
}

impl PgStore {
    /// A store [at](Self::at) `url` with the defaults.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::at(url).start().await
    }

    /// A store on the server at `url`, with a pool of its own. The server ends its transactions when their process is cut
    /// off for about a minute, or stands still for five.
    pub fn at(url: &str) -> PgStoreBuilder {
        PgStoreBuilder::at(url)
    }

    /// A store in the database of `pool`, so that a handler's effects and its records can commit together. The pool's
    /// settings are checked: they have to be durable. A process that is cut off in the midst of a transaction holds its key
    /// until the server ends the session, so consider `tcp_keepalives_idle` and `idle_in_transaction_session_timeout`.
    pub fn builder(pool: PgPool) -> PgStoreBuilder {
        PgStoreBuilder::on(pool)
    }

    /// What [`migrate`](PgStoreBuilder::migrate) does to an empty database, as SQL text. Running it again changes nothing.
    pub fn migrations_sql(schema: &Name, table: &Name) -> String {
        Place {
            schema: schema.clone(),
            table: table.clone(),
            layout: Layout::Calls,
        }
        .script()
    }

    /// The connections to the database, for effects and for reading what they did.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Wakes those who wait for `id` in this process. For after the commit of a transaction of your own, in which
    /// [`complete_within`](Self::complete_within) was called; without it they find out at their next poll.
    pub fn wake(&self, id: &CallId) {
        self.wakeups.wake(id);
    }
}

impl fmt::Debug for PgStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The pool would show how to connect, password included.
        f.debug_struct("PgStore")
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

impl Store for PgStore {
    fn begin<'a>(&'a self, call: &'a Call) -> Reply<'a, Verdict> {
        Box::pin(async move {
            check_text(call)?;
            self.batcher.begin(call).await
        })
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
        Box::pin(self.sweeper.sweep(limit))
    }

    fn watch(&self, id: &CallId) -> Watch {
        self.wakeups.watch(id)
    }
}

/// PostgreSQL's text has no NUL. Caught here, because in a batch it would fail others too.
fn check_text(call: &Call) -> Result<(), StoreError> {
    let principal = call.scope().principal().unwrap_or_default();
    for (name, text) in [("principal", principal), ("operation", call.scope().operation())] {
        if text.contains('\0') {
            let context = format!("begin record: the {name} contains a NUL character, which PostgreSQL cannot store");
            return Err(StoreError::new(StoreErrorKind::Other, context));
        }
    }
    Ok(())
}
