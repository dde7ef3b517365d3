//! Adding a task whose first attempt is behind it.

use std::iter;

use sqlx::sqlite::SqliteArguments;
use sqlx::{Row as _, SqliteConnection};

use exactly::clock::Timestamp;
use exactly::queue::{End, Enqueued, Fence, Task, TaskState};

use super::{Note, Row};
use crate::sqlite::queue::SqliteQueue;
use crate::sqlite::queue::enqueue::found;
use crate::sqlite::queue::table::{bind, id_bytes};
use crate::sqlite::table::timestamp;

impl SqliteQueue {
    pub(in crate::sqlite::queue) async fn record_on(
        &self,
        connection: &mut SqliteConnection,
        task: &Task,
        end: &End,
        now: Timestamp,
    ) -> Result<Enqueued, sqlx::Error> {
        let mut row = Row::leased_at_once(task, now);
        let note = row.settle(end, now);
        let mut arguments = SqliteArguments::default();
        bind(&mut arguments, id_bytes(task.id()))?;
        bind(&mut arguments, task.kind())?;
        bind(&mut arguments, task.key())?;
        bind(&mut arguments, task.lane().as_str())?;
        bind(&mut arguments, task.version())?;
        bind(&mut arguments, timestamp(now))?;
        bind(&mut arguments, &task.payload()[..])?;
        bind(&mut arguments, timestamp(now))?;
        row.bind_state(&mut arguments)?;
        let record = sqlx::query_with(self.statements.record.clone(), arguments);
        let Some(added) = record.fetch_optional(&mut *connection).await? else {
            let stored = self.find(connection, &[task.id()]).await?;
            return Ok(Enqueued::Found(found(task, &stored)?));
        };
        let number = added.try_get(0)?;
        let note = note.map(|note| Note { task: number, ..note });
        self.save(connection, iter::empty(), note.as_slice()).await?;
        Ok(Enqueued::New(task.id()))
    }

    pub(in crate::sqlite::queue) async fn raise_on(
        &self,
        connection: &mut SqliteConnection,
        name: &str,
        number: i64,
        now: Timestamp,
    ) -> Result<bool, sqlx::Error> {
        let raised = sqlx::query(self.statements.raise.clone());
        let raised = raised.bind(name).bind(number).bind(timestamp(now));
        Ok(raised.fetch_optional(connection).await?.is_some())
    }
}

impl Row {
    /// As it would be if it had been enqueued and leased at this moment, by nobody in particular.
    fn leased_at_once(task: &Task, now: Timestamp) -> Self {
        Self {
            number: 0,
            state: TaskState::Running,
            failures: 0,
            rescues: 0,
            fence: Fence::new(Fence::first(now).get() + 1),
            worker: None,
            started_at: Some(now),
            due_at: None,
            ready_at: Some(now.after(task.delay())),
            ended_at: None,
            failure: None,
            is_noted: false,
            outcome: None,
            is_changed: false,
        }
    }
}
