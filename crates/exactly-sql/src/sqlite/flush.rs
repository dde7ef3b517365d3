//! Carries out batches.
//!
//! A batch reads its rows in a transaction that takes no lock, and answers at once what rests on no change: replays,
//! conflicts, calls in flight. Only what is left needs the write lock and a commit. So a replay waits for no writer, and a
//! thousand of them cost no `fsync`.
//!
//! What is most likely is not read at all. A completion's claim holds as a rule, and a call that is begun is new as a rule;
//! the statements that write them fail if it is not so, and then the batch is done again with a look.

mod unseen;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use exactly::clock::Timestamp;
use exactly::store::Wakeups;
use exactly::{StoreError, StoreErrorKind};

use self::unseen::take_trusted;
use super::database::{Database, Lock, Slot, TURN_WAIT_MAX, exec, is_busy, is_constraint, recover, recover_writer};
use super::decide::{Answer, Decided, decide};
use super::table::Completed;
use crate::batch::{Again, Flush, Queued, Step, Write, by_home};
use crate::error::{Shared, kind};

/// The most steps that wait for this process's turn to write; what comes on top is refused, which bounds memory.
const WAITING_MAX: usize = 16 * 1024;

/// How long a batch waits for its turn before those of its steps that need none are answered on their own. Most turns are
/// shorter, and reading twice costs more than waiting.
const TURN_PATIENCE: Duration = Duration::from_millis(2);

/// The one flusher of a store.
#[derive(Debug)]
pub(super) struct Flusher {
    database: Arc<Database>,
    batch_max: usize,
    queued: Queued,
    waiting: Arc<StdMutex<Waiting>>,
    again: Again,
}

/// Steps that need the write lock while somebody else holds it.
#[derive(Debug, Default)]
struct Waiting {
    steps: Vec<Step>,
    /// Whether a task is there that carries them out.
    attended: bool,
}

impl Flusher {
    pub(super) fn new(database: Arc<Database>, batch_max: usize, queued: Queued, again: Again) -> Self {
        Self {
            database,
            batch_max,
            queued,
            waiting: Arc::default(),
            again,
        }
    }

    /// Leaves `steps` to a task that waits for the lock, so that the flusher can go on to answer what needs none.
    fn wait_for_turn(&self, steps: Vec<Step>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.steps.len() + steps.len() > WAITING_MAX {
            drop(waiting);
            return refuse(steps, &self.again, |attempted| {
                let context = format!("{attempted}: too many callers wait for the write lock already");
                StoreError::new(StoreErrorKind::Unavailable, context)
            });
        }
        waiting.steps.extend(steps);
        if !std::mem::replace(&mut waiting.attended, true) {
            tokio::spawn(attend(
                Arc::clone(&self.database),
                Arc::clone(&self.waiting),
                self.batch_max,
                self.again.clone(),
            ));
        }
    }
}

impl Flush for Flusher {
    async fn flush(&self, steps: Vec<Step>) {
        // While earlier steps wait, later ones must not overtake them: the claim that a caller gave back and claims again
        // would be given back after.
        let attended = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).attended;
        let reads_only = !self.database.in_memory && steps.iter().all(|step| matches!(step, Step::Peek { .. }));
        let turn = async { timeout(TURN_PATIENCE, self.database.turn.lock()).await.ok() };
        let left = if !attended
            && !reads_only
            && let Some(mut turn) = turn.await
        {
            let steps = self.write_unseen(&mut turn, steps).await;
            let lock = Lock::WhenNeeded;
            self.database.carry_out(&mut turn, steps, lock, &self.again).await
        } else {
            self.database.answer_by_reading(steps, &self.again).await
        };
        if !left.is_empty() {
            self.wait_for_turn(left);
        }
    }
}

/// Carries out waiting steps until there are none.
async fn attend(database: Arc<Database>, waiting: Arc<StdMutex<Waiting>>, batch_max: usize, again: Again) {
    loop {
        let turn = timeout(TURN_WAIT_MAX, database.turn.lock()).await;
        let mut steps = {
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.steps.is_empty() {
                waiting.attended = false;
                return;
            }
            std::mem::take(&mut waiting.steps)
        };
        let Ok(mut turn) = turn else {
            refuse(steps, &again, |attempted| {
                let waited = TURN_WAIT_MAX.as_secs();
                let context = format!("{attempted}: a transaction held the write lock for {waited} s");
                StoreError::new(StoreErrorKind::Unavailable, context)
            });
            continue;
        };
        while !steps.is_empty() {
            let later = steps.split_off(steps.len().min(batch_max));
            let batch = std::mem::replace(&mut steps, later);
            database.carry_out(&mut turn, batch, Lock::AtOnce, &again).await;
        }
    }
}

impl Database {
    /// Carries out a batch. Returns the steps that found the lock taken and have to wait for it, unless they just did.
    async fn carry_out(&self, slot: &mut Slot, steps: Vec<Step>, lock: Lock, again: &Again) -> Vec<Step> {
        if !steps.is_empty() {
            self.batches.fetch_add(1, Ordering::Relaxed);
        }
        self.settle(slot, steps, lock, again).await
    }

    /// Answers what rests on no change, and returns the rest.
    async fn answer_by_reading(&self, mut steps: Vec<Step>, again: &Again) -> Vec<Step> {
        steps.retain(|step| !step.is_pointless());
        if self.in_memory || steps.is_empty() {
            return steps;
        }
        let mut slot = self.reader.lock().await;
        let Ok(mut connection) = self.take(&mut slot).await else {
            return steps;
        };
        let answers = match self.load(&mut connection, &steps, Lock::WhenNeeded).await {
            Ok(loaded) => decide(&steps, loaded.rows, loaded.now).answers,
            Err(error) => {
                recover(&mut slot, connection, &error).await;
                return steps;
            }
        };
        if exec(&mut connection, "rollback").await.is_ok() {
            slot.put_back(connection);
        }
        answer_settled(steps, answers, again).0
    }

    /// Commits a batch. Returns the steps without an answer, because somebody else holds the lock.
    async fn settle(&self, slot: &mut Slot, mut steps: Vec<Step>, lock: Lock, again: &Again) -> Vec<Step> {
        steps.retain(|step| !step.is_pointless());
        if steps.is_empty() {
            return Vec::new();
        }
        let mut connection = match self.take(slot).await {
            Ok(connection) => connection,
            Err(error) => {
                let error = Arc::new(error);
                let told = |attempted| StoreError::new(error.kind(), attempted).with_source(Arc::clone(&error));
                refuse(steps, again, told);
                return Vec::new();
            }
        };
        let error = match self.commit(&mut connection, &mut steps, lock, again).await {
            Ok(answers) => {
                slot.put_back(connection);
                answer_committed(steps, answers, &self.wakeups, again);
                return Vec::new();
            }
            Err(error) => error,
        };
        recover_writer(slot, connection, &error).await;
        if is_busy(&error) && lock == Lock::WhenNeeded {
            return steps;
        }
        if steps.len() > 1 && can_be_one_steps_fault(&error) {
            self.settle_one_by_one(slot, steps, again).await;
            return Vec::new();
        }
        let error = Shared::new(error);
        let failed = steps.into_iter().filter_map(|step| {
            let told = error.told(step.attempted());
            step.fail(told)
        });
        again.queue(failed.collect());
        Vec::new()
    }

    async fn settle_one_by_one(&self, slot: &mut Slot, steps: Vec<Step>, again: &Again) {
        for step in steps {
            let left = Box::pin(self.settle(slot, vec![step], Lock::AtOnce, again)).await;
            debug_assert!(left.is_empty(), "who waits for the lock is told if it does not come");
        }
    }

    /// Answers what rests on no change, commits the rest and returns its answers. On an error the steps that are left
    /// have no answer, and nothing of them is stored.
    async fn commit(
        &self,
        connection: &mut sqlx::SqliteConnection,
        steps: &mut Vec<Step>,
        lock: Lock,
        again: &Again,
    ) -> Result<Vec<Decided>, sqlx::Error> {
        let (mut trusted, _) = take_trusted(steps);
        let committed = self.commit_with(connection, steps, &trusted, lock, again).await;
        let is_undone = !trusted.is_empty() && committed.as_ref().is_err_and(is_constraint);
        steps.append(&mut trusted);
        if is_undone {
            self.commit_with(connection, steps, &[], Lock::AtOnce, again).await
        } else {
            committed
        }
    }

    /// Does so after a look at the records that `steps` are about, and none at those of the completions in `trusted`,
    /// whose answers come last.
    async fn commit_with(
        &self,
        connection: &mut sqlx::SqliteConnection,
        steps: &mut Vec<Step>,
        trusted: &[Step],
        lock: Lock,
        again: &Again,
    ) -> Result<Vec<Decided>, sqlx::Error> {
        let loaded = self.load(connection, steps, lock).await?;
        let (clock, now) = (loaded.clock, loaded.now);
        let is_there = |step: &Step| matches!(step, Step::Begin { .. }) && loaded.rows.contains_key(step.id());
        if steps.iter().any(is_there) {
            self.novelty.surprised();
        } else {
            self.novelty.confirmed();
        }
        let mut plan = decide(steps, loaded.rows, now);
        let (left, mut answers) = answer_settled(std::mem::take(steps), std::mem::take(&mut plan.answers), again);
        *steps = left;
        if steps.is_empty() && trusted.is_empty() {
            exec(connection, "rollback").await?;
        } else {
            let completions: Vec<_> = trusted.iter().filter_map(|step| completed(step, now)).collect();
            self.save(connection, &plan, &completions, (clock, now)).await?;
        }
        answers.extend(trusted.iter().map(|_| Decided::applied()));
        Ok(answers)
    }
}

/// Answers what is committed, in tasks of its own: waking so many takes time, in which the next batch can be on its way.
pub(super) fn answer_committed(steps: Vec<Step>, answers: Vec<Decided>, wakeups: &Wakeups, again: &Again) {
    for (home, told) in by_home(steps.into_iter().zip(answers), &again.runtime) {
        let (wakeups, again) = (wakeups.clone(), again.clone());
        home.spawn(async move {
            let mut unheard = Vec::new();
            for (step, decided) in told {
                if step.settles() {
                    wakeups.wake(step.id());
                }
                unheard.extend(answer(step, decided.answer, &again));
            }
            again.at_once(unheard).await;
        });
    }
}

pub(super) fn completed(step: &Step, now: Timestamp) -> Option<Completed<'_>> {
    let Some(Write::Complete { claim, outcome, keep }) = step.write() else {
        return None;
    };
    Some(Completed {
        claim,
        outcome,
        expires_at: keep.until(now),
    })
}

/// Gives every answer that rests on no change, and returns the steps that are left with theirs.
fn answer_settled(steps: Vec<Step>, answers: Vec<Decided>, again: &Again) -> (Vec<Step>, Vec<Decided>) {
    let mut left = (Vec::new(), Vec::new());
    for (step, decided) in steps.into_iter().zip(answers) {
        if decided.waits {
            left.0.push(step);
            left.1.push(decided);
        } else if let Some(unheard) = answer(step, decided.answer, again) {
            // A claim of an earlier batch, found by its token.
            again.queue(vec![unheard]);
        }
    }
    left
}

/// Tells the caller. Returns what gives back a claim that nobody heard of.
fn answer(step: Step, answer: Result<Answer, Shared>, again: &Again) -> Option<Step> {
    match answer {
        Ok(Answer::Begin(verdict)) => return step.begun(verdict),
        Ok(Answer::Peek(verdict)) => step.peeked(verdict),
        Ok(Answer::Write(fenced)) => step.written(fenced),
        Err(error) => refuse(vec![step], again, |attempted| error.told(attempted)),
    }
    None
}

/// Tells every caller why what it attempted was not even begun.
fn refuse(steps: Vec<Step>, again: &Again, mut error: impl FnMut(&'static str) -> StoreError) {
    let failed = steps.into_iter().filter_map(|step| {
        let error = error(step.attempted());
        step.refuse(error)
    });
    again.queue(failed.collect());
}

/// Whether the error may be about one of a batch's steps, such as an outcome that is too large, and not about all.
fn can_be_one_steps_fault(error: &sqlx::Error) -> bool {
    matches!(kind(error), StoreErrorKind::Full | StoreErrorKind::Other)
}
