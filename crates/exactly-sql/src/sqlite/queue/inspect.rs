//! Tasks as people see them.

use std::fmt::Write as _;

use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Row as _, Sqlite};
use tokio::sync::MutexGuard;

use exactly::StoreError;
use exactly::clock::Timestamp;
use exactly::queue::{
    AttemptView, Depth, InspectQueue, LaneView, TaskFilter, TaskId, TaskPage, TaskState, TaskView, Walk, Walked,
};
use exactly::store::Reply;

use super::SqliteQueue;
use super::table::{bind, blob, count, failure, fence, id_bytes, lane, moment, state, stored_id, worker};
use crate::error::failed;
use crate::sqlite::database::Slot;
use crate::sqlite::table::{instant, sql, timestamp, unreadable, unsigned};

/// A connection to read on, with the turn where readers need it.
pub(super) type Reader<'q> = (Option<MutexGuard<'q, Slot>>, PoolConnection<Sqlite>);

/// How much of a listing is looked through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// As much as it takes.
    Whole,
    /// No more than up to this task, if there are others behind it.
    To(Option<TaskId>),
}

impl InspectQueue for SqliteQueue {
    fn show(&self, id: TaskId) -> Reply<'_, Option<TaskView>> {
        const CONTEXT: &str = "show task";
        Box::pin(async move {
            let (_turn, mut connection) = self.reader(CONTEXT).await?;
            let show = sqlx::query(self.statements.show.clone()).bind(id_bytes(id));
            let row = show.fetch_optional(&mut *connection).await.map_err(failed(CONTEXT))?;
            row.map(|row| view(&row)).transpose().map_err(failed(CONTEXT))
        })
    }

    fn attempts(&self, id: TaskId) -> Reply<'_, Vec<AttemptView>> {
        const CONTEXT: &str = "list attempts";
        Box::pin(async move {
            let (_turn, mut connection) = self.reader(CONTEXT).await?;
            let attempts = sqlx::query(self.statements.attempts.clone()).bind(id_bytes(id));
            let rows = attempts.fetch_all(&mut *connection).await.map_err(failed(CONTEXT))?;
            read(&rows, attempt, CONTEXT)
        })
    }

    fn list<'a>(&'a self, filter: &'a TaskFilter, page: TaskPage) -> Reply<'a, Vec<TaskView>> {
        const CONTEXT: &str = "list tasks";
        Box::pin(async move {
            let (_turn, mut connection) = self.reader(CONTEXT).await?;
            let walk = Walk {
                filter: filter.clone(),
                after: page.after,
                ..Walk::default()
            };
            let look = self.look(&walk, Way::Whole, page.limit);
            let (text, arguments) = look.map_err(failed(CONTEXT))?;
            let list = sqlx::query_with(sql(text), arguments);
            let rows = list.fetch_all(&mut *connection).await.map_err(failed(CONTEXT))?;
            read(&rows, view, CONTEXT)
        })
    }

    fn walk<'a>(&'a self, walk: &'a Walk) -> Reply<'a, Walked> {
        const CONTEXT: &str = "walk over tasks";
        Box::pin(async move {
            let (_turn, mut connection) = self.reader(CONTEXT).await?;
            let steps = i64::from(walk.steps.max(1)) - 1;
            let end = sqlx::query(self.statements.end_of_walk.clone())
                .bind(walk.after.map_or(Vec::new(), id_bytes))
                .bind(steps);
            let end = end.fetch_optional(&mut *connection).await.map_err(failed(CONTEXT))?;
            let end = end.map(|row| stored_id(&row, 0)).transpose().map_err(failed(CONTEXT))?;
            let look = self.look(walk, Way::To(end), walk.limit.max(1));
            let (text, arguments) = look.map_err(failed(CONTEXT))?;
            let list = sqlx::query_with(sql(text), arguments);
            let rows = list.fetch_all(&mut *connection).await.map_err(failed(CONTEXT))?;
            Ok(walk.walked(read(&rows, view, CONTEXT)?, end))
        })
    }

    fn lanes(&self) -> Reply<'_, Vec<LaneView>> {
        const CONTEXT: &str = "list lanes";
        Box::pin(async move {
            let (_turn, mut connection) = self.reader(CONTEXT).await?;
            let lanes = sqlx::query(self.statements.lanes.clone());
            let rows = lanes.fetch_all(&mut *connection).await.map_err(failed(CONTEXT))?;
            read(&rows, lane_view, CONTEXT)
        })
    }

    fn depths(&self) -> Reply<'_, Vec<Depth>> {
        const CONTEXT: &str = "count tasks";
        Box::pin(async move {
            let (_turn, mut connection) = self.reader(CONTEXT).await?;
            let depths = sqlx::query(self.statements.depths.clone());
            let rows = depths.fetch_all(&mut *connection).await.map_err(failed(CONTEXT))?;
            read(&rows, depth, CONTEXT)
        })
    }

    fn now(&self) -> Reply<'_, Timestamp> {
        const CONTEXT: &str = "read the queue's clock";
        Box::pin(async move {
            let (_turn, mut connection) = self.reader(CONTEXT).await?;
            self.now_on(&mut connection).await.map_err(failed(CONTEXT))
        })
    }
}

impl SqliteQueue {
    pub(super) async fn reader(&self, context: &'static str) -> Result<Reader<'_>, StoreError> {
        let turn = self.file.turn_to_read().await;
        let connection = self.file.pool.acquire().await.map_err(failed(context))?;
        Ok((turn, connection))
    }

    /// The statement that shows what a walk takes, and what it is asked with.
    fn look(&self, walk: &Walk, way: Way, limit: u32) -> Result<(String, SqliteArguments), sqlx::Error> {
        let (mut arguments, filter) = (SqliteArguments::default(), &walk.filter);
        let mut only = String::new();
        bind(&mut arguments, walk.after.map_or(Vec::new(), id_bytes))?;
        if let Some(state) = filter.state {
            // In the text, so that the indexes of states can be used. A part of the way is read from end to end instead.
            let plus = if way == Way::Whole { "" } else { "+" };
            let ended = way == Way::Whole && matches!(state, TaskState::Held | TaskState::Dead);
            let ended = if ended { " and ended_at is not null" } else { "" };
            write!(only, " and {plus}state = {}{ended}", state.code()).expect("a string takes everything");
        }
        if let Some(kind) = &filter.kind {
            only.push_str(" and kind = ?");
            bind(&mut arguments, kind.as_str())?;
        }
        if let Some(lane) = &filter.lane {
            only.push_str(" and lane = ?");
            bind(&mut arguments, lane.as_str())?;
        }
        if let Some(version) = filter.version {
            only.push_str(" and version = ?");
            bind(&mut arguments, version)?;
        }
        if let Some(since) = walk.since {
            only.push_str(" and enqueued_at >= ?");
            bind(&mut arguments, timestamp(since))?;
        }
        if let Some(before) = walk.before {
            only.push_str(" and enqueued_at < ?");
            bind(&mut arguments, timestamp(before))?;
        }
        if let Way::To(Some(end)) = way {
            only.push_str(" and id <= ?");
            bind(&mut arguments, id_bytes(end))?;
        }
        bind(&mut arguments, limit)?;
        // Few run, are held or dead: they are taken from their index and sorted. A plus keeps SQLite from walking through
        // all tasks by their ids instead. Of what waits or is done a page is soon full.
        let few = matches!(
            filter.state,
            Some(TaskState::Running | TaskState::Held | TaskState::Dead)
        ) && way == Way::Whole;
        let id = if few { "+id" } else { "id" };
        let text = format!("{} where {id} > ?{only} order by {id} limit ?", self.statements.list);
        Ok((text, arguments))
    }
}

pub(super) fn read<T>(
    rows: &[SqliteRow],
    view: impl Fn(&SqliteRow) -> Result<T, sqlx::Error>,
    context: &'static str,
) -> Result<Vec<T>, StoreError> {
    rows.iter().map(view).collect::<Result<_, _>>().map_err(failed(context))
}

fn view(row: &SqliteRow) -> Result<TaskView, sqlx::Error> {
    Ok(TaskView {
        id: stored_id(row, 0)?,
        kind: row.try_get::<&str, _>(1)?.into(),
        key: row.try_get::<&str, _>(2)?.into(),
        lane: lane(row, 3)?,
        version: count(row, 4)?,
        state: state(row, 5)?,
        failures: count(row, 6)?,
        rescues: count(row, 7)?,
        fence: fence(row, 8)?,
        worker: worker(row, 9)?,
        enqueued_at: instant(row, 10)?,
        due_at: moment(row, 11)?,
        started_at: moment(row, 12)?,
        ended_at: moment(row, 13)?,
        failure: failure(row, 14)?,
        payload: row.try_get::<Vec<u8>, _>(16)?.into(),
        outcome: blob(row, 17)?,
    })
}

fn attempt(row: &SqliteRow) -> Result<AttemptView, sqlx::Error> {
    Ok(AttemptView {
        fence: fence(row, 0)?,
        worker: worker(row, 1)?,
        started_at: instant(row, 2)?,
        ended_at: instant(row, 3)?,
        then: state(row, 4)?,
        failure: failure(row, 5)?.ok_or_else(|| unreadable(5, "an attempt that is noted has failed"))?,
    })
}

fn lane_view(row: &SqliteRow) -> Result<LaneView, sqlx::Error> {
    let cap: Option<i64> = row.try_get(2)?;
    Ok(LaneView {
        lane: lane(row, 0)?,
        paused: row.try_get(1)?,
        cap: cap.map(|_| count(row, 2)).transpose()?,
    })
}

fn depth(row: &SqliteRow) -> Result<Depth, sqlx::Error> {
    Ok(Depth {
        lane: lane(row, 0)?,
        state: state(row, 1)?,
        tasks: unsigned(row, 2)?,
    })
}
