//! Who gets what: one of each lane in turn, from the lane after the one that was served last.

use std::fmt::Write as _;

use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection};

use exactly::clock::Timestamp;
use exactly::queue::{Ask, BATCH_MAX, Fence, Lane, Lanes, Lease, Leased};

use super::SqliteQueue;
use super::table::{count, fence, lane, stored_id};
use crate::sqlite::table::{instant, timestamp, unreadable};

/// A lane with something due.
struct Open {
    lane: Lane,
    /// How many more of its tasks may run.
    room: usize,
    is_capped: bool,
}

/// Who gets how many in one round.
struct Round {
    /// How many of the lanes take part.
    lanes: usize,
    /// The most that each of them gets.
    each: usize,
}

impl SqliteQueue {
    pub(super) async fn lease_on(
        &self,
        connection: &mut SqliteConnection,
        ask: &Ask,
        now: Timestamp,
    ) -> Result<Vec<Leased>, sqlx::Error> {
        let most = usize::try_from(ask.most).unwrap_or(usize::MAX).min(BATCH_MAX);
        // Whoever leases has the turn, so the cursor is free.
        let mut cursor = self.cursor.lock().await;
        let mut open = self.open_lanes(connection, ask, &cursor, most, now).await?;
        let (mut leased, mut numbers, mut taken) = (Vec::new(), Vec::new(), 0);
        while let Some(Round { lanes, each }) = next_round(&open, most - leased.len()) {
            open.truncate(lanes);
            if let Some(last) = open.last() {
                last.lane.as_str().clone_into(&mut cursor);
            }
            let rows = self.first(connection, &open, now, each, taken).await?;
            let mut gave = vec![0; open.len()];
            for row in &rows {
                let place = place(row, open.len())?;
                gave[place] += 1;
                let Open { room, is_capped, .. } = &mut open[place];
                let task = read(row, *is_capped)?;
                let is_left_out = ask.leaves_out(task.rescues);
                // Nothing passes over what is next in a lane that has a cap: there the order counts.
                let takes_room = !is_left_out || *is_capped;
                if *room > 0 && takes_room {
                    *room -= 1;
                    if !is_left_out {
                        numbers.push(row.try_get::<i64, _>(1)?);
                        leased.push(task);
                    }
                }
            }
            taken += each;
            // A lane that gave less than it was asked for has nothing more.
            let mut gave = gave.into_iter();
            open.retain(|lane| gave.next() == Some(each) && lane.room > 0);
        }
        if !numbers.is_empty() {
            self.start(connection, ask, &numbers, now).await?;
        }
        Ok(leased)
    }

    /// Lanes that have something due and room for it, at most as many as tasks are asked for, from the cursor on.
    async fn open_lanes(
        &self,
        connection: &mut SqliteConnection,
        ask: &Ask,
        cursor: &str,
        most: usize,
        now: Timestamp,
    ) -> Result<Vec<Open>, sqlx::Error> {
        let limit = i64::try_from(most).unwrap_or(i64::MAX);
        let full = |is_capped| json(ask.share.iter().flat_map(|share| share.full(is_capped)));
        let (full_capped, full) = (full(true), full(false));
        let mut open = Vec::new();
        if let Lanes::Only(lanes) = &ask.lanes {
            let scan = sqlx::query(self.statements.scan_only.clone());
            let scan = scan.bind(cursor).bind(json(lanes)).bind(timestamp(now));
            let scan = scan.bind(limit).bind(full_capped).bind(full);
            read_lanes(&scan.fetch_all(connection).await?, ask, &mut open)?;
            return Ok(open);
        }
        // Every blob comes after every text.
        let scan = sqlx::query(self.statements.scan_all.clone());
        let scan = scan.bind(cursor).bind(vec![0_u8]).bind(timestamp(now));
        let scan = scan.bind(limit).bind(full_capped.clone()).bind(full.clone());
        read_lanes(&scan.fetch_all(&mut *connection).await?, ask, &mut open)?;
        let left = limit - i64::try_from(open.len()).unwrap_or(limit);
        if left > 0 && !cursor.is_empty() {
            let scan = sqlx::query(self.statements.scan_all.clone());
            let scan = scan.bind("").bind(cursor).bind(timestamp(now));
            let scan = scan.bind(left).bind(full_capped).bind(full);
            read_lanes(&scan.fetch_all(connection).await?, ask, &mut open)?;
        }
        Ok(open)
    }

    /// The next `each` tasks of every lane, after those `taken` so far.
    async fn first(
        &self,
        connection: &mut SqliteConnection,
        open: &[Open],
        now: Timestamp,
        each: usize,
        taken: usize,
    ) -> Result<Vec<SqliteRow>, sqlx::Error> {
        let whole = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        sqlx::query(self.statements.first.clone())
            .bind(json(open.iter().map(|open| &open.lane)))
            .bind(timestamp(now))
            .bind(whole(each))
            .bind(whole(taken))
            .fetch_all(connection)
            .await
    }

    async fn start(
        &self,
        connection: &mut SqliteConnection,
        ask: &Ask,
        numbers: &[i64],
        now: Timestamp,
    ) -> Result<(), sqlx::Error> {
        let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
        let lease = sqlx::query(self.statements.lease.clone())
            .bind(ask.worker.as_uuid().as_bytes().to_vec())
            .bind(timestamp(now))
            .bind(timestamp(now.after(ask.lease)))
            .bind(format!("[{}]", numbers.join(",")));
        lease.execute(connection).await.map(drop)
    }
}

/// How `left` tasks are shared by the lanes. What does not come out even goes to the first ones, in a round of its own.
fn next_round(open: &[Open], left: usize) -> Option<Round> {
    // Nobody is asked for more than any has room for.
    let room = open.iter().map(|lane| lane.room).max()?;
    if left == 0 {
        return None;
    }
    Some(Round {
        lanes: open.len().min(left),
        each: (left / open.len()).clamp(1, room.max(1)),
    })
}

fn read_lanes(rows: &[SqliteRow], ask: &Ask, open: &mut Vec<Open>) -> Result<(), sqlx::Error> {
    for row in rows {
        let (lane, room) = (lane(row, 0)?, row.try_get::<Option<i64>, _>(1)?);
        let is_capped = room.is_some();
        let share = usize::try_from(ask.room(&lane, is_capped)).unwrap_or(usize::MAX);
        let room = room.map_or(usize::MAX, |room| usize::try_from(room).unwrap_or(0));
        let room = room.min(share);
        open.push(Open { lane, room, is_capped });
    }
    Ok(())
}

/// Which of the lanes a row is of.
fn place(row: &SqliteRow, lanes: usize) -> Result<usize, sqlx::Error> {
    let place: i64 = row.try_get(0)?;
    let place = usize::try_from(place).ok().filter(|place| *place < lanes);
    place.ok_or_else(|| unreadable(0, "a row is of one of the lanes"))
}

fn read(row: &SqliteRow, is_capped: bool) -> Result<Leased, sqlx::Error> {
    Ok(Leased {
        lease: Lease {
            id: stored_id(row, 2)?,
            fence: Fence::new(fence(row, 9)?.get() + 1),
        },
        kind: row.try_get::<&str, _>(3)?.into(),
        key: row.try_get::<&str, _>(4)?.into(),
        lane: lane(row, 5)?,
        is_capped,
        version: count(row, 6)?,
        failures: count(row, 7)?,
        rescues: count(row, 8)?,
        enqueued_at: instant(row, 10)?,
        due_at: instant(row, 11)?,
        payload: row.try_get::<Vec<u8>, _>(12)?.into(),
    })
}

/// The names of lanes as a JSON array. They have no control characters, so only two have to be escaped.
fn json<'a>(lanes: impl IntoIterator<Item = &'a Lane>) -> String {
    let mut json = String::from("[");
    for lane in lanes {
        let escaped = lane.as_str().replace('\\', "\\\\").replace('"', "\\\"");
        let comma = if json.len() > 1 { "," } else { "" };
        write!(json, "{comma}\"{escaped}\"").expect("a string takes everything");
    }
    json.push(']');
    json
}
