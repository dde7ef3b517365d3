//! Records as people see them.

use sqlx::error::BoxDynError;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, Row, SqliteConnection};

use exactly::clock::Timestamp;
use exactly::store::record::{self, State};
use exactly::store::{CallView, Filter, Inspect, Page, Phase, Reply};
use exactly::{CallId, Claim, Key, Scope, StoreError};

use super::SqliteStore;
use super::database::{Database, read_clock};
use super::table::{Stored, sql, stored, stored_id, timestamp, unsigned};
use crate::error::failed;

/// A [`RECORD`](super::table::RECORD) without its outcome, of which people are only shown the length, and who asked for
/// what.
const VIEW: &str = "id, fingerprint, state, attempt, token, lease_ms, lease_until, on_lost, expires_at, created_at, x'', \
     principal, operation, key, length(outcome)";

/// The most records that one page looks at. A filter that few records match gives a short page and where to go on, not
/// a reader that holds on to old pages of the log for as long as it takes to look at everything.
const LOOK_MAX: u32 = 20_000;

impl Inspect for SqliteStore {
    fn get<'a>(&'a self, id: &'a CallId) -> Reply<'a, Option<CallView>> {
        Box::pin(self.database.view(id))
    }

    fn list<'a>(&'a self, filter: &'a Filter) -> Reply<'a, Page> {
        Box::pin(self.database.page(filter))
    }
}

impl Database {
    async fn view(&self, id: &CallId) -> Result<Option<CallView>, StoreError> {
        let context = "get record";
        let _turn = self.turn_to_read().await;
        let mut connection = self.pool.acquire().await.map_err(failed(context))?;
        let now = self
            .clock
            .now(read_clock(&mut connection).await.map_err(failed(context))?);
        let row = sqlx::query(sql(format!("select {VIEW} from {} where id = ?", self.table.quoted())))
            .bind(id.as_bytes().as_slice())
            .fetch_optional(&mut *connection)
            .await
            .map_err(failed(context))?;
        row.map(|row| view(&row, now)).transpose().map_err(failed(context))
    }

    async fn page(&self, filter: &Filter) -> Result<Page, StoreError> {
        let context = "list records";
        let _turn = self.turn_to_read().await;
        let mut connection = self.pool.acquire().await.map_err(failed(context))?;
        let now = self
            .clock
            .now(read_clock(&mut connection).await.map_err(failed(context))?);
        let limit = filter.limit.clamp(1, Filter::LIMIT_MAX);
        let look = self
            .look(filter, now, limit)
            .map_err(sqlx::Error::Encode)
            .map_err(failed(context))?;
        let rows = sqlx::query_with(sql(look.sql), look.arguments)
            .fetch_all(&mut *connection)
            .await;
        let rows = rows.map_err(failed(context))?;
        let calls: Result<Vec<_>, _> = rows.iter().map(|row| view(row, now)).collect();
        let mut calls = calls.map_err(failed(context))?;
        // One more than asked for says that there is another page.
        if calls.len() > usize::try_from(limit).unwrap_or(usize::MAX) {
            calls.pop();
            let next = calls.last().map(|view| view.claim.id);
            return Ok(Page { calls, next });
        }
        let next = if look.is_bounded {
            self.last_looked_at(&mut connection, filter).await?
        } else {
            None
        };
        Ok(Page { calls, next })
    }

    /// Where a page that looked at as many records as it may ended; `None` if there were not so many.
    async fn last_looked_at(
        &self,
        connection: &mut SqliteConnection,
        filter: &Filter,
    ) -> Result<Option<CallId>, StoreError> {
        let context = "list records";
        let text = format!(
            "select id from {} where id > ? order by id limit 1 offset ?",
            self.table.quoted()
        );
        let last = sqlx::query(sql(text)).bind(after(filter)).bind(i64::from(LOOK_MAX - 1));
        let last = last.fetch_optional(connection).await.map_err(failed(context))?;
        last.map(|row| stored_id(&row)).transpose().map_err(failed(context))
    }

    fn look(&self, filter: &Filter, now: Timestamp, limit: u32) -> Result<Look, BoxDynError> {
        let mut arguments = SqliteArguments::default();
        arguments.add(after(filter))?;
        let mut only = String::new();
        // The few records that are not done have an index, which bounds the look.
        let open = match filter.phase {
            None | Some(Phase::Done) => None,
            Some(Phase::InFlight) => Some("state = 0 and on_lost in (0, 1) and lease_until > ?"),
            Some(Phase::InDoubt) => Some("state = 0 and on_lost = 0 and lease_until <= ?"),
            Some(Phase::Lost) => Some("state = 0 and on_lost = 1 and lease_until <= ?"),
        };
        let table = self.table.quoted();
        let records = if let Some(open) = open {
            arguments.add(timestamp(now))?;
            format!("(select * from {table} where id > ? and {open})")
        } else {
            arguments.add(i64::from(LOOK_MAX))?;
            format!("(select * from {table} where id > ? order by id limit ?)")
        };
        if filter.phase == Some(Phase::Done) {
            only.push_str(" and state = 1");
        }
        if let Some(operation) = &filter.operation {
            only.push_str(" and operation = ?");
            arguments.add(operation.as_str())?;
        }
        if let Some(principal) = &filter.principal {
            only.push_str(" and principal = ?");
            arguments.add(principal.as_str())?;
        }
        if let Some(before) = filter.created_before {
            only.push_str(" and created_at < ?");
            arguments.add(timestamp(before))?;
        }
        arguments.add(i64::from(limit) + 1)?;
        let sql = format!("select {VIEW} from {records} where true{only} order by id limit ?");
        Ok(Look {
            sql,
            arguments,
            is_bounded: open.is_none(),
        })
    }
}

/// A statement that finds one page.
struct Look {
    sql: String,
    arguments: SqliteArguments,
    /// Whether it looks at no more than [`LOOK_MAX`] records.
    is_bounded: bool,
}

/// What the page comes after; every id comes after the empty one.
fn after(filter: &Filter) -> Vec<u8> {
    filter.after.map_or(Vec::new(), |id| id.as_bytes().to_vec())
}

fn view(row: &SqliteRow, now: Timestamp) -> Result<CallView, sqlx::Error> {
    let operation: &str = row.try_get(12)?;
    let scope = match row.try_get::<Option<&str>, _>(11)? {
        Some(principal) => Scope::new(principal, operation),
        None => Scope::global(operation),
    };
    let key = Key::new(row.try_get::<&str, _>(13)?).map_err(|error| sqlx::Error::Decode(error.into()))?;
    let Stored { record, created_at } = stored(row)?;
    let (until, outcome_len) = match &record.state {
        State::InFlight { lease_until, .. } => (Some(*lease_until), None),
        State::Done { expires_at, .. } => (*expires_at, Some(unsigned(row, 14)?)),
    };
    Ok(CallView {
        scope,
        key,
        fingerprint: record.fingerprint,
        phase: record::phase(&record, now),
        claim: Claim {
            id: stored_id(row)?,
            token: record.token,
            attempt: record.attempt,
        },
        created_at,
        until,
        outcome_len,
    })
}
