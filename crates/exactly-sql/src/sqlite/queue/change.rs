//! What becomes of tasks that are there: settled, renewed, rescued, revived.
//!
//! The rows are read and decided on one after the other, so two steps about one task in one call see each other. The
//! decisions are those of [`MemoryQueue`](exactly::queue::MemoryQueue), which is the model.

mod note;
mod record;

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Row as _, SqliteConnection};

use exactly::Fenced;
use exactly::clock::Timestamp;
use exactly::queue::{
    BATCH_MAX, End, Failure, Fence, Lease, RESCUED_FOR_EVER, Rescued, Settlement, TaskId, TaskState, WorkerId,
};

use self::note::Note;
use super::SqliteQueue;
use super::table::{
    CHUNK, bind, blob, count, failure, fence, fence_number, id_bytes, moment, sized, state, stored_id, worker,
};
use crate::sqlite::table::timestamp;

/// A task as far as changes are decided on it.
struct Row {
    number: i64,
    state: TaskState,
    failures: u32,
    rescues: u32,
    fence: Fence,
    worker: Option<WorkerId>,
    started_at: Option<Timestamp>,
    due_at: Option<Timestamp>,
    /// When it was due before it was leased, if it runs.
    ready_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    failure: Option<Failure>,
    /// Whether the attempt of the present fence is in the history.
    is_noted: bool,
    outcome: Option<Bytes>,
    is_changed: bool,
}

/// What is said of a settlement that was carried out before.
#[derive(Clone, Copy, Debug)]
pub(super) enum Repeated {
    /// That it was.
    Found,
    /// That it comes too late: who settles with an effect has made it twice.
    Superseded,
}

impl SqliteQueue {
    pub(super) async fn settle_on(
        &self,
        connection: &mut SqliteConnection,
        settlements: &[Settlement],
        repeated: Repeated,
        now: Timestamp,
    ) -> Result<Vec<Fenced>, sqlx::Error> {
        let ids: Vec<_> = settlements.iter().map(|settlement| settlement.lease.id).collect();
        let mut rows = self.load(connection, &ids).await?;
        let mut notes = Vec::new();
        let settled = settlements.iter().map(|Settlement { lease, end }| {
            let Some(row) = rows.get_mut(&lease.id).filter(|row| row.fence == lease.fence) else {
                return Fenced::Superseded;
            };
            if row.state != TaskState::Running {
                return match repeated {
                    Repeated::Found => row.repeated(end),
                    Repeated::Superseded => Fenced::Superseded,
                };
            }
            notes.extend(row.settle(end, now));
            Fenced::Applied
        });
        let settled = settled.collect();
        self.save(connection, rows.values(), &notes).await?;
        Ok(settled)
    }

    pub(super) async fn renew_on(
        &self,
        connection: &mut SqliteConnection,
        leases: &[Lease],
        until: Timestamp,
    ) -> Result<Vec<Fenced>, sqlx::Error> {
        let mut renewed: HashSet<Lease> = HashSet::with_capacity(leases.len());
        for chunk in leases.chunks(CHUNK) {
            let mut arguments = SqliteArguments::default();
            bind(&mut arguments, timestamp(until))?;
            for lease in chunk {
                bind(&mut arguments, id_bytes(lease.id))?;
                bind(&mut arguments, fence_number(lease.fence))?;
            }
            let renew = sqlx::query_with(sized(&self.statements.renew, chunk.len()), arguments);
            for row in renew.fetch_all(&mut *connection).await? {
                let (id, fence) = (stored_id(&row, 0)?, fence(&row, 1)?);
                renewed.insert(Lease { id, fence });
            }
        }
        let answers = leases.iter().map(|lease| {
            if renewed.contains(lease) {
                Fenced::Applied
            } else {
                Fenced::Superseded
            }
        });
        Ok(answers.collect())
    }

    pub(super) async fn rescue_on(
        &self,
        connection: &mut SqliteConnection,
        rescues_max: u32,
        limit: u32,
        now: Timestamp,
    ) -> Result<Vec<Rescued>, sqlx::Error> {
        let limit = i64::try_from(BATCH_MAX).unwrap_or(i64::MAX).min(i64::from(limit));
        let lost = sqlx::query(self.statements.lost.clone())
            .bind(timestamp(now))
            .bind(limit);
        let lost = lost.fetch_all(&mut *connection).await?;
        let (mut rows, mut notes, mut rescued) = (Vec::new(), Vec::new(), Vec::new());
        for found in &lost {
            let mut row = Row::read(found)?;
            let kind: &str = found.try_get(2)?;
            notes.push(row.rescue(kind, rescues_max, now));
            rescued.push(Rescued {
                id: stored_id(found, 1)?,
                kind: kind.into(),
                key: found.try_get::<&str, _>(3)?.into(),
                waits: row.state == TaskState::Waiting,
            });
            rows.push(row);
        }
        self.save(connection, rows.iter(), &notes).await?;
        Ok(rescued)
    }

    pub(super) async fn revive_on(
        &self,
        connection: &mut SqliteConnection,
        ids: &[TaskId],
        now: Timestamp,
    ) -> Result<Vec<Option<TaskState>>, sqlx::Error> {
        let mut rows = self.load(connection, ids).await?;
        let was = ids.iter().map(|id| rows.get_mut(id).map(|row| row.revive(now)));
        let was = was.collect();
        self.save(connection, rows.values(), &[]).await?;
        Ok(was)
    }

    pub(super) async fn conclude_on(
        &self,
        connection: &mut SqliteConnection,
        seen: Lease,
        outcome: &Bytes,
        now: Timestamp,
    ) -> Result<Fenced, sqlx::Error> {
        let mut rows = self.load(connection, &[seen.id]).await?;
        let row = rows.get_mut(&seen.id).filter(|row| row.fence == seen.fence);
        let concluded = row.map_or(Fenced::Superseded, |row| row.conclude(outcome, now));
        self.save(connection, rows.values(), &[]).await?;
        Ok(concluded)
    }

    pub(super) async fn hasten_on(
        &self,
        connection: &mut SqliteConnection,
        ids: &[TaskId],
        now: Timestamp,
    ) -> Result<Vec<Option<TaskState>>, sqlx::Error> {
        let mut rows = self.load(connection, ids).await?;
        let was = ids.iter().map(|id| rows.get_mut(id).map(|row| row.hasten(now)));
        let was = was.collect();
        self.save(connection, rows.values(), &[]).await?;
        Ok(was)
    }

    async fn load(
        &self,
        connection: &mut SqliteConnection,
        ids: &[TaskId],
    ) -> Result<HashMap<TaskId, Row>, sqlx::Error> {
        let mut rows = HashMap::with_capacity(ids.len());
        for chunk in ids.chunks(CHUNK) {
            let mut arguments = SqliteArguments::default();
            for id in chunk {
                bind(&mut arguments, id_bytes(*id))?;
            }
            let load = sqlx::query_with(sized(&self.statements.load, chunk.len()), arguments);
            for row in load.fetch_all(&mut *connection).await? {
                rows.insert(stored_id(&row, 1)?, Row::read(&row)?);
            }
        }
        Ok(rows)
    }

    /// Writes the rows that have changed, and what is to be remembered of their attempts.
    async fn save(
        &self,
        connection: &mut SqliteConnection,
        rows: impl Iterator<Item = &Row>,
        notes: &[Note],
    ) -> Result<(), sqlx::Error> {
        let changed: Vec<&Row> = rows.filter(|row| row.is_changed).collect();
        for chunk in changed.chunks(CHUNK) {
            let mut arguments = SqliteArguments::default();
            for row in chunk {
                row.bind(&mut arguments)?;
            }
            let save = sqlx::query_with(sized(&self.statements.save, chunk.len()), arguments);
            save.execute(&mut *connection).await?;
        }
        for chunk in notes.chunks(CHUNK) {
            let mut arguments = SqliteArguments::default();
            for note in chunk {
                note.bind(&mut arguments)?;
            }
            let note = sqlx::query_with(sized(&self.statements.note, chunk.len()), arguments);
            note.execute(&mut *connection).await?;
        }
        Ok(())
    }
}

impl Row {
    fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            number: row.try_get(0)?,
            state: state(row, 4)?,
            failures: count(row, 5)?,
            rescues: count(row, 6)?,
            fence: fence(row, 7)?,
            worker: worker(row, 8)?,
            started_at: moment(row, 9)?,
            due_at: moment(row, 10)?,
            ended_at: moment(row, 11)?,
            failure: failure(row, 12)?,
            is_noted: row.try_get(14)?,
            outcome: blob(row, 15)?,
            ready_at: moment(row, 16)?,
            is_changed: false,
        })
    }

    fn settle(&mut self, end: &End, now: Timestamp) -> Option<Note> {
        self.is_changed = true;
        match end {
            End::Done(outcome) => {
                self.state = TaskState::Done;
                self.outcome = Some(outcome.clone());
                self.due_at = None;
                self.ended_at = Some(now);
                None
            }
            End::Retry { after, failure } => {
                let note = self.fail(failure, TaskState::Waiting, now);
                self.wait(now.after(*after));
                Some(note)
            }
            End::Bury(failure) => Some(self.fail(failure, TaskState::Dead, now)),
            End::Hold(failure) => Some(self.fail(failure, TaskState::Held, now)),
            End::Release => {
                self.wait(self.ready_at.unwrap_or(now));
                None
            }
            End::Defer { after } => {
                self.wait(now.after(*after));
                None
            }
        }
    }

    /// Whether a settlement of the present fence was applied before.
    fn repeated(&self, end: &End) -> Fenced {
        // Of the ends that lead to waiting only the one that failed has a note.
        let noted = self.failure.as_ref().filter(|_| self.is_noted);
        if end.left(self.state, self.outcome.as_deref(), noted) {
            Fenced::Applied
        } else {
            Fenced::Superseded
        }
    }

    fn rescue(&mut self, kind: &str, rescues_max: u32, now: Timestamp) -> Note {
        self.rescues += 1;
        let waits = self.rescues <= rescues_max || RESCUED_FOR_EVER.contains(&kind);
        let then = if waits { TaskState::Waiting } else { TaskState::Dead };
        let note = self.fail(&Failure::lost(self.rescues), then, now);
        if waits {
            self.wait(self.ready_at.unwrap_or(now));
        }
        // Whoever had the lease can write no more.
        self.raise_fence();
        note
    }

    fn revive(&mut self, now: Timestamp) -> TaskState {
        let was = self.state;
        if matches!(was, TaskState::Dead | TaskState::Held) {
            self.raise_fence();
            (self.failures, self.rescues) = (0, 0);
            self.wait(now);
        }
        was
    }

    fn conclude(&mut self, outcome: &Bytes, now: Timestamp) -> Fenced {
        if matches!(self.state, TaskState::Dead | TaskState::Held) {
            drop(self.settle(&End::Done(outcome.clone()), now));
        }
        match (self.state, &self.outcome) {
            (TaskState::Done, Some(stored)) if stored == outcome => Fenced::Applied,
            _ => Fenced::Superseded,
        }
    }

    fn hasten(&mut self, now: Timestamp) -> TaskState {
        if self.state == TaskState::Waiting && self.due_at.is_some_and(|due| due > now) {
            self.wait(now);
        }
        self.state
    }

    fn wait(&mut self, due: Timestamp) {
        self.state = TaskState::Waiting;
        self.due_at = Some(due);
        self.ended_at = None;
        self.is_changed = true;
    }

    fn fail(&mut self, failure: &Failure, then: TaskState, now: Timestamp) -> Note {
        self.failures += u32::from(failure.kind.is_counted());
        self.failure = Some(failure.clone());
        self.state = then;
        self.due_at = None;
        self.ended_at = Some(now);
        self.is_noted = true;
        self.is_changed = true;
        Note {
            task: self.number,
            fence: self.fence,
            worker: self.worker,
            started_at: self.started_at.unwrap_or(now),
            ended_at: now,
            then,
            failure: failure.clone(),
        }
    }

    fn raise_fence(&mut self) {
        self.fence = Fence::new(self.fence.get() + 1);
        self.is_noted = false;
    }

    fn bind(&self, arguments: &mut SqliteArguments) -> Result<(), sqlx::Error> {
        bind(arguments, self.number)?;
        self.bind_state(arguments)
    }

    /// What changes, in the order of every statement that writes it.
    fn bind_state(&self, arguments: &mut SqliteArguments) -> Result<(), sqlx::Error> {
        bind(arguments, self.state.code())?;
        bind(arguments, self.failures)?;
        bind(arguments, self.rescues)?;
        bind(arguments, fence_number(self.fence))?;
        bind(arguments, self.due_at.map(timestamp))?;
        bind(arguments, self.ended_at.map(timestamp))?;
        bind(arguments, self.failure.as_ref().map(|failure| failure.kind.code()))?;
        bind(arguments, self.failure.as_ref().map(|failure| failure.message.as_str()))?;
        bind(arguments, self.outcome.as_deref())
    }
}
