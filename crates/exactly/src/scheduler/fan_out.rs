//! From a tick to the tasks of its subjects, a chunk at a time.
//!
//! A chunk is a task of its own, known by its tick, its shard and where it starts. It makes the tasks of its subjects and
//! the next chunk, and only then is it done. Whatever is lost in between is made again, and found. A subject whose task
//! cannot be made gets one of ours instead, which ends dead and says why, and keeps nobody else waiting.

use serde::{Deserialize, Serialize};

use super::audience::refused;
use super::halt::{Halt, answered};
use super::tick::{ANSWER_WITHIN, FAN_OUT_KIND, Ticks, lane, unreadable};
use super::{Plan, Shard, Tick};
use crate::queue::{Book, End, Enqueued, Leased, Task, TaskId};
use crate::schedule::Zone;
use crate::worker::attempt::contained;
use crate::{StoreError, StoreErrorKind};

/// How many subjects one chunk sees to.
const CHUNK: usize = 1000;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Chunk {
    tick: Tick,
    shard: u32,
    shards: u32,
    after: Option<String>,
}

/// What a chunk did.
#[derive(Debug, Default, Serialize)]
pub(super) struct Outcome {
    subjects: usize,
    pub(super) new: usize,
    /// Subjects that have a task for this date already: another tick made it, or an attempt at this chunk before.
    pub(super) found: usize,
    /// Subjects whose task could not be made. Each has a task here that says why.
    refused: usize,
}

/// The first chunk of a shard.
pub(super) fn first(tick: &Tick, shard: Shard) -> Chunk {
    Chunk {
        tick: tick.clone(),
        shard: shard.index,
        shards: shard.of,
        after: None,
    }
}

pub(super) fn task(chunk: &Chunk) -> Result<Task, StoreError> {
    let Chunk {
        tick,
        shard,
        shards,
        after,
    } = chunk;
    // By a digest of the cursor, which may be longer than a key.
    let from = after
        .as_deref()
        .map_or_else(String::new, |after| TaskId::of(FAN_OUT_KIND, after).to_string());
    let key = format!("{}:{shard}/{shards}:{from}", tick.own_key());
    let payload = serde_json::to_vec(chunk).expect("a chunk is made of texts and numbers");
    let task = Task::new(FAN_OUT_KIND, key, payload).map_err(refused)?;
    Ok(task.in_lane(lane(&tick.schedule)))
}

/// A subject whose task could not be made, by itself. It ends dead by name, and when it is revived it is tried anew.
#[derive(Debug, Serialize, Deserialize)]
struct Refused {
    tick: Tick,
    subject: String,
}

impl Refused {
    fn task(self) -> Result<Task, StoreError> {
        // By a digest, since the subject may be what no key can hold.
        let known_by = TaskId::of(FAN_OUT_KIND, &self.subject);
        let key = format!("{}:refused:{known_by}", self.tick.own_key());
        let payload = serde_json::to_vec(&self).expect("a subject is a text");
        let task = Task::new(FAN_OUT_KIND, key, payload).map_err(refused)?;
        Ok(task.in_lane(lane(&self.tick.schedule)))
    }
}

impl<Q: Book + ?Sized> Ticks<Q> {
    /// Ends the attempt at a chunk, or at a subject that was refused.
    pub(super) async fn fan_out(&self, task: &Leased) -> End {
        let done = match serde_json::from_slice::<Refused>(&task.payload) {
            Ok(refused) => self.run_refused(&refused).await,
            Err(_) => match serde_json::from_slice(&task.payload) {
                Ok(chunk) => self.run_chunk(chunk).await,
                Err(error) => return unreadable(&error),
            },
        };
        match done {
            Ok(outcome) => End::Done(
                serde_json::to_vec(&outcome)
                    .expect("an outcome is made of numbers")
                    .into(),
            ),
            Err(halt) => halt.end(task, self.spread.next()),
        }
    }

    /// Sees to as many subjects as a chunk has, however few a page names: only an empty one is the last.
    pub(super) async fn run_chunk(&self, mut chunk: Chunk) -> Result<Outcome, Halt> {
        let Some(plan) = self.plan_of(&chunk.tick).await? else {
            return Ok(Outcome::default());
        };
        let names = names(&plan, &chunk.tick.zone).await?;
        let shard = Shard {
            index: chunk.shard,
            of: chunk.shards,
        };
        let mut outcome = Outcome::default();
        loop {
            let wanted = CHUNK.saturating_sub(outcome.subjects);
            if wanted == 0 {
                let _ = self.queue.enqueue(&[task(&chunk)?]).await?;
                break;
            }
            let limit = u32::try_from(wanted).unwrap_or(u32::MAX);
            let page = plan.audience().page(&names, shard, chunk.after.as_deref(), limit);
            let subjects = answered("read the subjects", ANSWER_WITHIN, page).await?;
            let Some(last) = subjects.last() else { break };
            if chunk.after.as_ref() == Some(last) {
                if subjects.len() < wanted {
                    // It names the same few whatever it is asked for, so that was everybody.
                    break;
                }
                return Err(Halt::Failed(repeated(last)));
            }
            self.see_to(&plan, &chunk.tick, &subjects, &mut outcome).await?;
            chunk.after = Some(last.clone());
        }
        crate::telemetry::job_conflicts(&chunk.tick.schedule, outcome.found);
        Ok(outcome)
    }

    /// Makes the tasks of these subjects. One that cannot be made is put aside, with its name.
    async fn see_to(
        &self,
        plan: &Plan,
        tick: &Tick,
        subjects: &[String],
        outcome: &mut Outcome,
    ) -> Result<(), StoreError> {
        let (mut tasks, mut aside) = (Vec::with_capacity(subjects.len()), Vec::new());
        for subject in subjects {
            match contained(async { plan.audience().task(tick, subject) }).await {
                Ok(Ok(task)) => tasks.push(task),
                Ok(Err(_)) | Err(_) => aside.push(Refused {
                    tick: tick.clone(),
                    subject: subject.clone(),
                }),
            }
        }
        let aside = aside.into_iter().map(Refused::task);
        let aside: Vec<Task> = aside.collect::<Result<_, _>>()?;
        if !aside.is_empty() {
            let _ = self.queue.enqueue(&aside).await?;
        }
        let enqueued = self.queue.enqueue(&tasks).await?;
        let new = enqueued.iter().filter(|task| Enqueued::is_new(task)).count();
        outcome.subjects += subjects.len();
        outcome.new += new;
        outcome.found += enqueued.len() - new;
        outcome.refused += aside.len();
        Ok(())
    }

    /// Tries to make the task of one subject, and says why it cannot be made.
    async fn run_refused(&self, refused: &Refused) -> Result<Outcome, Halt> {
        let Refused { tick, subject } = refused;
        let Some(plan) = self.plan_of(tick).await? else {
            return Ok(Outcome::default());
        };
        let (kind, why) = match contained(async { plan.audience().task(tick, subject) }).await {
            Ok(Ok(task)) => {
                let enqueued = self.queue.enqueue(&[task]).await?;
                let new = enqueued.iter().filter(|task| Enqueued::is_new(task)).count();
                return Ok(Outcome {
                    subjects: 1,
                    new,
                    found: 1 - new,
                    refused: 0,
                });
            }
            Ok(Err(error)) => (error.kind(), error.to_string()),
            Err(panic) => (StoreErrorKind::Refused, panic),
        };
        let context = format!("make the task of subject {subject:?}: {why}");
        Err(Halt::Failed(StoreError::new(kind, context)))
    }

    /// The plan of a tick that has fired; `None` if it was deleted since.
    async fn plan_of(&self, tick: &Tick) -> Result<Option<Plan>, Halt> {
        if let Some(plan) = self.plan(tick).await? {
            return Ok(Some(plan));
        }
        if self.queue.read_schedule(&tick.schedule).await?.is_none() {
            return Ok(None);
        }
        Err(Halt::Unknown(tick.schedule.clone()))
    }
}

/// An audience that names a full page again never comes to those after it.
fn repeated(last: &str) -> StoreError {
    let context = format!("read the subjects after {last:?}: they end with it again; name only those after it");
    StoreError::new(StoreErrorKind::Refused, context)
}

/// The names under which the audience has this zone.
async fn names(plan: &Plan, zone: &str) -> Result<Vec<String>, StoreError> {
    let names = answered("read the zones", ANSWER_WITHIN, plan.audience().zones()).await?;
    let same = |name: &String| name.parse::<Zone>().is_ok_and(|parsed| parsed.name() == zone);
    Ok(names.into_iter().filter(same).collect())
}
