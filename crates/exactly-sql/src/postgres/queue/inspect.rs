//! Looking at tasks.

use std::time::Duration;

use bytes::Bytes;
use exactly::clock::Timestamp;
use exactly::queue::{
    AttemptView, Depth, InspectQueue, LaneView, TaskFilter, TaskId, TaskPage, TaskState, TaskView, Walk, Walked,
    WorkerId,
};
use exactly::store::Reply;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Postgres, QueryBuilder, Row as _};

use super::PgQueue;
use super::enqueue::{state, version_code};
use super::lease::{fence, lane};
use super::settle::failure;
use super::sql::{SHEAVED, shown_state, unwritten};
use crate::error::failed;
use crate::postgres::row::PgTime;
use crate::postgres::session::{acquire, within};

/// How long a look may take: a list by state may read many rows.
const LOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// How many tasks in sheaves are few. Where there are more, whoever looks over the table mostly finds enough for a page soon.
const SHEAVED_FEW: i64 = 10_000;

/// The most attempts of one task that are shown: the last ones.
const ATTEMPTS_MAX: i64 = 1000;

impl InspectQueue for PgQueue {
    fn show(&self, id: TaskId) -> Reply<'_, Option<TaskView>> {
        Box::pin(async move {
            let mut query = QueryBuilder::new(format!("{} where c.id = ", self.sql.view));
            query.push_bind(*id.as_uuid());
            let rows = self.look(query).await.map_err(failed("show task"))?;
            rows.first().map(view).transpose().map_err(failed("show task"))
        })
    }

    fn attempts(&self, id: TaskId) -> Reply<'_, Vec<AttemptView>> {
        Box::pin(async move {
            let mut query = QueryBuilder::new(format!(
                "select * from (select fence, worker, started_at, ended_at, then_state, kind, message from {}
                 where task = ",
                self.sql.attempts
            ));
            query.push_bind(*id.as_uuid()).push(" order by fence desc limit ");
            query.push_bind(ATTEMPTS_MAX).push(") a order by fence");
            let rows = self.look(query).await.map_err(failed("show attempts"))?;
            let attempts = rows.iter().map(attempt).collect::<Result<_, _>>();
            attempts.map_err(failed("show attempts"))
        })
    }

    fn list<'a>(&'a self, filter: &'a TaskFilter, page: TaskPage) -> Reply<'a, Vec<TaskView>> {
        Box::pin(async move {
            let mut query = self.listing(filter).await.map_err(failed("list tasks"))?;
            if let Some(after) = page.after {
                query.push(" and c.id > ").push_bind(*after.as_uuid());
            }
            query.push(" order by c.id limit ").push_bind(i64::from(page.limit));
            let rows = self.look(query).await.map_err(failed("list tasks"))?;
            let views = rows.iter().map(view).collect::<Result<_, _>>();
            views.map_err(failed("list tasks"))
        })
    }

    fn walk<'a>(&'a self, walk: &'a Walk) -> Reply<'a, Walked> {
        Box::pin(async move {
            let end = self.end_of_walk(walk).await.map_err(failed("walk over tasks"))?;
            let mut query = self.listing(&walk.filter).await.map_err(failed("walk over tasks"))?;
            if let Some(since) = walk.since {
                query.push(" and c.enqueued_at >= ").push_bind(PgTime::from(since));
            }
            if let Some(before) = walk.before {
                query.push(" and c.enqueued_at < ").push_bind(PgTime::from(before));
            }
            if let Some(after) = walk.after {
                query.push(" and c.id > ").push_bind(*after.as_uuid());
            }
            if let Some(end) = end {
                query.push(" and c.id <= ").push_bind(*end.as_uuid());
            }
            query
                .push(" order by c.id limit ")
                .push_bind(i64::from(walk.limit.max(1)));
            let rows = self.look(query).await.map_err(failed("walk over tasks"))?;
            let views = rows.iter().map(view).collect::<Result<_, _>>();
            Ok(walk.walked(views.map_err(failed("walk over tasks"))?, end))
        })
    }

    fn lanes(&self) -> Reply<'_, Vec<LaneView>> {
        Box::pin(async move {
            let query = QueryBuilder::new(format!(
                "select lane, paused, cap from {} order by lane",
                self.sql.lanes
            ));
            let rows = self.look(query).await.map_err(failed("list lanes"))?;
            let lanes = rows.iter().map(lane_view).collect::<Result<_, _>>();
            lanes.map_err(failed("list lanes"))
        })
    }

    fn depths(&self) -> Reply<'_, Vec<Depth>> {
        Box::pin(async move {
            let states = [TaskState::Waiting, TaskState::Running, TaskState::Held, TaskState::Dead];
            // One by one, so that each is counted in the index that holds just those.
            let counts = states.map(|state| {
                let (code, table) = (state.code(), &self.sql.table);
                format!("select lane, {code}::int2 as state, count(*) from {table} where state = {code} group by lane")
            });
            let query = QueryBuilder::new(format!(
                "with bundled as (
                     select c.lane, count(*) as tasks, count(*) filter (where c.state = 0) as waiting
                     from {table} c where {unwritten} and (c.id, c.fence) in ({in_bundles})
                     group by c.lane
                 )
                 select lane, state, sum(count)::int8 from (
                     {counts}
                     union all select lane, 0::int2, -waiting from bundled
                     union all select lane, 1::int2, tasks from bundled
                     union all select lane, 0::int2, tasks - taken from {sheaves}
                 ) counted (lane, state, count)
                 group by lane, state having sum(count) > 0 order by lane, state",
                table = self.sql.table,
                unwritten = unwritten("c"),
                in_bundles = self.sql.in_bundles,
                sheaves = self.sql.sheaves,
                counts = counts.join(" union all ")
            ));
            let rows = self.look(query).await.map_err(failed("count tasks"))?;
            let depths = rows.iter().map(depth).collect::<Result<_, _>>();
            depths.map_err(failed("count tasks"))
        })
    }

    fn now(&self) -> Reply<'_, Timestamp> {
        Box::pin(async move {
            let rows = self.look(QueryBuilder::new("select clock_timestamp()")).await;
            let now = rows.and_then(|rows| match rows.first() {
                Some(row) => row.try_get::<PgTime, _>(0),
                None => Err(sqlx::Error::RowNotFound),
            });
            now.map(Into::into).map_err(failed("read the server's clock"))
        })
    }
}

impl PgQueue {
    /// A listing's statement, up to where it begins.
    async fn listing(&self, filter: &TaskFilter) -> Result<QueryBuilder<Postgres>, sqlx::Error> {
        let mut query = QueryBuilder::new(format!("{} where true", self.sql.view));
        match filter.state {
            None => {}
            Some(TaskState::Waiting) => {
                query.push(" and b.id is null and (c.state = 0");
                let sheaves = &self.sql.sheaves;
                match self.in_sheaves().await? {
                    0 => {}
                    // Few in a large table are found by their ids, and the others by the partial index.
                    1..=SHEAVED_FEW => {
                        query.push(format!(
                            " or c.state = {SHEAVED} and c.id = any (array(select unnest(s.ids[s.taken + 1 :]) from {sheaves} s))"
                        ));
                    }
                    _ => {
                        query.push(format!(" or c.state = {SHEAVED} and c.ended_at is null"));
                    }
                }
                query.push(")");
            }
            Some(TaskState::Done) => {
                query.push(format!(
                    " and (c.state = 3 or c.state = {SHEAVED} and c.ended_at is not null)"
                ));
            }
            Some(TaskState::Running) => {
                let (table, in_bundles) = (&self.sql.table, &self.sql.in_bundles);
                query.push(format!(
                    " and {} = 1 and c.id = any (array(
                         select r.id from {table} r where r.state = 1 union all select u.id from ({in_bundles}) u))",
                    shown_state()
                ));
            }
            // In the text, so that the planner finds the partial index.
            Some(state) => {
                query.push(" and c.state = ").push(state.code().to_string());
            }
        }
        if let Some(kind) = &filter.kind {
            query.push(" and c.kind = ").push_bind(kind.clone());
        }
        if let Some(lane) = &filter.lane {
            query.push(" and c.lane = ").push_bind(lane.as_str().to_owned());
        }
        if let Some(version) = filter.version {
            query.push(" and c.version = ").push_bind(version_code(version));
        }
        Ok(query)
    }

    /// How many tasks wait in sheaves.
    async fn in_sheaves(&self) -> Result<i64, sqlx::Error> {
        let tasks = format!("select coalesce(sum(tasks - taken), 0) from {}", self.sql.sheaves);
        let rows = self.look(QueryBuilder::new(tasks)).await?;
        rows.first().map_or(Ok(0), |row| row.try_get(0))
    }

    /// The last task that a walk looks at, if there are as many. Found in an index, so nothing else is read of those between.
    async fn end_of_walk(&self, walk: &Walk) -> Result<Option<TaskId>, sqlx::Error> {
        let mut query = QueryBuilder::new(format!("select c.id from {} c where true", self.sql.table));
        if walk.is_over_parked() {
            query.push(" and (c.state = 2 or c.state = 4)");
        }
        if let Some(after) = walk.after {
            query.push(" and c.id > ").push_bind(*after.as_uuid());
        }
        query
            .push(" order by c.id limit 1 offset ")
            .push_bind(i64::from(walk.steps.max(1)) - 1);
        let rows = self.look(query).await?;
        rows.first()
            .map(|row| row.try_get(0).map(TaskId::from_uuid))
            .transpose()
    }

    /// On the callers' pool, whose plans follow what the table holds.
    pub(super) async fn look(&self, mut query: QueryBuilder<Postgres>) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut conn = acquire(&self.pool).await?;
        let conn: &mut PgConnection = &mut conn;
        within(LOOK_TIMEOUT, query.build().persistent(false).fetch_all(conn)).await
    }
}

fn view(row: &PgRow) -> Result<TaskView, sqlx::Error> {
    let time = |column| Ok::<_, sqlx::Error>(row.try_get::<Option<PgTime>, _>(column)?.map(Timestamp::from));
    let bytes = |column| Ok::<_, sqlx::Error>(row.try_get::<Option<&[u8]>, _>(column)?.map(Bytes::copy_from_slice));
    Ok(TaskView {
        id: TaskId::from_uuid(row.try_get(0)?),
        kind: row.try_get::<&str, _>(1)?.into(),
        key: row.try_get::<&str, _>(2)?.into(),
        lane: lane(row.try_get(3)?)?,
        payload: bytes(4)?.unwrap_or_default(),
        version: row.try_get::<i32, _>(5)?.cast_unsigned(),
        state: state(row.try_get(6)?)?,
        failures: row.try_get::<i32, _>(7)?.cast_unsigned(),
        rescues: row.try_get::<i32, _>(8)?.cast_unsigned(),
        fence: fence(row.try_get(9)?)?,
        worker: row.try_get::<Option<_>, _>(10)?.map(WorkerId::from_uuid),
        enqueued_at: row.try_get::<PgTime, _>(11)?.into(),
        due_at: time(12)?,
        started_at: time(13)?,
        ended_at: time(14)?,
        outcome: bytes(15)?,
        failure: failure(row, 16)?,
    })
}

fn attempt(row: &PgRow) -> Result<AttemptView, sqlx::Error> {
    Ok(AttemptView {
        fence: fence(row.try_get(0)?)?,
        worker: row.try_get::<Option<_>, _>(1)?.map(WorkerId::from_uuid),
        started_at: row.try_get::<PgTime, _>(2)?.into(),
        ended_at: row.try_get::<PgTime, _>(3)?.into(),
        then: state(row.try_get(4)?)?,
        failure: failure(row, 5)?.ok_or(sqlx::Error::RowNotFound)?,
    })
}

fn lane_view(row: &PgRow) -> Result<LaneView, sqlx::Error> {
    let cap: Option<i64> = row.try_get(2)?;
    Ok(LaneView {
        lane: lane(row.try_get(0)?)?,
        paused: row.try_get(1)?,
        cap: cap.map(|cap| u32::try_from(cap).unwrap_or(u32::MAX)),
    })
}

fn depth(row: &PgRow) -> Result<Depth, sqlx::Error> {
    Ok(Depth {
        lane: lane(row.try_get(0)?)?,
        state: state(row.try_get(1)?)?,
        tasks: u64::try_from(row.try_get::<i64, _>(2)?).unwrap_or(0),
    })
}
