//! What is remembered beside tasks.

use bytes::Bytes;
use exactly::Fenced;
use exactly::queue::{Card, Registry, Revision};
use exactly::store::Reply;
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};

use super::PgQueue;
use super::enqueue::corrupt;
use crate::error::failed;
use crate::postgres::row::PgTime;
use crate::prefix::behind_all;

/// The milliseconds of the server's clock.
const NOW_MS: &str = "floor(1000 * extract(epoch from clock_timestamp()))::int8";

impl Registry for PgQueue {
    fn write_card<'a>(
        &'a self,
        name: &'a str,
        value: &'a Bytes,
        over: Option<Revision>,
    ) -> Reply<'a, Option<Revision>> {
        Box::pin(async move {
            let query = match over {
                None => self.add_card(name, value),
                Some(over) => self.change_card(name, value, over),
            };
            let rows = self.look(query).await.map_err(failed("write card"))?;
            let revision = rows.first().map(|row| revision(row, 0)).transpose();
            revision.map_err(failed("write card"))
        })
    }

    fn read_card<'a>(&'a self, name: &'a str) -> Reply<'a, Option<Card>> {
        Box::pin(async move {
            let mut query = self.select_cards();
            query.push(" where name = ").push_bind(name);
            let rows = self.look(query).await.map_err(failed("read card"))?;
            rows.first().map(card).transpose().map_err(failed("read card"))
        })
    }

    fn cards<'a>(&'a self, prefix: &'a str, after: &'a str, limit: u32) -> Reply<'a, Vec<Card>> {
        Box::pin(async move {
            let mut query = self.select_cards();
            query.push(" where name >= ").push_bind(prefix);
            query.push(" and name > ").push_bind(after);
            query.push(" and name < ").push_bind(behind_all(prefix));
            query.push(" and starts_with(name, ").push_bind(prefix);
            query.push(") order by name limit ").push_bind(i64::from(limit));
            let rows = self.look(query).await.map_err(failed("list cards"))?;
            let cards = rows.iter().map(card).collect::<Result<_, _>>();
            cards.map_err(failed("list cards"))
        })
    }

    fn erase_card<'a>(&'a self, name: &'a str, over: Revision) -> Reply<'a, Fenced> {
        Box::pin(async move {
            let mut query = QueryBuilder::new(format!("delete from {} where name = ", self.sql.cards));
            query.push_bind(name).push(" and revision = ").push_bind(code(over));
            query.push(" returning name");
            let rows = self.look(query).await.map_err(failed("erase card"))?;
            Ok(if rows.is_empty() {
                Fenced::Superseded
            } else {
                Fenced::Applied
            })
        })
    }
}

impl PgQueue {
    fn select_cards(&self) -> QueryBuilder<Postgres> {
        QueryBuilder::new(format!(
            "select name, value, revision, changed_at from {}",
            self.sql.cards
        ))
    }

    fn add_card(&self, name: &str, value: &Bytes) -> QueryBuilder<Postgres> {
        let mut query = QueryBuilder::new(format!(
            "insert into {} (revision, changed_at, name, value) values ({NOW_MS}, clock_timestamp(), ",
            self.sql.cards
        ));
        query.push_bind(name.to_owned()).push(", ").push_bind(value.to_vec());
        query.push(") on conflict (name) do nothing returning revision");
        query
    }

    fn change_card(&self, name: &str, value: &Bytes, over: Revision) -> QueryBuilder<Postgres> {
        let mut query = QueryBuilder::new(format!(
            "update {} set revision = greatest(revision + 1, {NOW_MS}), changed_at = clock_timestamp(), value = ",
            self.sql.cards
        ));
        query.push_bind(value.to_vec());
        query.push(" where name = ").push_bind(name.to_owned());
        query
            .push(" and revision = ")
            .push_bind(code(over))
            .push(" returning revision");
        query
    }
}

fn card(row: &PgRow) -> Result<Card, sqlx::Error> {
    Ok(Card {
        name: row.try_get::<&str, _>(0)?.into(),
        value: Bytes::copy_from_slice(row.try_get(1)?),
        revision: revision(row, 2)?,
        changed_at: row.try_get::<PgTime, _>(3)?.into(),
    })
}

fn revision(row: &PgRow, column: usize) -> Result<Revision, sqlx::Error> {
    let stored: i64 = row.try_get(column)?;
    let revision = u64::try_from(stored).map(Revision::new);
    revision.map_err(|_| corrupt(&format!("revision is {stored}")))
}

fn code(revision: Revision) -> i64 {
    i64::try_from(revision.get()).unwrap_or(i64::MAX)
}
