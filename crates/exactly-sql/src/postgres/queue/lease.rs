//! Handing out tasks.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use exactly::queue::{Ask, Fence, Lane, Lanes, Lease, Leased, TaskId};
use sqlx::postgres::{PgBindIterExt as _, PgRow};
use sqlx::{Connection as _, PgConnection, Row as _, ValueRef as _};
use tokio::time::Instant;

use super::PgQueue;
use super::enqueue::corrupt;
use crate::postgres::row::{PgTime, millis_code};

/// The most lanes that one statement walks over.
const LANES_MAX: i64 = 64;

/// The most statements of one lease: by then a walk has gone around, or others have their turn.
const WALKS_MAX: u32 = 32;

/// The most times that one lease goes over the lanes to fill up what some of them left over.
const FILL_ROUNDS_MAX: u32 = 8;

/// How long it may take until a cap that another process set is honoured for a lane that had none, or the other way round.
const CAPPED_FRESH: Duration = Duration::from_secs(1);

/// Where the next walk over the lanes goes on. Each process goes around by itself.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    // A std mutex, since it is never held across an await.
    state: Mutex<Round>,
}

#[derive(Clone, Debug, Default)]
struct Round {
    /// The lane that was served last.
    cursor: String,
    capped_cursor: String,
    /// Whether any lane has a cap, and when that was read.
    capped: Option<(bool, Instant)>,
}

impl Rounds {
    /// Lanes were changed by this process: look again.
    pub(super) fn lanes_changed(&self) {
        self.change(|round| round.capped = None);
    }

    fn look(&self) -> Round {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut Round)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// What was leased, by the place of its lane in the walk.
type Served = (i64, PgTime, Leased);

/// A lane with a cap that this lease has locked.
struct Capped {
    lane: Lane,
    cap: i64,
    /// How many more of its tasks the worker takes.
    share: i64,
}

/// How many more tasks of lanes without a cap the worker takes.
struct Rooms<'a> {
    /// Of those that it has any of.
    of: BTreeMap<&'a Lane, i64>,
    /// Of each of the others.
    others: i64,
}

impl<'a> Rooms<'a> {
    /// With what was `served` so far.
    fn new(ask: &'a Ask, served: &'a [Served]) -> Self {
        let Some(share) = &ask.share else {
            let of = BTreeMap::new();
            return Self { of, others: i64::MAX };
        };
        let others = i64::from(share.most);
        let held = share.held.keys().map(|lane| (lane, share.room(lane, false).into()));
        let mut of: BTreeMap<&Lane, i64> = held.collect();
        for (_, _, task) in served {
            *of.entry(&task.lane).or_insert(others) -= 1;
        }
        Self { of, others }
    }
}

/// What one statement leased.
#[derive(Default)]
struct Part {
    served: Vec<Served>,
    /// Whether a lane got all that it was to get, so that it may have more.
    more: bool,
}

impl Part {
    /// Of `most` tasks over so many lanes.
    fn new(served: Vec<Served>, most: i64, lanes: i64) -> Self {
        let quota = (most + lanes - 1) / lanes.max(1);
        let mut by_lane: HashMap<i64, i64> = HashMap::new();
        for (place, ..) in &served {
            *by_lane.entry(*place).or_default() += 1;
        }
        let more = by_lane.values().any(|count| *count >= quota);
        Self { served, more }
    }
}

impl PgQueue {
    pub(super) async fn lease_on(&self, conn: &mut PgConnection, ask: &Ask) -> Result<Vec<Leased>, sqlx::Error> {
        let served = if self.any_capped(conn).await? {
            let mut tx = conn.begin().await?;
            let capped = self.lock_some_capped(&mut tx, ask).await?;
            let served = self.lease_fairly(&mut tx, ask, capped).await?;
            tx.commit().await?;
            served
        } else {
            self.lease_fairly(conn, ask, Vec::new()).await?
        };
        Ok(in_turn(served))
    }

    /// An equal part from each lane first, then what is left over from those that have more.
    async fn lease_fairly(
        &self,
        conn: &mut PgConnection,
        ask: &Ask,
        mut capped: Vec<Capped>,
    ) -> Result<Vec<Served>, sqlx::Error> {
        let most = i64::from(ask.most);
        let mut served = Vec::new();
        for round in 0..FILL_ROUNDS_MAX {
            let left = most - count(&served);
            let others = if round == 0 { capped.len() } else { 0 };
            let rooms = Rooms::new(ask, &served);
            let open = self
                .lease_open(conn, ask, left, i64::try_from(others).unwrap_or(0), &rooms)
                .await?;
            served.extend(open.served);
            let left = most - count(&served);
            let from_capped = self.lease_capped(conn, ask, left, &capped).await?;
            for (_, _, task) in &from_capped.served {
                if let Some(capped) = capped.iter_mut().find(|capped| capped.lane == task.lane) {
                    capped.share -= 1;
                }
            }
            served.extend(from_capped.served);
            if count(&served) >= most || !(open.more || from_capped.more) {
                break;
            }
        }
        Ok(served)
    }

    async fn any_capped(&self, conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
        if let Some((capped, at)) = self.rounds.look().capped
            && at.elapsed() < CAPPED_FRESH
        {
            return Ok(capped);
        }
        let capped = self.sql.any_capped.query().fetch_one(conn).await?.try_get(0)?;
        self.rounds
            .change(|round| round.capped = Some((capped, Instant::now())));
        Ok(capped)
    }

    /// From lanes without a cap.
    async fn lease_open(
        &self,
        conn: &mut PgConnection,
        ask: &Ask,
        most: i64,
        others: i64,
        rooms: &Rooms<'_>,
    ) -> Result<Part, sqlx::Error> {
        for _ in 0..WALKS_MAX {
            if most <= 0 {
                break;
            }
            let cursor = self.rounds.look().cursor;
            let rows = self
                .sql
                .lease
                .query()
                .bind(ask.worker.as_uuid())
                .bind(millis_code(ask.lease))
                .bind(most)
                .bind(&cursor)
                .bind(LANES_MAX)
                .bind(behind(&cursor, &ask.lanes))
                .bind(others)
                .bind(rooms.others)
                .bind(rooms.of.keys().map(|lane| lane.as_str()).bind_iter())
                .bind(rooms.of.values().copied().bind_iter())
                .bind(rescues_below(ask))
                .fetch_all(&mut *conn)
                .await?;
            let walk = Walk::read(rows.first().ok_or(sqlx::Error::RowNotFound)?)?;
            let leased = rows
                .iter()
                .filter(|row| matches!(row.try_get_raw(3), Ok(id) if !id.is_null()));
            let served = leased.map(|row| read(row, 3)).collect::<Result<Vec<_>, _>>()?;
            // The next walk starts behind the last lane that got something, or behind the last that was looked at.
            let last = served.iter().max_by_key(|(place, ..)| *place);
            let last = last.map(|(_, _, task)| task.lane.as_str().to_owned()).or(walk.last);
            self.rounds.change(|round| round.cursor = last.unwrap_or_default());
            if !served.is_empty() || walk.walked < LANES_MAX {
                return Ok(Part::new(served, most, walk.open + others));
            }
        }
        Ok(Part::default())
    }

    /// Lanes with a cap in which something is due. They stay locked until the transaction ends, so that nobody else counts
    /// what runs in them meanwhile.
    async fn lock_some_capped(&self, tx: &mut PgConnection, ask: &Ask) -> Result<Vec<Capped>, sqlx::Error> {
        let most = usize::try_from(LANES_MAX.min(i64::from(ask.most))).unwrap_or(0);
        let cursor = self.rounds.look().capped_cursor;
        let mut locked = self.lock_capped(tx, ask, &cursor).await?;
        if locked.len() < most && !cursor.is_empty() {
            // Around to where it started. What is behind that is locked already.
            let mut first = self.lock_capped(tx, ask, "").await?;
            first.retain(|capped| capped.lane.as_str() <= cursor.as_str());
            first.truncate(most - locked.len());
            locked.append(&mut first);
        }
        // Where all of them have their turn, there is nowhere to go on.
        let last = locked.last().filter(|_| locked.len() >= most);
        let cursor = last.map(|capped| capped.lane.as_str().to_owned());
        self.rounds
            .change(|round| round.capped_cursor = cursor.unwrap_or_default());
        Ok(locked)
    }

    async fn lock_capped(&self, tx: &mut PgConnection, ask: &Ask, after: &str) -> Result<Vec<Capped>, sqlx::Error> {
        let query = self.sql.lock_capped.query().bind(after).bind(behind("", &ask.lanes));
        let most = LANES_MAX.min(i64::from(ask.most));
        let full = ask.share.iter().flat_map(|share| share.full(true)).map(Lane::as_str);
        let rows = query.bind(most).bind(full.bind_iter()).fetch_all(tx).await?;
        let capped = rows.iter().map(|row| {
            let lane = lane(row.try_get(0)?)?;
            Ok(Capped {
                cap: row.try_get(1)?,
                share: ask.room(&lane, true).into(),
                lane,
            })
        });
        capped.collect()
    }

    async fn lease_capped(
        &self,
        tx: &mut PgConnection,
        ask: &Ask,
        most: i64,
        locked: &[Capped],
    ) -> Result<Part, sqlx::Error> {
        if most <= 0 || locked.is_empty() {
            return Ok(Part::default());
        }
        let rows = self
            .sql
            .lease_capped
            .query()
            .bind(ask.worker.as_uuid())
            .bind(millis_code(ask.lease))
            .bind(most)
            .bind(locked.iter().map(|capped| capped.lane.as_str()).bind_iter())
            .bind(locked.iter().map(|capped| capped.cap).bind_iter())
            .bind(locked.iter().map(|capped| capped.share).bind_iter())
            .bind(rescues_below(ask))
            .fetch_all(tx)
            .await?;
        let served = rows.iter().map(|row| read(row, 0)).collect::<Result<Vec<_>, _>>()?;
        Ok(Part::new(served, most, i64::try_from(locked.len()).unwrap_or(i64::MAX)))
    }
}

/// What a walk over the lanes saw.
struct Walk {
    walked: i64,
    last: Option<String>,
    open: i64,
}

impl Walk {
    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            walked: row.try_get(0)?,
            last: row.try_get(1)?,
            open: row.try_get(2)?,
        })
    }
}

fn rescues_below(ask: &Ask) -> i32 {
    let below = ask.rescues_below.map(i32::try_from);
    below.and_then(Result::ok).unwrap_or(i32::MAX)
}

/// The lanes that are asked for, those after the cursor first, or nothing if all are.
fn behind(cursor: &str, lanes: &Lanes) -> Option<Vec<String>> {
    let Lanes::Only(lanes) = lanes else { return None };
    let mut lanes: Vec<String> = lanes.iter().map(|lane| lane.as_str().to_owned()).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let from = lanes.partition_point(|lane| lane.as_str() <= cursor);
    lanes.rotate_left(from);
    Some(lanes)
}

fn count(served: &[Served]) -> i64 {
    i64::try_from(served.len()).unwrap_or(i64::MAX)
}

fn read(row: &PgRow, first: usize) -> Result<Served, sqlx::Error> {
    let due_at: PgTime = row.try_get(first + 10)?;
    let leased = Leased {
        lease: Lease {
            id: TaskId::from_uuid(row.try_get(first)?),
            fence: fence(row.try_get(first + 1)?)?,
        },
        kind: row.try_get::<&str, _>(first + 2)?.into(),
        key: row.try_get::<&str, _>(first + 3)?.into(),
        lane: lane(row.try_get(first + 4)?)?,
        payload: Bytes::copy_from_slice(row.try_get(first + 5)?),
        version: row.try_get::<i32, _>(first + 6)?.cast_unsigned(),
        failures: row.try_get::<i32, _>(first + 7)?.cast_unsigned(),
        rescues: row.try_get::<i32, _>(first + 8)?.cast_unsigned(),
        enqueued_at: row.try_get::<PgTime, _>(first + 9)?.into(),
        due_at: due_at.into(),
    };
    let place = row.try_get::<i64, _>(first + 11)?;
    Ok((place, due_at, leased))
}

pub(super) fn fence(stored: i64) -> Result<Fence, sqlx::Error> {
    let fence = u64::try_from(stored).map(Fence::new);
    fence.map_err(|_| corrupt(&format!("fence is {stored}")))
}

pub(super) fn fence_code(fence: Fence) -> i64 {
    i64::try_from(fence.get()).unwrap_or(i64::MAX)
}

pub(super) fn lane(stored: &str) -> Result<Lane, sqlx::Error> {
    Lane::new(stored).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

/// The first task of each lane, then the second of each, and so on.
fn in_turn(mut served: Vec<Served>) -> Vec<Leased> {
    served.sort_by(|(_, due, one), (_, other_due, other)| (&one.lane, due).cmp(&(&other.lane, other_due)));
    let mut turn = 0_usize;
    let mut turns: Vec<(usize, i64, Leased)> = Vec::with_capacity(served.len());
    for (place, _, task) in served {
        turn = match turns.last() {
            Some((_, _, before)) if before.lane == task.lane => turn + 1,
            _ => 0,
        };
        turns.push((turn, place, task));
    }
    turns.sort_by_key(|(turn, place, _)| (*turn, *place));
    turns.into_iter().map(|(_, _, task)| task).collect()
}
