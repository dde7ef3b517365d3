//! What errands write to, next to the queue.

use std::future::Future;

use exactly::queue::{Book, InspectQueue, TransactionalQueue};
use exactly_sql::{PgQueue, SqliteQueue};
use sqlx::AssertSqlSafe;

/// A queue whose database has room for effects.
pub(super) trait Desk: Book + InspectQueue + TransactionalQueue {
    /// Runs `sql`, which takes a key and a nonce, in this transaction.
    fn inside(
        tx: &mut Self::Tx,
        sql: String,
        key: String,
        nonce: String,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// The same in a transaction of its own.
    fn outside(&self, sql: String, key: String, nonce: String) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Runs `sql`, which takes a key, a nonce and a fence, in a transaction of its own, and says whether it changed
    /// anything.
    fn fenced(
        &self,
        sql: String,
        key: String,
        nonce: String,
        fence: i64,
    ) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;
}

/// The same for both databases; only sqlx's types differ.
macro_rules! desk {
    ($queue:ty) => {
        impl Desk for $queue {
            async fn inside(tx: &mut Self::Tx, sql: String, key: String, nonce: String) -> Result<(), sqlx::Error> {
                let query = sqlx::query(AssertSqlSafe(sql)).bind(key).bind(nonce);
                query.execute(&mut **tx).await.map(drop)
            }

            async fn outside(&self, sql: String, key: String, nonce: String) -> Result<(), sqlx::Error> {
                let query = sqlx::query(AssertSqlSafe(sql)).bind(key).bind(nonce);
                query.execute(self.pool()).await.map(drop)
            }

            async fn fenced(&self, sql: String, key: String, nonce: String, fence: i64) -> Result<bool, sqlx::Error> {
                let query = sqlx::query(AssertSqlSafe(sql)).bind(key).bind(nonce).bind(fence);
                let done = query.execute(self.pool()).await?;
                Ok(done.rows_affected() > 0)
            }
        }
    };
}

desk!(PgQueue);
desk!(SqliteQueue);
