//! The tables, and how they come to be.

use exactly::{StoreError, StoreErrorKind};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};

use crate::error::failed;
use crate::name::{Name, TRAIL, VERSIONS};

/// One script per version, in order; `{table}`, `{trail}`, `{complete}` and the like are quoted names, `{name}` is the table's alone. Each can be repeated, so that a script exported for
/// people who migrate themselves does no harm when it is run twice.
///
/// No index but the primary key, and room in every page: completing a call then changes no index and stays in its page
/// (a HOT update), which halves what a call costs. Sweeping walks the heap instead.
///
/// Outcomes are stored as they come: what is large enough to be compressed is often compressed or encrypted already.
const CALLS: [&str; 3] = [RECORDS, TRAIL_OF_ALL, COMPLETE];

/// The same for tables of tasks.
const TASKS: [&str; 10] = [
    super::queue::TABLES,
    super::queue::READY,
    super::queue::CARDS,
    // The function that publishes, which the last one replaces.
    "",
    super::queue::MARKS,
    super::queue::MARKS_DATED,
    super::queue::PUBLISH,
    super::queue::BUNDLES,
    super::queue::SHEAVES,
    super::queue::UNBUNDLED,
];

const RECORDS: &str = r"create table if not exists {table} (
    lease_ms bigint not null,
    lease_until timestamptz not null,
    created_at timestamptz not null,
    completed_at timestamptz,
    expires_at timestamptz,
    attempt integer not null,
    state smallint not null,
    on_lost smallint not null,
    waited boolean not null,
    id bytea primary key,
    fingerprint bytea not null,
    token bytea not null,
    principal text,
    operation text not null,
    key text not null,
    outcome bytea
) with (fillfactor = 70);
alter table {table} alter column outcome set storage external;
";

/// One for all tables of the schema, so that no table's name has to leave room for another name in it. Whose records an
/// entry is about is in `table_name`; `call` is null if it is about many.
const TRAIL_OF_ALL: &str = r"create table if not exists {trail} (
    number bigint generated always as identity primary key,
    noted_at timestamptz not null,
    table_name text not null,
    call bytea,
    actor text not null,
    action text not null,
    detail text not null
);
create index if not exists exactly_trail_call on {trail} (call, number) where call is not null;
";

/// The function by which a service in any language completes a call in its own transaction. One per table, whose name it
/// carries, so that it names its table and nothing that a caller says is ever part of a statement.
const COMPLETE: &str = include_str!("complete.sql");

/// What the function's name has more than the table's.
const COMPLETES: &str = "_complete";

/// What the names of a queue's other tables have more than the first one's.
const ATTEMPTS: &str = "_attempts";
const LANES: &str = "_lanes";
const SCHEDULES: &str = "_schedules";
const CARDS: &str = "_cards";
const MARKS: &str = "_marks";
const BUNDLES: &str = "_bundles";
const SHEAVES: &str = "_sheaves";

/// What the name of the function that reads new bundles has more than the table's.
const BUNDLED_SINCE: &str = "_bundled_since";

/// What the name of the function that publishes events has more than the table's.
const PUBLISHES: &str = "_publish";

/// The same for the one that publishes them in order.
const PUBLISHES_ORDERED: &str = "_publish_ordered";

/// What a table is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// The records of calls.
    Calls,
    /// The tasks of a queue.
    Tasks,
}

impl Layout {
    fn migrations(self) -> &'static [&'static str] {
        match self {
            Self::Calls => &CALLS,
            Self::Tasks => &TASKS,
        }
    }

    /// The version that this program reads and writes.
    fn current(self) -> i32 {
        i32::try_from(self.migrations().len()).unwrap_or(i32::MAX)
    }

    /// What the longest name beside the table's has more than it.
    fn longest_suffix(self) -> &'static str {
        match self {
            Self::Calls => COMPLETES,
            Self::Tasks => PUBLISHES_ORDERED,
        }
    }

    /// Where the text of the migrations is to be had.
    fn script(self) -> &'static str {
        match self {
            Self::Calls => "PgStore::migrations_sql",
            Self::Tasks => "PgQueue::migrations_sql",
        }
    }
}

/// Where a store's records or a queue's tasks are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) schema: Name,
    pub(super) table: Name,
    pub(super) layout: Layout,
}

impl Place {
    /// The table as statements name it.
    pub(super) fn quoted(&self) -> String {
        format!("{}.{}", self.schema.quoted(), self.table.quoted())
    }

    /// The table as people name it.
    pub(super) fn readable(&self) -> String {
        format!("{}.{}", self.schema, self.table)
    }

    /// The trail as statements name it.
    pub(super) fn trail(&self) -> String {
        format!("{}.{TRAIL}", self.schema.quoted())
    }

    /// The function that completes calls, as statements name it.
    fn complete(&self) -> String {
        format!("{}.\"{}{COMPLETES}\"", self.schema.quoted(), self.table)
    }

    /// The attempts at a queue's tasks, as statements name them.
    pub(super) fn attempts(&self) -> String {
        format!("{}.\"{}{ATTEMPTS}\"", self.schema.quoted(), self.table)
    }

    /// The lanes of a queue that somebody has set up, as statements name them.
    pub(super) fn lanes(&self) -> String {
        format!("{}.\"{}{LANES}\"", self.schema.quoted(), self.table)
    }

    /// What a queue remembers of schedules, as statements name it.
    pub(super) fn schedules(&self) -> String {
        format!("{}.\"{}{SCHEDULES}\"", self.schema.quoted(), self.table)
    }

    /// What a queue remembers beside its tasks, as statements name it.
    pub(super) fn cards(&self) -> String {
        format!("{}.\"{}{CARDS}\"", self.schema.quoted(), self.table)
    }

    /// The function that publishes events, as statements name it.
    fn publish(&self) -> String {
        format!("{}.\"{}{PUBLISHES}\"", self.schema.quoted(), self.table)
    }

    /// The function that publishes events in order, as statements name it.
    fn publish_ordered(&self) -> String {
        format!("{}.\"{}{PUBLISHES_ORDERED}\"", self.schema.quoted(), self.table)
    }

    /// The highest numbers of what comes out of order, as statements name them.
    pub(super) fn marks(&self) -> String {
        format!("{}.\"{}{MARKS}\"", self.schema.quoted(), self.table)
    }

    /// Leases of many tasks at once, as statements name them.
    pub(super) fn bundles(&self) -> String {
        format!("{}.\"{}{BUNDLES}\"", self.schema.quoted(), self.table)
    }

    /// Tasks that were enqueued together and wait, as statements name them.
    pub(super) fn sheaves(&self) -> String {
        format!("{}.\"{}{SHEAVES}\"", self.schema.quoted(), self.table)
    }

    /// The function that reads new bundles, as statements name it.
    pub(super) fn bundled_since(&self) -> String {
        format!("{}.\"{}{BUNDLED_SINCE}\"", self.schema.quoted(), self.table)
    }

    /// Refuses a table beside which a name would be so long that PostgreSQL cuts it off: two tables would then share what
    /// has that name.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let suffix = self.layout.longest_suffix();
        let most = Name::BYTES_MAX - suffix.len();
        if self.table.as_str().len() <= most {
            return Ok(());
        }
        let context = format!(
            "read the table option: {} is longer than {most} letters, which leaves no room for the name {}{suffix} beside it",
            self.table, self.table
        );
        Err(StoreError::new(StoreErrorKind::Refused, context))
    }

    fn versions(&self) -> String {
        format!("{}.{VERSIONS}", self.schema.quoted())
    }

    /// Everything that a start with migrations runs on an empty database.
    pub(super) fn script(&self) -> String {
        format!("begin;\n{};\n{}commit;\n", self.lock(), self.body())
    }

    /// One migration at a time per schema: `if not exists` alone does not stop two of them from colliding.
    fn lock(&self) -> String {
        format!(
            "select pg_advisory_xact_lock(hashtextextended('exactly migrates {}', 0))",
            self.schema
        )
    }

    fn body(&self) -> String {
        let (versions, current) = (self.versions(), self.layout.current());
        let named = |script: &&str| {
            let script = script.replace("{table}", &self.quoted());
            let script = script.replace("{name}", self.table.as_str());
            let script = script.replace("{trail}", &self.trail());
            let script = script.replace("{attempts}", &self.attempts());
            let script = script.replace("{lanes}", &self.lanes());
            let script = script.replace("{schedules}", &self.schedules());
            let script = script.replace("{cards}", &self.cards());
            let script = script.replace("{publish}", &self.publish());
            let script = script.replace("{publish_ordered}", &self.publish_ordered());
            let script = script.replace("{marks}", &self.marks());
            let script = script.replace("{bundles}", &self.bundles());
            let script = script.replace("{sheaves}", &self.sheaves());
            let script = script.replace("{bundled_since}", &self.bundled_since());
            script.replace("{complete}", &self.complete())
        };
        let migrations: String = self.layout.migrations().iter().map(named).collect();
        format!(
            "create schema if not exists \"{}\";
create table if not exists {versions} (table_name text primary key, version integer not null);
{migrations}insert into {versions} values ('{}', {current}) on conflict (table_name) do update set version = {current};
",
            self.schema, self.table
        )
    }
}

/// Brings the table to the [current](Layout::current) version, or only checks that it is there.
pub(super) async fn prepare(conn: &mut PgConnection, place: &Place, migrate: bool) -> Result<(), StoreError> {
    // Looking first means that a role without the right to create anything can start on a schema that is there.
    if is_current(version(conn, place).await?, place)? {
        return Ok(());
    }
    if !migrate {
        let context = format!(
            "check schema: table {} has no schema of version {} and migrations are off; run the text of \
             `{}`, or start with `migrate(true)`",
            place.readable(),
            place.layout.current(),
            place.layout.script()
        );
        return Err(StoreError::new(StoreErrorKind::Refused, context));
    }
    migrate_to_current(conn, place).await
}

async fn migrate_to_current(conn: &mut PgConnection, place: &Place) -> Result<(), StoreError> {
    let context = || format!("migrate table {}", place.readable());
    let mut tx = conn.begin().await.map_err(failed(context()))?;
    sqlx::raw_sql(AssertSqlSafe(place.lock()))
        .execute(&mut *tx)
        .await
        .map_err(failed(context()))?;
    // Another process may have migrated while we waited.
    if !is_current(version(&mut tx, place).await?, place)? {
        sqlx::raw_sql(AssertSqlSafe(place.body()))
            .execute(&mut *tx)
            .await
            .map_err(failed(context()))?;
        tracing::info!(table = place.readable(), version = place.layout.current(), "migrated");
    }
    tx.commit().await.map_err(failed(context()))
}

/// The version found, or none if there is no table yet.
async fn version(conn: &mut PgConnection, place: &Place) -> Result<Option<i32>, StoreError> {
    let context = || format!("read schema version of table {}", place.readable());
    let exists = sqlx::query("select to_regclass($1) is not null and to_regclass($2) is not null")
        .bind(place.versions())
        .bind(place.quoted())
        .fetch_one(&mut *conn)
        .await
        .and_then(|row| row.try_get::<bool, _>(0))
        .map_err(failed(context()))?;
    if !exists {
        return Ok(None);
    }
    let found = sqlx::query(AssertSqlSafe(format!(
        "select version from {} where table_name = $1",
        place.versions()
    )))
    .bind(place.table.as_str())
    .fetch_optional(conn)
    .await
    .map_err(failed(context()))?;
    found.map(|row| row.try_get(0)).transpose().map_err(failed(context()))
}

fn is_current(found: Option<i32>, place: &Place) -> Result<bool, StoreError> {
    match found {
        Some(found) if found > place.layout.current() => {
            let context = format!(
                "check schema: table {} has schema version {found}, and this program supports up to {}: \
                 run a newer program",
                place.readable(),
                place.layout.current()
            );
            Err(StoreError::new(StoreErrorKind::Refused, context))
        }
        found => Ok(found == Some(place.layout.current())),
    }
}
