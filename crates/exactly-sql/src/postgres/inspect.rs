//! Looking at records.

use std::time::Duration;

use exactly::clock::Timestamp;
use exactly::store::record::{self, State};
use exactly::store::{CallView, Filter, Page, Phase, Reply};
use exactly::{CallId, Claim, Inspect, Key, Scope};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Postgres, QueryBuilder, Row as _};

use super::PgStore;
use super::failure::{is_stale_plan, is_timeout};
use super::row::{PgTime, StoredRecord};
use super::session::{acquire, within};
use super::sql::NOW;
use super::tx::forget_stale_plans;
use crate::error::failed;

/// How long a look may take: one by phase may read the whole table.
const LOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// As in [`RECORD`](super::row::RECORD), but an outcome's length instead of the outcome: people are shown how large
/// answers are, and a page of large ones must not travel for that.
const VIEW: &str = "c.id, c.principal, c.operation, c.key, c.created_at,
    octet_length(c.outcome), c.fingerprint, c.token, c.attempt, c.state, c.lease_ms, c.lease_until, c.on_lost,
    ''::bytea, c.expires_at, c.waited";

impl Inspect for PgStore {
    fn get<'a>(&'a self, id: &'a CallId) -> Reply<'a, Option<CallView>> {
        Box::pin(async move {
            let one = || {
                let mut query = self.select();
                query.push(" where c.id = ").push_bind(*id.as_bytes());
                query
            };
            let views = self.look(one).await.map_err(failed("get record"))?;
            Ok(views.into_iter().next())
        })
    }

    fn list<'a>(&'a self, filter: &'a Filter) -> Reply<'a, Page> {
        Box::pin(async move {
            let limit = filter.limit.clamp(1, Filter::LIMIT_MAX);
            let page_of = || {
                let mut query = self.select();
                push_filter(&mut query, filter);
                // One more than asked for tells whether there is a next page.
                query.push(" order by c.id limit ").push_bind(i64::from(limit) + 1);
                query
            };
            let views = self.look(page_of).await.map_err(failed("list records"))?;
            Ok(page(views, limit))
        })
    }
}

impl PgStore {
    fn select(&self) -> QueryBuilder<Postgres> {
        QueryBuilder::new(format!("select {NOW}, {VIEW} from {} c", self.sql.table))
    }

    async fn look(&self, query: impl Fn() -> QueryBuilder<Postgres> + Send) -> Result<Vec<CallView>, sqlx::Error> {
        let mut conn = acquire(&self.pool).await?;
        let mut rows = look_on(&mut conn, query()).await;
        if let Err(error) = &rows
            && is_stale_plan(error)
        {
            forget_stale_plans(&mut conn, error).await?;
            rows = look_on(&mut conn, query()).await;
        }
        if rows.as_ref().is_err_and(is_timeout) {
            // The pool would wait for the answer before it lets anybody else have the connection.
            drop(conn.detach());
        }
        rows?.iter().map(view).collect()
    }
}

async fn look_on(conn: &mut PgConnection, mut query: QueryBuilder<Postgres>) -> Result<Vec<PgRow>, sqlx::Error> {
    within(LOOK_TIMEOUT, query.build().fetch_all(conn)).await
}

fn push_filter(query: &mut QueryBuilder<Postgres>, filter: &Filter) {
    query.push(" where true");
    if let Some(after) = &filter.after {
        query.push(" and c.id > ").push_bind(*after.as_bytes());
    }
    if let Some(operation) = &filter.operation {
        query.push(" and c.operation = ").push_bind(operation.clone());
    }
    if let Some(principal) = &filter.principal {
        query.push(" and c.principal = ").push_bind(principal.clone());
    }
    if let Some(before) = filter.created_before {
        query.push(" and c.created_at < ").push_bind(PgTime::from(before));
    }
    if let Some(phase) = filter.phase {
        query.push(match phase {
            Phase::Done => " and c.state = 1".to_owned(),
            Phase::InFlight => format!(" and c.state = 0 and c.lease_until > {NOW}"),
            Phase::InDoubt => format!(" and c.state = 0 and c.lease_until <= {NOW} and c.on_lost = 0"),
            Phase::Lost => format!(" and c.state = 0 and c.lease_until <= {NOW} and c.on_lost = 1"),
        });
    }
}

fn page(mut calls: Vec<CallView>, limit: u32) -> Page {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = calls.len() > limit;
    calls.truncate(limit);
    let next = if more {
        calls.last().map(|view| view.claim.id)
    } else {
        None
    };
    Page { calls, next }
}

fn view(row: &PgRow) -> Result<CallView, sqlx::Error> {
    let now = Timestamp::from(row.try_get::<PgTime, _>(0)?);
    let operation: &str = row.try_get(3)?;
    let scope = match row.try_get::<Option<&str>, _>(2)? {
        Some(principal) => Scope::new(principal, operation),
        None => Scope::global(operation),
    };
    let key = Key::new(row.try_get::<&str, _>(4)?).map_err(|error| sqlx::Error::Decode(error.into()))?;
    let stored = StoredRecord::read(row, 7)?.record;
    let outcome_len: Option<i32> = row.try_get(6)?;
    let until = match &stored.state {
        State::InFlight { lease_until, .. } => Some(*lease_until),
        State::Done { expires_at, .. } => *expires_at,
    };
    Ok(CallView {
        scope,
        key,
        fingerprint: stored.fingerprint,
        phase: record::phase(&stored, now),
        claim: Claim {
            id: CallId::from_bytes(row.try_get(1)?),
            token: stored.token,
            attempt: stored.attempt,
        },
        created_at: row.try_get::<PgTime, _>(5)?.into(),
        until,
        outcome_len: outcome_len.and_then(|len| u64::try_from(len).ok()),
    })
}
