//! The transaction that a handler gets.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use exactly::CallId;
use exactly::store::Wakeups;
use sqlx::{AssertSqlSafe, Connection as _, Database, PgConnection, Postgres, SqlSafeStr as _};
use sqlx_core::transaction::TransactionManager as _;

use super::failure::{is_stale_plan, is_timeout};
use super::lend::{Lender, Lent};
use super::queue::Announcer;
use super::session::{ACQUIRE_TIMEOUT, within};

/// What sqlx's own transaction is made of, which holds on to its connection: it could never be closed.
pub(super) type Manager = <Postgres as Database>::TransactionManager;

/// How long committing or rolling back may take.
pub(super) const END_TIMEOUT: Duration = Duration::from_secs(10);

/// An open transaction on a connection of the callers' pool.
///
/// It derefs to the connection, so `&mut *tx` runs the effect's statements. Dropping it rolls back. It commits through
/// [`commit`](exactly::TransactionalStore::commit) only.
///
/// One that follows another closely was begun by the message that committed that one, so its `now()` may be some milliseconds older than its
/// opening; `clock_timestamp()` is not.
pub struct PgTransaction {
    // `None` only once the transaction has ended.
    conn: Option<Lent>,
    lender: Arc<Lender>,
    /// What opened it, to open it again.
    begin: &'static str,
    pub(super) lock_wait: Duration,
    /// Whether the connection can be used again. Not while an answer is due that nobody waited for, and not before the
    /// transaction is known to be open: it would be left open in the pool.
    whole: bool,
    /// Whether nothing was done in it yet that would be lost by opening it again.
    fresh: bool,
    /// Whether it may have been aborted since the store's or a queue's last statement that went well.
    touched: bool,
    /// The queues that something has come to, of which their workers are told after the commit.
    arrivals: Vec<Arc<Announcer>>,
    /// Whom to wake after the commit.
    settled: Vec<(Wakeups, CallId)>,
}

impl PgTransaction {
    pub(super) async fn open(
        lender: &Arc<Lender>,
        begin: &'static str,
        lock_wait: Duration,
    ) -> Result<Self, sqlx::Error> {
        let mut lent = lender.lend().await?;
        let is_begun = lent.is_begun();
        lent.set_begun(false);
        let mut tx = Self {
            conn: Some(lent),
            lender: Arc::clone(lender),
            lock_wait,
            whole: is_begun,
            fresh: true,
            touched: true,
            arrivals: Vec::new(),
            settled: Vec::new(),
            begin,
        };
        if !is_begun {
            within(ACQUIRE_TIMEOUT, Manager::begin(tx.own(), Some(begin.into_sql_str()))).await?;
            tx.whole = true;
        }
        Ok(tx)
    }

    /// The connection, for statements of the store's or a queue's own.
    pub(super) fn own(&mut self) -> &mut PgConnection {
        self.lent()
    }

    fn lent(&mut self) -> &mut Lent {
        self.conn.as_mut().expect("the transaction is open")
    }

    /// The store has begun a record in it.
    pub(super) fn begun(&mut self) {
        self.fresh = false;
    }

    /// The store has completed a record in it, so up to here it is sound. Those who wait for it are woken by its commit,
    /// whoever commits it.
    pub(super) fn completed(&mut self, id: CallId, wakeups: &Wakeups) {
        self.sound();
        self.settled.push((wakeups.clone(), id));
    }

    /// There is something to tell this queue's workers of once it has committed.
    pub(super) fn arrives(&mut self, queue: &Arc<Announcer>) {
        if !self.arrivals.iter().any(|known| Arc::ptr_eq(known, queue)) {
            self.arrivals.push(Arc::clone(queue));
        }
    }

    /// A statement of the store's or a queue's own went well in it, so up to here it is sound.
    pub(super) fn sound(&mut self) {
        self.fresh = false;
        self.touched = false;
    }

    /// What the error of a statement of the store's or a queue's own means for the transaction, which is aborted by it, and
    /// for the connection.
    pub(super) async fn failed(&mut self, error: &sqlx::Error) {
        self.touched = true;
        let unanswered = is_timeout(error);
        self.fresh &= !unanswered;
        self.whole &= !unanswered && forget_stale_plans(self.own(), error).await.is_ok();
    }

    /// Opens it again after an error, if nothing but that statement is lost by it.
    pub(super) async fn reopen(&mut self) -> Result<bool, sqlx::Error> {
        if !self.fresh || !self.whole {
            return Ok(false);
        }
        let sql = format!("rollback; {}", self.begin);
        self.whole = false;
        let reopening = sqlx::raw_sql(AssertSqlSafe(sql)).execute(self.own());
        within(END_TIMEOUT, reopening).await?;
        self.whole = true;
        Ok(true)
    }

    /// Commits, and tells those who wait for what was committed: for calls in this process, for tasks everywhere. Others
    /// who wait for calls poll: a notification would serialise commits.
    ///
    /// On an error the connection is closed: whether it was before or after the commit, nothing is left open.
    pub(super) async fn commit(mut self) -> Result<(), sqlx::Error> {
        self.whole = false;
        // The server answers the commit of an aborted transaction with a rollback and calls it a success. After a statement of the
        // store's own that went well it cannot be aborted. The next one is begun by the same message, so for sqlx it is still this one.
        let first = if self.touched { "select" } else { "" };
        let sql = format!("{first}; commit; {}", self.begin);
        let conn = self.own();
        if Manager::get_transaction_depth(conn) != 1 {
            return Err(sqlx::Error::Protocol(
                "a transaction within it is still open".to_owned(),
            ));
        }
        within(END_TIMEOUT, sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn)).await?;
        self.lent().set_begun(true);
        self.give_back();
        self.arrivals.iter().for_each(|queue| queue.announce());
        self.settled.iter().for_each(|(wakeups, id)| wakeups.wake(id));
        Ok(())
    }

    /// Closes a connection that does not answer, which rolls back as well.
    pub(super) async fn rollback(mut self) {
        if !std::mem::replace(&mut self.whole, false) {
            return;
        }
        let conn = self.own();
        let rollback = within(END_TIMEOUT, async {
            while Manager::get_transaction_depth(conn) > 0 {
                Manager::rollback(conn).await?;
            }
            Ok(())
        });
        match rollback.await {
            Ok(()) => self.give_back(),
            Err(error) => tracing::debug!(%error, "roll back by closing the connection"),
        }
    }

    /// It has ended, and its connection is as good as before.
    fn give_back(&mut self) {
        if let Some(conn) = self.conn.take() {
            self.lender.take_back(conn);
        }
    }
}

impl Deref for PgTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.conn.as_ref().expect("the transaction is open")
    }
}

impl DerefMut for PgTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        // Opening it again would lose what is done from here on.
        self.fresh = false;
        self.touched = true;
        self.own()
    }
}

impl AsMut<PgConnection> for PgTransaction {
    fn as_mut(&mut self) -> &mut PgConnection {
        self
    }
}

impl fmt::Debug for PgTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settled: Vec<_> = self.settled.iter().map(|(_, id)| id).collect();
        f.debug_struct("PgTransaction")
            .field("settled", &settled)
            .finish_non_exhaustive()
    }
}

impl Drop for PgTransaction {
    fn drop(&mut self) {
        let Some(mut conn) = self.conn.take() else { return };
        if self.whole {
            // Sent before whatever the connection is used for next.
            while Manager::get_transaction_depth(&conn) > 0 {
                Manager::start_rollback(&mut conn);
            }
        } else {
            // The pool would ask it whether it is well, and wait for the answer.
            conn.close();
        }
    }
}

/// Makes the connection prepare its statements again if one of them no longer fits the table, or the server has lost it:
/// it would fail each time that the connection is used.
pub(super) async fn forget_stale_plans(conn: &mut PgConnection, error: &sqlx::Error) -> Result<(), sqlx::Error> {
    if is_stale_plan(error) {
        within(END_TIMEOUT, conn.clear_cached_statements()).await?;
    }
    Ok(())
}
