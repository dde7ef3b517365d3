//! What operators do, and the trail that it leaves.

use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, Row, SqliteConnection};
use tokio::time::timeout;

use exactly::clock::{Timestamp, millis};
use exactly::store::{Note, Noted, Operate, Reply, TrailFilter};
use exactly::{CallId, Claim, Fenced, StoreError, StoreErrorKind};

use super::SqliteStore;
use super::database::{Database, TURN_WAIT_MAX, exec, read_clock, recover_writer, write_clock};
use super::table::{fixed, instant, sql, timestamp, unsigned};
use crate::batch::Write;
use crate::error::failed;
use crate::name::TRAIL;

impl Operate for SqliteStore {
    fn forget<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        Box::pin(self.batcher.write(Write::Forget { claim: claim.clone() }))
    }

    fn note<'a>(&'a self, note: &'a Note) -> Reply<'a, ()> {
        Box::pin(self.database.note(note))
    }

    fn trail<'a>(&'a self, filter: &'a TrailFilter) -> Reply<'a, Vec<Noted>> {
        Box::pin(self.database.trail(filter))
    }

    fn now(&self) -> Reply<'_, Timestamp> {
        Box::pin(self.database.now())
    }
}

impl Database {
    async fn note(&self, note: &Note) -> Result<(), StoreError> {
        let Ok(mut turn) = timeout(TURN_WAIT_MAX, self.turn.lock()).await else {
            let waited = TURN_WAIT_MAX.as_secs();
            let context = format!("add to the trail: a transaction held the write lock for {waited} s");
            return Err(StoreError::new(StoreErrorKind::Unavailable, context));
        };
        let mut connection = self.take(&mut turn).await?;
        match self.write_note(&mut connection, note).await {
            Ok(()) => {
                turn.put_back(connection);
                Ok(())
            }
            Err(error) => {
                recover_writer(&mut turn, connection, &error).await;
                Err(failed("add to the trail")(error))
            }
        }
    }

    async fn write_note(&self, connection: &mut SqliteConnection, note: &Note) -> Result<(), sqlx::Error> {
        exec(connection, "begin immediate").await?;
        let clock = read_clock(connection).await?;
        let now = self.clock.now(clock);
        if let Some(row) = self.clock.due(clock, now) {
            write_clock(connection, row).await?;
        }
        let insert = format!(
            "insert into {TRAIL} (noted_at, table_name, call, actor, action, detail) values (?, ?, ?, ?, ?, ?)"
        );
        sqlx::query(sql(insert))
            .bind(timestamp(now))
            .bind(self.table.as_str())
            .bind(note.call.as_ref().map(|call| call.as_bytes().as_slice()))
            .bind(note.actor.as_str())
            .bind(note.action.as_str())
            .bind(note.detail.as_str())
            .execute(&mut *connection)
            .await?;
        // Of the oldest only, so that the look is as short as the deletion.
        let drop_old = format!(
            "delete from {TRAIL} where noted_at <= ? and number in (select number from {TRAIL} order by number limit ?)"
        );
        let before = now.as_millis().saturating_sub(millis(Noted::KEEP));
        sqlx::query(sql(drop_old))
            .bind(timestamp(Timestamp::from_millis(before)))
            .bind(i64::from(Noted::DROPPED_MAX))
            .execute(&mut *connection)
            .await?;
        exec(connection, "commit").await
    }

    async fn trail(&self, filter: &TrailFilter) -> Result<Vec<Noted>, StoreError> {
        let context = "read the trail";
        let (text, arguments) = self
            .look_back(filter)
            .map_err(sqlx::Error::Encode)
            .map_err(failed(context))?;
        let _turn = self.turn_to_read().await;
        let mut connection = self.pool.acquire().await.map_err(failed(context))?;
        let rows = sqlx::query_with(sql(text), arguments).fetch_all(&mut *connection).await;
        let noted: Result<_, _> = rows.map_err(failed(context))?.iter().map(noted).collect();
        noted.map_err(failed(context))
    }

    fn look_back(&self, filter: &TrailFilter) -> Result<(String, SqliteArguments), sqlx::error::BoxDynError> {
        let mut arguments = SqliteArguments::default();
        let after = filter.after.unwrap_or(0);
        arguments.add(i64::try_from(after).unwrap_or(i64::MAX))?;
        arguments.add(self.table.as_str())?;
        let mut only = "";
        if let Some(call) = &filter.call {
            only = " and call = ?";
            arguments.add(call.as_bytes().as_slice())?;
        }
        arguments.add(i64::from(filter.limit.clamp(1, TrailFilter::LIMIT_MAX)))?;
        let text = format!(
            "select number, noted_at, call, actor, action, detail from {TRAIL} \
             where number > ? and table_name = ?{only} order by number limit ?"
        );
        Ok((text, arguments))
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let context = "read the store's clock";
        let _turn = self.turn_to_read().await;
        let mut connection = self.pool.acquire().await.map_err(failed(context))?;
        let row = read_clock(&mut connection).await.map_err(failed(context))?;
        Ok(self.clock.now(row))
    }
}

fn noted(row: &SqliteRow) -> Result<Noted, sqlx::Error> {
    let call = match row.try_get::<Option<&[u8]>, _>(2)? {
        Some(_) => Some(CallId::from_bytes(fixed(row, 2)?)),
        None => None,
    };
    Ok(Noted {
        number: unsigned(row, 0)?,
        at: instant(row, 1)?,
        note: Note {
            call,
            actor: row.try_get(3)?,
            action: row.try_get(4)?,
            detail: row.try_get(5)?,
        },
    })
}
