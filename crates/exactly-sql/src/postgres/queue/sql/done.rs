//! The statements that write what is done.

use super::NOW;
use super::bundling::{STEP, unwritten};
use super::sheaves::SHEAVED;

/// With a lease that is in a bundle comes the bundle's number, and its row is written for the first time. If it came out of a sheaf,
/// nothing changes by which it is found, so the row stays in its page.
pub(super) fn done(table: &str, bundles: &str, ended: &str) -> String {
    format!(
        "update {table} c
         set state = case when c.state = {SHEAVED} then c.state else 3 end, fence = w.fence, outcome = w.outcome,
             ended_at = {NOW}, due_at = case when c.state = {SHEAVED} then c.due_at end,
             worker = coalesce(b.worker, c.worker), started_at = coalesce(b.leased_at, c.started_at)
         from {ended} as w (id, fence, outcome, bundle) left join {bundles} b on b.number = w.bundle
         where c.id = w.id and (c.fence = w.fence and c.state + 0 = 1
                                or b.number is not null and c.fence = w.fence - {STEP} and {unwritten})
         returning c.id, c.fence",
        unwritten = unwritten("c"),
    )
}

/// The same with leases that are in bundles and whose rows are at the places `$5`, unless somebody has written them since. That spares a
/// search by id for each. In the order of ids whatever the plan, so that two of them never wait for each other.
pub(super) fn done_there(table: &str, bundles: &str) -> String {
    format!(
        "with bundle as materialized (select b.number, b.worker, b.leased_at from {bundles} b where b.number = any ($4)),
         settled as (
             update {table} c
             set state = case when c.state = {SHEAVED} then c.state else 3 end, fence = w.fence, outcome = w.outcome,
                 ended_at = {NOW}, due_at = case when c.state = {SHEAVED} then c.due_at end,
                 worker = w.worker, started_at = w.leased_at
             from (
                 select w.*, b.worker, b.leased_at
                 from unnest($1::uuid[], $2::int8[], $3::bytea[], $4::int8[], $5::tid[]) as w (id, fence, outcome, bundle, spot)
                      join bundle b on b.number = w.bundle
                 order by w.id
             ) w
             where c.ctid = w.spot and c.id = w.id and c.fence = w.fence - {STEP} and {unwritten}
             returning c.id, c.fence
         )
         {DONE_OF_MANY}",
        unwritten = unwritten("c"),
    )
}

/// Which ones that were, or nothing if it was all of them. That is mostly so, and spares a row for each.
pub(super) const DONE_OF_MANY: &str =
    "select case when count(*) < cardinality($1) then coalesce(array_agg(id), '{}') end,
           case when count(*) < cardinality($1) then coalesce(array_agg(fence), '{}') end
    from settled";

pub(super) const MANY_DONE: &str = "unnest($1::uuid[], $2::int8[], $3::bytea[], $4::int8[])";
pub(super) const ONE_DONE: &str = "(values ($1::uuid, $2::int8, $3::bytea, $4::int8))";

/// Makes the server end the transaction if its client stands still until the first of these leases has ended, a second at the
/// least: a process that hangs between settling and committing would otherwise keep the rows locked, and nobody could rescue
/// the tasks. It reads them as they were before the statement; of those in bundles, `bundle` is when the first one ends. Never
/// longer than the session allows already.
pub(super) fn end_when_idle(table: &str, leases: &str, bundle: &str) -> String {
    const SETTING: &str = "idle_in_transaction_session_timeout";
    const MOST_MS: i32 = i32::MAX;
    format!(
        "(select set_config('{SETTING}', ceil(least(1000 * extract(epoch from least(
              greatest(least(min(o.due_at) filter (where o.state = 1), ({bundle})) - {NOW}, interval '1 second'),
              nullif(current_setting('{SETTING}')::interval, interval '0'))), {MOST_MS}))::int8::text, true)
          from {table} o where {leases})"
    )
}
