//! The statements that hand out tasks.

use super::{AT_START, NOW};

/// Walks from lane to lane through the index of what waits, from the one after `$4` around to where it started, `$5` lanes
/// at most, or over the lanes `$6`. Leases an equal part of `$3` tasks from each that is neither paused nor capped, with
/// `$7` other lanes that are to get as much; of the lanes `$9` no more than `$10`, and of any other no more than `$8`. Passes
/// over what was rescued `$11` times.
///
/// The first row tells how many lanes were walked over, which was the last and how many were open, whether anything was
/// leased or not.
pub(super) fn lease(table: &str, lanes: &str) -> String {
    let next = |after: &str, until: &str| {
        format!("(select n.lane from {table} n where n.state = 0 and n.lane > {after} {until} order by n.lane limit 1)")
    };
    format!(
        "with recursive walked (lane, wrapped, place) as (
             (select coalesce(f.lane, {first}), f.lane is null, 1::int8 from (select {after}) as f (lane)
              where $6::text[] is null)
             union all
             select coalesce(f.lane, case when not w.wrapped then {around} end), w.wrapped or f.lane is null, w.place + 1
             from walked w, lateral (select case when w.wrapped then {until} else {further} end) as f (lane)
             where w.lane is not null and w.place < $5
         ),
         seen as materialized (
             select w.lane, w.place from walked w where w.lane is not null
             union all
             select o.lane, o.place from unnest($6) with ordinality as o (lane, place)
         ),
         open as materialized (
             select s.lane, s.place, count(*) over () + $7 as lanes, coalesce(h.room, $8) as room
             from seen s left join {lanes} l on l.lane = s.lane
                  left join unnest($9::text[], $10::int8[]) as h (lane, room) on h.lane = s.lane
             where (l.lane is null or not l.paused and l.cap is null) and coalesce(h.room, $8) > 0
         ),
         picked as materialized (
             select p.ctid as place_in_table, p.due_at, o.place
             from open o, lateral (
                 select c.ctid, c.due_at from {table} c
                 where c.state = 0 and c.lane = o.lane and c.due_at <= {AT_START} and c.rescues < $11
                 order by c.due_at
                 limit least(o.room, ($3 + o.lanes - 1) / o.lanes)
                 for update skip locked
             ) p
             limit $3
         ),
         leased as ({leasing})
         select w.walked, w.last, w.open, l.*
         from (select (select count(*) from walked where lane is not null) as walked,
                      (select lane from walked where lane is not null order by place desc limit 1) as last,
                      (select count(*) from open) as open) w
              left join leased l on true",
        after = next("$4", ""),
        further = next("w.lane", ""),
        until = next("w.lane", "and n.lane <= $4"),
        around = next("''", "and n.lane <= $4"),
        first = next("''", ""),
        leasing = leasing(table),
    )
}

/// The same for lanes that [`lock_capped`](super::Sql::lock_capped) has locked, each up to its cap. Whoever counts what runs in a
/// lane has locked it, so nobody else is about to add to it. What was rescued `$7` times is left out and not passed over, for
/// the sake of the order.
pub(super) fn lease_capped(table: &str) -> String {
    format!(
        "with open as materialized (
             select w.lane, w.place, count(*) over () as lanes,
                    least(w.share, w.cap - (select count(*) from (
                        select from {table} r where r.state = 1 and r.lane = w.lane limit w.cap) r)) as room
             from unnest($4::text[], $5::int8[], $6::int8[]) with ordinality as w (lane, cap, share, place)
         ),
         picked as materialized (
             select p.ctid as place_in_table, p.due_at, o.place
             from open o, lateral (
                 select c.ctid, c.due_at, c.rescues from {table} c
                 where c.state = 0 and c.lane = o.lane and c.due_at <= {AT_START}
                 order by c.due_at
                 limit least(o.room, ($3 + o.lanes - 1) / o.lanes)
                 for update
             ) p
             where p.rescues < $7
             limit $3
         )
         {leasing}",
        leasing = leasing(table),
    )
}

/// What is leased of tasks that `picked` has locked.
const LEASED: &str = "returning c.id, c.fence, c.kind, c.key, c.lane, c.payload, c.version, c.failures, c.rescues,
                      c.enqueued_at, p.due_at, p.place";

/// The rows are locked, so they are where they were found: by their place, which spares a search by id for each
/// One that was changed since the statement began is invisible there, and waits for the next one.
///
/// A task is started when it was asked for: whatever was committed by then, such as a lane's cap, was seen.
fn leasing(table: &str) -> String {
    format!(
        "update {table} c
         set state = 1, fence = c.fence + 1, worker = $1, started_at = statement_timestamp(), ready_at = p.due_at,
             due_at = {NOW} + $2 * interval '1 millisecond'
         from picked p
         where c.ctid = p.place_in_table
         {LEASED}"
    )
}
