//! Records in PostgreSQL.
//!
//! Concurrent steps of many callers travel as one statement and one commit, on connections of the store's own; steps
//! inside a caller's transaction travel on the caller's. The server's clock judges leases and retention.

mod builder;
mod checks;
mod deliver;
mod failure;
mod flush;
mod group;
mod inspect;
mod listen;
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

use self::listen::Listener;
use self::sql::Sql;
use self::sweep::Sweeper;
use self::transactional::Defaults;
use crate::batch::{Batcher, Write};

pub use self::builder::{PgStoreBuilder, migrations_sql};
pub use self::tx::PgTransaction;

/// Keeps records in one table of a PostgreSQL database.
///
/// With [`TransactionalStore`](exactly::TransactionalStore), a record commits in the same transaction as the effect.
/// Without, concurrent steps share statements and commits, and the cost of a call falls as the load rises.
///
/// Keeps up to `flushers + 2` connections open besides the pool's: one for each batch under way, one that sweeps and one
/// that listens. Up to four more are open while batches wait for keys that transactions hold. They use `LISTEN` and prepared statements, so between the
/// program and the server there may be a pooler in session mode, but not in transaction mode.
///
/// ```no_run
/// # async fn example() -> Result<(), exactly::StoreError> {
/// use exactly_sql::PgStore;
///
/// let store = PgStore::connect("postgres://localhost/shop").await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct PgStore {
    pool: PgPool,
    sql: Arc<Sql>,
    batcher: Batcher,
    wakeups: Wakeups,
    sweeper: Arc<Sweeper>,
    defaults: Arc<Defaults>,
    table: Arc<str>,
    _listener: Arc<Listener>,
}

impl PgStore {
    /// A store on a pool of its own, with the defaults of [`builder`](Self::builder).
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let pool = PgPool::connect(url)
            .await
            .map_err(crate::error::failed("connect to PostgreSQL"))?;
        Self::builder(pool).start().await
    }

    /// A store on a pool that the program uses for its effects too.
    pub fn builder(pool: PgPool) -> PgStoreBuilder {
        PgStoreBuilder::new(pool)
    }

    /// Where transactions come from.
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
