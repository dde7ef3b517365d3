//! Handing out tasks.

mod capped;
mod served;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use exactly::queue::{Ask, Fence, Lane, Lanes, Leased, filled};
use sqlx::postgres::PgBindIterExt as _;
use sqlx::{Connection as _, PgConnection, Row as _};
use tokio::time::{Instant, sleep};

use self::capped::Capped;
use self::served::{Served, in_turn, read_walk};
use super::PgQueue;
use super::bundles::Bundled;
use super::enqueue::corrupt;
use crate::postgres::row::millis_code;
use crate::postgres::sql::{PgQuery, Text};

/// The most lanes that one statement walks over.
const LANES_MAX: i64 = 64;

/// The most statements of one lease: by then a walk has gone around, or others have their turn.
const WALKS_MAX: u32 = 32;

/// The most times that one lease goes over the lanes to fill up what some of them left over.
const FILL_ROUNDS_MAX: u32 = 8;

/// How long a lease waits before it looks again, if it got nothing because others were just leasing from the same sheaves.
const LOCKED_PAUSES_MS: [u64; 5] = [1, 2, 4, 8, 16];

/// How long lanes without a cap are let be that had nothing, while nothing is heard of: with many lanes that have caps, walking over
/// them costs more than leasing. So much later may come what was to wait until then.
const NOTHING_FRESH: Duration = Duration::from_millis(50);

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
    /// When no lane without a cap had anything, and what had been heard of by then.
    nothing: Option<(u64, Instant)>,
}

impl Rounds {
    /// Lanes were changed by this process: look again.
    pub(super) fn lanes_changed(&self) {
        self.change(|round| (round.capped, round.nothing) = (None, None));
    }

    fn look(&self) -> Round {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut Round)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
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
        for Served { task, .. } in served {
            *of.entry(&task.lane).or_insert(others) -= 1;
        }
        Self { of, others }
    }

    fn has_room_everywhere(&self) -> bool {
        self.of.values().all(|room| *room > 0)
    }
}

/// What one statement leased.
#[derive(Default)]
struct Part {
    served: Vec<Served>,
    /// The lanes that gave all that they were to give, so that they may have more.
    more: Vec<Lane>,
    reach: Reach,
    /// Whether others were faster, so that any lane may have more.
    is_overtaken: bool,
    is_locked: bool,
    /// The bundle that it has become.
    bundled: Option<Bundled>,
}

/// Which lanes were looked at.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Reach {
    #[default]
    Some,
    /// No others have any.
    All,
    /// None, because they had nothing a moment ago.
    None,
}

/// What was leased of all lanes.
#[derive(Default)]
struct Fair {
    served: Vec<Served>,
    bundles: Vec<Bundled>,
    is_locked: bool,
}

impl Fair {
    fn take(&mut self, part: Part) {
        self.served.extend(part.served);
        self.bundles.extend(part.bundled);
        self.is_locked |= part.is_locked;
    }
}

impl Part {
    /// Of `most` tasks over so many lanes.
    fn new(served: Vec<Served>, most: i64, lanes: i64) -> Self {
        let quota = (most + lanes - 1) / lanes.max(1);
        let mut by_lane: HashMap<&Lane, i64> = HashMap::new();
        for Served { task, .. } in &served {
            *by_lane.entry(&task.lane).or_default() += 1;
        }
        let more = by_lane.into_iter().filter(|(_, count)| *count >= quota);
        let more = more.map(|(lane, _)| lane.clone()).collect();
        Self {
            served,
            more,
            reach: Reach::Some,
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
            let mut open = self
                .lease_open(conn, ask, &lanes, left, i64::try_from(others).unwrap_or(0), &rooms)
                .await?;
            let more = open.is_overtaken || !open.more.is_empty();
            let reach = open.reach;
            if reach != Reach::Some {
                lanes = Lanes::Only(std::mem::take(&mut open.more));
            }
            fair.take(open);
            let before = count(&fair.served);
            // One of each at most, and so no more than its part.
            let in_order = self.lease_in_order(conn, ask, most - before, &mut capped).await?;
            let left = most - before - count(&in_order.served);
            let from_capped = self.lease_capped(conn, ask, left, &mut capped).await?;
            let more = more || !from_capped.more.is_empty() || !in_order.more.is_empty();
            fair.take(in_order);
            fair.take(from_capped);
            if reach == Reach::None && count(&fair.served) == before {
                // Then whoever asks has nothing, and would not ask again soon.
                self.rounds.change(|round| round.nothing = None);
                lanes = ask.lanes.clone();
                continue;
            }
            if count(&fair.served) >= i64::from(filled(ask.most)) || !more {
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
        let nothing_of = |reach| Part {
            reach,
            ..Part::default()
        };
        if matches!(lanes, Lanes::Only(lanes) if lanes.is_empty()) {
            return Ok(nothing_of(Reach::All));
        }
        let heard = self.announcer.heard();
        let looks_everywhere =
            matches!(lanes, Lanes::All) && ask.rescues_below.is_none() && rooms.has_room_everywhere();
        for _ in 0..WALKS_MAX {
            if most <= 0 {
                break;
            }
            let Round { cursor, nothing, .. } = self.rounds.look();
            let is_fresh = |(before, at): (u64, Instant)| before == heard && at.elapsed() < NOTHING_FRESH;
            if others > 0 && looks_everywhere && nothing.is_some_and(is_fresh) {
                return Ok(nothing_of(Reach::None));
            }
            let asked_at = Instant::now();
            let rows = asked(&self.sql.lease, ask, most)
                .bind(self.bundles.from(most))
                .bind(&cursor)
                .bind(LANES_MAX)
                .bind(behind(&cursor, lanes))
                .bind(others)
                .bind(rooms.others)
                .bind(rooms.of.keys().map(|lane| lane.as_str()).bind_iter())
                .bind(rooms.of.values().copied().bind_iter())
                .fetch_all(&mut *conn)
                .await?;
            let (walk, served) = read_walk(&rows, false)?;
            self.bundles.count(walk.in_bundles);
            let bundled = walk.bundle.map(|number| Bundled {
                number,
                leases: served.iter().map(|served| served.bundled(None)).collect(),
                until: asked_at.checked_add(ask.lease),
            });
            // The next walk starts behind the last lane that got something, or behind the last that was looked at.
            let last = served.iter().max_by_key(|served| served.place);
            let last = last.map(|served| served.task.lane.as_str().to_owned()).or(walk.last);
            self.rounds.change(|round| round.cursor = last.unwrap_or_default());
            // Others were faster, and what is behind those tasks was not looked at.
            let overtaken = walk.found > count(&served);
            // What others have locked is looked at again after a pause, from where this walk ended.
            if !served.is_empty() || walk.is_locked || walk.walked < LANES_MAX && !overtaken {
                let mut part = Part::new(served, most, walk.open + others);
                part.more.extend(walk.used_up);
                part.bundled = bundled;
                if walk.walked < LANES_MAX && !overtaken {
                    part.reach = Reach::All;
                }
                part.is_overtaken = overtaken;
                part.is_locked = walk.is_locked;
                if looks_everywhere {
                    let has_nothing = part.reach == Reach::All && walk.found == 0 && !walk.is_locked;
                    let nothing = has_nothing.then_some((heard, asked_at));
                    self.rounds.change(|round| round.nothing = nothing);
                }
                return Ok(part);
            }
        }
        Ok(Part::default())
    }
}

/// A statement that leases so many at most, as far as all of them are alike.
fn asked<'q>(text: &Text, ask: &'q Ask, most: i64) -> PgQuery<'q> {
    let query = text.query().bind(ask.worker.as_uuid());
    query.bind(millis_code(ask.lease)).bind(most).bind(rescues_below(ask))
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
