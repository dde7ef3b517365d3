//! Records in the caller's transaction.

use std::time::Duration;

use bytes::Bytes;
use exactly::clock::Timestamp;
use exactly::store::Reply;
use exactly::store::record::{self, Change, Record};
use exactly::{Attempt, Call, CallId, Claim, Fenced, Keep, StoreError, TransactionalStore, Verdict};
use sqlx::postgres::{PgBindIterExt as _, PgRow};
use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use super::failure::{is_lock_timeout, is_stale_plan};
use super::queue::{IDLE_TIMEOUT, least_silence};
use super::row::{PgTime, StoredRecord, attempt_code, millis_code, on_lost_code};
use super::session::within;
use super::settle::Columns;
use super::sql::{PgQuery, Text};
use super::tx::{PgTransaction, forget_stale_plans};
use super::{PgStore, check_text};
use crate::error::failed;

/// The longest that a begin waits for another transaction, whatever was asked for.
const LOCK_WAIT_MAX: Duration = Duration::from_mins(1);

/// How long the server may take to answer, besides waiting for locks.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a begin asks again whose row was deleted under its hands. Whoever deletes, sweep or abandon, does so once
/// per row.
pub(super) const ROUNDS_MAX: u32 = 16;

/// What is told about a key that an open transaction holds, whose end nobody knows.
const HELD_RETRY_AFTER: Duration = Duration::from_secs(1);

/// What the sessions of the callers' pool start with.
#[derive(Debug)]
pub(super) struct Defaults {
    /// What the effect gets back once its transaction holds the record's row.
    lock_timeout: String,
    /// Opens a transaction that is read committed, so that a begin that waited for another one can read what it left.
    pub(super) begin: &'static str,
    /// For how long a transaction may be silent.
    pub(super) idle_timeout: String,
    /// The same once it has recorded a task, in milliseconds.
    pub(super) silence: String,
    /// What makes commits durable, unless it is accepted that they are not.
    pub(super) synchronous_commit: Option<String>,
}

impl Defaults {
    pub(super) async fn read(conn: &mut PgConnection, synchronous_commit: Option<String>) -> Result<Self, sqlx::Error> {
        let sql = format!(
            "select current_setting('lock_timeout'), current_setting('default_transaction_isolation'),
                    current_setting('{IDLE_TIMEOUT}'), {}",
            least_silence()
        );
        let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(conn).await?;
        // Said only where it makes a difference: it costs a few per cent of a whole transaction.
        let begin = match row.try_get(1)? {
            "read committed" => "begin",
            _ => "begin isolation level read committed",
        };
        Ok(Self {
            lock_timeout: row.try_get(0)?,
            begin,
            idle_timeout: row.try_get(2)?,
            silence: row.try_get(3)?,
            synchronous_commit,
        })
    }
}

impl TransactionalStore for PgStore {
    type Tx = PgTransaction;

    /// [`begin_in`](Self::begin_in) waits at most `lock_wait` for a transaction that holds the key, and never longer than
    /// a minute.
    fn open(&self, lock_wait: Duration) -> Reply<'_, Self::Tx> {
        Box::pin(async move {
            let opened = PgTransaction::open(&self.lender, self.defaults.begin, lock_wait).await;
            opened.map_err(failed("open transaction"))
        })
    }

    fn begin_in<'a>(&'a self, tx: &'a mut Self::Tx, call: &'a Call) -> Reply<'a, Verdict> {
        Box::pin(async move {
            check_text(call)?;
            match self.begin_once_or_again(tx, call).await {
                Err(error) if is_lock_timeout(&error) => Ok(held()),
                answer => answer.map_err(failed("begin record")),
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
        Box::pin(async move {
            let completed = within(ANSWER_TIMEOUT, self.complete_on(tx.own(), claim, outcome, keep)).await;
            match &completed {
                Ok(_) => tx.completed(claim.id, &self.wakeups),
                Err(error) => tx.failed(error).await,
            }
            completed.map_err(failed("complete record"))
        })
    }

    /// Wakes those who wait for its calls in this process, and the workers of queues that tasks were enqueued on. Who waits
    /// for a call in another process polls: a notification would serialise commits.
    fn commit(&self, tx: Self::Tx) -> Reply<'_, ()> {
        Box::pin(async move { tx.commit().await.map_err(failed("commit transaction")) })
    }

    fn rollback(&self, tx: Self::Tx) -> Reply<'_, ()> {
        Box::pin(async move {
            tx.rollback().await;
            Ok(())
        })
    }
}

impl PgStore {
    /// Claims the call inside a transaction of the caller's own, or says why not. Waits at most `lock_wait`, and never
    /// longer than a minute, for another transaction that holds the key, and then says `InFlight`.
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
        let claim = self.claim_behind_savepoint(conn, call, lock_wait);
        let begun = within(answer_timeout(lock_wait), claim).await;
        if let Err(error) = &begun {
            let _ = forget_stale_plans(conn, error).await;
        }
        begun.map_err(failed("begin record"))
    }

    /// In flight → done, inside a transaction of the caller's own. After its commit, [`wake`](Self::wake) those who wait:
    /// nobody else does, in this process or another, and they find out at their next poll.
    pub async fn complete_within(
        &self,
        conn: &mut PgConnection,
        claim: &Claim,
        outcome: &Bytes,
        keep: Keep,
    ) -> Result<Fenced, StoreError> {
        let completed = within(ANSWER_TIMEOUT, self.complete_on(conn, claim, outcome, keep)).await;
        if let Err(error) = &completed {
            let _ = forget_stale_plans(conn, error).await;
        }
        completed.map_err(failed("complete record"))
    }

    /// Once more if a prepared statement was stale and nothing else is lost by it.
    async fn begin_once_or_again(&self, tx: &mut PgTransaction, call: &Call) -> Result<Verdict, sqlx::Error> {
        let limit = answer_timeout(tx.lock_wait);
        let lock = LockWait::new(tx.lock_wait, &self.defaults.lock_timeout);
        let mut begun = within(limit, self.claim(tx.own(), call, &lock)).await;
        if let Err(error) = &begun {
            tx.failed(error).await;
            if is_stale_plan(error) && tx.reopen().await? {
                begun = within(limit, self.claim(tx.own(), call, &lock)).await;
                if let Err(error) = &begun {
                    tx.failed(error).await;
                }
            }
        }
        tx.begun();
        begun
    }

    async fn claim_behind_savepoint(
        &self,
        conn: &mut PgConnection,
        call: &Call,
        lock_wait: Duration,
    ) -> Result<Verdict, sqlx::Error> {
        let before = "select current_setting('lock_timeout'); savepoint exactly_begin";
        let rows = sqlx::raw_sql(before).fetch_all(&mut *conn).await?;
        let lock_timeout: String = rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)?;
        let lock = LockWait::new(lock_wait, &lock_timeout);
        let (after, verdict) = match self.claim(conn, call, &lock).await {
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

    async fn claim(&self, tx: &mut PgConnection, call: &Call, lock: &LockWait<'_>) -> Result<Verdict, sqlx::Error> {
        for _ in 0..ROUNDS_MAX {
            if let Some(verdict) = self.claim_once(tx, call, lock).await? {
                return Ok(verdict);
            }
        }
        Ok(held())
    }

    /// One round trip for a key never seen, two for an answer that takes no change. Nothing if the row was deleted in
    /// between, or committed by the one that was waited for.
    async fn claim_once(
        &self,
        tx: &mut PgConnection,
        call: &Call,
        lock: &LockWait<'_>,
    ) -> Result<Option<Verdict>, sqlx::Error> {
        let run = || Some(Verdict::Run(call.claim(Attempt::FIRST)));
        let at_once = claim(&self.sql.claim, call).bind(lock_key(call.id()));
        if at_once.execute(&mut *tx).await?.rows_affected() > 0 {
            return Ok(run());
        }
        let found = self
            .sql
            .read_one
            .query()
            .bind(call.id().as_bytes())
            .fetch_optional(&mut *tx)
            .await?;
        if let Some(row) = found {
            let (now, stored) = read_record(&row)?;
            return match record::begin(Some(&stored.record), call, now) {
                (Change::Keep, verdict) => Ok(Some(verdict)),
                _ => self.claim_locked(tx, call, lock).await,
            };
        }
        let waiting = claim(&self.sql.claim_waiting, call).bind(&lock.limit).bind(lock.after);
        Ok(waiting.fetch_optional(tx).await?.and_then(|_| run()))
    }

    /// The row has to be taken over.
    async fn claim_locked(
        &self,
        tx: &mut PgConnection,
        call: &Call,
        lock: &LockWait<'_>,
    ) -> Result<Option<Verdict>, sqlx::Error> {
        set_local(tx, "lock_timeout", &lock.limit).await?;
        let row = self
            .sql
            .lock_one
            .query()
            .bind(call.id().as_bytes())
            .fetch_optional(&mut *tx)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let (now, stored) = read_record(&row)?;
        let (change, verdict) = record::begin(Some(&stored.record), call, now);
        if let Change::Put(record) = change {
            self.put(tx, call, &record, stored.waited, now).await?;
        }
        if matches!(verdict, Verdict::Run(_)) {
            set_local(tx, "lock_timeout", lock.after).await?;
        }
        Ok(Some(verdict))
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
}

/// A statement that claims, as far as all of them are alike.
fn claim<'q>(text: &Text, call: &'q Call) -> PgQuery<'q> {
    text.query()
        .bind(call.id().as_bytes())
        .bind(call.fingerprint().as_bytes())
        .bind(*call.token().as_bytes())
        .bind(millis_code(call.lease()))
        .bind(on_lost_code(call.on_lost()))
        .bind(call.scope().principal())
        .bind(call.scope().operation())
        .bind(call.key().as_str())
}

/// The part of a call's id that its advisory lock is named by.
fn lock_key(id: &CallId) -> i64 {
    let (first, _) = id.as_bytes().split_first_chunk().expect("an id has 32 bytes");
    i64::from_be_bytes(*first)
}

pub(super) fn read_record(row: &PgRow) -> Result<(Timestamp, StoredRecord), sqlx::Error> {
    Ok((row.try_get::<PgTime, _>(0)?.into(), StoredRecord::read(row, 1)?))
}

fn held() -> Verdict {
    Verdict::InFlight {
        retry_after: HELD_RETRY_AFTER,
    }
}

pub(super) async fn set_local(tx: &mut PgConnection, setting: &str, value: &str) -> Result<(), sqlx::Error> {
    let set = sqlx::query("select set_config($1, $2, true)").bind(setting).bind(value);
    set.execute(tx).await.map(drop)
}

fn answer_timeout(lock_wait: Duration) -> Duration {
    lock_wait.min(LOCK_WAIT_MAX) + ANSWER_TIMEOUT
}

/// How long to wait for locks.
struct LockWait<'a> {
    /// For the record's row.
    limit: String,
    /// For everything after that.
    after: &'a str,
}

impl<'a> LockWait<'a> {
    fn new(limit: Duration, after: &'a str) -> Self {
        // At least a millisecond: PostgreSQL reads zero as no limit at all.
        let limit = limit.min(LOCK_WAIT_MAX).as_millis().max(1).to_string();
        Self { limit, after }
    }
}
