//! The statements that hand out tasks.

use super::bundling::{IS_BUNDLE, STEP, bundling, in_bundles, meanwhile, unwritten};
use super::sheaves::{of_sheaves, slices, taken};
use super::{AT_START, NOW};
use crate::postgres::schema::Place;

/// Leases an equal part of `$3` tasks from each lane that is neither paused nor capped, with `$9` other lanes that are to get as much;
/// of the lanes `$11` no more than `$12`, and of any other no more than `$10`.
///
/// Walks from lane to lane through the index of what waits, from the one after `$6` around to where it started, `$7` lanes at
/// most, or over the lanes `$8`.
pub(super) fn lease(place: &Place) -> String {
    let (table, lanes, sheaves) = (place.quoted(), place.lanes(), place.sheaves());
    let next = |after: &str, until: &str| {
        format!(
            "least((select n.lane from {table} n where n.state = 0 and n.lane > {after} {until} order by n.lane limit 1),
                   (select n.lane from {sheaves} n where n.lane > {after} {until} order by n.lane limit 1))"
        )
    };
    let open = format!(
        "walked (lane, wrapped, place) as (
             (select coalesce(f.lane, {first}), f.lane is null, 1::int8 from (select {after}) as f (lane)
              where $8::text[] is null)
             union all
             select coalesce(f.lane, case when not w.wrapped then {around} end), w.wrapped or f.lane is null, w.place + 1
             from walked w, lateral (select case when w.wrapped then {until} else {further} end) as f (lane)
             where w.lane is not null and w.place < $7
         ),
         seen as materialized (
             select w.lane, w.place from walked w where w.lane is not null
             union all
             select o.lane, o.place from unnest($8) with ordinality as o (lane, place)
         ),
         open as materialized (
             select o.lane, o.place, least(o.room, ($3 + o.lanes - 1) / o.lanes) as quota
             from (
                 select s.lane, s.place, count(*) over () + $9 as lanes, coalesce(h.room, $10) as room
                 from seen s left join {lanes} l on l.lane = s.lane
                      left join unnest($11::text[], $12::int8[]) as h (lane, room) on h.lane = s.lane
                 where (l.lane is null or not l.paused and l.cap is null) and coalesce(h.room, $10) > 0
             ) o
         )",
        after = next("$6", ""),
        further = next("w.lane", ""),
        until = next("w.lane", "and n.lane <= $6"),
        around = next("''", "and n.lane <= $6"),
        first = next("''", ""),
    );
    lease_from(place, &open)
}

/// Leases an equal part of `$3` tasks from each of the lanes `$6`, which [`lock_capped`] has locked: up to its cap among `$7`, and no
/// more than its part of `$8`. Whoever counts what is leased in a lane has locked it, so nobody else is about to add to it.
///
/// Of bundles `$9` it is known that `$11` leases of lanes `$10` have not ended.
pub(super) fn lease_capped(place: &Place) -> String {
    let open = format!(
        "walked (lane, wrapped, place) as (select null::text, false, 0::int8),
         {in_lanes},
         open as materialized (
             select o.lane, o.place, least(o.room, ($3 + o.lanes - 1) / o.lanes) as quota
             from (
                 select w.lane, w.place, count(*) over () as lanes, least(w.share, {room}) as room
                 from unnest($6::text[], $7::int8[], $8::int8[]) with ordinality as w (lane, cap, share, place)
             ) o
             where o.room > 0
         )",
        in_lanes = in_lanes(place, "$6::text[]", "unnest($9::int8[], $10::text[], $11::int8[])"),
        room = room(place),
    );
    lease_from(place, &open)
}

/// For the worker `$1` and `$2` milliseconds, from lanes that are `open`. Passes over what was rescued `$4` times. What is found may
/// become one bundle, from `$5` tasks on.
///
/// A row without a task tells how many lanes were walked over, which was the last and how many were open, how many tasks are in
/// bundles, the number of the bundle that this lease is, how many tasks were found, of which others may have been faster, the
/// lanes whose sheaves were used up, so that they may have more, and whether somebody else has all sheaves of a lane locked. The other
/// rows are a task each.
fn lease_from(place: &Place, open: &str) -> String {
    let (table, bundles, sheaves) = (place.quoted(), place.bundles(), place.sheaves());
    format!(
        "with recursive {open},
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
                    p.enqueued_at, p.due_at, p.place, p.place_in_table
             from picked p where (select is_bundle from counted)
             union all
             select c.id, c.fence + {STEP}, c.kind, c.key, c.lane, c.payload, c.version, c.failures, c.rescues,
                    c.enqueued_at, c.due_at, n.place, c.place_in_table
             from {of_sheaves} where (select is_bundle from counted)
         )
         select (select count(*) from walked where lane is not null) as walked,
                (select lane from walked where lane is not null order by place desc limit 1) as last,
                (select count(*) from open) as open,
                (select coalesce(sum(b.tasks), 0)::int8 from {bundles} b) as in_bundles,
                (select number from bundle) as bundle,
                (select count(*) from found) + (select coalesce(sum(s.take), 0) from slice s) as found,
                (select array_agg(distinct s.lane) from slice s where s.take > 0 and s.take = s.rest) as used_up,
                exists (select from open o where $4 > 0 and o.place not in (select s.place from sheaf s)
                        and exists (select from {sheaves} s where s.lane = o.lane and s.due_at <= {AT_START})) as locked,
                {NOTHING_LEASED}
         union all
         select null, null, null, null, null, null, null, null, l.* from leased l",
        slices = slices(place),
        taken = taken(place),
        meanwhile = meanwhile(place),
        bundling = bundling(&bundles),
        of_sheaves = of_sheaves(place),
        leasing = leasing(&table, "picked", &format!("{BY_PLACE} {AS_ROWS}")),
        leasing_sheaved = leasing(
            &table,
            &format!("(select c.id, c.fence, c.due_at, n.place from {of_sheaves})", of_sheaves = of_sheaves(place)),
            &format!("c.id = p.id and c.fence = p.fence {AS_ROWS}")
        ),
    )
}

/// How many tasks of each of these lanes are in bundles and have not ended. Of some that may be `told`, by number and lane: that is believed
/// of bundles of which no lease was written into a row, as whoever settles it elsewhere does. The others are looked into.
fn in_lanes(place: &Place, lanes: &str, told: &str) -> String {
    let (table, bundles) = (place.quoted(), place.bundles());
    format!(
        "known as materialized (
             select t.number, t.lane, t.tasks from {told} as t (number, lane, tasks) join {bundles} b on b.number = t.number
             where not b.unbundled
         ),
         in_lanes as materialized (
             select l.lane, sum(l.tasks)::int8 as tasks
             from (
                 select k.lane, k.tasks from known k
                 union all
                 select r.lane, count(*)
                 from {bundles} b, unnest(b.ids, b.fences) as u (id, fence)
                      join {table} r on r.id = u.id and r.fence = u.fence
                 where b.lanes && {lanes} and b.number <> all (array(select k.number from known k))
                       and r.lane = any ({lanes}) and {unwritten}
                 group by r.lane
             ) l
             group by l.lane
         )",
        unwritten = unwritten("r"),
    )
}

/// How many more tasks the cap of a lane `w` has room for, by those in rows and those [`in_lanes`].
fn room(place: &Place) -> String {
    let table = place.quoted();
    format!(
        "greatest(0, w.cap - (select count(*) from (
             select from {table} r where r.state = 1 and r.lane = w.lane limit w.cap) r)
             - coalesce((select i.tasks from in_lanes i where i.lane = w.lane), 0))"
    )
}

/// Locks lanes behind `$1`, of the lanes `$2` and not of `$4`, in which something is due and there is room, `$3` at most. Tells of each
/// whether it has sheaves. What is known of bundles is as with [`lease_capped`], `$5` to `$7`.
pub(super) fn lock_capped(place: &Place) -> String {
    let (table, lanes, sheaves) = (place.quoted(), place.lanes(), place.sheaves());
    let in_sheaves = format!("exists (select from {sheaves} h where h.lane = w.lane and h.due_at <= {AT_START})");
    let capped = format!("array(select l.lane from {lanes} l where l.cap is not null)");
    format!(
        "with {in_lanes}
         select w.lane, w.cap, {in_sheaves} from {lanes} w
         where w.cap is not null and not w.paused and w.lane > $1 and ($2::text[] is null or w.lane = any ($2))
               and not w.lane = any ($4::text[])
               and ({in_sheaves}
                    or exists (select from {table} c where c.state = 0 and c.lane = w.lane and c.due_at <= {AT_START}
                                      and (c.id, c.fence) not in ({in_bundles})))
               and {room} > 0
         order by w.lane limit $3
         for update of w skip locked",
        in_lanes = in_lanes(place, &capped, "unnest($5::int8[], $6::text[], $7::int8[])"),
        in_bundles = in_bundles(&place.bundles()),
        room = room(place),
    )
}

/// As [`lease_capped`], from the lanes `$5` whose caps `$6` are one, each its part of `$7`: in the order in which tasks are due. What
/// was rescued `$4` times is left out and not passed over, and what is due after a sheaf has to wait for it.
pub(super) fn lease_in_order(place: &Place) -> String {
    let (table, bundles, sheaves) = (place.quoted(), place.bundles(), place.sheaves());
    format!(
        "with {in_lanes},
         open as materialized (
             select w.lane, w.place, count(*) over () as lanes, least(w.share, {room}) as room,
                    least({AT_START}, (select h.due_at from {sheaves} h where h.lane = w.lane order by h.due_at limit 1)) as until
             from unnest($5::text[], $6::int8[], $7::int8[]) with ordinality as w (lane, cap, share, place)
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
             where p.rescues < $4
             limit $3
         ),
         {meanwhile}
         {leasing}",
        in_lanes = in_lanes(place, "$5::text[]", "(select null::int8, null::text, null::int8 where false)"),
        room = room(place),
        in_bundles = in_bundles(&bundles),
        meanwhile = meanwhile(place),
        leasing = leasing(&table, "picked", BY_PLACE),
    )
}

/// As many columns of which nothing is known.
const NOTHING_LEASED: &str =
    "null::uuid, null::int8, null::text, null::text, null::text, null::bytea, null::int4, null::int4,
                null::int4, null::timestamptz, null::timestamptz, null::int8, null::tid";

/// What is leased of tasks `p`.
const LEASED: &str = "returning c.id, c.fence, c.kind, c.key, c.lane, c.payload, c.version, c.failures, c.rescues,
                      c.enqueued_at, p.due_at, p.place, c.ctid";

/// Rows that are locked are where they were found: by their place, which spares a search by id for each. One that was changed since
/// the statement began is invisible there, and waits for the next one. Not so those of tasks in sheaves, which are not locked: they
/// have been taken out, so none may be missed.
const BY_PLACE: &str = "c.ctid = p.place_in_table";

/// Unless it is a bundle.
const AS_ROWS: &str = "and not (select is_bundle from counted)";

/// Writes leases of those `tasks` into their rows `c` for which this holds.
///
/// A task is started when it was asked for: whatever was committed by then, such as a lane's cap, was seen.
fn leasing(table: &str, tasks: &str, which: &str) -> String {
    format!(
        "update {table} c
         set state = 1, fence = c.fence + 1, worker = $1, started_at = statement_timestamp(), ready_at = p.due_at,
             due_at = {NOW} + $2 * interval '1 millisecond'
         from {tasks} p
         where {which}
         {LEASED}"
    )
}
