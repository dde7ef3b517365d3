//! Forgetting what is past its time.
//!
//! An index on the expiry would make every completion write two indexes more, so there is none: a sweep walks the table
//! in its physical order, a few pages per statement, and remembers where it stopped. Statements are short and lock only
//! what they delete, so nobody waits for a sweep.

use std::sync::Arc;
use std::time::Duration;

use exactly::StoreError;
use exactly::store::record::LOST_KEEP;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use tokio::sync::Mutex;

use super::row::millis_code;
use super::schema::Place;
use super::session::{BATCH_TIMEOUT, Sessions, within};
use super::sql::NOW;
use crate::error::failed;

/// How many records one statement deletes at most.
const SWEEP_BATCH: u32 = 500;

/// How many pages one statement looks at: a megabyte.
const PAGES: i64 = 128;

/// As long ago as anything can be: PostgreSQL has no time for what is much longer ago.
const AGE_MAX: Duration = Duration::from_hours(1000 * 366 * 24);

/// Deletes expired records.
#[derive(Debug)]
pub(super) struct Sweeper {
    sessions: Arc<Sessions>,
    delete: Arc<str>,
    pages: Arc<str>,
    /// The page to go on from. Locked for a whole sweep: two at once would only do the same work twice.
    cursor: Mutex<i64>,
}

impl Sweeper {
    pub(super) fn new(sessions: Arc<Sessions>, place: &Place) -> Self {
        let table = place.quoted();
        let expired = format!(
            "(state = 1 and expires_at <= {NOW}
                or state = 0 and on_lost = 1 and lease_until <= {NOW} - $3 * interval '1 millisecond')"
        );
        Self::of(sessions, &table, "id", &expired, "select count(*) from gone")
    }

    /// Deletes rows of `table` for which `expired` holds, a condition on the milliseconds `$3`. `then` counts what is
    /// `gone`, its `key` as `id`, and may delete more.
    pub(super) fn of(sessions: Arc<Sessions>, table: &str, key: &str, expired: &str, then: &str) -> Self {
        // A row that someone locks is about to be taken over or completed: leave it. Asked twice, because a row can be
        // taken over between the look at it and its lock, and only the second question is put to what is then there.
        let delete = format!(
            "with gone as (
                 delete from {table} where {expired} and ctid = any (array(
                     select ctid from {table}
                     where ctid >= $1::text::tid and ctid < $2::text::tid and {expired}
                     limit $4
                     for update skip locked))
                 returning {key} as id)
             {then}"
        );
        let pages = format!("select pg_relation_size('{table}') / current_setting('block_size')::int8");
        Self {
            sessions,
            delete: delete.into(),
            pages: pages.into(),
            cursor: Mutex::new(0),
        }
    }

    /// Deletes at most `limit` records, going around the table at most once.
    pub(super) async fn sweep(&self, limit: u32) -> Result<u32, StoreError> {
        self.sweep_older(LOST_KEEP, limit).await
    }

    /// The same for what is expired by `age`.
    pub(super) async fn sweep_older(&self, age: Duration, limit: u32) -> Result<u32, StoreError> {
        let age = age.min(AGE_MAX);
        let mut cursor = self.cursor.lock().await;
        let mut conn = self.sessions.take().await.map_err(failed("sweep records"))?;
        match self.sweep_on(&mut conn, &mut cursor, age, limit).await {
            Ok(deleted) => {
                self.sessions.give_back(conn);
                Ok(deleted)
            }
            Err(error) => {
                self.sessions.failed(&error);
                Err(failed("sweep records")(error))
            }
        }
    }

    async fn sweep_on(
        &self,
        conn: &mut PgConnection,
        cursor: &mut i64,
        age: Duration,
        limit: u32,
    ) -> Result<u32, sqlx::Error> {
        let pages = within(BATCH_TIMEOUT, self.pages(conn)).await?;
        let mut deleted = 0;
        let mut seen = 0;
        while deleted < limit && seen < pages {
            if *cursor >= pages {
                *cursor = 0;
            }
            let most = SWEEP_BATCH.min(limit - deleted);
            let count = within(BATCH_TIMEOUT, self.delete(conn, *cursor, age, most)).await?;
            deleted += count;
            if count < most {
                *cursor += PAGES;
                seen += PAGES;
            }
        }
        Ok(deleted)
    }

    async fn pages(&self, conn: &mut PgConnection) -> Result<i64, sqlx::Error> {
        sqlx::query(AssertSqlSafe(Arc::clone(&self.pages)))
            .fetch_one(conn)
            .await?
            .try_get(0)
    }

    async fn delete(&self, conn: &mut PgConnection, from: i64, age: Duration, most: u32) -> Result<u32, sqlx::Error> {
        let deleted: i64 = sqlx::query(AssertSqlSafe(Arc::clone(&self.delete)))
            .bind(format!("({from},0)"))
            .bind(format!("({},0)", from + PAGES))
            .bind(millis_code(age))
            .bind(i64::from(most))
            .fetch_one(conn)
            .await?
            .try_get(0)?;
        Ok(u32::try_from(deleted).unwrap_or(most))
    }
}
