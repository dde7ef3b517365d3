//! The tables.

/// The only indexes beside the primary key are partial, so what is done costs those who look for work nothing, and a task
/// leaves them as it goes on. Lanes are compared byte by byte, which is what a walk from lane to lane needs and cheaper
/// than any language's order.
///
/// The attempts are those that ended without an outcome: the one that succeeded is in the task itself.
pub(in crate::postgres) const TABLES: &str = r#"create table if not exists {table} (
    due_at timestamptz,
    enqueued_at timestamptz not null,
    started_at timestamptz,
    ended_at timestamptz,
    fence bigint not null default 0,
    version integer not null,
    failures integer not null default 0,
    rescues integer not null default 0,
    state smallint not null default 0,
    failure_kind smallint,
    id uuid primary key,
    worker uuid,
    kind text not null,
    key text not null,
    lane text collate "C" not null,
    payload bytea not null,
    outcome bytea,
    failure text
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 10000);
create index if not exists "{name}_waiting" on {table} (lane, due_at) where state = 0;
create index if not exists "{name}_running" on {table} (lane, due_at) where state = 1;
create index if not exists "{name}_parked" on {table} (id) where state = 2 or state = 4;
create table if not exists {attempts} (
    task uuid not null,
    fence bigint not null,
    worker uuid,
    started_at timestamptz not null,
    ended_at timestamptz not null,
    then_state smallint not null,
    kind smallint not null,
    message text not null,
    primary key (task, fence)
);
create table if not exists {lanes} (
    lane text collate "C" primary key,
    paused boolean not null default false,
    cap bigint
);
create table if not exists {schedules} (
    name text collate "C" primary key,
    definition bytea not null,
    paused boolean not null,
    position timestamptz,
    changed_at timestamptz not null
);
"#;

/// Values by their names, of which nothing is searched for but the name.
pub(in crate::postgres) const CARDS: &str = r#"create table if not exists {cards} (
    name text collate "C" primary key,
    revision bigint not null,
    changed_at timestamptz not null,
    value bytea not null
);
"#;

/// The functions by which a service in any language publishes an event in its own transaction. One of each per table, as with
/// calls. The first one has a parameter more, and under the name of the second it would be another function beside it, without
/// its grants.
pub(in crate::postgres) const PUBLISH: &str = include_str!("publish.sql");

/// Since when a task was due is kept while it runs, so that it goes back to its place in its lane.
pub(in crate::postgres) const READY: &str = "alter table {table} add column if not exists ready_at timestamptz;\n";

/// Since when a number is the highest, so that it can be forgotten. Of those that were there nobody knows, so they count from
/// the migration. The default is for processes of an older version that are still running.
pub(in crate::postgres) const MARKS_DATED: &str =
    "alter table {marks} add column if not exists raised_at timestamptz not null default now();\n";

/// The highest number under each name.
pub(in crate::postgres) const MARKS: &str = r#"create table if not exists {marks} (
    name text collate "C" primary key,
    number bigint not null
);
"#;

/// Leases of many tasks at once. A task is leased by one if it is named there with the fence that its row has, and its row says
/// that it waits.
///
/// The function reads those that came after a statement began, of which `seen` are all that it sees. Each statement of a
/// function in this language sees what is committed when that one begins. `locked` is for whoever calls it: a value has to be
/// there before the call, and with it the locks that reading it takes.
pub(in crate::postgres) const BUNDLES: &str = r#"create table if not exists {bundles} (
    number bigint generated always as identity primary key,
    worker uuid not null,
    leased_at timestamptz not null,
    until timestamptz not null,
    tasks bigint not null,
    lanes text[] collate "C" not null,
    ids uuid[] not null,
    fences bigint[] not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
alter table {bundles} alter column ids set storage external, alter column fences set storage external;
create or replace function {bundled_since}(seen bigint[], locked bigint) returns table (id uuid, fence bigint)
language plpgsql volatile rows 10
as $exactly$
begin
    return query select u.id, u.fence from {bundles} b, unnest(b.ids, b.fences) as u (id, fence)
    where b.number not in (select unnest(seen));
end
$exactly$;
"#;

/// Whether leases of a bundle were written into the rows of their tasks, by whomever.
pub(in crate::postgres) const UNBUNDLED: &str =
    "alter table {bundles} add column if not exists unbundled boolean not null default false;\n";

/// Tasks that were enqueued together, in the order in which they are due. They are in no index of what waits, and the first `taken`
/// of them are leased. `spots` is where their rows are, unless the table was written anew since.
///
/// There is room in every page of tasks, so that what is done stays where it was and changes no index.
pub(in crate::postgres) const SHEAVES: &str = r#"create table if not exists {sheaves} (
    number bigint generated always as identity primary key,
    due_at timestamptz not null,
    fence bigint not null,
    tasks integer not null,
    taken integer not null default 0,
    lane text collate "C" not null,
    ids uuid[] not null,
    spots tid[] not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
alter table {sheaves} alter column ids set storage external, alter column spots set storage external;
create index if not exists "{name}_sheaved" on {sheaves} (lane, due_at);
alter table {table} set (fillfactor = 50);
"#;
