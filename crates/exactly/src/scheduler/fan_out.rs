//! From a tick to the tasks of its subjects, a chunk at a time.
//!
//! A chunk is a task of its own, known by its tick, its shard and where it starts. It makes the tasks of its subjects and
//! the next chunk, and only then is it done. Whatever is lost in between is made again, and found.

use serde::{Deserialize, Serialize};

use super::audience::refused;
use super::halt::Halt;
use super::tick::{FAN_OUT_KIND, Ticks, lane, unreadable};
use super::{Plan, Shard, Tick};
use crate::StoreError;
use crate::queue::{Book, End, Enqueued, Leased, Task, TaskId};
use crate::schedule::Zone;

/// How many subjects one chunk sees to.
const CHUNK: u32 = 1000;

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

impl<Q: Book + ?Sized> Ticks<Q> {
    /// Ends the attempt at a chunk.
    pub(super) async fn fan_out(&self, task: &Leased) -> End {
        let chunk: Chunk = match serde_json::from_slice(&task.payload) {
            Ok(chunk) => chunk,
            Err(error) => return unreadable(&error),
        };
        match self.run_chunk(chunk).await {
            Ok(outcome) => End::Done(
                serde_json::to_vec(&outcome)
                    .expect("an outcome is made of numbers")
                    .into(),
            ),
            Err(halt) => halt.end(task, self.spread.next()),
        }
    }

    pub(super) async fn run_chunk(&self, mut chunk: Chunk) -> Result<Outcome, Halt> {
        let Some(plan) = self.plans.plan(&chunk.tick.schedule).await? else {
            if self.queue.read_schedule(&chunk.tick.schedule).await?.is_none() {
                // Deleted since it fired.
                return Ok(Outcome::default());
            }
            return Err(Halt::unknown(&chunk.tick, self.late(&chunk.tick).await?));
        };
        let names = names(&plan, &chunk.tick.zone).await?;
        let shard = Shard {
            index: chunk.shard,
            of: chunk.shards,
        };
        let audience = plan.audience();
        let subjects = audience.page(&names, shard, chunk.after.as_deref(), CHUNK).await?;
        let Some(last) = subjects.last().cloned() else {
            return Ok(Outcome::default());
        };
        let tasks = subjects.iter().map(|subject| audience.task(&chunk.tick, subject));
        let tasks: Vec<Task> = tasks.collect::<Result<_, _>>()?;
        let enqueued = self.queue.enqueue(&tasks).await?;
        let new = enqueued.iter().filter(|task| Enqueued::is_new(task)).count();
        let found = enqueued.len() - new;
        crate::telemetry::job_conflicts(&chunk.tick.schedule, found);
        if subjects.len() == usize::try_from(CHUNK).unwrap_or(usize::MAX) {
            chunk.after = Some(last);
            let _ = self.queue.enqueue(&[task(&chunk)?]).await?;
        }
        Ok(Outcome {
            subjects: subjects.len(),
            new,
            found,
        })
    }
}

/// The names under which the audience has this zone.
async fn names(plan: &Plan, zone: &str) -> Result<Vec<String>, StoreError> {
    let names = plan.audience().zones().await?;
    let same = |name: &String| name.parse::<Zone>().is_ok_and(|parsed| parsed.name() == zone);
    Ok(names.into_iter().filter(same).collect())
}
