//! What is remembered of schedules.

use bytes::Bytes;
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use exactly::clock::Timestamp;
use exactly::queue::{Book, Entry};
use exactly::store::Reply;

use super::SqliteQueue;
use super::inspect::read;
use super::table::moment;
use crate::error::failed;
use crate::sqlite::table::{instant, timestamp};

impl Book for SqliteQueue {
    fn write_schedule<'a>(&'a self, name: &'a str, definition: &'a Bytes, paused: Option<bool>) -> Reply<'a, ()> {
        const CONTEXT: &str = "write schedule";
        Box::pin(async move {
            let mut turn = self.begin(CONTEXT).await?;
            let write = sqlx::query(self.statements.write_schedule.clone())
                .bind(name)
                .bind(&definition[..])
                .bind(paused)
                .bind(timestamp(self.file.clock.calendar()))
                .bind(paused);
            let written = write.execute(&mut *turn.connection).await.map(drop);
            self.end(turn, written, |()| true, CONTEXT).await
        })
    }

    fn pause_schedule<'a>(&'a self, name: &'a str, paused: bool) -> Reply<'a, bool> {
        const CONTEXT: &str = "pause schedule";
        Box::pin(async move {
            let mut turn = self.begin(CONTEXT).await?;
            let pause = sqlx::query(self.statements.pause_schedule.clone())
                .bind(paused)
                .bind(timestamp(self.file.clock.calendar()))
                .bind(name);
            let paused = pause.execute(&mut *turn.connection).await;
            let paused = paused.map(|paused| paused.rows_affected() > 0);
            self.end(turn, paused, |paused| *paused, CONTEXT).await
        })
    }

    fn read_schedule<'a>(&'a self, name: &'a str) -> Reply<'a, Option<Entry>> {
        const CONTEXT: &str = "read schedule";
        Box::pin(async move {
            let (_turn, mut connection) = self.reader(CONTEXT).await?;
            let schedule = sqlx::query(self.statements.read_schedule.clone()).bind(name);
            let row = schedule.fetch_optional(&mut *connection).await;
            let row = row.map_err(failed(CONTEXT))?;
            row.map(|row| entry(&row)).transpose().map_err(failed(CONTEXT))
        })
    }

    fn schedules(&self) -> Reply<'_, Vec<Entry>> {
        const CONTEXT: &str = "list schedules";
        Box::pin(async move {
            let (_turn, mut connection) = self.reader(CONTEXT).await?;
            let schedules = sqlx::query(self.statements.schedules.clone());
            let rows = schedules.fetch_all(&mut *connection).await.map_err(failed(CONTEXT))?;
            read(&rows, entry, CONTEXT)
        })
    }

    fn erase_schedule<'a>(&'a self, name: &'a str) -> Reply<'a, bool> {
        const CONTEXT: &str = "erase schedule";
        Box::pin(async move {
            let mut turn = self.begin(CONTEXT).await?;
            let erase = sqlx::query(self.statements.erase_schedule.clone()).bind(name);
            let erased = erase.execute(&mut *turn.connection).await;
            let erased = erased.map(|erased| erased.rows_affected() > 0);
            self.end(turn, erased, |erased| *erased, CONTEXT).await
        })
    }

    fn advance_schedule<'a>(&'a self, name: &'a str, position: Timestamp) -> Reply<'a, ()> {
        const CONTEXT: &str = "advance schedule";
        Box::pin(async move {
            let mut turn = self.begin(CONTEXT).await?;
            let advance = sqlx::query(self.statements.advance_schedule.clone())
                .bind(timestamp(position))
                .bind(name);
            let advanced = advance.execute(&mut *turn.connection).await.map(drop);
            self.end(turn, advanced, |()| true, CONTEXT).await
        })
    }

    fn calendar(&self) -> Reply<'_, Timestamp> {
        Box::pin(async { Ok(self.file.clock.calendar()) })
    }
}

fn entry(row: &SqliteRow) -> Result<Entry, sqlx::Error> {
    Ok(Entry {
        name: row.try_get::<&str, _>(0)?.into(),
        definition: row.try_get::<Vec<u8>, _>(1)?.into(),
        paused: row.try_get(2)?,
        position: moment(row, 3)?,
        changed_at: instant(row, 4)?,
    })
}
