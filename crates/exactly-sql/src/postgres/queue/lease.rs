//! Handing out tasks.

mod served;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use exactly::queue::{Ask, Fence, Lane, Lanes, Leased};
use sqlx::postgres::PgBindIterExt as _;
use sqlx::{Connection as _, PgConnection, Row as _};
use tokio::time::{Instant, sleep};

use self::served::{Served, in_turn, read, read_walk};
use super::PgQueue;
use super::bundles::Bundled;
use super::enqueue::corrupt;
use crate::postgres::row::millis_code;

/// The most lanes that one statement walks over.
const LANES_MAX: i64 = 64;

/// The most statements of one lease: by then a walk has gone around, or others have their turn.
const WALKS_MAX: u32 = 32;

/// The most times that one lease goes over the lanes to fill up what some of them left over.
const FILL_ROUNDS_MAX: u32 = 8;

/// How long a lease waits before it looks again, if it got nothing because others were just leasing from the same sheaves.
const LOCKED_PAUSES_MS: [u64; 5] = [1, 2, 4, 8, 16];

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

/// A lane with a cap that this lease has locked.
struct Capped {
    lane: Lane,
    cap: i64,
    /// How many more of its tasks the worker takes.
    share: i64,
    has_sheaves: bool,
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
    /// The lanes that gave all that they were to give, so that they may have more.
    more: Vec<Lane>,
    /// Whether all lanes were looked at, so that no others have any.
    is_whole: bool,
    /// Whether others were faster, so that any lane may have more.
    is_overtaken: bool,
    is_locked: bool,
    /// The bundle that it has become.
    bundled: Option<Bundled>,
}

/// What was leased of all lanes.
#[derive(Default)]
struct Fair {
    served: Vec<Served>,
    bundles: Vec<Bundled>,
    is_locked: bool,
}

impl Part {
    /// Of `most` tasks over so many lanes.
    fn new(served: Vec<Served>, most: i64, lanes: i64) -> Self {
        let quota = (most + lanes - 1) / lanes.max(1);
        let mut by_lane: HashMap<&Lane, i64> = HashMap::new();
        for (_, _, task) in &served {
            *by_lane.entry(&task.lane).or_default() += 1;
        }
        let more = by_lane.into_iter().filter(|(_, count)| *count >= quota);
        let more = more.map(|(lane, _)| lane.clone()).collect();
        Self {
            served,
            more,
            is_whole: false,
            is_overtaken: false,
            is_locked: false,
            bundled: None,
        }
    }
}

impl PgQueue {
    pub(super) async fn lease_on(&self, conn: &mut PgConnection, ask: &Ask) -> Result<Vec<Leased>, sqlx::Error> {
        self.forget_bundles(conn).await?;
        let mut pauses = LOCKED_PAUSES_MS.into_iter().map(Duration::from_millis);
        loop {
            let round = self.lease_once(conn, ask).await?;
            // Only what is committed: another lease gives out again what is not, with the same fences.
            for bundled in round.bundles {
                self.bundles.add(bundled);
            }
            match pauses.next() {
                Some(pause) if round.is_locked && round.served.is_empty() => sleep(pause).await,
                _ => return Ok(in_turn(round.served)),
            }
        }
    }

    async fn lease_once(&self, conn: &mut PgConnection, ask: &Ask) -> Result<Fair, sqlx::Error> {
        if !self.any_capped(conn).await? {
            return self.lease_fairly(conn, ask, Vec::new()).await;
        }
        let mut tx = conn.begin().await?;
        let capped = self.lock_some_capped(&mut tx, ask).await?;
        self.spread(&mut tx, ask, &capped).await?;
        let fair = self.lease_fairly(&mut tx, ask, capped).await?;
        tx.commit().await?;
        Ok(fair)
    }

    /// An equal part from each lane first, then what is left over from those that have more.
    async fn lease_fairly(
        &self,
        conn: &mut PgConnection,
        ask: &Ask,
        mut capped: Vec<Capped>,
    ) -> Result<Fair, sqlx::Error> {
        let most = i64::from(ask.most);
        let mut fair = Fair::default();
        let mut lanes = ask.lanes.clone();
        for round in 0..FILL_ROUNDS_MAX {
            let left = most - count(&fair.served);
            let others = if round == 0 { capped.len() } else { 0 };
            let rooms = Rooms::new(ask, &fair.served);
            let open = self
                .lease_open(conn, ask, &lanes, left, i64::try_from(others).unwrap_or(0), &rooms)
                .await?;
            let more = open.is_overtaken || !open.more.is_empty();
            if open.is_whole {
                lanes = Lanes::Only(open.more);
            }
            fair.bundles.extend(open.bundled);
            fair.is_locked |= open.is_locked;
            fair.served.extend(open.served);
            let left = most - count(&fair.served);
            let from_capped = self.lease_capped(conn, ask, left, &capped).await?;
            for (_, _, task) in &from_capped.served {
                if let Some(capped) = capped.iter_mut().find(|capped| capped.lane == task.lane) {
                    capped.share -= 1;
                }
            }
            fair.served.extend(from_capped.served);
            if count(&fair.served) >= most || !more && from_capped.more.is_empty() {
                break;
            }
        }
        Ok(fair)
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
        lanes: &Lanes,
        most: i64,
        others: i64,
        rooms: &Rooms<'_>,
    ) -> Result<Part, sqlx::Error> {
        for _ in 0..WALKS_MAX {
            if most <= 0 {
                break;
            }
            let cursor = self.rounds.look().cursor;
            let asked_at = Instant::now();
            let rows = self
                .sql
                .lease
                .query()
                .bind(ask.worker.as_uuid())
                .bind(millis_code(ask.lease))
                .bind(most)
                .bind(&cursor)
                .bind(LANES_MAX)
                .bind(behind(&cursor, lanes))
                .bind(others)
                .bind(rooms.others)
                .bind(rooms.of.keys().map(|lane| lane.as_str()).bind_iter())
                .bind(rooms.of.values().copied().bind_iter())
                .bind(rescues_below(ask))
                .bind(self.bundles.from(most))
                .fetch_all(&mut *conn)
                .await?;
            let (walk, served) = read_walk(&rows)?;
            self.bundles.count(walk.in_bundles);
            let bundled = walk.bundle.map(|number| Bundled {
                number,
                leases: served.iter().map(|(_, _, task)| task.lease).collect(),
                until: asked_at.checked_add(ask.lease),
            });
            // The next walk starts behind the last lane that got something, or behind the last that was looked at.
            let last = served.iter().max_by_key(|(place, ..)| *place);
            let last = last.map(|(_, _, task)| task.lane.as_str().to_owned()).or(walk.last);
            self.rounds.change(|round| round.cursor = last.unwrap_or_default());
            // Others were faster, and what is behind those tasks was not looked at.
            let overtaken = walk.found > count(&served);
            // What others have locked is looked at again after a pause, from where this walk ended.
            if !served.is_empty() || walk.is_locked || walk.walked < LANES_MAX && !overtaken {
                let mut part = Part::new(served, most, walk.open + others);
                part.more.extend(walk.used_up);
                part.bundled = bundled;
                part.is_whole = walk.walked < LANES_MAX && !overtaken;
                part.is_overtaken = overtaken;
                part.is_locked = walk.is_locked;
                return Ok(part);
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
                has_sheaves: row.try_get(2)?,
                lane,
            })
        });
        capped.collect()
    }

    /// What waits in sheaves waits by itself then, as far as it may be leased now.
    async fn spread(&self, tx: &mut PgConnection, ask: &Ask, locked: &[Capped]) -> Result<(), sqlx::Error> {
        let sheaved = || locked.iter().filter(|capped| capped.has_sheaves);
        if sheaved().next().is_some() {
            let room = |capped: &Capped| capped.cap.min(capped.share).min(ask.most.into());
            let spread = self.sql.spread.query();
            let spread = spread.bind(sheaved().map(|capped| capped.lane.as_str()).bind_iter());
            spread.bind(sheaved().map(room).bind_iter()).execute(tx).await?;
        }
        Ok(())
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
