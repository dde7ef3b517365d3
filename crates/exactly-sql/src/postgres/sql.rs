//! The statements, with the table's name in them.
//!
//! Prepared once per connection. `clock_timestamp()`, in the milliseconds that the state machine counts in, is the only
//! time there is. Ids come sorted into every statement that locks rows, so that two of them never wait for each
//! other.

use std::sync::Arc;

use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres, SqlSafeStr as _};

use super::row::RECORD;
use super::schema::Place;

pub(super) const NOW: &str = "clock_timestamp()::timestamptz(3)";

/// Every statement on one table.
#[derive(Debug)]
pub(super) struct Sql {
    /// The table's quoted name, for statements that are put together from parts.
    pub(super) table: String,
    pub(super) group: Text,
    pub(super) look: Text,
    pub(super) insert: Text,
    pub(super) lock: Text,
    pub(super) write: Text,
    pub(super) present: Text,
    pub(super) mark: Text,
    pub(super) in_flight: Text,
    pub(super) claim: Text,
    pub(super) claim_waiting: Text,
    pub(super) lock_one: Text,
    pub(super) complete_one: Text,
    pub(super) read_one: Text,
}

/// A statement with the parameters bound so far.
pub(super) type PgQuery<'q> = Query<'q, Postgres, PgArguments>;

/// The text of a statement, shared with every use of it.
#[derive(Clone, Debug)]
pub(super) struct Text(Arc<str>);

impl Text {
    pub(super) fn new(text: String) -> Self {
        Self(text.into())
    }

    pub(super) fn query<'q>(&self) -> PgQuery<'q> {
        sqlx::query(AssertSqlSafe(Arc::clone(&self.0)).into_sql_str())
    }
}

impl Sql {
    pub(super) fn new(place: &Place) -> Self {
        let table = place.quoted();
        let text = Text::new;
        Self {
            group: text(group(&table)),
            look: text(format!(
                "select l.n, {NOW}, {RECORD}
                 from unnest($1::bytea[]) with ordinality as l (id, n) join {table} c on c.id = l.id"
            )),
            insert: text(insert(&table)),
            lock: text(lock(&table)),
            write: text(write(&table)),
            present: text(format!("select id from {table} where id = any($1)")),
            mark: text(format!(
                "update {table} c set waited = true
                 where id = any (array(select id from {table} where id = any($1) and state = 0 and not waited
                                       order by id for update skip locked))
                 returning id"
            )),
            in_flight: text(format!("select id from {table} where id = any($1) and state = 0")),
            claim: text(claim(&table)),
            claim_waiting: text(claim_waiting(&table)),
            lock_one: text(format!(
                "select {NOW}, {RECORD} from {table} c where id = $1 for update"
            )),
            complete_one: text(format!(
                "update {table} set state = 1, outcome = $3, completed_at = {NOW},
                        expires_at = {NOW} + $4 * interval '1 millisecond'
                 where id = $1 and token = $2 and state = 0
                       and ($5 or current_setting('synchronous_commit') <> 'off')"
            )),
            read_one: text(format!("select {NOW}, {RECORD} from {table} c where id = $1")),
            table,
        }
    }
}

const BEGUN: &str = "unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::int8[], $5::int2[], $6::bool[], $7::text[], \
                     $8::text[], $9::text[])
         as b (id, fingerprint, token, lease_ms, on_lost, waited, principal, operation, key)";

/// What is known to be `there` is not even tried to be inserted: that would wait for a transaction that is about to change
/// it, although what to say about it can be read.
fn insert_begun(table: &str, there: &str) -> String {
    format!(
        "insert into {table} (lease_ms, lease_until, created_at, attempt, state, on_lost, waited, id, fingerprint,
                token, principal, operation, key)
         select b.lease_ms, t.now + b.lease_ms * interval '1 millisecond', t.now, 1, 0, b.on_lost, b.waited, b.id,
                b.fingerprint, b.token, b.principal, b.operation, b.key
         from t, {BEGUN}
         where b.id not in ({there})
         on conflict (id) do nothing"
    )
}

/// First begins, completions and looks of many callers at once. The first row says what was written, the others hold
/// the records that were there before: they are read from the snapshot that the statement started with, so what it
/// inserts itself is not among them.
fn group(table: &str) -> String {
    format!(
        "with t as materialized (select {NOW} as now),
         found as materialized (
             select l.n, c.id, {RECORD}
             from unnest($14::bytea[]) with ordinality as l (id, n) join {table} c on c.id = l.id
         ),
         claimed as ({insert} returning id),
         completed as (
             update {table} c
             set state = 1, outcome = w.outcome, completed_at = t.now,
                 expires_at = t.now + w.keep_ms * interval '1 millisecond'
             from t, unnest($10::bytea[], $11::bytea[], $12::bytea[], $13::int8[])
                  with ordinality as w (id, token, outcome, keep_ms, n)
             where c.id = w.id and c.token = w.token and c.state = 0
             returning w.n, c.waited
         )
         select null::int8, t.now, (select array_agg(id) from claimed), f.completed, f.waited,
                null::bytea, null::bytea, null::int4, null::int2, null::int8, null::timestamptz, null::int2,
                null::bytea, null::timestamptz, null::bool
         from t, (select array_agg(n) as completed, array_agg(n) filter (where waited) as waited from completed) f
         union all
         select c.n, null, null, null, null, {RECORD} from found c",
        insert = insert_begun(table, "select f.id from found f")
    )
}

fn insert(table: &str) -> String {
    let there = format!("select e.id from {table} e where e.id = any($1)");
    format!(
        "with t as materialized (select {NOW} as now) {}",
        insert_begun(table, &there)
    )
}

/// The clock is read outside the locking subquery, that is, after each row's lock was got. What someone else holds is left
/// out: all other callers of the batch would wait for it.
fn lock(table: &str) -> String {
    format!(
        "select {NOW}, c.id, {RECORD}
         from (select * from {table} where id = any($1) order by id for update skip locked) c"
    )
}

/// Writes rows that [`lock`] locked, and deletes others of them.
fn write(table: &str) -> String {
    format!(
        "with gone as (delete from {table} where id = any($1))
         update {table} c
         set fingerprint = w.fingerprint, token = w.token, attempt = w.attempt, state = w.state,
             lease_ms = coalesce(w.lease_ms, c.lease_ms), lease_until = coalesce(w.lease_until, c.lease_until),
             on_lost = coalesce(w.on_lost, c.on_lost), outcome = w.outcome, expires_at = w.expires_at,
             waited = w.waited,
             created_at = case when w.state = 0 and c.state = 1 then w.now else c.created_at end,
             completed_at = case when w.state = 1 then coalesce(c.completed_at, w.now) end
         from unnest($2::bytea[], $3::bytea[], $4::bytea[], $5::int4[], $6::int2[], $7::int8[], $8::timestamptz[],
                     $9::int2[], $10::bytea[], $11::timestamptz[], $12::bool[], $13::timestamptz[])
              as w (id, fingerprint, token, attempt, state, lease_ms, lease_until, on_lost, outcome, expires_at,
                    waited, now)
         where c.id = w.id"
    )
}

const CLAIMED: &str = "(lease_ms, lease_until, created_at, attempt, state, on_lost, waited, id, fingerprint, token,
                principal, operation, key)";

/// One begin inside a transaction, unless another transaction is about the same call: then it inserts nothing, as it does
/// if there is a record. The lock only keeps it from waiting without end; who owns the row is decided by its primary key.
///
/// It runs once per call, and the planner and executor feel every further node: setting a limit for the wait and taking
/// it back costs ten times as much as the lock.
fn claim(table: &str) -> String {
    format!(
        "insert into {table} {CLAIMED}
         select $4, {NOW} + $4 * interval '1 millisecond', {NOW}, 1, 0, $5, false, $1, $2, $3, $6, $7, $8
         where pg_try_advisory_xact_lock($9)
         on conflict (id) do nothing"
    )
}

/// The same if another transaction is in the way: waits until that one ends, so afterwards we own the row or can read its
/// last word. The limit of the wait is set while the row is made, and once the row is ours, it is again what the session
/// had: the effect that follows is none of our business.
fn claim_waiting(table: &str) -> String {
    format!(
        "insert into {table} {CLAIMED}
         values ($4, {NOW} + $4 * interval '1 millisecond', {NOW}, 1, 0, $5,
                 set_config('lock_timeout', $9, true) is null, $1, $2, $3, $6, $7, $8)
         on conflict (id) do nothing
         returning set_config('lock_timeout', $10, true)"
    )
}
