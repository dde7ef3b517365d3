//! Rows of jobs put in by plain statements of many rows: what bulk enqueueing costs without a queue around it.

use std::ops::Range;
use std::str::FromStr as _;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgConnection};
use uuid::Uuid;

use super::Order;
use super::contender::{Contender, Program, Tables};
use super::said;
use crate::Result;

pub(super) const NAME: &str = "plain inserts";

pub(super) const KIND: &str = "invoice.send";
pub(super) const LANES: u64 = 16;
pub(super) const PAYLOAD: &[u8] = br#"{"invoice":"in_1PgafcB7WZ01zgkW","customer":"cus_QXg1o8vcGmoR32","amount":4200}"#;

/// The columns of the table: name, type, and where an inserted row has it from. The same row that a queue keeps.
const COLUMNS: &[(&str, &str, &str)] = &[
    ("id", "uuid primary key", "rows.id"),
    ("kind", "text not null", "rows.kind"),
    ("key", "text not null", "rows.key"),
    ("lane", "text not null", "rows.lane"),
    ("payload", "bytea not null", "rows.payload"),
    ("state", "int2 not null", "0"),
    ("due_at", "timestamptz not null", "now()"),
    ("enqueued_at", "timestamptz not null", "now()"),
    ("attempt", "int4 not null", "0"),
    ("rescues", "int4 not null", "0"),
    ("fence", "int8 not null", "0"),
    ("version", "int4 not null", "1"),
];

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Settings {
    /// Rows of one statement.
    batch: u64,
}

/// The rows of one statement, column by column.
#[derive(Default)]
struct Rows {
    ids: Vec<Uuid>,
    kinds: Vec<&'static str>,
    keys: Vec<String>,
    lanes: Vec<String>,
    payloads: Vec<&'static [u8]>,
}

pub(super) fn contender() -> Contender {
    Contender {
        name: NAME,
        program: Program::own(NAME),
        settings: serde_json::json!(Settings { batch: 1000 }),
        processes: 1,
        jobs_max: None,
        tables: Tables {
            left: "select 0::int8",
            failed: "select 0::int8",
            done: Some("select count(*) from jobs"),
        },
    }
}

pub(super) async fn run(step: &str, order: Order<Settings>) -> Result<()> {
    let mut conn = PgConnectOptions::from_str(&order.url)?.connect().await?;
    if step == "fill" {
        sqlx::raw_sql(AssertSqlSafe(table())).execute(&mut conn).await?;
        return Ok(());
    }
    said::work(async move { insert(&mut conn, &order).await }).await
}

async fn insert(conn: &mut PgConnection, order: &Order<Settings>) -> Result<()> {
    let statement = statement();
    let mut first = 0;
    while first < order.jobs {
        let end = order.jobs.min(first + order.settings.batch);
        let rows = Rows::of(first..end);
        let inserted = sqlx::query(AssertSqlSafe(statement.as_str()))
            .bind(&rows.ids)
            .bind(&rows.kinds)
            .bind(&rows.keys)
            .bind(&rows.lanes)
            .bind(&rows.payloads)
            .execute(&mut *conn)
            .await?;
        said::handled(inserted.rows_affected());
        first = end;
    }
    std::future::pending().await
}

fn table() -> String {
    let columns: Vec<String> = COLUMNS.iter().map(|(name, kind, _)| format!("{name} {kind}")).collect();
    format!("create table jobs ({})", columns.join(", "))
}

fn statement() -> String {
    let names: Vec<&str> = COLUMNS.iter().map(|(name, _, _)| *name).collect();
    let values: Vec<&str> = COLUMNS.iter().map(|(_, _, value)| *value).collect();
    format!(
        "insert into jobs ({}) select {} from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bytea[])
         as rows (id, kind, key, lane, payload) on conflict do nothing",
        names.join(", "),
        values.join(", ")
    )
}

impl Rows {
    fn of(numbers: Range<u64>) -> Self {
        let mut rows = Self::default();
        for number in numbers {
            let key = format!("2027-03-14:in_{number:012}");
            rows.ids.push(id_of(KIND, &key));
            rows.kinds.push(KIND);
            rows.keys.push(key);
            rows.lanes.push(format!("lane-{}", number % LANES));
            rows.payloads.push(PAYLOAD);
        }
        rows
    }
}

/// A job is known by its kind and key, so its id is made from them, and the same job again conflicts.
fn id_of(kind: &str, key: &str) -> Uuid {
    let digest = Sha256::new()
        .chain_update(kind)
        .chain_update([0])
        .chain_update(key)
        .finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_job_of_its_kind() {
        assert_eq!(id_of("a", "b"), id_of("a", "b"));
        assert_ne!(id_of("a", "b"), id_of("a", "c"));
        assert_ne!(id_of("a", "bc"), id_of("ab", "c"));
    }

    #[test]
    fn every_column_is_made_and_filled() {
        for (name, _, value) in COLUMNS {
            assert!(table().contains(name), "{name}");
            assert!(statement().contains(value), "{name}");
        }
    }
}
