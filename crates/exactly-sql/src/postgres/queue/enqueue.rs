//! Adding tasks.

use std::collections::HashMap;

use bytes::Bytes;
use exactly::StoreError;
use exactly::queue::{Enqueued, Found, Lane, Task, TaskId, TaskState, check_batch};
use sqlx::postgres::{PgBindIterExt as _, PgRow};
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use super::PgQueue;
use super::sql::SHEAVED;
use crate::error::failed;
use crate::postgres::row::millis_code;
use crate::postgres::session::{BATCH_TIMEOUT, within};
use crate::postgres::tx::forget_stale_plans;

/// How often a task is enqueued again that was there and was pruned before it could be read.
pub(super) const ROUNDS_MAX: u32 = 16;

impl PgQueue {
    /// As [`enqueue`](exactly::queue::Queue::enqueue), if the transaction that `conn` is in commits. After its commit,
    /// [`announce`](Self::announce) it. Waits for another transaction that is about to add the same key.
    ///
    /// Use read committed; under a stricter isolation a key that was added meanwhile fails with a serialization error.
    pub async fn enqueue_within(&self, conn: &mut PgConnection, tasks: &[Task]) -> Result<Vec<Enqueued>, StoreError> {
        const CONTEXT: &str = "enqueue tasks";
        check_batch(tasks.len(), CONTEXT)?;
        let enqueued = within(BATCH_TIMEOUT, self.enqueue_on(conn, tasks)).await;
        if let Err(error) = &enqueued {
            let _ = forget_stale_plans(conn, error).await;
        }
        enqueued.map_err(failed(CONTEXT))
    }

    pub(super) async fn enqueue_on(
        &self,
        conn: &mut PgConnection,
        tasks: &[Task],
    ) -> Result<Vec<Enqueued>, sqlx::Error> {
        if let [task] = tasks {
            return Ok(vec![self.enqueue_one(conn, task).await?]);
        }
        // Of two with one key the first counts.
        let mut order: Vec<usize> = (0..tasks.len()).collect();
        order.sort_by_key(|&n| tasks[n].id());
        order.dedup_by_key(|n| tasks[*n].id());
        // In one order, so that two who add the same keys to the same lanes never wait for each other. By lanes first, because what is in
        // one page is then leased and settled together.
        order.sort_by(|&a, &b| {
            tasks[a]
                .lane()
                .cmp(tasks[b].lane())
                .then_with(|| tasks[a].id().cmp(&tasks[b].id()))
        });
        let mut answers: HashMap<TaskId, Enqueued> = HashMap::with_capacity(tasks.len());
        for _ in 0..ROUNDS_MAX {
            let mut left: Vec<usize> = order
                .iter()
                .copied()
                .filter(|&n| !answers.contains_key(&tasks[n].id()))
                .collect();
            if left.is_empty() {
                break;
            }
            let added = self.insert(conn, tasks, &left).await?;
            let all = added.len() == left.len();
            answers.extend(
                added
                    .into_iter()
                    .map(TaskId::from_uuid)
                    .map(|id| (id, Enqueued::New(id))),
            );
            if !all {
                left.retain(|&n| !answers.contains_key(&tasks[n].id()));
                let found = self.find(conn, tasks, &left).await?;
                answers.extend(found.into_iter().map(|found| (found.id, Enqueued::Found(found))));
            }
        }
        in_order(tasks, answers)
    }

    async fn enqueue_one(&self, conn: &mut PgConnection, task: &Task) -> Result<Enqueued, sqlx::Error> {
        for _ in 0..ROUNDS_MAX {
            if self.insert_one(conn, task).await? {
                return Ok(Enqueued::New(task.id()));
            }
            if let Some(found) = self.find(conn, std::slice::from_ref(task), &[0]).await?.pop() {
                return Ok(Enqueued::Found(found));
            }
        }
        Err(forgotten(task.id()))
    }

    /// Whether the key was new.
    async fn insert_one(&self, conn: &mut PgConnection, task: &Task) -> Result<bool, sqlx::Error> {
        let inserted = self
            .sql
            .insert_one
            .query()
            .bind(*task.id().as_uuid())
            .bind(task.kind())
            .bind(task.key())
            .bind(task.lane().as_str())
            .bind(task.payload().as_ref())
            .bind(millis_code(task.delay()))
            .bind(version_code(task.version()))
            .execute(conn)
            .await?;
        Ok(inserted.rows_affected() == 1)
    }

    async fn insert(&self, conn: &mut PgConnection, tasks: &[Task], order: &[usize]) -> Result<Vec<Uuid>, sqlx::Error> {
        let of = || order.iter().map(|&n| &tasks[n]);
        let place = |&n: &usize| i64::try_from(n).unwrap_or(i64::MAX);
        let states = self.sheaved(&of);
        let sql = &self.sql;
        let text = if states.is_some() {
            &sql.insert_sheaved
        } else {
            &sql.insert
        };
        let insert = text
            .query()
            .bind(of().map(|task| *task.id().as_uuid()).bind_iter())
            .bind(of().map(Task::kind).bind_iter())
            .bind(of().map(Task::key).bind_iter())
            .bind(of().map(|task| task.lane().as_str()).bind_iter())
            .bind(of().map(|task| task.payload().as_ref()).bind_iter())
            .bind(of().map(|task| millis_code(task.delay())).bind_iter())
            .bind(of().map(|task| version_code(task.version())).bind_iter())
            .bind(order.iter().map(place).bind_iter());
        let insert = match states {
            Some(states) => insert.bind(states),
            None => insert,
        };
        let row = insert.fetch_one(conn).await?;
        row.try_get::<Option<Vec<Uuid>>, _>(0).map(Option::unwrap_or_default)
    }

    /// The states of these, if any of them are put into sheaves: those that are due now, where a lane has many of them.
    fn sheaved<'a, I: Iterator<Item = &'a Task>>(&self, of: &impl Fn() -> I) -> Option<Vec<i16>> {
        let are_many = |tasks: usize| u32::try_from(tasks).is_ok_and(|tasks| tasks >= self.sheaf_from);
        let is_due = |task: &&Task| task.delay().is_zero();
        if !are_many(of().filter(is_due).count()) {
            return None;
        }
        let mut due: HashMap<&Lane, usize> = HashMap::new();
        for task in of().filter(is_due) {
            *due.entry(task.lane()).or_default() += 1;
        }
        due.retain(|_, tasks| are_many(*tasks));
        let state = |task: &Task| {
            let is_sheaved = is_due(&task) && due.contains_key(task.lane());
            if is_sheaved { SHEAVED } else { TaskState::Waiting.code() }
        };
        (!due.is_empty()).then(|| of().map(state).collect())
    }

    pub(super) async fn find(
        &self,
        conn: &mut PgConnection,
        tasks: &[Task],
        left: &[usize],
    ) -> Result<Vec<Found>, sqlx::Error> {
        let of = || left.iter().map(|&n| &tasks[n]);
        let rows = self
            .sql
            .find
            .query()
            .bind(of().map(|task| *task.id().as_uuid()).bind_iter())
            .bind(of().map(|task| task.payload().as_ref()).bind_iter())
            .fetch_all(conn)
            .await?;
        rows.iter().map(found).collect()
    }
}

fn found(row: &PgRow) -> Result<Found, sqlx::Error> {
    Ok(Found {
        id: TaskId::from_uuid(row.try_get(0)?),
        state: state(row.try_get(1)?)?,
        outcome: row.try_get::<Option<&[u8]>, _>(2)?.map(Bytes::copy_from_slice),
        differs: row.try_get(3)?,
    })
}

pub(super) fn forgotten(id: TaskId) -> sqlx::Error {
    sqlx::Error::Protocol(format!("task {id} was forgotten each time that it was looked at"))
}

/// A key that comes twice in one call was added by its first task, and found by the others.
fn in_order(tasks: &[Task], mut answers: HashMap<TaskId, Enqueued>) -> Result<Vec<Enqueued>, sqlx::Error> {
    let mut first: HashMap<TaskId, &Task> = HashMap::with_capacity(tasks.len());
    let mut enqueued = Vec::with_capacity(tasks.len());
    for task in tasks {
        let id = task.id();
        let answer = answers.get_mut(&id).ok_or_else(|| forgotten(id))?;
        let first = *first.entry(id).or_insert(task);
        let mut own = answer.clone();
        match (answer, &mut own) {
            (answer @ Enqueued::New(_), _) => {
                *answer = Enqueued::Found(Found {
                    id,
                    state: TaskState::Waiting,
                    outcome: None,
                    differs: false,
                });
            }
            (_, Enqueued::Found(found)) => found.differs |= first.payload() != task.payload(),
            (_, Enqueued::New(_)) => {}
        }
        enqueued.push(own);
    }
    Ok(enqueued)
}

pub(super) fn state(code: i16) -> Result<TaskState, sqlx::Error> {
    TaskState::from_code(code).ok_or_else(|| corrupt(&format!("state is {code}")))
}

pub(super) fn corrupt(found: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("stored task: {found}").into())
}

/// Versions are all the bits that the column has.
pub(super) fn version_code(version: u32) -> i32 {
    version.cast_signed()
}
