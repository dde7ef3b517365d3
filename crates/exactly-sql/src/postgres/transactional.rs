//! Records in the caller's transaction.

use std::time::Duration;

use bytes::Bytes;
use exactly::clock::Timestamp;
use exactly::store::Reply;
use exactly::store::record::{self, Change, Record};
use exactly::{Attempt, Call, Claim, Fenced, Keep, StoreError, TransactionalStore, Verdict};
use sqlx::postgres::{PgBindIterExt as _, PgRow};
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row as _, Transaction};

use super::failure::is_lock_timeout;
use super::group::keep_code;
use super::row::{PgTime, StoredRecord, attempt_code, millis_code, on_lost_code};
use super::session::{ACQUIRE_TIMEOUT, within};
use super::settle::Columns;
use super::{PgStore, check_text};
use crate::error::failed;

/// The longest that a begin waits for another transaction.
const LOCK_WAIT_MAX: Duration = Duration::from_mins(1);

/// How long one statement may take, waiting for locks included.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(70);

/// How long a commit or a rollback may take.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// What is told about a key that an open transaction holds, whose end nobody knows.
const HELD_RETRY_AFTER: Duration = Duration::from_secs(1);

/// What the sessions of the callers' pool start with.
#[derive(Debug)]
pub(super) struct Defaults {
    /// What the effect gets back once its transaction holds the record's row.
    lock_timeout: String,
    /// Opens a transaction that is read committed, so that a begin that waited for another one can read what it left.
    begin: &'static str,
}

impl Defaults {
    pub(super) async fn read(conn: &mut PgConnection) -> Result<Self, sqlx::Error> {
        let sql = "select current_setting('lock_timeout'), current_setting('default_transaction_isolation')";
        let row = sqlx::query(sql).fetch_one(conn).await?;
        // Said only where it makes a difference: it costs a few per cent of a whole transaction.
        let begin = match row.try_get(1)? {
            "read committed" => "begin",
            _ => "begin isolation level read committed",
        };
        Ok(Self {
            lock_timeout: row.try_get(0)?,
            begin,
        })
    }
}

impl TransactionalStore for PgStore {
    type Tx = Transaction<'static, Postgres>;

    fn open(&self, lock_wait: Duration) -> Reply<'_, Self::Tx> {
        let begin = format!(
            "{}; set local lock_timeout = {}",
            self.defaults.begin,
            lock_ms(lock_wait)
        );
        Box::pin(async move {
            let opening = self.pool.begin_with(AssertSqlSafe(begin));
            let opened = tokio::time::timeout(ACQUIRE_TIMEOUT, opening).await;
            opened
                .unwrap_or(Err(sqlx::Error::PoolTimedOut))
                .map_err(failed("open transaction"))
        })
    }

    fn begin_in<'a>(&'a self, tx: &'a mut Self::Tx, call: &'a Call) -> Reply<'a, Verdict> {
        Box::pin(async move {
            check_text(call)?;
            match within(STATEMENT_TIMEOUT, self.claim(tx, call, &self.defaults.lock_timeout)).await {
                Err(error) if is_lock_timeout(&error) => Ok(held()),
                answer => answer.map_err(failed("begin record in transaction")),
            }
        })
    }

    fn complete_in<'a>(
        &'a self,
        tx: &'a mut Self::Tx,
        claim: &'a Claim,
        outcome: &'a Bytes,
        keep: Keep,
    ) -> Reply<'a, Fenced> {
        Box::pin(self.complete_within(tx, claim, outcome, keep))
    }

    fn commit(&self, tx: Self::Tx) -> Reply<'_, ()> {
        Box::pin(async move {
            within(END_TIMEOUT, tx.commit())
                .await
                .map_err(failed("commit transaction"))
        })
    }

    fn rollback(&self, tx: Self::Tx) -> Reply<'_, ()> {
        Box::pin(async move {
            within(END_TIMEOUT, tx.rollback())
                .await
                .map_err(failed("roll back transaction"))
        })
    }
}

impl PgStore {
    /// Claims the call inside a transaction of the caller's own, or says why not. Waits at most `lock_wait` for another
    /// transaction that holds the key, and then says `InFlight`.
    ///
    /// The transaction is still good after every verdict: the begin runs behind a savepoint, and `lock_timeout` is
    /// afterwards what it was. Use read committed; under a stricter isolation a begin that had to wait fails with a
    /// serialization error, and the whole transaction has to be repeated.
    pub async fn begin_within(
        &self,
        conn: &mut PgConnection,
        call: &Call,
        lock_wait: Duration,
    ) -> Result<Verdict, StoreError> {
        check_text(call)?;
        let begun = within(STATEMENT_TIMEOUT, self.claim_behind_savepoint(conn, call, lock_wait)).await;
        begun.map_err(failed("begin record within transaction"))
    }

    /// In flight → done, inside a transaction of the caller's own.
    pub async fn complete_within(
        &self,
        conn: &mut PgConnection,
        claim: &Claim,
        outcome: &Bytes,
        keep: Keep,
    ) -> Result<Fenced, StoreError> {
        let completed = within(STATEMENT_TIMEOUT, self.complete_on(conn, claim, outcome, keep)).await;
        completed.map_err(failed("complete record in transaction"))
    }

    async fn claim_behind_savepoint(
        &self,
        conn: &mut PgConnection,
        call: &Call,
        lock_wait: Duration,
    ) -> Result<Verdict, sqlx::Error> {
        let before = format!(
            "select current_setting('lock_timeout'); savepoint exactly_begin; set local lock_timeout = {}",
            lock_ms(lock_wait)
        );
        let rows = sqlx::raw_sql(AssertSqlSafe(before)).fetch_all(&mut *conn).await?;
        let lock_timeout: String = rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)?;
        let (after, verdict) = match self.claim(conn, call, &lock_timeout).await {
            Ok(verdict) => (
                format!("set local lock_timeout = '{lock_timeout}'; release savepoint exactly_begin"),
                verdict,
            ),
            // Rolling back to the savepoint takes back the setting too.
            Err(error) if is_lock_timeout(&error) => (
                "rollback to savepoint exactly_begin; release savepoint exactly_begin".to_owned(),
                held(),
            ),
            Err(error) => return Err(error),
        };
        sqlx::raw_sql(AssertSqlSafe(after)).execute(conn).await?;
        Ok(verdict)
    }

    /// One round trip for a key never seen, two for an answer that takes no change.
    async fn claim(&self, tx: &mut PgConnection, call: &Call, lock_timeout: &str) -> Result<Verdict, sqlx::Error> {
        let claimed = self
            .sql
            .claim
            .query()
            .bind(call.id().as_bytes())
            .bind(call.fingerprint().as_bytes())
            .bind(*call.token().as_bytes())
            .bind(millis_code(call.lease()))
            .bind(on_lost_code(call.on_lost()))
            .bind(call.scope().principal())
            .bind(call.scope().operation())
            .bind(call.key().as_str())
            .bind(lock_timeout)
            .execute(&mut *tx)
            .await?;
        if claimed.rows_affected() > 0 {
            return Ok(Verdict::Run(call.claim(Attempt::FIRST)));
        }
        if let Some(row) = self
            .sql
            .read_one
            .query()
            .bind(call.id().as_bytes())
            .fetch_optional(&mut *tx)
            .await?
        {
            let (now, stored) = read(&row)?;
            if let (Change::Keep, verdict) = record::begin(Some(&stored.record), call, now) {
                return Ok(verdict);
            }
        }
        self.claim_locked(tx, call, lock_timeout).await
    }

    /// The row was committed while we waited for it, or has to be taken over.
    async fn claim_locked(
        &self,
        tx: &mut PgConnection,
        call: &Call,
        lock_timeout: &str,
    ) -> Result<Verdict, sqlx::Error> {
        let row = self
            .sql
            .lock_one
            .query()
            .bind(call.id().as_bytes())
            .fetch_optional(&mut *tx)
            .await?;
        let Some(row) = row else {
            // Deleted since: begin from the start. Whoever deletes, sweep or abandon, does so once per row.
            return Box::pin(self.claim(tx, call, lock_timeout)).await;
        };
        let (now, stored) = read(&row)?;
        let (change, verdict) = record::begin(Some(&stored.record), call, now);
        if let Change::Put(record) = change {
            self.put(tx, call, &record, stored.waited, now).await?;
        }
        if matches!(verdict, Verdict::Run(_)) {
            sqlx::query("select set_config('lock_timeout', $1, true)")
                .bind(lock_timeout)
                .execute(tx)
                .await?;
        }
        Ok(verdict)
    }

    async fn put(
        &self,
        tx: &mut PgConnection,
        call: &Call,
        record: &Record,
        waited: bool,
        now: Timestamp,
    ) -> Result<(), sqlx::Error> {
        let columns = Columns::of(&record.state);
        let none: [&[u8]; 0] = [];
        self.sql
            .write
            .query()
            .bind(none.into_iter().bind_iter())
            .bind([call.id().as_bytes()].into_iter().bind_iter())
            .bind([record.fingerprint.as_bytes()].into_iter().bind_iter())
            .bind([record.token.as_bytes()].into_iter().bind_iter())
            .bind([attempt_code(record.attempt)].into_iter().bind_iter())
            .bind([columns.state].into_iter().bind_iter())
            .bind([columns.lease_ms].into_iter().bind_iter())
            .bind([columns.lease_until].into_iter().bind_iter())
            .bind([columns.on_lost].into_iter().bind_iter())
            .bind([columns.outcome].into_iter().bind_iter())
            .bind([columns.expires_at].into_iter().bind_iter())
            .bind([waited].into_iter().bind_iter())
            .bind([PgTime::from(now)].into_iter().bind_iter())
            .execute(tx)
            .await?;
        Ok(())
    }

    async fn complete_on(
        &self,
        tx: &mut PgConnection,
        claim: &Claim,
        outcome: &Bytes,
        keep: Keep,
    ) -> Result<Fenced, sqlx::Error> {
        let completed = self
            .sql
            .complete_one
            .query()
            .bind(claim.id.as_bytes())
            .bind(claim.token.as_bytes())
            .bind(outcome.as_ref())
            .bind(keep_code(keep))
            .execute(&mut *tx)
            .await?;
        if completed.rows_affected() > 0 {
            return Ok(Fenced::Applied);
        }
        // Superseded, or a repetition: nothing will be changed, so nothing needs to be locked.
        let row = self
            .sql
            .read_one
            .query()
            .bind(claim.id.as_bytes())
            .fetch_optional(tx)
            .await?;
        let Some(row) = row else { return Ok(Fenced::Superseded) };
        let (now, stored) = read(&row)?;
        Ok(record::complete(Some(&stored.record), claim, outcome, keep, now).1)
    }
}

fn read(row: &PgRow) -> Result<(Timestamp, StoredRecord), sqlx::Error> {
    Ok((row.try_get::<PgTime, _>(0)?.into(), StoredRecord::read(row, 1)?))
}

fn held() -> Verdict {
    Verdict::InFlight {
        retry_after: HELD_RETRY_AFTER,
    }
}

/// At least a millisecond: PostgreSQL reads zero as no limit at all.
fn lock_ms(lock_wait: Duration) -> u128 {
    lock_wait.min(LOCK_WAIT_MAX).as_millis().max(1)
}
