//! Connections of the callers' pool, lent to one transaction after the other.
//!
//! A pool asks each connection that comes back whether it is well, and waits for the answer: a round trip for each transaction, of the
//! four or five that it has. Where transactions follow each other closely, a connection therefore serves some of them before it goes
//! back, and the message that commits one begins the next. Nobody waits for it meanwhile: it is kept only while the pool has others, or
//! room for them, and for a short time. A transaction that is begun and has no statement yet holds nothing that others could wait for.

use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgPool, Postgres};
use sqlx_core::transaction::TransactionManager as _;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::session::acquire;
use super::tx::Manager;

/// How long a connection stays away from the pool, apart from the transaction that it serves then. After that the pool checks it, and those
/// who wait for one get it in their order.
const LENT_FOR: Duration = Duration::from_millis(20);

/// How long it waits for the next transaction.
const IDLE_FOR: Duration = Duration::from_millis(2);

/// Lends the connections of a pool.
#[derive(Debug)]
pub(super) struct Lender {
    pool: PgPool,
    idle: Arc<Mutex<Idle>>,
}

/// What waits for the next transaction. Under a std mutex, since it is held for a push or a pop and never across an await.
#[derive(Debug, Default)]
struct Idle {
    kept: Vec<(Lent, Instant)>,
    /// Whether somebody gives back what nobody takes.
    attended: bool,
    /// Where they were kept. What goes back to a pool needs one, and whoever drops the last of us may be outside of any.
    runtime: Option<Handle>,
}

impl Drop for Idle {
    fn drop(&mut self) {
        let _inside = self.runtime.as_ref().map(Handle::enter);
        self.kept.clear();
    }
}

/// A connection, which goes back to the pool when it is dropped.
#[derive(Debug)]
pub(super) struct Lent {
    // `None` only while it is being dropped.
    conn: Option<PoolConnection<Postgres>>,
    until: Instant,
    /// Whether it is in the next transaction already.
    begun: bool,
}

impl Lender {
    pub(super) fn new(pool: PgPool) -> Self {
        let idle = Arc::default();
        Self { pool, idle }
    }

    pub(super) async fn lend(&self) -> Result<Lent, sqlx::Error> {
        if let Some(lent) = self.kept() {
            return Ok(lent);
        }
        Ok(Lent {
            conn: Some(acquire(&self.pool).await?),
            until: Instant::now() + LENT_FOR,
            begun: false,
        })
    }

    /// One that waits for this transaction.
    fn kept(&self) -> Option<Lent> {
        let (lent, since) = lock(&self.idle).kept.pop()?;
        (is_fresh(&lent, since) && !self.pool.is_closed()).then_some(lent)
    }

    /// For a connection whose transaction has ended and on which nothing failed. It serves another one before it goes back while the pool
    /// has others for whoever wants one, or room for them.
    pub(super) fn take_back(&self, lent: Lent) {
        let most = self.pool.options().get_max_connections();
        let has_others = self.pool.num_idle() > 0 || self.pool.size() < most;
        if !has_others || lent.until <= Instant::now() || self.pool.is_closed() {
            return;
        }
        let mut idle = lock(&self.idle);
        idle.kept.push((lent, Instant::now()));
        if mem::replace(&mut idle.attended, true) {
            return;
        }
        idle.runtime = Some(Handle::current());
        drop(idle);
        // Not under the lock: a runtime that ends drops the attendant here, which wants it.
        tokio::spawn(attend(Attendant(Arc::downgrade(&self.idle))));
    }
}

fn is_fresh(lent: &Lent, since: Instant) -> bool {
    let now = Instant::now();
    since + IDLE_FOR > now && lent.until > now
}

/// Whoever gives back what nobody takes. If its runtime ends it, what is kept goes back, and another one is started for the next.
struct Attendant(Weak<Mutex<Idle>>);

impl Drop for Attendant {
    fn drop(&mut self) {
        let Some(idle) = self.0.upgrade() else { return };
        let (kept, runtime) = {
            let mut idle = lock(&idle);
            idle.attended = false;
            (mem::take(&mut idle.kept), idle.runtime.clone())
        };
        let _inside = runtime.as_ref().map(Handle::enter);
        drop(kept);
    }
}

/// Gives back to the pool what nobody has taken, until there is nothing.
async fn attend(mut attendant: Attendant) {
    loop {
        sleep(IDLE_FOR).await;
        let Some(idle) = attendant.0.upgrade() else { return };
        let (unused, is_over) = {
            let mut idle = lock(&idle);
            let all = mem::take(&mut idle.kept).into_iter();
            let (used, unused): (Vec<_>, Vec<_>) = all.partition(|(lent, since)| is_fresh(lent, *since));
            idle.kept = used;
            idle.attended = !idle.kept.is_empty();
            (unused, !idle.attended)
        };
        drop(unused);
        if is_over {
            attendant.0 = Weak::new();
            return;
        }
    }
}

fn lock(idle: &Mutex<Idle>) -> MutexGuard<'_, Idle> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lent {
    pub(super) fn is_begun(&self) -> bool {
        self.begun
    }

    pub(super) fn set_begun(&mut self, begun: bool) {
        self.begun = begun;
    }

    /// Takes it away from the pool, which then opens another one if it needs to.
    pub(super) fn close(&mut self) {
        self.begun = false;
        drop(self.conn.take().map(PoolConnection::detach));
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.begun {
            // Told together with what the pool asks.
            Manager::start_rollback(self);
        }
    }
}

impl Deref for Lent {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.conn.as_ref().expect("it is taken only when it is dropped")
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.conn.as_mut().expect("it is taken only when it is dropped")
    }
}
