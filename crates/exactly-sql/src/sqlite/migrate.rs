//! The schema, and how it gets there.
//!
//! Every step runs in one `BEGIN IMMEDIATE`, which is the lock: of two processes that start at once, the second waits and
//! then finds nothing to do. A version that this build does not know is refused, because a newer build may keep promises
//! in columns that this one would not write.

use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection};

use exactly::{StoreError, StoreErrorKind};

use super::clock::ClockRow;
use super::table::timestamp;
use crate::error::failed;
use crate::name::Name;

/// What leads from each version of a table to the next; the first leads from nothing to version one. `{table}` stands
/// for the table's name.
const STEPS: &[&str] = &[include_str!("migrations/1.sql")];

/// Shared by every table of this crate in the database.
const SHARED: &str = include_str!("migrations/shared.sql");

/// Brings `table` to the version of this build.
pub(super) async fn migrate(
    connection: &mut SqliteConnection,
    table: &Name,
    first: ClockRow,
) -> Result<(), StoreError> {
    let context = || format!("migrate table {table}");
    // A look first, so that a database that is up to date is opened without waiting for its writer.
    if version(connection, table).await? == Some(STEPS.len()) {
        return Ok(());
    }
    let mut tx = connection
        .begin_with("BEGIN IMMEDIATE")
        .await
        .map_err(failed(context()))?;
    sqlx::raw_sql(SHARED)
        .execute(&mut *tx)
        .await
        .map_err(failed(context()))?;
    sqlx::query("insert into exactly_clock (only, store_ms, wall_ms) values (1, ?, ?) on conflict do nothing")
        .bind(timestamp(first.store))
        .bind(timestamp(first.wall))
        .execute(&mut *tx)
        .await
        .map_err(failed(context()))?;
    let found = version(&mut tx, table).await?.unwrap_or(0);
    for step in STEPS.iter().skip(found) {
        // The table's name needs no quotes (see `Name`), so nothing can be injected.
        let sql = AssertSqlSafe(step.replace("{table}", table.as_str()));
        sqlx::raw_sql(sql).execute(&mut *tx).await.map_err(failed(context()))?;
    }
    sqlx::query(
        "insert into exactly_schema (name, version) values (?, ?) on conflict do update set version = excluded.version",
    )
    .bind(table.as_str())
    .bind(i64::try_from(STEPS.len()).unwrap_or(i64::MAX))
    .execute(&mut *tx)
    .await
    .map_err(failed(context()))?;
    tx.commit().await.map_err(failed(context()))
}

/// Refuses a database that [`migrate`] would change.
pub(super) async fn verify(connection: &mut SqliteConnection, table: &Name) -> Result<(), StoreError> {
    match version(connection, table).await? {
        Some(version) if version == STEPS.len() => Ok(()),
        found => Err(StoreError::new(
            StoreErrorKind::Refused,
            format!(
                "open store: table {table} is at version {}, this build needs {}; run `SqliteStore::migrations_sql`'s \
                 text, or open with `migrate(true)`",
                found.unwrap_or(0),
                STEPS.len()
            ),
        )),
    }
}

/// Everything that [`migrate`] does to an empty database, as text for people who migrate with a tool of their own.
pub(super) fn sql(table: &Name) -> String {
    let mut text = format!(
        "begin immediate;\n{SHARED}\
         insert into exactly_clock (only, store_ms, wall_ms)\n  \
         values (1, unixepoch() * 1000, unixepoch() * 1000) on conflict do nothing;\n"
    );
    for step in STEPS {
        text.push_str(&step.replace("{table}", table.as_str()));
    }
    text.push_str(&format!(
        "insert into exactly_schema (name, version) values ('{table}', {})\n  \
         on conflict do update set version = excluded.version;\ncommit;\n",
        STEPS.len()
    ));
    text
}

/// The version that `table` is at; `None` if this crate never made it.
async fn version(connection: &mut SqliteConnection, table: &Name) -> Result<Option<usize>, StoreError> {
    let context = || format!("read the version of table {table}");
    let known = sqlx::query("select 1 from sqlite_master where type = 'table' and name = 'exactly_schema'")
        .fetch_optional(&mut *connection)
        .await
        .map_err(failed(context()))?;
    if known.is_none() {
        return Ok(None);
    }
    let row = sqlx::query("select version from exactly_schema where name = ?")
        .bind(table.as_str())
        .fetch_optional(&mut *connection)
        .await
        .map_err(failed(context()))?;
    let Some(row) = row else { return Ok(None) };
    let version: i64 = row.try_get(0).map_err(failed(context()))?;
    match usize::try_from(version) {
        Ok(version) if version <= STEPS.len() => Ok(Some(version)),
        _ => Err(StoreError::new(
            StoreErrorKind::Refused,
            format!(
                "open store: table {table} is at version {version}, and this build knows versions up to {}; \
                 start the newer build, since this one would not keep all of its promises",
                STEPS.len()
            ),
        )),
    }
}
