//! The statements on the tables.
//!
//! Prepared once per connection. `clock_timestamp()` is the only time there is. Rows that are there are locked in the order of
//! their ids wherever two statements may want the same ones, so that they never wait for each other.

mod bundling;
mod done;
mod leasing;
mod sheaves;

use std::sync::Arc;

use exactly::queue::{FailureKind, RESCUED_FOR_EVER, TaskState};

use self::bundling::{Bundling, in_bundles, seen, view};
pub(super) use self::bundling::{shown_state, unwritten};
use self::done::{DONE_OF_MANY, MANY_DONE, ONE_DONE, done, done_there, end_when_idle};
use self::leasing::{lease, lease_capped, lease_in_order, lock_capped};
pub(super) use self::sheaves::SHEAVED;
use self::sheaves::{own_state, sheaved, spread};
use super::record;
use crate::postgres::schema::Place;
use crate::postgres::session::Sessions;
use crate::postgres::sql::Text;
use crate::postgres::sweep::Sweeper;

pub(super) const NOW: &str = "clock_timestamp()";

/// The time at the start of a statement, to which an index can be searched. Compared with [`NOW`] itself, all of a lane would be
/// read, with what is due next year.
const AT_START: &str = "(select clock_timestamp())";

/// Every statement on one queue's tables.
#[derive(Debug)]
pub(super) struct Sql {
    /// Quoted names, for statements that are put together from parts.
    pub(super) table: String,
    pub(super) attempts: String,
    pub(super) lanes: String,
    pub(super) schedules: String,
    pub(super) cards: String,
    /// Tasks in bundles, with the fences of their rows.
    pub(super) in_bundles: String,
    pub(super) sheaves: String,
    /// The columns of a task as [views](exactly::queue::TaskView) have them, and where they are.
    pub(super) view: String,
    pub(super) insert: Text,
    /// The same where some are put into sheaves.
    pub(super) insert_sheaved: Text,
    /// The same for one, which is most of what is enqueued in transactions.
    pub(super) insert_one: Text,
    pub(super) find: Text,
    pub(super) record: Text,
    /// The same for one that is done.
    pub(super) record_done: Text,
    pub(super) raise: Text,
    pub(super) lease: Text,
    pub(super) bundles: Bundling,
    pub(super) lock_capped: Text,
    pub(super) spread: Text,
    pub(super) lease_capped: Text,
    /// The same for lanes whose cap is one.
    pub(super) lease_in_order: Text,
    pub(super) any_capped: Text,
    pub(super) renew: Text,
    /// Leases of tasks that run.
    pub(super) running: Text,
    /// The same, without those that a transaction elsewhere has locked; the others are then locked by this one.
    pub(super) lock_free: Text,
    pub(super) done: Text,
    /// The same with what is in bundles and where they found it.
    pub(super) done_there: Text,
    /// With what is in a transaction, as the next two.
    pub(super) done_in: Text,
    pub(super) done_one: Text,
    pub(super) settle: Text,
    pub(super) settle_in: Text,
    pub(super) settled: Text,
    pub(super) rescue: Text,
    pub(super) revive: Text,
    pub(super) conclude: Text,
    pub(super) hasten: Text,
}

impl Sql {
    pub(super) fn new(place: &Place) -> Self {
        let (table, attempts, lanes, bundles) = (place.quoted(), place.attempts(), place.lanes(), place.bundles());
        let ((state, fence), in_bundles) = (seen(&bundles), in_bundles(&bundles));
        // Not read for each row, but once, and only if there is one.
        let in_time = |bundle: &str| {
            let end = end_when_idle(&table, "o.id = any ($1)", bundle);
            format!("where case when exists (select from settled) then {end} end is not null")
        };
        let many_done = done(&table, &bundles, MANY_DONE);
        let bundles_end = format!("select min(b.until) from {bundles} b where b.number = any ($4)");
        let bundle_ends = format!("select b.until from {bundles} b where b.number = $4");
        Self {
            insert: Text::new(insert(&table, None)),
            insert_sheaved: Text::new(insert(&table, Some(&place.sheaves()))),
            insert_one: Text::new(insert_one(&table)),
            find: Text::new(format!(
                "select c.id, {state}, c.outcome, c.payload <> w.payload
                 from unnest($1::uuid[], $2::bytea[]) as w (id, payload) join {table} c on c.id = w.id"
            )),
            record: Text::new(record::sql(&table, &attempts)),
            record_done: Text::new(record::done_sql(&table)),
            raise: Text::new(record::raise_sql(&place.marks())),
            lease: Text::new(lease(place)),
            bundles: Bundling::new(place),
            lock_capped: Text::new(lock_capped(place)),
            spread: Text::new(spread(place)),
            lease_capped: Text::new(lease_capped(place)),
            lease_in_order: Text::new(lease_in_order(place)),
            any_capped: Text::new(format!("select exists (select from {lanes} where cap is not null)")),
            renew: Text::new(renew(&table)),
            running: Text::new(format!(
                "select c.id, {fence} from {table} c where c.id = any ($1) and {state} = 1"
            )),
            lock_free: Text::new(format!(
                "select id, fence from {table} where id = any ($1) and state + 0 = 1 order by id for update skip locked"
            )),
            done: Text::new(format!("with settled as ({many_done}) {DONE_OF_MANY}")),
            done_there: Text::new(done_there(&table, &bundles)),
            done_in: Text::new(format!(
                "with settled as ({many_done}) {DONE_OF_MANY} {}",
                in_time(&bundles_end)
            )),
            done_one: Text::new(format!(
                "{}, {}",
                done(&table, &bundles, ONE_DONE),
                end_when_idle(&table, "o.id = $1", &bundle_ends)
            )),
            settle: Text::new(settle(&table, &attempts, "select id, fence from settled")),
            settle_in: Text::new(settle(
                &table,
                &attempts,
                &format!("select id, fence from settled {}", in_time("null")),
            )),
            settled: Text::new(format!(
                "select c.id, {fence}, {state}, c.outcome, a.kind, a.message
                 from {table} c left join {attempts} a on a.task = c.id and a.fence = c.fence
                 where c.id = any ($1)"
            )),
            rescue: Text::new(rescue(&table, &attempts)),
            revive: Text::new(revive(&table, &in_bundles)),
            conclude: Text::new(conclude(&table)),
            hasten: Text::new(hasten(&table, &in_bundles)),
            view: view(&table, &bundles),
            in_bundles,
            sheaves: place.sheaves(),
            table,
            attempts,
            lanes,
            schedules: place.schedules(),
            cards: place.cards(),
        }
    }
}

/// Forgets tasks that have been in `state` for a while, with their history.
pub(super) fn prune(sessions: Arc<Sessions>, place: &Place, state: TaskState) -> Sweeper {
    let expired = format!(
        "({} = {} and ended_at <= {NOW} - $3 * interval '1 millisecond')",
        own_state(&place.quoted()),
        state.code()
    );
    let then = format!(
        ", history as (delete from {} a using gone g where a.task = g.id) select count(*) from gone",
        place.attempts()
    );
    Sweeper::of(sessions, &place.quoted(), "id", &expired, &then)
}

/// Those of one call differ by a microsecond, so that they stay in the order in which they came. The first is due now, and the
/// last one is by the time that all are written: a bulk overtakes nothing that was there before it.
///
/// With `sheaves`, those whose state among `$9` is [`SHEAVED`] are put into them.
fn insert(table: &str, sheaves: Option<&str>) -> String {
    let [states, state, kept] = match sheaves {
        None => ["", "0", "id"],
        Some(_) => [
            ", $9::int2[]",
            "w.state",
            "id, ctid as spot, lane, due_at, fence, state",
        ],
    };
    let then = sheaves.map(|sheaves| format!(", sheaved as ({})", sheaved(sheaves)));
    format!(
        "with t as materialized (select {NOW} as now, floor(1000 * extract(epoch from {NOW}))::int8 as fence),
         added as (
             insert into {table} (due_at, enqueued_at, fence, version, state, id, kind, key, lane, payload)
             select t.now + w.delay_ms * interval '1 millisecond' + w.place * interval '1 microsecond', t.now,
                    t.fence, w.version, {state}, w.id, w.kind, w.key, w.lane, w.payload
             from t, unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::int8[], $7::int4[],
                            $8::int8[]{states})
                  as w (id, kind, key, lane, payload, delay_ms, version, place{named})
             on conflict (id) do nothing
             returning {kept}
         )
         {then}
         select array_agg(id) from added",
        named = if sheaves.is_some() { ", state" } else { "" },
        then = then.unwrap_or_default(),
    )
}

fn insert_one(table: &str) -> String {
    format!(
        "insert into {table} (enqueued_at, due_at, fence, version, id, kind, key, lane, payload)
         values ({NOW}, {NOW} + $6::int8 * interval '1 millisecond', floor(1000 * date_part('epoch', {NOW}))::int8, $7::int4,
                 $1::uuid, $2::text, $3::text, $4::text, $5::bytea)
         on conflict (id) do nothing"
    )
}

/// What is locked is left out.
fn renew(table: &str) -> String {
    format!(
        "with free as materialized (
             select c.id from unnest($1::uuid[], $2::int8[]) as w (id, fence) join {table} c on c.id = w.id
             where c.fence = w.fence and c.state + 0 = 1
             order by c.id
             for update of c skip locked
         )
         update {table} c set due_at = {NOW} + $3 * interval '1 millisecond'
         from free f
         where c.id = f.id
         returning c.id, c.fence"
    )
}

fn revive(table: &str, in_bundles: &str) -> String {
    format!(
        "with {locked},
         revived as (
             update {table} c
             set state = 0, due_at = {NOW}, ended_at = null, fence = c.fence + 1, failures = 0, rescues = 0
             from found f
             where c.id = f.id and (f.state = 2 or f.state = 4)
         )
         {found}",
        locked = locked_if_it_changes(table),
        found = found(in_bundles),
    )
}

/// Done as it is to be: said before, and the answer was lost.
fn conclude(table: &str) -> String {
    format!(
        "update {table} c
         set state = 3, outcome = $3, due_at = null, ended_at = case when {state} = 3 then c.ended_at else {NOW} end
         where c.id = $1 and c.fence = $2
               and (c.state = 2 or c.state = 4 or {state} = 3 and c.outcome = $3)
         returning c.id",
        state = own_state("c"),
    )
}

/// Tasks `$1` are `found`, and locked unless they are in sheaves or bundles out of them: nothing changes there, and whoever leases
/// them does not expect a lock.
fn locked_if_it_changes(table: &str) -> String {
    format!(
        "locked as materialized (
             select id, fence, state, ended_at from {table} where id = any ($1) and state + 0 <> {SHEAVED} order by id for update
         ),
         found as materialized (
             select * from locked
             union all
             select id, fence, state, ended_at from {table} where id = any ($1) and state + 0 = {SHEAVED}
         )"
    )
}

/// What a task was, out of `found`.
fn found(in_bundles: &str) -> String {
    format!(
        "select f.id, (case when {} and (f.id, f.fence) in ({in_bundles}) then 1 else {} end)::int2 from found f",
        unwritten("f"),
        own_state("f")
    )
}

fn hasten(table: &str, in_bundles: &str) -> String {
    format!(
        "with {locked},
         hastened as (
             update {table} c set due_at = {NOW} from found f where c.id = f.id and f.state = 0 and c.due_at > {NOW}
         )
         {found}",
        locked = locked_if_it_changes(table),
        found = found(in_bundles),
    )
}

/// The numbers of failures that a task had no part in.
pub(super) fn uncounted() -> String {
    let uncounted = FailureKind::ALL.iter().filter(|kind| !kind.is_counted());
    let uncounted: Vec<_> = uncounted.map(|kind| kind.code().to_string()).collect();
    uncounted.join(", ")
}

/// What is `told` is read from those that were settled.
///
/// What is released, and is to wait without a time, waits as it did before it was leased.
fn settle(table: &str, attempts: &str, told: &str) -> String {
    let uncounted = uncounted();
    format!(
        "with t as materialized (select {NOW} as now),
         settled as (
             update {table} c
             set state = w.state, outcome = w.outcome,
                 due_at = case when w.state = 0
                     then coalesce(t.now + w.after_ms * interval '1 millisecond', c.ready_at, t.now) end,
                 ended_at = case when w.state > 1 then t.now end,
                 failures = c.failures + coalesce((w.failure_kind not in ({uncounted}))::int4, 0),
                 failure_kind = coalesce(w.failure_kind, c.failure_kind), failure = coalesce(w.failure, c.failure)
             from t, unnest($1::uuid[], $2::int8[], $3::int2[], $4::int8[], $5::bytea[], $6::int2[], $7::text[])
                  as w (id, fence, state, after_ms, outcome, failure_kind, failure)
             where c.id = w.id and c.fence = w.fence and c.state + 0 = 1
             returning c.id, c.fence, c.worker, c.started_at, t.now, w.state, w.failure_kind, w.failure
         ),
         noted as (
             insert into {attempts} (task, fence, worker, started_at, ended_at, then_state, kind, message)
             select id, fence, worker, started_at, now, state, failure_kind, failure from settled
             where failure_kind is not null
         )
         {told}"
    )
}

/// `$1` is how often a task is rescued before it dies, `$2` the most tasks, `$3` the failure's kind.
fn rescue(table: &str, attempts: &str) -> String {
    let for_ever = RESCUED_FOR_EVER.join("', '");
    format!(
        "with t as materialized (select {NOW} as now),
         lost as materialized (
             select c.id, c.fence, c.worker, c.started_at, c.rescues + 1 as rescues,
                    case when c.rescues < $1 or c.kind in ('{for_ever}') then 0 else 4 end as state
             from {table} c, t
             where c.state = 1 and c.due_at <= t.now
             limit $2
             for update of c skip locked
         ),
         told as materialized (
             select l.*, 'the lease ended without a word (rescue ' || l.rescues || ')' as failure from lost l
         ),
         rescued as (
             update {table} c
             set state = l.state, fence = c.fence + 1, rescues = l.rescues, failure_kind = $3, failure = l.failure,
                 due_at = case when l.state = 0 then coalesce(c.ready_at, t.now) end,
                 ended_at = case when l.state <> 0 then t.now end
             from told l, t
             where c.id = l.id
             returning c.id, c.kind, c.key, c.state
         ),
         noted as (
             insert into {attempts} (task, fence, worker, started_at, ended_at, then_state, kind, message)
             select l.id, l.fence, l.worker, l.started_at, t.now, l.state, $3, l.failure from told l, t
         )
         select id, kind, key, state from rescued"
    )
}
