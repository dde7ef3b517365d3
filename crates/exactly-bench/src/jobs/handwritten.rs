//! The worker that one writes without a queue: claim, effect and completion of one job in one transaction, over and over.
//!
//! Prepared statements, one connection for each loop, `skip locked`, and a partial index that holds only what waits. There
//! are no leases, attempts or keys, and neither is their cost.

use std::str::FromStr as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, Row as _};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Order;
use super::contender::{Contender, Program, Tables};
use super::said;
use crate::Result;

pub(super) const NAME: &str = "hand-written";

/// How long a loop that found nothing waits.
const IDLE: Duration = Duration::from_millis(5);

const TABLES: &str = "
    create table jobs (
        id bigint generated always as identity primary key,
        payload bytea not null,
        state int2 not null default 0,
        due_at timestamptz not null default now(),
        done_at timestamptz
    );
    create index jobs_waiting on jobs (id) where state = 0;
    create table effects (
        id bigint generated always as identity primary key,
        job bigint not null,
        amount bigint not null
    )";

const CLAIM: &str =
    "select id, payload from jobs where state = 0 and due_at <= now() order by id limit 1 for update skip locked";
const EFFECT: &str = "insert into effects (job, amount) values ($1, $2)";
const COMPLETE: &str = "update jobs set state = 1, done_at = now() where id = $1";

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Settings {
    connections: usize,
}

pub(super) fn contender() -> Contender {
    Contender {
        name: NAME,
        program: Program::own(NAME),
        settings: serde_json::json!(Settings { connections: 8 }),
        processes: 1,
        jobs_max: None,
        tables: Tables {
            left: "select count(*) from jobs where state = 0",
            failed: "select count(*) from jobs left join effects on job = jobs.id where state = 1 and job is null",
            done: Some("select count(*) from effects join jobs on jobs.id = job where state = 1"),
        },
    }
}

pub(super) async fn run(step: &str, order: Order<Settings>) -> Result<()> {
    let options = PgConnectOptions::from_str(&order.url)?;
    if step == "fill" {
        let mut conn = options.connect().await?;
        let jobs = format!(
            "insert into jobs (payload) select convert_to(n::text, 'UTF8') from generate_series(1, {}) n",
            order.jobs
        );
        sqlx::raw_sql(TABLES).execute(&mut conn).await?;
        sqlx::raw_sql(AssertSqlSafe(jobs)).execute(&mut conn).await?;
        return Ok(());
    }
    let mut connections = Vec::new();
    for _ in 0..order.settings.connections {
        connections.push(options.connect().await?);
    }
    said::work(work(connections)).await
}

async fn work(connections: Vec<PgConnection>) -> Result<()> {
    let mut loops = JoinSet::new();
    for conn in connections {
        loops.spawn(one_by_one(conn));
    }
    while let Some(ended) = loops.join_next().await {
        ended??;
    }
    Ok(())
}

/// What one connection does.
async fn one_by_one(mut conn: PgConnection) -> Result<()> {
    loop {
        if next(&mut conn).await? {
            said::handled(1);
        } else {
            sleep(IDLE).await;
        }
    }
}

/// One job, if there is one.
async fn next(conn: &mut PgConnection) -> Result<bool> {
    let mut tx = conn.begin().await?;
    let Some(job) = sqlx::query(CLAIM).fetch_optional(&mut *tx).await? else {
        tx.rollback().await?;
        return Ok(false);
    };
    let id: i64 = job.try_get(0)?;
    let amount: i64 = std::str::from_utf8(job.try_get(1)?)?.parse()?;
    sqlx::query(EFFECT).bind(id).bind(amount).execute(&mut *tx).await?;
    sqlx::query(COMPLETE).bind(id).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(true)
}
