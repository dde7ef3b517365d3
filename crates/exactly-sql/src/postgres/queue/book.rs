//! What is remembered of schedules.

use bytes::Bytes;
use exactly::clock::Timestamp;
use exactly::queue::{Book, Entry, InspectQueue as _};
use exactly::store::Reply;
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};

use super::PgQueue;
use crate::error::failed;
use crate::postgres::row::PgTime;

impl Book for PgQueue {
    fn write_schedule<'a>(&'a self, name: &'a str, definition: &'a Bytes, paused: Option<bool>) -> Reply<'a, ()> {
        Box::pin(async move {
            let mut query = QueryBuilder::new(format!(
                "insert into {} as s (name, definition, paused, changed_at) values (",
                self.sql.schedules
            ));
            let mut values = query.separated(", ");
            values.push_bind(name).push_bind(definition.as_ref());
            values.push_bind(paused.unwrap_or(false)).push("clock_timestamp()");
            query.push(
                ") on conflict (name) do update
                 set definition = excluded.definition, changed_at = excluded.changed_at",
            );
            if paused.is_some() {
                query.push(", paused = excluded.paused");
            }
            self.look(query).await.map(drop).map_err(failed("write schedule"))
        })
    }

    fn pause_schedule<'a>(&'a self, name: &'a str, paused: bool) -> Reply<'a, bool> {
        Box::pin(async move {
            let mut query = QueryBuilder::new(format!("update {} set paused = ", self.sql.schedules));
            query.push_bind(paused).push(", changed_at = clock_timestamp()");
            query.push(" where name = ").push_bind(name).push(" returning name");
            let rows = self.look(query).await.map_err(failed("pause schedule"))?;
            Ok(!rows.is_empty())
        })
    }

    fn read_schedule<'a>(&'a self, name: &'a str) -> Reply<'a, Option<Entry>> {
        Box::pin(async move {
            let mut query = self.select_schedules();
            query.push(" where name = ").push_bind(name);
            let rows = self.look(query).await.map_err(failed("read schedule"))?;
            rows.first().map(entry).transpose().map_err(failed("read schedule"))
        })
    }

    fn schedules(&self) -> Reply<'_, Vec<Entry>> {
        Box::pin(async move {
            let mut query = self.select_schedules();
            query.push(" order by name");
            let rows = self.look(query).await.map_err(failed("list schedules"))?;
            let entries = rows.iter().map(entry).collect::<Result<_, _>>();
            entries.map_err(failed("list schedules"))
        })
    }

    fn erase_schedule<'a>(&'a self, name: &'a str) -> Reply<'a, bool> {
        Box::pin(async move {
            let mut query = QueryBuilder::new(format!("delete from {} where name = ", self.sql.schedules));
            query.push_bind(name).push(" returning name");
            let rows = self.look(query).await.map_err(failed("erase schedule"))?;
            Ok(!rows.is_empty())
        })
    }

    fn advance_schedule<'a>(&'a self, name: &'a str, position: Timestamp) -> Reply<'a, ()> {
        Box::pin(async move {
            let mut query = QueryBuilder::new(format!("update {} set position = ", self.sql.schedules));
            query
                .push_bind(PgTime::from(position))
                .push(" where name = ")
                .push_bind(name);
            query
                .push(" and (position is null or position < ")
                .push_bind(PgTime::from(position))
                .push(")");
            self.look(query).await.map(drop).map_err(failed("advance schedule"))
        })
    }

    fn calendar(&self) -> Reply<'_, Timestamp> {
        self.now()
    }
}

impl PgQueue {
    fn select_schedules(&self) -> QueryBuilder<Postgres> {
        let schedules = &self.sql.schedules;
        QueryBuilder::new(format!(
            "select name, definition, paused, position, changed_at from {schedules}"
        ))
    }
}

fn entry(row: &PgRow) -> Result<Entry, sqlx::Error> {
    Ok(Entry {
        name: row.try_get::<&str, _>(0)?.into(),
        definition: Bytes::copy_from_slice(row.try_get(1)?),
        paused: row.try_get(2)?,
        position: row.try_get::<Option<PgTime>, _>(3)?.map(Timestamp::from),
        changed_at: row.try_get::<PgTime, _>(4)?.into(),
    })
}
