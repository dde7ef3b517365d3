//! The statements that hand out tasks.

use super::bundling::{IS_BUNDLE, STEP, bundling, in_bundles, meanwhile, unwritten};
use super::sheaves::{slices, taken};
use super::{AT_START, NOW};
use crate::postgres::schema::Place;

/// Walks from lane to lane through the index of what waits, from the one after `$4` around to where it started, `$5` lanes
/// at most, or over the lanes `$6`. Leases an equal part of `$3` tasks from each that is neither paused nor capped, with
/// `$7` other lanes that are to get as much; of the lanes `$9` no more than `$10`, and of any other no more than `$8`. Passes
/// over what was rescued `$11` times. What is found may become one bundle, from `$12` tasks on.
///
/// A row without a task tells how many lanes were walked over, which was the last and how many were open, how many tasks are in
/// bundles, the number of the bundle that this lease is, how many tasks were found, of which others may have been faster, the
/// lanes whose sheaves were used up, so that they may have more, and whether somebody else has all sheaves of a lane locked. The other
/// rows are a task each.
pub(super) fn lease(place: &Place) -> String {
    let (table, lanes, bundles, sheaves) = (place.quoted(), place.lanes(), place.bundles(), place.sheaves());
    let next = |after: &str, until: &str| {
        format!(
            "least((select n.lane from {table} n where n.state = 0 and n.lane > {after} {until} order by n.lane limit 1),
                   (select n.lane from {sheaves} n where n.lane > {after} {until} order by n.lane limit 1))"
        )
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
             select o.lane, o.place, least(o.room, ($3 + o.lanes - 1) / o.lanes) as quota
             from (
                 select s.lane, s.place, count(*) over () + $7 as lanes, coalesce(h.room, $8) as room
                 from seen s left join {lanes} l on l.lane = s.lane
                      left join unnest($9::text[], $10::int8[]) as h (lane, room) on h.lane = s.lane
                 where (l.lane is null or not l.paused and l.cap is null) and coalesce(h.room, $8) > 0
             ) o
         ),
         {slices},
         {taken},
         {meanwhile},
         counted as materialized ({IS_BUNDLE}),
         bundle as ({bundling}),
         rows as ({leasing}),
         rows_of_sheaves as ({leasing_sheaved}),
         leased as (
             select * from rows
             union all
             select * from rows_of_sheaves
             union all
             select p.id, p.fence + {STEP}, p.kind, p.key, p.lane, p.payload, p.version, p.failures, p.rescues,
                    p.enqueued_at, p.due_at, p.place
             from picked p where (select is_bundle from counted)
         )
         select (select count(*) from walked where lane is not null) as walked,
                (select lane from walked where lane is not null order by place desc limit 1) as last,
                (select count(*) from open) as open,
                (select coalesce(sum(b.tasks), 0)::int8 from {bundles} b) as in_bundles,
                (select number from bundle) as bundle, (select count(*) from found) as found,
                (select array_agg(distinct s.lane) from slice s where s.take > 0 and s.take = s.rest) as used_up,
                exists (select from open o where $11 > 0 and o.place not in (select s.place from sheaf s)
                        and exists (select from {sheaves} s where s.lane = o.lane and s.due_at <= {AT_START})) as locked,
                {NOTHING_LEASED}
         union all
         select null, null, null, null, null, null, null, null, l.* from leased l",
        after = next("$4", ""),
        further = next("w.lane", ""),
        until = next("w.lane", "and n.lane <= $4"),
        around = next("''", "and n.lane <= $4"),
        first = next("''", ""),
        slices = slices(place),
        taken = taken(place),
        meanwhile = meanwhile(place),
        bundling = bundling(&bundles),
        leasing = leasing(&table, &format!("{BY_PLACE} {AS_ROWS} and not p.is_sheaved")),
        leasing_sheaved = leasing(&table, &format!("c.id = p.id and c.fence = p.fence {AS_ROWS} and p.is_sheaved")),
    )
}

/// Locks lanes behind `$1`, of the lanes `$2` and not of `$4`, in which something is due and there is room, `$3` at most. Tells of each
/// whether it has sheaves.
pub(super) fn lock_capped(place: &Place) -> String {
    let (table, lanes, sheaves) = (place.quoted(), place.lanes(), place.sheaves());
    let in_sheaves = format!("exists (select from {sheaves} h where h.lane = s.lane and h.due_at <= {AT_START})");
    format!(
        "select s.lane, s.cap, {in_sheaves} from {lanes} s
         where s.cap is not null and not s.paused and s.lane > $1 and ($2::text[] is null or s.lane = any ($2))
               and not s.lane = any ($4::text[])
               and (exists (select from {table} c where c.state = 0 and c.lane = s.lane and c.due_at <= {AT_START})
                    or {in_sheaves})
               and s.cap > (select count(*) from (
                   select from {table} r where r.state = 1 and r.lane = s.lane limit s.cap) r)
         order by s.lane limit $3
         for update skip locked"
    )
}

/// As [`lease`], for lanes that [`lock_capped`] has locked, each up to its cap. Whoever counts what runs in a
/// lane has locked it, so nobody else is about to add to it; in bundles is only what was leased before the lane had a cap. What
/// was rescued `$7` times is left out and not passed over, and what is due after a sheaf has to wait for it, for the sake of the order.
pub(super) fn lease_capped(place: &Place) -> String {
    let (table, bundles, sheaves) = (place.quoted(), place.bundles(), place.sheaves());
    format!(
        "with in_lanes as materialized (
             select r.lane, count(*) as tasks
             from {bundles} b, unnest(b.ids, b.fences) as u (id, fence) join {table} r on r.id = u.id and r.fence = u.fence
             where b.lanes && $4::text[] and r.lane = any ($4::text[]) and {unwritten}
             group by r.lane
         ),
         open as materialized (
             select w.lane, w.place, count(*) over () as lanes,
                    least(w.share, greatest(0, w.cap - (select count(*) from (
                        select from {table} r where r.state = 1 and r.lane = w.lane limit w.cap) r)
                        - coalesce((select i.tasks from in_lanes i where i.lane = w.lane), 0))) as room,
                    least({AT_START}, (select h.due_at from {sheaves} h where h.lane = w.lane order by h.due_at limit 1)) as until
             from unnest($4::text[], $5::int8[], $6::int8[]) with ordinality as w (lane, cap, share, place)
         ),
         found as materialized (
             select p.*, o.place
             from open o, lateral (
                 select c.ctid as place_in_table, c.id, c.fence, c.due_at, c.rescues from {table} c
                 where c.state = 0 and c.lane = o.lane and c.due_at <= o.until
                       and (c.id, c.fence) not in ({in_bundles})
                 order by c.due_at
                 limit least(o.room, ($3 + o.lanes - 1) / o.lanes)
                 for update
             ) p
             where p.rescues < $7
             limit $3
         ),
         {meanwhile}
         {leasing}",
        unwritten = unwritten("r"),
        in_bundles = in_bundles(&bundles),
        meanwhile = meanwhile(place),
        leasing = leasing(&table, BY_PLACE),
    )
}

/// As many columns of which nothing is known.
const NOTHING_LEASED: &str =
    "null::uuid, null::int8, null::text, null::text, null::text, null::bytea, null::int4, null::int4,
                null::int4, null::timestamptz, null::timestamptz, null::int8";

/// What is leased of tasks that are `picked`.
const LEASED: &str = "returning c.id, c.fence, c.kind, c.key, c.lane, c.payload, c.version, c.failures, c.rescues,
                      c.enqueued_at, p.due_at, p.place";

/// Rows that are locked are where they were found: by their place, which spares a search by id for each. One that was changed since
/// the statement began is invisible there, and waits for the next one. Not so those of tasks in sheaves, which are not locked: they
/// have been taken out, so none may be missed.
const BY_PLACE: &str = "c.ctid = p.place_in_table";

/// Unless it is a bundle.
const AS_ROWS: &str = "and not (select is_bundle from counted)";

/// Writes leases of those tasks `p` into their rows `c` for which this holds.
///
/// A task is started when it was asked for: whatever was committed by then, such as a lane's cap, was seen.
fn leasing(table: &str, which: &str) -> String {
    format!(
        "update {table} c
         set state = 1, fence = c.fence + 1, worker = $1, started_at = statement_timestamp(), ready_at = p.due_at,
             due_at = {NOW} + $2 * interval '1 millisecond'
         from picked p
         where {which}
         {LEASED}"
    )
}
