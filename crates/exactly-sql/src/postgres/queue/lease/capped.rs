//! Handing out tasks of lanes with caps.

use exactly::queue::{Ask, Lane};
use sqlx::postgres::PgBindIterExt as _;
use sqlx::{PgConnection, Row as _};
use tokio::time::Instant;

use super::super::PgQueue;
use super::super::bundles::Bundled;
use super::served::{Served, read_tasks, read_walk};
use super::{LANES_MAX, Part, asked, behind, lane};

/// A lane with a cap that this lease has locked.
pub(super) struct Capped {
    lane: Lane,
    cap: i64,
    /// How many more of its tasks the worker takes.
    share: i64,
    has_sheaves: bool,
}

impl Capped {
    /// Whether its tasks start as they are due, each after the one before has ended.
    fn is_in_order(&self) -> bool {
        self.cap <= 1
    }
}

impl PgQueue {
    /// Lanes with a cap in which something is due. They stay locked until the transaction ends, so that nobody else counts
    /// what runs in them meanwhile.
    pub(super) async fn lock_some_capped(&self, tx: &mut PgConnection, ask: &Ask) -> Result<Vec<Capped>, sqlx::Error> {
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
        let known = self.bundles.known();
        let rows = query
            .bind(most)
            .bind(full.bind_iter())
            .bind(&known.numbers)
            .bind(known.lanes.iter().map(Lane::as_str).bind_iter())
            .bind(&known.leases)
            .fetch_all(tx)
            .await?;
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

    /// What waits in sheaves of lanes that are in order waits by itself then, as far as it may be leased now.
    pub(super) async fn spread(&self, tx: &mut PgConnection, ask: &Ask, locked: &[Capped]) -> Result<(), sqlx::Error> {
        let sheaved = || {
            locked
                .iter()
                .filter(|capped| capped.is_in_order() && capped.has_sheaves)
        };
        if sheaved().next().is_some() {
            let room = |capped: &Capped| capped.cap.min(capped.share).min(ask.most.into());
            let spread = self.sql.spread.query();
            let spread = spread.bind(sheaved().map(|capped| capped.lane.as_str()).bind_iter());
            spread.bind(sheaved().map(room).bind_iter()).execute(tx).await?;
        }
        Ok(())
    }

    /// From lanes with a cap of more than one.
    pub(super) async fn lease_capped(
        &self,
        tx: &mut PgConnection,
        ask: &Ask,
        most: i64,
        locked: &mut [Capped],
    ) -> Result<Part, sqlx::Error> {
        let lanes = || locked.iter().filter(|capped| !capped.is_in_order() && capped.share > 0);
        let lanes_count = i64::try_from(lanes().count()).unwrap_or(i64::MAX);
        if most <= 0 || lanes_count == 0 {
            return Ok(Part::default());
        }
        let asked_at = Instant::now();
        let known = self.bundles.known();
        let rows = asked(&self.sql.lease_capped, ask, most)
            .bind(self.bundles.from(most))
            .bind(lanes().map(|capped| capped.lane.as_str()).bind_iter())
            .bind(lanes().map(|capped| capped.cap).bind_iter())
            .bind(lanes().map(|capped| capped.share).bind_iter())
            .bind(&known.numbers)
            .bind(known.lanes.iter().map(Lane::as_str).bind_iter())
            .bind(&known.leases)
            .fetch_all(tx)
            .await?;
        let (walk, served) = read_walk(&rows, true)?;
        self.bundles.count(walk.in_bundles);
        let bundled = walk.bundle.map(|number| Bundled {
            number,
            leases: served
                .iter()
                .map(|own| own.bundled(Some(own.task.lane.clone())))
                .collect(),
            until: asked_at.checked_add(ask.lease),
        });
        used_up(locked, &served);
        let mut part = Part::new(served, most, lanes_count);
        part.more.extend(walk.used_up);
        part.bundled = bundled;
        Ok(part)
    }

    /// From lanes with a cap of one.
    pub(super) async fn lease_in_order(
        &self,
        tx: &mut PgConnection,
        ask: &Ask,
        most: i64,
        locked: &mut [Capped],
    ) -> Result<Part, sqlx::Error> {
        let lanes = || locked.iter().filter(|capped| capped.is_in_order() && capped.share > 0);
        let lanes_count = i64::try_from(lanes().count()).unwrap_or(i64::MAX);
        if most <= 0 || lanes_count == 0 {
            return Ok(Part::default());
        }
        let rows = asked(&self.sql.lease_in_order, ask, most)
            .bind(lanes().map(|capped| capped.lane.as_str()).bind_iter())
            .bind(lanes().map(|capped| capped.cap).bind_iter())
            .bind(lanes().map(|capped| capped.share).bind_iter())
            .fetch_all(tx)
            .await?;
        let served = read_tasks(&rows)?;
        used_up(locked, &served);
        Ok(Part::new(served, most, lanes_count))
    }
}

/// The worker takes so much less of these lanes.
fn used_up(locked: &mut [Capped], served: &[Served]) {
    for Served { task, .. } in served {
        if let Some(capped) = locked.iter_mut().find(|capped| capped.lane == task.lane) {
            capped.share -= 1;
        }
    }
}
