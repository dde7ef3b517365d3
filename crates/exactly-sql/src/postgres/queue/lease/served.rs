//! What the statements that lease answer.

use bytes::Bytes;
use exactly::queue::{Lane, Lease, Leased, TaskId};
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::super::bundles::InBundle;
use super::super::spot::Spot;
use super::{fence, lane};
use crate::postgres::row::PgTime;

/// What was leased.
pub(super) struct Served {
    /// The place of its lane in the walk.
    pub(super) place: i64,
    due_at: PgTime,
    spot: Spot,
    pub(super) task: Leased,
}

impl Served {
    /// As a lease in a bundle, with its lane if that has a cap.
    pub(super) fn bundled(&self, lane: Option<Lane>) -> InBundle {
        InBundle {
            lease: self.task.lease,
            lane,
            spot: self.spot,
        }
    }
}

/// What a walk over the lanes saw.
pub(super) struct Walk {
    pub(super) walked: i64,
    pub(super) last: Option<String>,
    pub(super) open: i64,
    /// Tasks in bundles.
    pub(super) in_bundles: i64,
    /// The bundle that it has become.
    pub(super) bundle: Option<i64>,
    /// Tasks that were there and free when it came, or are named in sheaves, though others may have leased them by now.
    pub(super) found: i64,
    /// Lanes whose sheaves were used up, and which may have more.
    pub(super) used_up: Vec<Lane>,
    /// Whether others had all sheaves of a lane locked, which they have while they lease.
    pub(super) is_locked: bool,
}

/// What it is read from, before what a leased task is read from.
const WALK_COLUMNS: usize = 8;

impl Walk {
    /// Nothing, if the row is of a task.
    fn read(row: &PgRow) -> Result<Option<Self>, sqlx::Error> {
        let Some(walked) = row.try_get(0)? else {
            return Ok(None);
        };
        let used_up: Vec<String> = row.try_get::<Option<_>, _>(6)?.unwrap_or_default();
        Ok(Some(Self {
            walked,
            last: row.try_get(1)?,
            open: row.try_get(2)?,
            in_bundles: row.try_get(3)?,
            bundle: row.try_get(4)?,
            found: row.try_get(5)?,
            used_up: used_up.iter().map(|name| lane(name)).collect::<Result<_, _>>()?,
            is_locked: row.try_get(7)?,
        }))
    }
}

/// What a walk saw and leased.
pub(super) fn read_walk(rows: &[PgRow], is_capped: bool) -> Result<(Walk, Vec<Served>), sqlx::Error> {
    let mut walk = None;
    let mut served: Vec<Served> = Vec::with_capacity(rows.len());
    for row in rows {
        match Walk::read(row)? {
            Some(read) => walk = Some(read),
            None => served.push(read(row, WALK_COLUMNS, is_capped, served.last())?),
        }
    }
    Ok((walk.ok_or(sqlx::Error::RowNotFound)?, served))
}

/// Tasks that were leased in order, without anything before them in their rows.
pub(super) fn read_tasks(rows: &[PgRow]) -> Result<Vec<Served>, sqlx::Error> {
    rows.iter().map(|row| read(row, 0, true, None)).collect()
}

/// `before` is the one that was read before it, which mostly has the same lane.
fn read(row: &PgRow, first: usize, is_capped: bool, before: Option<&Served>) -> Result<Served, sqlx::Error> {
    let name: &str = row.try_get(first + 4)?;
    let same = before
        .map(|before| &before.task.lane)
        .filter(|lane| lane.as_str() == name);
    let due_at: PgTime = row.try_get(first + 10)?;
    let task = Leased {
        lease: Lease {
            id: TaskId::from_uuid(row.try_get(first)?),
            fence: fence(row.try_get(first + 1)?)?,
        },
        kind: row.try_get::<&str, _>(first + 2)?.into(),
        key: row.try_get::<&str, _>(first + 3)?.into(),
        lane: same.map_or_else(|| lane(name), |lane| Ok(lane.clone()))?,
        is_capped,
        payload: Bytes::copy_from_slice(row.try_get(first + 5)?),
        version: row.try_get::<i32, _>(first + 6)?.cast_unsigned(),
        failures: row.try_get::<i32, _>(first + 7)?.cast_unsigned(),
        rescues: row.try_get::<i32, _>(first + 8)?.cast_unsigned(),
        enqueued_at: row.try_get::<PgTime, _>(first + 9)?.into(),
        due_at: due_at.into(),
    };
    Ok(Served {
        place: row.try_get(first + 11)?,
        due_at,
        spot: row.try_get(first + 12)?,
        task,
    })
}

/// The first task of each lane, then the second of each, and so on. It is their numbers that are sorted: a task is large.
pub(super) fn in_turn(served: Vec<Served>) -> Vec<Leased> {
    let by_lane = |number: &usize| (&served[*number].task.lane, served[*number].due_at);
    let mut numbers: Vec<usize> = (0..served.len()).collect();
    numbers.sort_by(|one, other| by_lane(one).cmp(&by_lane(other)));
    let mut turns: Vec<(usize, i64, usize)> = Vec::with_capacity(served.len());
    for number in numbers {
        let turn = match turns.last() {
            Some((turn, _, before)) if served[*before].task.lane == served[number].task.lane => turn + 1,
            _ => 0,
        };
        turns.push((turn, served[number].place, number));
    }
    turns.sort_by_key(|(turn, place, _)| (*turn, *place));
    let mut tasks: Vec<Option<Leased>> = served.into_iter().map(|served| Some(served.task)).collect();
    let in_turn = turns.into_iter().filter_map(|(_, _, number)| tasks[number].take());
    in_turn.collect()
}
