//! Ending attempts: by their workers, by rescuers and by operators.

mod written;

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use exactly::Fenced;
use exactly::queue::{End, Failure, FailureKind, Fence, Lease, Rescued, Ruling, Settlement, TaskId, TaskState};
use sqlx::postgres::PgRow;
use sqlx::{Connection as _, PgConnection, Row as _};
use uuid::Uuid;

use super::PgQueue;
use super::enqueue::{corrupt, state};
use super::lease::{fence, fence_code};

impl PgQueue {
    pub(super) async fn settle_on(
        &self,
        conn: &mut PgConnection,
        settlements: &[Settlement],
    ) -> Result<Vec<Ruling>, sqlx::Error> {
        let texts = [&self.sql.done, &self.sql.settle];
        let settled = self.settle_there(texts, conn, &by_id(settlements)).await?;
        let rulings = if settled.len() == settlements.len() {
            vec![Ruling::Applied; settlements.len()]
        } else {
            self.judge(conn, settlements, &settled).await?
        };
        self.ruled(settlements.iter().map(|settlement| settlement.lease), &rulings);
        Ok(rulings)
    }

    /// The same without waiting for anybody: what a transaction elsewhere has locked is left out, and is [busy](Ruling::Busy).
    pub(super) async fn settle_free_on(
        &self,
        conn: &mut PgConnection,
        settlements: &[Settlement],
    ) -> Result<Vec<Ruling>, sqlx::Error> {
        let leases: Vec<Lease> = settlements.iter().map(|settlement| settlement.lease).collect();
        let ids: Vec<Uuid> = leases.iter().map(|lease| *lease.id.as_uuid()).collect();
        self.unbundle_free(conn, &leases, None).await?;
        let mut tx = conn.begin().await?;
        let free = read_leases(&self.sql.lock_free.query().bind(ids).fetch_all(&mut *tx).await?)?;
        let free = settlements.iter().filter(|settlement| free.contains(&settlement.lease));
        let free: Vec<Settlement> = free.cloned().collect();
        // Not where they were found: they have just been written.
        let texts = [&self.sql.done, &self.sql.settle];
        let settled = self.settle_by(texts, &mut tx, &by_id(&free)).await?;
        tx.commit().await?;
        let rulings = self.judge(conn, settlements, &settled).await?;
        self.ruled(leases.into_iter(), &rulings);
        Ok(rulings)
    }

    /// In a transaction with its effect, a task is settled once: what was settled before is superseded.
    pub(super) async fn settle_with_effect(
        &self,
        conn: &mut PgConnection,
        settlements: &[Settlement],
    ) -> Result<Vec<Fenced>, sqlx::Error> {
        if let [
            Settlement {
                lease,
                end: End::Done(outcome),
            },
        ] = settlements
        {
            return Ok(vec![applied(self.done_one(conn, *lease, outcome).await?)]);
        }
        // Of two for one lease the first counts.
        let mut seen = HashSet::with_capacity(settlements.len());
        let mut sorted: Vec<&Settlement> = settlements.iter().filter(|own| seen.insert(own.lease)).collect();
        sorted.sort_by_key(|settlement| settlement.lease.id);
        let texts = [&self.sql.done_in, &self.sql.settle_in];
        let mut settled = self.settle_by(texts, conn, &sorted).await?;
        self.bundles.ended(settled.iter().copied(), false);
        let answers = settlements
            .iter()
            .map(|settlement| applied(settled.remove(&settlement.lease)));
        Ok(answers.collect())
    }

    /// Tells repetitions from what somebody else has settled or taken away, and both from what could not be settled yet.
    async fn judge(
        &self,
        conn: &mut PgConnection,
        settlements: &[Settlement],
        settled: &HashSet<Lease>,
    ) -> Result<Vec<Ruling>, sqlx::Error> {
        let mut ends: HashMap<Lease, usize> = HashMap::with_capacity(settlements.len());
        for settlement in settlements {
            *ends.entry(settlement.lease).or_default() += 1;
        }
        let is_clear = |lease: &Lease| settled.contains(lease) && ends.get(lease) == Some(&1);
        let unclear = settlements.iter().filter(|settlement| !is_clear(&settlement.lease));
        let unclear: Vec<Uuid> = unclear.map(|settlement| *settlement.lease.id.as_uuid()).collect();
        let rows = self.sql.settled.query().bind(unclear).fetch_all(conn).await?;
        let rows = rows.iter().map(Standing::read);
        let standings: HashMap<TaskId, Standing> = rows.collect::<Result<_, _>>()?;
        let judged = settlements.iter().map(|Settlement { lease, end }| {
            // Of two for one lease, how the task stands tells which was carried out.
            if is_clear(lease) {
                return Ruling::Applied;
            }
            match standings
                .get(&lease.id)
                .filter(|standing| standing.fence == lease.fence)
            {
                Some(standing) if standing.left_by(end) => Ruling::Applied,
                Some(standing) if standing.state == TaskState::Running => Ruling::Busy,
                _ => Ruling::Superseded,
            }
        });
        Ok(judged.collect())
    }

    pub(super) async fn rescue_on(
        &self,
        conn: &mut PgConnection,
        rescues_max: u32,
        limit: u32,
    ) -> Result<Vec<Rescued>, sqlx::Error> {
        self.unbundle_ended(conn, limit).await?;
        let rows = self
            .sql
            .rescue
            .query()
            .bind(i32::try_from(rescues_max).unwrap_or(i32::MAX))
            .bind(i64::from(limit))
            .bind(FailureKind::Lost.code())
            .fetch_all(conn)
            .await?;
        let rescued = rows.iter().map(|row| {
            Ok(Rescued {
                id: TaskId::from_uuid(row.try_get(0)?),
                kind: row.try_get::<&str, _>(1)?.into(),
                key: row.try_get::<&str, _>(2)?.into(),
                waits: state(row.try_get(3)?)? == TaskState::Waiting,
            })
        });
        rescued.collect()
    }

    pub(super) async fn revive_on(
        &self,
        conn: &mut PgConnection,
        ids: &[TaskId],
    ) -> Result<Vec<Option<TaskState>>, sqlx::Error> {
        let rows = self.sql.revive.query().bind(uuids(ids)).fetch_all(conn).await?;
        let mut were = states(ids, &rows)?;
        let mut seen = HashSet::with_capacity(ids.len());
        for (id, was) in ids.iter().zip(&mut were) {
            // Named a second time, it waits already.
            if !seen.insert(id) && matches!(was, Some(TaskState::Dead | TaskState::Held)) {
                *was = Some(TaskState::Waiting);
            }
        }
        Ok(were)
    }

    pub(super) async fn conclude_on(
        &self,
        conn: &mut PgConnection,
        seen: Lease,
        outcome: &Bytes,
    ) -> Result<Fenced, sqlx::Error> {
        let query = self.sql.conclude.query().bind(seen.id.as_uuid());
        let query = query.bind(fence_code(seen.fence)).bind(outcome.as_ref());
        Ok(applied(query.fetch_optional(conn).await?.is_some()))
    }

    pub(super) async fn hasten_on(
        &self,
        conn: &mut PgConnection,
        ids: &[TaskId],
    ) -> Result<Vec<Option<TaskState>>, sqlx::Error> {
        let rows = self.sql.hasten.query().bind(uuids(ids)).fetch_all(conn).await?;
        states(ids, &rows)
    }
}

/// In the order in which whoever locks rows goes by.
fn by_id(settlements: &[Settlement]) -> Vec<&Settlement> {
    let mut sorted: Vec<&Settlement> = settlements.iter().collect();
    sorted.sort_by_key(|settlement| settlement.lease.id);
    sorted
}

fn uuids(ids: &[TaskId]) -> Vec<Uuid> {
    ids.iter().map(|id| *id.as_uuid()).collect()
}

/// What each of these tasks was, out of rows of an id and a state.
fn states(ids: &[TaskId], rows: &[PgRow]) -> Result<Vec<Option<TaskState>>, sqlx::Error> {
    let was = rows
        .iter()
        .map(|row| Ok((TaskId::from_uuid(row.try_get(0)?), state(row.try_get(1)?)?)));
    let was: HashMap<TaskId, TaskState> = was.collect::<Result<_, sqlx::Error>>()?;
    Ok(ids.iter().map(|id| was.get(id).copied()).collect())
}

/// How a task stands that a settlement did not change.
struct Standing {
    fence: Fence,
    state: TaskState,
    outcome: Option<Vec<u8>>,
    /// What is noted of the attempt with this fence.
    noted: Option<Failure>,
}

impl Standing {
    fn read(row: &PgRow) -> Result<(TaskId, Self), sqlx::Error> {
        let standing = Self {
            fence: fence(row.try_get(1)?)?,
            state: state(row.try_get(2)?)?,
            outcome: row.try_get(3)?,
            noted: failure(row, 4)?,
        };
        Ok((TaskId::from_uuid(row.try_get(0)?), standing))
    }

    fn left_by(&self, end: &End) -> bool {
        end.left(self.state, self.outcome.as_deref(), self.noted.as_ref())
    }
}

/// The failure whose kind and message are in these two columns.
pub(super) fn failure(row: &PgRow, first: usize) -> Result<Option<Failure>, sqlx::Error> {
    let Some(code) = row.try_get::<Option<i16>, _>(first)? else {
        return Ok(None);
    };
    let kind = FailureKind::from_code(code).ok_or_else(|| corrupt(&format!("failure kind is {code}")))?;
    let message = row.try_get::<Option<&str>, _>(first + 1)?.unwrap_or_default();
    Ok(Some(Failure::new(kind, message)))
}

/// The leases whose tasks and fences are in the first two columns.
pub(super) fn read_leases(rows: &[PgRow]) -> Result<HashSet<Lease>, sqlx::Error> {
    let lease = |row: &PgRow| {
        Ok(Lease {
            id: TaskId::from_uuid(row.try_get(0)?),
            fence: fence(row.try_get(1)?)?,
        })
    };
    rows.iter().map(lease).collect()
}

fn applied(applied: bool) -> Fenced {
    if applied { Fenced::Applied } else { Fenced::Superseded }
}
