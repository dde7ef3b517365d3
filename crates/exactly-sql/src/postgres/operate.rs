//! What operators do, and the trail that it leaves.
//!
//! Numbers follow the order of commits: one note is written at a time. Two at once could commit in the other order than
//! their numbers were drawn, and whoever follows the trail by number would never see the first.

use std::sync::Arc;

use exactly::clock::{Timestamp, millis};
use exactly::store::{Note, Noted, Operate, Reply, TrailFilter};
use exactly::{CallId, Claim, Fenced, StoreError, StoreErrorKind};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, QueryBuilder, Row as _};

use tokio::sync::{Mutex, Semaphore};

use super::PgStore;
use super::failure::is_worth_repeating;
use super::flush::PAUSES;
use super::row::PgTime;
use super::schema::Place;
use super::session::{BATCH_TIMEOUT, Sessions, within};
use super::sql::NOW;
use crate::batch::Write;
use crate::error::failed;

/// How long a note waits for those before it. Less than a statement may take.
const TURN_WAIT_MS: u32 = 3_000;

/// How many questions are asked at once, each on a connection of its own.
const QUESTIONS_MAX: usize = 2;

/// The trail of one table's records.
#[derive(Debug)]
pub(super) struct Trail {
    sessions: Arc<Sessions>,
    look: String,
    table: String,
    turn: Arc<str>,
    write: Arc<str>,
    /// Notes of this process wait here, and not on a connection each.
    noting: Mutex<()>,
    questions: Semaphore,
}

impl Operate for PgStore {
    fn forget<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        Box::pin(self.batcher.write(Write::Forget { claim: claim.clone() }))
    }

    fn note<'a>(&'a self, note: &'a Note) -> Reply<'a, ()> {
        Box::pin(async move {
            check_text(note)?;
            self.trail.note(note).await.map_err(failed("add to the trail"))
        })
    }

    fn trail<'a>(&'a self, filter: &'a TrailFilter) -> Reply<'a, Vec<Noted>> {
        Box::pin(async move { self.trail.look_back(filter).await.map_err(failed("read the trail")) })
    }

    fn now(&self) -> Reply<'_, Timestamp> {
        Box::pin(async move { self.trail.now().await.map_err(failed("read the server's clock")) })
    }
}

impl Trail {
    pub(super) fn new(sessions: Arc<Sessions>, place: &Place) -> Self {
        let trail = place.trail();
        let turn = format!(
            "select set_config('lock_timeout', '{TURN_WAIT_MS}', true),
                    pg_advisory_xact_lock(hashtextextended('exactly notes {}', 0))",
            place.schema
        );
        // Of the oldest only, so that the look is as short as the deletion.
        let write = format!(
            "with gone as (
                 delete from {trail} where number = any (array(
                     select number from (select number, noted_at from {trail} order by number limit $7) oldest
                     where noted_at <= {NOW} - $6 * interval '1 millisecond'))
             )
             insert into {trail} (noted_at, table_name, call, actor, action, detail)
             values ({NOW}, $1, $2, $3, $4, $5)"
        );
        Self {
            sessions,
            look: format!("select number, noted_at, call, actor, action, detail from {trail} where table_name = "),
            table: place.table.as_str().to_owned(),
            turn: turn.into(),
            write: write.into(),
            noting: Mutex::default(),
            questions: Semaphore::new(QUESTIONS_MAX),
        }
    }

    async fn note(&self, note: &Note) -> Result<(), sqlx::Error> {
        let _turn = self.noting.lock().await;
        let mut pauses = PAUSES.into_iter();
        let mut conn = loop {
            let mut conn = self.sessions.take().await?;
            let error = match within(BATCH_TIMEOUT, self.write(&mut conn, note)).await {
                Ok(()) => break conn,
                Err(error) => error,
            };
            self.sessions.failed(&error);
            // Nothing was committed, so nothing is added twice.
            match pauses.next() {
                Some(pause) if is_worth_repeating(&error) => tokio::time::sleep(pause).await,
                _ => return Err(error),
            }
        };
        // Not repeated: it may have been carried out, and only who asked can say whether twice is better than never.
        let committed = within(BATCH_TIMEOUT, sqlx::query("commit").execute(&mut conn)).await;
        if let Err(error) = &committed {
            self.sessions.failed(error);
        }
        committed?;
        self.sessions.give_back(conn);
        Ok(())
    }

    /// Leaves the transaction open.
    async fn write(&self, conn: &mut PgConnection, note: &Note) -> Result<(), sqlx::Error> {
        sqlx::query("begin").execute(&mut *conn).await?;
        sqlx::query(AssertSqlSafe(Arc::clone(&self.turn)))
            .execute(&mut *conn)
            .await?;
        sqlx::query(AssertSqlSafe(Arc::clone(&self.write)))
            .bind(&self.table)
            .bind(note.call.as_ref().map(CallId::as_bytes))
            .bind(&note.actor)
            .bind(&note.action)
            .bind(&note.detail)
            .bind(i64::try_from(millis(Noted::KEEP)).unwrap_or(i64::MAX))
            .bind(i64::from(Noted::DROPPED_MAX))
            .execute(conn)
            .await
            .map(drop)
    }

    async fn look_back(&self, filter: &TrailFilter) -> Result<Vec<Noted>, sqlx::Error> {
        let query = || {
            let mut query = QueryBuilder::new(self.look.as_str());
            query.push_bind(self.table.as_str());
            if let Some(after) = filter.after {
                let after = i64::try_from(after).unwrap_or(i64::MAX);
                query.push(" and number > ").push_bind(after);
            }
            if let Some(call) = &filter.call {
                query.push(" and call = ").push_bind(*call.as_bytes());
            }
            let limit = filter.limit.clamp(1, TrailFilter::LIMIT_MAX);
            query.push(" order by number limit ").push_bind(i64::from(limit));
            query
        };
        self.rows(query).await?.iter().map(noted).collect()
    }

    async fn now(&self) -> Result<Timestamp, sqlx::Error> {
        let rows = self.rows(|| QueryBuilder::new(format!("select {NOW}"))).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        row.try_get::<PgTime, _>(0).map(Timestamp::from)
    }

    /// What a question finds, asked again while only the connection is to blame.
    async fn rows(&self, query: impl Fn() -> QueryBuilder<Postgres> + Send) -> Result<Vec<PgRow>, sqlx::Error> {
        let _place = self.questions.acquire().await;
        let mut pauses = PAUSES.into_iter();
        loop {
            let mut conn = self.sessions.take().await?;
            let error = match within(BATCH_TIMEOUT, query().build().fetch_all(&mut conn)).await {
                Ok(rows) => {
                    self.sessions.give_back(conn);
                    return Ok(rows);
                }
                Err(error) => error,
            };
            self.sessions.failed(&error);
            match pauses.next() {
                Some(pause) if is_worth_repeating(&error) => tokio::time::sleep(pause).await,
                _ => return Err(error),
            }
        }
    }
}

fn noted(row: &PgRow) -> Result<Noted, sqlx::Error> {
    let number: i64 = row.try_get(0)?;
    Ok(Noted {
        number: u64::try_from(number).map_err(|error| sqlx::Error::Decode(error.into()))?,
        at: row.try_get::<PgTime, _>(1)?.into(),
        note: Note {
            call: row.try_get::<Option<[u8; 32]>, _>(2)?.map(CallId::from_bytes),
            actor: row.try_get(3)?,
            action: row.try_get(4)?,
            detail: row.try_get(5)?,
        },
    })
}

/// PostgreSQL's text has no NUL.
fn check_text(note: &Note) -> Result<(), StoreError> {
    for (name, text) in [
        ("actor", &note.actor),
        ("action", &note.action),
        ("detail", &note.detail),
    ] {
        if text.contains('\0') {
            let context = format!(
                "add to the trail: the {name} contains a NUL character, which PostgreSQL cannot store; leave it out"
            );
            return Err(StoreError::new(StoreErrorKind::Other, context));
        }
    }
    Ok(())
}
