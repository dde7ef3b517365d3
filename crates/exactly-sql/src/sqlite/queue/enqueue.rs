//! Adding tasks.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Row as _, SqliteConnection};

use exactly::StoreError;
use exactly::clock::Timestamp;
use exactly::queue::{Enqueued, Fence, Found, Task, TaskId, TaskState, check_batch};

use super::SqliteQueue;
use super::table::{CHUNK, bind, blob, fence_number, id_bytes, sized, state, stored_id};
use crate::error::failed;
use crate::sqlite::database::read_clock;
use crate::sqlite::table::timestamp;
use crate::sqlite::tx::check_open;

/// A task that is there.
pub(super) struct Stored {
    state: TaskState,
    outcome: Option<Bytes>,
    payload: Vec<u8>,
}

impl SqliteQueue {
    /// As [`enqueue`](exactly::queue::Queue::enqueue), if the transaction of your own that `connection` is in commits.
    /// After its commit, [`announce`](Self::announce) it. Start it with `BEGIN IMMEDIATE`: one that has read before it
    /// writes fails when another wrote in between.
    pub async fn enqueue_within(
        &self,
        connection: &mut SqliteConnection,
        tasks: &[Task],
    ) -> Result<Vec<Enqueued>, StoreError> {
        const CONTEXT: &str = "enqueue tasks";
        check_batch(tasks.len(), CONTEXT)?;
        check_open(connection, CONTEXT).await?;
        let now = self.now_on(connection).await.map_err(failed(CONTEXT))?;
        let enqueued = self.enqueue_on(connection, tasks, now).await;
        enqueued.map_err(failed(CONTEXT))
    }

    pub(super) async fn now_on(&self, connection: &mut SqliteConnection) -> Result<Timestamp, sqlx::Error> {
        Ok(self.file.clock.now(read_clock(connection).await?))
    }

    pub(super) async fn enqueue_on(
        &self,
        connection: &mut SqliteConnection,
        tasks: &[Task],
        now: Timestamp,
    ) -> Result<Vec<Enqueued>, sqlx::Error> {
        let mut enqueued = Vec::with_capacity(tasks.len());
        for chunk in tasks.chunks(CHUNK) {
            let mut added = self.insert(connection, chunk, now).await?;
            // A key that comes twice was added by its first task, and is found by the others.
            let is_new: Vec<bool> = chunk.iter().map(|task| added.remove(&task.id())).collect();
            let known = chunk.iter().zip(&is_new).filter(|(_, is_new)| !**is_new);
            let known: Vec<_> = known.map(|(task, _)| task.id()).collect();
            let stored = self.find(connection, &known).await?;
            for (task, is_new) in chunk.iter().zip(is_new) {
                enqueued.push(if is_new {
                    Enqueued::New(task.id())
                } else {
                    Enqueued::Found(found(task, &stored)?)
                });
            }
        }
        Ok(enqueued)
    }

    async fn insert(
        &self,
        connection: &mut SqliteConnection,
        tasks: &[Task],
        now: Timestamp,
    ) -> Result<HashSet<TaskId>, sqlx::Error> {
        let mut arguments = SqliteArguments::default();
        bind(&mut arguments, timestamp(now))?;
        bind(&mut arguments, fence_number(Fence::first(now)))?;
        for task in tasks {
            bind(&mut arguments, id_bytes(task.id()))?;
            bind(&mut arguments, task.kind())?;
            bind(&mut arguments, task.key())?;
            bind(&mut arguments, task.lane().as_str())?;
            bind(&mut arguments, task.version())?;
            bind(&mut arguments, timestamp(now.after(task.delay())))?;
            bind(&mut arguments, &task.payload()[..])?;
        }
        let insert = sqlx::query_with(sized(&self.statements.insert, tasks.len()), arguments);
        let added = insert.fetch_all(connection).await?;
        added.iter().map(|row| stored_id(row, 0)).collect()
    }

    pub(super) async fn find(
        &self,
        connection: &mut SqliteConnection,
        ids: &[TaskId],
    ) -> Result<HashMap<TaskId, Stored>, sqlx::Error> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let mut arguments = SqliteArguments::default();
        for id in ids {
            bind(&mut arguments, id_bytes(*id))?;
        }
        let find = sqlx::query_with(sized(&self.statements.find, ids.len()), arguments);
        let rows = find.fetch_all(connection).await?;
        let stored = rows.iter().map(|row| {
            let stored = Stored {
                state: state(row, 1)?,
                outcome: blob(row, 2)?,
                payload: row.try_get(3)?,
            };
            Ok((stored_id(row, 0)?, stored))
        });
        stored.collect()
    }
}

pub(super) fn found(task: &Task, stored: &HashMap<TaskId, Stored>) -> Result<Found, sqlx::Error> {
    let stored = stored.get(&task.id()).ok_or(sqlx::Error::RowNotFound)?;
    Ok(Found {
        id: task.id(),
        state: stored.state,
        outcome: stored.outcome.clone(),
        differs: stored.payload != *task.payload(),
    })
}
