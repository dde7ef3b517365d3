//! Handing out tasks.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use exactly::queue::{Ask, Fence, Lane, Lanes, Lease, Leased, TaskId};
use sqlx::postgres::PgRow;
use sqlx::{Connection as _, PgConnection, Row as _};
use tokio::time::Instant;

use super::PgQueue;
use super::enqueue::corrupt;
use crate::postgres::row::{PgTime, millis_code};

/// The most lanes that one statement walks over.
const LANES_MAX: i64 = 64;

/// The most statements of one lease: by then a walk has gone around, or others have their turn.
const WALKS_MAX: u32 = 32;

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
    /// Whether capped lanes are served first the next time.
    capped_first: bool,
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

impl PgQueue {
    pub(super) async fn lease_on(&self, conn: &mut PgConnection, ask: &Ask) -> Result<Vec<Leased>, sqlx::Error> {
        let lanes: Option<Vec<String>> = match &ask.lanes {
            Lanes::All => None,
            Lanes::Only(lanes) => Some(lanes.iter().map(|lane| lane.as_str().to_owned()).collect()),
        };
        let most = i64::from(ask.most);
        let capped = self.any_capped(conn).await?;
        let capped_first = self.rounds.look().capped_first;
        let mut served = Vec::new();
        if capped && capped_first {
            served = self.lease_capped(conn, ask, lanes.as_deref(), most).await?;
        }
        let left = most - count(&served);
        served.extend(self.lease_open(conn, ask, lanes.as_deref(), left).await?);
        let left = most - count(&served);
        if capped && !capped_first && left > 0 {
            served.extend(self.lease_capped(conn, ask, lanes.as_deref(), left).await?);
        }
        if capped {
            self.rounds.change(|round| round.capped_first = !capped_first);
        }
        Ok(in_turn(served))
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
        lanes: Option<&[String]>,
        most: i64,
    ) -> Result<Vec<Served>, sqlx::Error> {
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
                .bind(lanes)
                .fetch_all(&mut *conn)
                .await?;
            let walked: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
            let last: Option<String> = rows.first().map_or(Ok(None), |row| row.try_get(1))?;
            let leased = rows
                .iter()
                .filter(|row| row.try_get::<Option<i64>, _>(3).is_ok_and(|fence| fence.is_some()));
            let served = leased.map(|row| read(row, 2)).collect::<Result<Vec<_>, _>>()?;
            // The next walk starts behind the last lane that got something, or behind the last that was looked at.
            let behind = served.iter().max_by_key(|(place, ..)| *place);
            let behind = behind.map(|(_, _, task)| task.lane.as_str().to_owned()).or(last);
            self.rounds.change(|round| round.cursor = behind.unwrap_or_default());
            if !served.is_empty() || walked < LANES_MAX {
                return Ok(served);
            }
        }
        Ok(Vec::new())
    }

    /// From lanes with a cap, which are locked while their tasks are counted.
    async fn lease_capped(
        &self,
        conn: &mut PgConnection,
        ask: &Ask,
        wanted: Option<&[String]>,
        most: i64,
    ) -> Result<Vec<Served>, sqlx::Error> {
        let mut tx = conn.begin().await?;
        let mut cursor = self.rounds.look().capped_cursor;
        let mut locked = self.lock_capped(&mut tx, &cursor, wanted).await?;
        if locked.is_empty() && !cursor.is_empty() {
            cursor.clear();
            locked = self.lock_capped(&mut tx, &cursor, wanted).await?;
        }
        let Some((last, _)) = locked.last().cloned() else {
            self.rounds.change(|round| round.capped_cursor = cursor);
            tx.commit().await?;
            return Ok(Vec::new());
        };
        let (lanes, caps): (Vec<_>, Vec<_>) = locked.into_iter().unzip();
        let rows = self
            .sql
            .lease_capped
            .query()
            .bind(ask.worker.as_uuid())
            .bind(millis_code(ask.lease))
            .bind(most)
            .bind(lanes)
            .bind(caps)
            .fetch_all(&mut *tx)
            .await?;
        let served = rows.iter().map(|row| read(row, 0)).collect::<Result<Vec<_>, _>>()?;
        tx.commit().await?;
        self.rounds.change(|round| round.capped_cursor = last);
        Ok(served)
    }

    async fn lock_capped(
        &self,
        tx: &mut PgConnection,
        after: &str,
        wanted: Option<&[String]>,
    ) -> Result<Vec<(String, i32)>, sqlx::Error> {
        let rows = self
            .sql
            .lock_capped
            .query()
            .bind(after)
            .bind(wanted)
            .bind(LANES_MAX)
            .fetch_all(tx)
            .await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }
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
