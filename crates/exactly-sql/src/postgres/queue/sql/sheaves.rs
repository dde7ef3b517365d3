//! Tasks that were enqueued together and wait.
//!
//! They are named in rows of their own, sheaves, in the order in which they are due, and are in no index of what waits. Whoever
//! leases some of them has their sheaf locked and says in it how many are taken, so that their own rows need no lock: nobody
//! else changes the row of a task that waits in a sheaf. From then on they are as any other, in a bundle or in their rows.

use super::AT_START;
use super::bundling::in_bundles;
use crate::postgres::schema::Place;

/// The state of what is in a sheaf, is leased by a bundle out of one, or was leased by one until it was done: then it has ended. It
/// stays, because a row whose state changes leaves its page and costs half as much again.
pub(in super::super) const SHEAVED: i16 = 5;

/// The state of a task by its row.
pub(super) fn own_state(row: &str) -> String {
    format!("case when {row}.state <> {SHEAVED} then {row}.state when {row}.ended_at is null then 0 else 3 end")
}

/// The most tasks of a sheaf. Whoever is stopped while it is locked keeps so many from others.
const TASKS_MAX: i64 = 1000;

/// The most sheaves of one lane that a lease takes from at once. They may be small: of what is enqueued together, all but a few may have
/// been there.
const SHEAVES_MAX: i64 = 1000;

/// How many tasks most sheaves have at least, by which it is told how many are looked at. They are made of more, and may have been taken
/// from.
const TASKS_USUAL: i64 = 8;

/// Puts those of the tasks that were `added` which are to be in them into sheaves.
pub(super) fn sheaved(sheaves: &str) -> String {
    format!(
        "insert into {sheaves} (due_at, fence, tasks, lane, ids, spots)
         select min(a.due_at), min(a.fence), count(*), a.lane, array_agg(a.id order by a.due_at),
                array_agg(a.spot order by a.due_at)
         from (
             select a.*, (row_number() over (partition by a.lane order by a.due_at) - 1) / {TASKS_MAX} as nth
             from added a where a.state = {SHEAVED}
         ) a
         group by a.lane, a.nth"
    )
}

/// What is at hand in the lanes that are `open`, as it is due: what waits by itself, which is `found`, and what is `named` in sheaves.
/// These are locked, and so are the rows of what is in none.
pub(super) fn slices(place: &Place) -> String {
    format!(
        "{at_hand},
         {SHARED_OUT},
         named as not materialized (
             select s.place, s.fence, u.id, u.spot
             from slice s, unnest(s.ids[s.taken + 1 : s.taken + s.take], s.spots[s.taken + 1 : s.taken + s.take]) as u (id, spot)
             where s.take > 0
         ),
         found as materialized (
             select a.place_in_table, a.id, a.fence, a.kind, a.key, a.lane, a.payload, a.version, a.failures, a.rescues,
                    a.enqueued_at, a.due_at, a.place
             from alone a
             where case when a.place in (select f.place from fewer f)
                 then a.nth <= (select f.alone from fewer f where f.place = a.place) else true end
         )",
        at_hand = at_hand(place),
    )
}

/// The tasks `c` that are `named`, each where its sheaf says, or else by its id. Nobody else changes them, so none is looked for before it
/// is leased.
pub(super) fn of_sheaves(place: &Place) -> String {
    let table = place.quoted();
    let of_sheaf = format!("c.state + 0 = {SHEAVED} and c.fence = n.fence");
    format!(
        "named n, lateral (
             select {COLUMNS} from {table} c where c.ctid = n.spot and c.id = n.id and {of_sheaf}
             union all
             select {COLUMNS} from {table} c where c.id = n.id and {of_sheaf}
             limit 1
         ) c"
    )
}

/// What is found of a task `c`.
const COLUMNS: &str =
    "c.ctid as place_in_table, c.id, c.fence, c.kind, c.key, c.lane, c.payload, c.version, c.failures,
                           c.rescues, c.enqueued_at, c.due_at";

/// What waits `alone` of each lane, and every `next_sheaf`, with how many tasks are due before it. Of either no more than the lane's
/// quota, and nothing alone that is due after the sheaves if they have enough, since others would find locked what is not leased, or if
/// there may be more of them.
///
/// As many sheaves are taken from as have the tasks that are wanted, unless they have far fewer than is usual.
fn at_hand(place: &Place) -> String {
    let (table, sheaves) = (place.quoted(), place.sheaves());
    let looked_at = format!("least({SHEAVES_MAX}, o.quota / {TASKS_USUAL} + 1)");
    format!(
        "sheaf as materialized (
             select o.place, s.* from open o, lateral (
                 select s.number, s.due_at, s.fence, s.tasks - s.taken as rest, s.taken, s.lane, s.ids, s.spots
                 from {sheaves} s
                 where s.lane = o.lane and s.due_at <= {AT_START} and $4 > 0
                 order by s.due_at
                 limit (
                     select 1 + count(*) from (
                         select sum(v.tasks - v.taken) over (order by v.due_at, v.number) as tasks from (
                             select v.* from {sheaves} v where v.lane = o.lane order by v.due_at
                             limit {looked_at}
                         ) v
                     ) v
                     where v.tasks < o.quota
                 )
                 for update skip locked
             ) s limit $3
         ),
         front as materialized (
             select o.*, case when s.tasks >= o.quota or s.sheaves >= {looked_at} then s.due_at else {AT_START} end as until
             from open o, lateral (
                 select sum(s.rest) as tasks, count(*) as sheaves, max(s.due_at) as due_at from sheaf s where s.place = o.place
             ) s
             where (select count(*) from sheaf) < $3 or o.place <= (select max(s.place) from sheaf s)
         ),
         alone as materialized (
             select p.*, row_number() over (partition by p.place order by p.due_at) as nth
             from (select p.*, o.place from front o, lateral (
                 select {COLUMNS} from {table} c
                 where c.state = 0 and c.lane = o.lane and c.due_at <= o.until and c.rescues < $4
                       and (c.id, c.fence) not in ({in_bundles})
                 order by c.due_at
                 limit o.quota
                 for update skip locked
             ) p limit $3) p
         ),
         next_sheaf as materialized (
             select * from (
                 select w.*, coalesce(sum(w.rest) over (partition by w.place order by w.due_at, w.number nulls first
                            rows between unbounded preceding and 1 preceding), 0) as before
                 from (
                     select * from sheaf
                     union all
                     select a.place, null, a.due_at, null, 1, null, null, null, null
                     from alone a where (a.place in (select s.place from sheaf s)) is true
                 ) w
             ) w
             where w.number is not null
         )",
        in_bundles = in_bundles(&place.bundles()),
    )
}

/// How many of `$3` tasks each lane's `part` is, in the order of the walk, how much of that is a `slice` of which sheaf, and of which
/// lanes `fewer` are leased than wait alone.
const SHARED_OUT: &str = "had as materialized (
             select a.place, count(*) as alone, 0::int8 as sheaved from alone a group by a.place
             union all
             select s.place, 0, sum(s.rest)::int8 from sheaf s group by s.place
         ),
         part as materialized (
             select p.place, p.alone,
                    greatest(0, least(p.wants, $3 - coalesce(sum(p.wants) over (order by p.place
                        rows between unbounded preceding and 1 preceding), 0)))::int8 as tasks
             from (
                 select o.place, h.alone, least(o.quota, h.alone + h.sheaved) as wants
                 from open o, lateral (
                     select coalesce(sum(h.alone), 0)::int8 as alone, coalesce(sum(h.sheaved), 0)::int8 as sheaved
                     from had h where h.place = o.place
                 ) h
             ) p
         ),
         slice as materialized (
             select s.*, greatest(0, least(s.rest, p.tasks - s.before))::int4 as take
             from next_sheaf s, part p where p.place = s.place
         ),
         fewer as materialized (
             select p.place, p.tasks - s.tasks as alone
             from part p, lateral (
                 select coalesce(sum(s.take), 0)::int8 as tasks from slice s where s.place = p.place
             ) s
             where p.tasks - s.tasks < p.alone
         )";

/// Takes each `slice` out of its sheaf.
pub(super) fn taken(place: &Place) -> String {
    let (table, sheaves) = (place.quoted(), place.sheaves());
    format!(
        "used_up as (
             delete from {sheaves} h using slice s where h.number = s.number and s.take > 0 and s.take = s.rest
         ),
         kept as (
             update {sheaves} h
             set taken = s.taken + s.take,
                 due_at = coalesce((select c.due_at from {table} c where c.id = s.ids[s.taken + s.take + 1]), s.due_at)
             from slice s
             where h.number = s.number and s.take > 0 and s.take < s.rest
         )"
    )
}

/// Takes tasks out of the first sheaf of each of the lanes `$1` that nobody has locked, so that as many of `$2` wait by themselves in
/// it, in the same order.
pub(super) fn spread(place: &Place) -> String {
    let (table, sheaves) = (place.quoted(), place.sheaves());
    format!(
        "with slice as materialized (
             select s.*, least(s.rest, l.tasks - a.tasks)::int4 as take
             from unnest($1::text[], $2::int8[]) as l (lane, tasks), lateral (
                 select s.number, s.due_at, s.fence, s.tasks - s.taken as rest, s.taken, s.lane, s.ids
                 from {sheaves} s
                 where s.lane = l.lane and s.due_at <= {AT_START}
                 order by s.due_at
                 limit 1
                 for update skip locked
             ) s, lateral (
                 select count(*) as tasks from (
                     select from {table} c
                     where c.state = 0 and c.lane = s.lane and c.due_at <= s.due_at and (c.id, c.fence) not in ({in_bundles})
                     limit l.tasks
                 ) c
             ) a
         ),
         {taken}
         update {table} c set state = 0
         from slice s, unnest(s.ids[s.taken + 1 : s.taken + s.take]) as u (id)
         where c.id = u.id and c.fence = s.fence and c.state + 0 = {SHEAVED}",
        in_bundles = in_bundles(&place.bundles()),
        taken = taken(place),
    )
}
