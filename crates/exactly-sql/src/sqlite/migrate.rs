//! The schema, and how it gets there.
//!
//! Every step runs in one `BEGIN IMMEDIATE`, which is the lock: of two processes that start at once, the second waits and
//! then finds nothing to do. A version that this build does not know is refused, because a newer build may keep promises
//! in columns that this one would not write.

use sqlx::{AssertSqlSafe, Row, SqliteConnection};

use exactly::{StoreError, StoreErrorKind};

use super::clock::ClockRow;
use super::database::exec;
use super::table::timestamp;
use crate::error::failed;
use crate::name::Name;

/// The tables of one kind, and what leads from each version to the next; the first leads from nothing to version one.
///
/// `{table}` stands for the table's name, within quotes, and `{prefix}` for it without its `_tasks`. Each step can be
/// repeated, so that a script exported for people who migrate themselves does no harm when it is run twice.
#[derive(Debug)]
pub(super) struct Layout {
    steps: &'static [&'static str],
    /// What exports the script.
    script: &'static str,
}

/// Calls.
pub(super) const CALLS: Layout = Layout {
    steps: &[include_str!("migrations/1.sql"), include_str!("migrations/2.sql")],
    script: "SqliteStore::migrations_sql",
};

/// Tasks.
pub(super) const TASKS: Layout = Layout {
    steps: &[
        include_str!("migrations/tasks.sql"),
        include_str!("migrations/tasks_2.sql"),
        include_str!("migrations/tasks_3.sql"),
        include_str!("migrations/tasks_4.sql"),
    ],
    script: "SqliteQueue::migrations_sql",
};

impl Layout {
    fn version(&self) -> usize {
        self.steps.len()
    }

    fn steps(&self, table: &Name) -> impl Iterator<Item = String> {
        let table = table.as_str();
        let prefix = table.strip_suffix("_tasks").unwrap_or(table);
        let steps = self.steps.iter();
        steps.map(move |step| step.replace("{table}", table).replace("{prefix}", prefix))
    }
}

/// Shared by every table of this crate in the database.
const SHARED: &str = include_str!("migrations/shared.sql");

/// Brings `table` to the version of this build. After an error a transaction may be open on the connection: close it.
pub(super) async fn migrate(
    connection: &mut SqliteConnection,
    layout: &Layout,
    table: &Name,
    first: ClockRow,
) -> Result<(), StoreError> {
    let context = || format!("migrate table {table}");
    // A look first, so that a database that is up to date is opened without waiting for its writer.
    if version(connection, layout, table).await? == Some(layout.version()) {
        return Ok(());
    }
    exec(connection, "begin immediate").await.map_err(failed(context()))?;
    let shared = make_shared(connection, first).await;
    shared.map_err(failed(context()))?;
    let found = version(connection, layout, table).await?.unwrap_or(0);
    let steps = take_steps(connection, layout, table, found).await;
    steps.map_err(failed(context()))?;
    exec(connection, "commit").await.map_err(failed(context()))
}

async fn make_shared(connection: &mut SqliteConnection, first: ClockRow) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(SHARED).execute(&mut *connection).await?;
    sqlx::query("insert into exactly_clock (only, store_ms, wall_ms) values (1, ?, ?) on conflict do nothing")
        .bind(timestamp(first.store))
        .bind(timestamp(first.wall))
        .execute(connection)
        .await
        .map(drop)
}

async fn take_steps(
    connection: &mut SqliteConnection,
    layout: &Layout,
    table: &Name,
    found: usize,
) -> Result<(), sqlx::Error> {
    for step in layout.steps(table).skip(found) {
        // There is nothing to inject in a `Name`.
        sqlx::raw_sql(AssertSqlSafe(step)).execute(&mut *connection).await?;
    }
    let version = "insert into exactly_versions (table_name, version) values (?, ?) \
                   on conflict do update set version = excluded.version";
    sqlx::query(version)
        .bind(table.as_str())
        .bind(i64::try_from(layout.version()).unwrap_or(i64::MAX))
        .execute(connection)
        .await
        .map(drop)
}

/// Refuses a database that [`migrate`] would change.
pub(super) async fn verify(connection: &mut SqliteConnection, layout: &Layout, table: &Name) -> Result<(), StoreError> {
    match version(connection, layout, table).await? {
        Some(version) if version == layout.version() => Ok(()),
        found => Err(StoreError::new(
            StoreErrorKind::Refused,
            format!(
                "open store: table {table} is at version {}, this build needs {}; run `{}`'s \
                 text, or open with `migrate(true)`",
                found.unwrap_or(0),
                layout.version(),
                layout.script
            ),
        )),
    }
}

/// Everything that [`migrate`] does to an empty database, as text for people who migrate with a tool of their own.
pub(super) fn sql(layout: &Layout, table: &Name) -> String {
    let steps: String = layout.steps(table).collect();
    format!(
        "begin immediate;\n{SHARED}\
         insert into exactly_clock (only, store_ms, wall_ms)\n  \
         values (1, unixepoch() * 1000, unixepoch() * 1000) on conflict do nothing;\n\
         {steps}\
         insert into exactly_versions (table_name, version) values ('{table}', {})\n  \
         on conflict do update set version = excluded.version;\ncommit;\n",
        layout.version()
    )
}

/// The version that `table` is at; `None` if this crate never made it.
async fn version(
    connection: &mut SqliteConnection,
    layout: &Layout,
    table: &Name,
) -> Result<Option<usize>, StoreError> {
    let context = || format!("read the version of table {table}");
    let known = sqlx::query("select 1 from sqlite_master where type = 'table' and name = 'exactly_versions'")
        .fetch_optional(&mut *connection)
        .await
        .map_err(failed(context()))?;
    if known.is_none() {
        return Ok(None);
    }
    let row = sqlx::query("select version from exactly_versions where table_name = ?")
        .bind(table.as_str())
        .fetch_optional(&mut *connection)
        .await
        .map_err(failed(context()))?;
    let Some(row) = row else { return Ok(None) };
    let version: i64 = row.try_get(0).map_err(failed(context()))?;
    match usize::try_from(version) {
        Ok(version) if version <= layout.version() => Ok(Some(version)),
        _ => Err(StoreError::new(
            StoreErrorKind::Refused,
            format!(
                "open store: table {table} is at version {version}, and this build knows versions up to {}; \
                 start the newer build, since this one would not keep all of its promises",
                layout.version()
            ),
        )),
    }
}
