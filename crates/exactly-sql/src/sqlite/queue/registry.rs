//! What is remembered beside tasks.

use bytes::Bytes;
use exactly::Fenced;
use exactly::queue::{Card, Registry, Revision};
use exactly::store::Reply;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqlStr};

use super::SqliteQueue;
use super::inspect::read;
use crate::error::failed;
use crate::prefix::behind_all;
use crate::sqlite::table::{instant, sql, timestamp};

/// The columns of a value by its name.
const CARD: &str = "name, value, revision, changed_at";

/// Every statement on the table of values.
#[derive(Debug)]
pub(super) struct CardStatements {
    add: SqlStr,
    change: SqlStr,
    read: SqlStr,
    list: SqlStr,
    erase: SqlStr,
}

impl CardStatements {
    pub(super) fn new(cards: &str) -> Self {
        Self {
            add: sql(format!(
                "insert into {cards} (name, revision, changed_at, value) values (?, ?, ?, ?) on conflict do nothing"
            )),
            change: sql(format!(
                "update {cards} set revision = ?, changed_at = ?, value = ? where name = ? and revision = ?"
            )),
            read: sql(format!("select {CARD} from {cards} where name = ?")),
            list: sql(format!(
                "select {CARD} from {cards} where name >= ? and name > ? and name < ? and substr(name, 1, length(?)) = ? \
                 order by name limit ?"
            )),
            erase: sql(format!("delete from {cards} where name = ? and revision = ?")),
        }
    }
}

impl Registry for SqliteQueue {
    fn write_card<'a>(
        &'a self,
        name: &'a str,
        value: &'a Bytes,
        over: Option<Revision>,
    ) -> Reply<'a, Option<Revision>> {
        const CONTEXT: &str = "write card";
        Box::pin(async move {
            let mut turn = self.begin(CONTEXT).await?;
            let now = self.file.clock.calendar();
            let revision = Revision::next(over, now);
            let write = match over {
                None => sqlx::query(self.statements.cards.add.clone())
                    .bind(name)
                    .bind(code(revision))
                    .bind(timestamp(now))
                    .bind(&value[..]),
                Some(over) => sqlx::query(self.statements.cards.change.clone())
                    .bind(code(revision))
                    .bind(timestamp(now))
                    .bind(&value[..])
                    .bind(name)
                    .bind(code(over)),
            };
            let written = write.execute(&mut *turn.connection).await;
            let written = written.map(|written| (written.rows_affected() > 0).then_some(revision));
            self.end(turn, written, Option::is_some, CONTEXT).await
        })
    }

    fn read_card<'a>(&'a self, name: &'a str) -> Reply<'a, Option<Card>> {
        const CONTEXT: &str = "read card";
        Box::pin(async move {
            let (_turn, mut connection) = self.reader(CONTEXT).await?;
            let row = sqlx::query(self.statements.cards.read.clone()).bind(name);
            let row = row.fetch_optional(&mut *connection).await.map_err(failed(CONTEXT))?;
            row.map(|row| card(&row)).transpose().map_err(failed(CONTEXT))
        })
    }

    fn cards<'a>(&'a self, prefix: &'a str, after: &'a str, limit: u32) -> Reply<'a, Vec<Card>> {
        const CONTEXT: &str = "list cards";
        Box::pin(async move {
            let (_turn, mut connection) = self.reader(CONTEXT).await?;
            let rows = sqlx::query(self.statements.cards.list.clone())
                .bind(prefix)
                .bind(after)
                .bind(behind_all(prefix))
                .bind(prefix)
                .bind(prefix)
                .bind(limit)
                .fetch_all(&mut *connection)
                .await;
            read(&rows.map_err(failed(CONTEXT))?, card, CONTEXT)
        })
    }

    fn erase_card<'a>(&'a self, name: &'a str, over: Revision) -> Reply<'a, Fenced> {
        const CONTEXT: &str = "erase card";
        Box::pin(async move {
            let mut turn = self.begin(CONTEXT).await?;
            let erase = sqlx::query(self.statements.cards.erase.clone())
                .bind(name)
                .bind(code(over));
            let erased = erase.execute(&mut *turn.connection).await;
            let erased = erased.map(|erased| match erased.rows_affected() {
                0 => Fenced::Superseded,
                _ => Fenced::Applied,
            });
            self.end(turn, erased, |erased| *erased == Fenced::Applied, CONTEXT)
                .await
        })
    }
}

fn card(row: &SqliteRow) -> Result<Card, sqlx::Error> {
    let revision: i64 = row.try_get(2)?;
    let revision = u64::try_from(revision).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
    Ok(Card {
        name: row.try_get::<&str, _>(0)?.into(),
        value: row.try_get::<Vec<u8>, _>(1)?.into(),
        revision: Revision::new(revision),
        changed_at: instant(row, 3)?,
    })
}

fn code(revision: Revision) -> i64 {
    i64::try_from(revision.get()).unwrap_or(i64::MAX)
}
