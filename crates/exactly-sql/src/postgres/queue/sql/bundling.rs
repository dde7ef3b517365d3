//! Leases of many tasks at once.
//!
//! Such a lease is one row, a bundle, that names its tasks with the fences that they had. The row of a task stays as it is until
//! the task is settled, so what waits by its row and is named with its fence is leased. The fence of such a lease is some steps
//! higher than that of the row.
//!
//! Whoever leases has the rows of the tasks locked before they look which bundles there are, those included that were committed
//! since their statement began. So of two who want a task, the second one finds it locked, or changed, or in a bundle. Of what waits in
//! a [sheaf](super::sheaves) it is the sheaf that is locked.

use super::NOW;
use super::sheaves::{SHEAVED, own_state};
use crate::postgres::schema::Place;
use crate::postgres::sql::Text;

/// How much higher the fence of a bundled lease is than the one in the task's row. More than a lease that is written into the row
/// adds, and more than some of them: a process of a version without bundles leases the task beside this one, and is not to be
/// taken for it.
pub(super) const STEP: i64 = 16;

/// The statements on bundles.
#[derive(Debug)]
pub(in super::super) struct Bundling {
    /// Writes leases into the rows of their tasks.
    pub(in super::super) unbundle: Text,
    /// The same, without those that a transaction elsewhere has locked.
    pub(in super::super) unbundle_free: Text,
    /// The same with those that have ended.
    pub(in super::super) unbundle_ended: Text,
    pub(in super::super) forget: Text,
    pub(in super::super) forget_ended: Text,
}

impl Bundling {
    pub(super) fn new(place: &Place) -> Self {
        let (table, bundles) = (place.quoted(), place.bundles());
        Self {
            unbundle: Text::new(unbundle(&table, &bundles, "")),
            unbundle_free: Text::new(unbundle(&table, &bundles, SKIP_LOCKED)),
            unbundle_ended: Text::new(unbundle_ended(&table, &bundles)),
            forget: Text::new(forget(&table, &bundles)),
            forget_ended: Text::new(forget_ended(&table, &bundles)),
        }
    }
}

/// Whether the row of a task says that it waits, so that a lease of it is in no row but that of a bundle. Not by an index.
pub(in super::super) fn unwritten(row: &str) -> String {
    format!("({row}.state + 0 = 0 or {row}.state + 0 = {SHEAVED} and {row}.ended_at is null)")
}

/// Tasks in bundles, with the fences that their rows have while they are leased by them.
pub(super) fn in_bundles(bundles: &str) -> String {
    format!("select u.id, u.fence from (select unnest(b.ids) as id, unnest(b.fences) as fence from {bundles} b) u")
}

/// What is `picked`: what was `found`, whose rows are locked, and is in no bundle that came meanwhile. That `found` is
/// counted makes sure that all of it is locked before the function looks.
pub(super) fn meanwhile(place: &Place) -> String {
    format!(
        "meanwhile as materialized (
             select m.id, m.fence
             from {since}(array(select b.number from {bundles} b), (select count(*) from found)) as m
         ),
         picked as not materialized (
             select f.* from found f where (f.id, f.fence) not in (select m.id, m.fence from meanwhile m)
         )",
        since = place.bundled_since(),
        bundles = place.bundles(),
    )
}

/// Whether what is `picked` and `named` becomes a bundle: if it is `$5` tasks or more, and a sixteenth of that from each lane that was
/// looked at. A lane whose tasks are all in bundles is still walked over, so they are not to be a few of many lanes. The offset is there so
/// that they are counted once, and not wherever their number is used.
pub(super) const IS_BUNDLE: &str =
    "select t.tasks >= $5 and t.tasks / greatest($5 / 16, 1) >= (select count(*) from open) as is_bundle
     from (select (select count(*) from picked) + (select coalesce(sum(s.take), 0)::int8 from slice s) offset 0) as t (tasks)";

/// Leases what is `picked` and `named`, if it becomes a bundle.
pub(super) fn bundling(bundles: &str) -> String {
    format!(
        "insert into {bundles} (worker, leased_at, until, tasks, lanes, ids, fences)
         select $1, statement_timestamp(), {NOW} + $2 * interval '1 millisecond', count(*),
                (select array_agg(o.lane) from open o
                 where o.place in (select p.place from picked p) or o.place in (select s.place from slice s where s.take > 0)),
                array_agg(w.id), array_agg(w.fence)
         from (select p.id, p.fence from picked p union all select n.id, n.fence from named n) w
         where (select is_bundle from counted) having count(*) > 0
         returning number"
    )
}

/// The state and the fence of a task `c`, seen with its bundle. Each row is looked up in a hash, which the sessions of a queue do
/// not join by.
pub(super) fn seen(bundles: &str) -> (String, String) {
    let is_bundled = format!("{} and (c.id, c.fence) in ({})", unwritten("c"), in_bundles(bundles));
    (
        format!("(case when {is_bundled} then 1 else {} end)::int2", own_state("c")),
        format!("(case when {is_bundled} then c.fence + {STEP} else c.fence end)"),
    )
}

/// The columns of a task as [views](exactly::queue::TaskView) have them, for a session that joins in any way.
pub(super) fn view(table: &str, bundles: &str) -> String {
    format!(
        "select c.id, c.kind, c.key, c.lane, c.payload, c.version, {state}, c.failures, c.rescues,
                case when b.id is null then c.fence else c.fence + {STEP} end,
                coalesce(b.worker, c.worker), c.enqueued_at,
                coalesce(b.until, case when c.state <> {SHEAVED} or c.ended_at is null then c.due_at end),
                coalesce(b.leased_at, c.started_at),
                c.ended_at, c.outcome, c.failure_kind, c.failure
         from {table} c left join (
             select b.worker, b.leased_at, b.until, u.id, u.fence
             from {bundles} b, unnest(b.ids, b.fences) as u (id, fence)
         ) b on b.id = c.id and b.fence = c.fence and {unwritten}",
        state = shown_state(),
        unwritten = unwritten("c"),
    )
}

/// The state in a [view].
pub(in super::super) fn shown_state() -> String {
    format!("(case when b.id is not null then 1 else {} end)::int2", own_state("c"))
}

/// Whether no task is leased by the bundle `b` any more.
fn nothing_left(table: &str) -> String {
    format!(
        "not exists (
             select from unnest(b.ids, b.fences) as u (id, fence) join {table} c on c.id = u.id and c.fence = u.fence
             where {})",
        unwritten("c")
    )
}

/// Forgets the bundles `$1`, and those of the bundles `$2` of which nothing is left.
fn forget(table: &str, bundles: &str) -> String {
    format!(
        "delete from {bundles} b where b.number = any ($1) or b.number = any ($2) and {} returning b.number",
        nothing_left(table)
    )
}

/// The same of all that have ended.
fn forget_ended(table: &str, bundles: &str) -> String {
    format!(
        "delete from {bundles} b where b.until <= {NOW} and {}",
        nothing_left(table)
    )
}

/// What becomes of rows that somebody else has locked.
const SKIP_LOCKED: &str = "skip locked";

/// Writes leases `$1` with the fences `$2` into the rows of their tasks, for `$3` milliseconds from now or as long as they
/// have.
fn unbundle(table: &str, bundles: &str, locked: &str) -> String {
    // Otherwise it would be a join, which looks at each of one side for each of the other here.
    let wanted = format!(
        "((u.id, u.fence + {STEP}) in (select w.id, w.fence from unnest($1::uuid[], $2::int8[]) as w (id, fence))) is true"
    );
    let until = format!("coalesce({NOW} + $3::int8 * interval '1 millisecond', f.until)");
    write_out(
        table,
        bundles,
        &wanted,
        &format!("order by c.id for update of c {locked}"),
        &until,
    )
}

/// The same with `$1` leases of bundles that have ended. What is locked is left out.
fn unbundle_ended(table: &str, bundles: &str) -> String {
    let ended = format!("b.until <= {NOW}");
    write_out(
        table,
        bundles,
        &ended,
        &format!("limit $1 for update of c {SKIP_LOCKED}"),
        "f.until",
    )
}

/// Whoever leased what is in such a bundle learns by `unbundled` that it no longer knows all that became of it. That waits for nobody: who
/// has the bundle locked says the same if it commits. If it does not, too much counts as leased until the bundle has ended.
fn write_out(table: &str, bundles: &str, which: &str, locking: &str, until: &str) -> String {
    format!(
        "with wanted as materialized (
             select b.number, b.worker, b.leased_at, b.until, u.id, u.fence
             from {bundles} b, unnest(b.ids, b.fences) as u (id, fence)
             where {which}
         ),
         free as materialized (
             select c.id, w.number, w.worker, w.leased_at, w.until from wanted w join {table} c on c.id = w.id
             where c.fence = w.fence and {unwritten}
             {locking}
         ),
         told as (
             update {bundles} b set unbundled = true
             where b.number in (
                 select m.number from {bundles} m
                 where m.number = any (array(select f.number from free f)) and not m.unbundled
                 for update {SKIP_LOCKED}
             )
         )
         update {table} c
         set state = 1, fence = c.fence + {STEP}, worker = f.worker, started_at = f.leased_at, ready_at = c.due_at,
             due_at = {until}
         from free f
         where c.id = f.id
         returning c.id, c.fence",
        unwritten = unwritten("c"),
    )
}
