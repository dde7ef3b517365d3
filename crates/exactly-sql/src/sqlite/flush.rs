//! Carries out batches.
//!
//! A batch reads its rows in a transaction that takes no lock, and answers at once what rests on no change: replays,
//! conflicts, calls in flight. Only what is left needs the write lock and a commit. So a replay waits for no writer, and a
//! thousand of them cost no `fsync`.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use exactly::{Claim, StoreError, StoreErrorKind, Verdict};

use super::database::{Database, Lock, Slot, TURN_WAIT_MAX, exec, is_busy, recover};
use super::decide::{Answer, Decided, decide};
use crate::batch::{Flush, Step, Write};
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
    waiting: Arc<StdMutex<Waiting>>,
}

/// Steps that need the write lock while somebody else holds it.
#[derive(Debug, Default)]
struct Waiting {
    steps: Vec<Step>,
    /// Whether a task is there that carries them out.
    attended: bool,
}

impl Flusher {
    pub(super) fn new(database: Arc<Database>, batch_max: usize) -> Self {
        Self {
            database,
            batch_max,
            waiting: Arc::default(),
        }
    }

    /// Leaves `steps` to a task that waits for the lock, so that the flusher can go on to answer what needs none.
    fn wait_for_turn(&self, steps: Vec<Step>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.steps.len() + steps.len() > WAITING_MAX {
            drop(waiting);
            let context = "wait for the write lock: too many callers wait already";
            return fail(steps, || StoreError::new(StoreErrorKind::Unavailable, context));
        }
        waiting.steps.extend(steps);
        if !std::mem::replace(&mut waiting.attended, true) {
            tokio::spawn(attend(
                Arc::clone(&self.database),
                Arc::clone(&self.waiting),
                self.batch_max,
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
            self.database.carry_out(&mut turn, steps, Lock::WhenNeeded).await
        } else {
            self.database.answer_by_reading(steps).await
        };
        if !left.is_empty() {
            self.wait_for_turn(left);
        }
    }
}

/// Carries out waiting steps until there are none.
async fn attend(database: Arc<Database>, waiting: Arc<StdMutex<Waiting>>, batch_max: usize) {
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
            let context = format!(
                "wait for the write lock: a transaction held it for {} s",
                TURN_WAIT_MAX.as_secs()
            );
            fail(steps, || StoreError::new(StoreErrorKind::Unavailable, &*context));
            continue;
        };
        while !steps.is_empty() {
            let later = steps.split_off(steps.len().min(batch_max));
            let batch = std::mem::replace(&mut steps, later);
            database.carry_out(&mut turn, batch, Lock::AtOnce).await;
        }
    }
}

impl Database {
    /// Carries out a batch. Returns the steps that found the lock taken and have to wait for it, unless they just did.
    async fn carry_out(&self, slot: &mut Slot, steps: Vec<Step>, lock: Lock) -> Vec<Step> {
        self.batches.fetch_add(1, Ordering::Relaxed);
        let mut settled = self.settle(slot, steps, lock).await;
        let busy = std::mem::take(&mut settled.busy);
        // Nobody can have acted on a claim that nobody heard of.
        while !settled.unheard.is_empty() {
            // No turn is needed: there is one flusher, and no later begin overtakes this.
            let abandon = |claim| Step::give_back(claim, None);
            let steps = settled.unheard.into_iter().map(abandon).collect();
            settled = self.settle(slot, steps, Lock::AtOnce).await;
        }
        busy
    }

    /// Answers what rests on no change, and returns the rest.
    async fn answer_by_reading(&self, mut steps: Vec<Step>) -> Vec<Step> {
        steps.retain(|step| !is_forgotten(step));
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
        answer_settled(steps, answers).0
    }

    /// Commits a batch.
    async fn settle(&self, slot: &mut Slot, mut steps: Vec<Step>, lock: Lock) -> Settled {
        steps.retain(|step| !is_forgotten(step));
        if steps.is_empty() {
            return Settled::default();
        }
        let mut connection = match self.take(slot).await {
            Ok(connection) => connection,
            Err(error) => {
                let error = Arc::new(error);
                let told = || StoreError::new(error.kind(), "reach the database").with_source(Arc::clone(&error));
                fail(steps, told);
                return Settled::default();
            }
        };
        let error = match self.commit(&mut connection, &mut steps, lock).await {
            Ok(answers) => {
                slot.put_back(connection);
                return self.answer_committed(steps, answers);
            }
            Err(error) => error,
        };
        recover(slot, connection, &error).await;
        if is_busy(&error) && lock == Lock::WhenNeeded {
            return Settled {
                busy: steps,
                unheard: Vec::new(),
            };
        }
        if steps.len() > 1 && can_be_one_steps_fault(&error) {
            return self.settle_one_by_one(slot, steps).await;
        }
        let error = Shared::new(error);
        fail(steps, || error.told("write a batch of records"));
        Settled::default()
    }

    async fn settle_one_by_one(&self, slot: &mut Slot, steps: Vec<Step>) -> Settled {
        let mut all = Settled::default();
        for step in steps {
            let settled = Box::pin(self.settle(slot, vec![step], Lock::AtOnce)).await;
            all.unheard.extend(settled.unheard);
        }
        all
    }

    /// Answers what rests on no change, commits the rest and returns its answers. On an error the steps that are left
    /// have no answer, and nothing of them is stored.
    async fn commit(
        &self,
        connection: &mut sqlx::SqliteConnection,
        steps: &mut Vec<Step>,
        lock: Lock,
    ) -> Result<Vec<Decided>, sqlx::Error> {
        let loaded = self.load(connection, steps, lock).await?;
        let (clock, now) = (loaded.clock, loaded.now);
        let mut plan = decide(steps, loaded.rows, now);
        let (left, answers) = answer_settled(std::mem::take(steps), std::mem::take(&mut plan.answers));
        *steps = left;
        if steps.is_empty() {
            exec(connection, "rollback").await?;
        } else {
            self.save(connection, &plan, (clock, now)).await?;
        }
        Ok(answers)
    }

    fn answer_committed(&self, steps: Vec<Step>, answers: Vec<Decided>) -> Settled {
        let mut unheard = Vec::new();
        let mut heard = HashSet::new();
        for (step, decided) in steps.into_iter().zip(answers) {
            if let Step::Write {
                write: Write::Complete { claim, .. } | Write::Abandon { claim } | Write::Lose { claim },
                ..
            } = &step
            {
                self.wakeups.wake(&claim.id);
            }
            match answer(step, decided.answer) {
                Delivery::Heard(token) => {
                    heard.insert(token);
                }
                Delivery::Unheard(claim) => unheard.push(claim),
                Delivery::NoClaim => {}
            }
        }
        // The same call begun twice at once has one claim: whoever heard of it may act on it.
        unheard.retain(|claim| !heard.contains(&claim.token));
        Settled {
            busy: Vec::new(),
            unheard,
        }
    }
}

/// What is left to do after a batch.
#[derive(Default)]
struct Settled {
    /// Steps without an answer, because somebody else holds the lock.
    busy: Vec<Step>,
    /// Claims that were granted to callers who have gone.
    unheard: Vec<Claim>,
}

/// What became of a claim that was granted.
enum Delivery {
    NoClaim,
    Heard(exactly::Token),
    Unheard(Claim),
}

/// Gives every answer that rests on no change, and returns the steps that are left with theirs.
fn answer_settled(steps: Vec<Step>, answers: Vec<Decided>) -> (Vec<Step>, Vec<Decided>) {
    let mut left = (Vec::new(), Vec::new());
    for (step, decided) in steps.into_iter().zip(answers) {
        if decided.waits {
            left.0.push(step);
            left.1.push(decided);
        } else {
            answer(step, decided.answer);
        }
    }
    left
}

fn answer(step: Step, answer: Result<Answer, Shared>) -> Delivery {
    match (step, answer) {
        (Step::Begin { reply, .. }, Ok(Answer::Begin(Verdict::Run(claim)))) => {
            let token = claim.token;
            match reply.send(Ok(Verdict::Run(claim))) {
                Err(Ok(Verdict::Run(claim))) => return Delivery::Unheard(claim),
                _ => return Delivery::Heard(token),
            }
        }
        // Whoever no longer listens to any other answer misses nothing.
        (Step::Begin { reply, .. }, Ok(Answer::Begin(verdict))) => drop(reply.send(Ok(verdict))),
        (Step::Peek { reply, .. }, Ok(Answer::Peek(verdict))) => drop(reply.send(Ok(verdict))),
        (Step::Write { reply, .. }, Ok(Answer::Write(fenced))) => drop(reply.send(Ok(fenced))),
        (step, Err(error)) => refuse(step, error.told("read a record")),
        (step, Ok(_)) => unreachable!("{step:?} was answered in kind"),
    }
    Delivery::NoClaim
}

fn fail(steps: Vec<Step>, mut error: impl FnMut() -> StoreError) {
    for step in steps {
        refuse(step, error());
    }
}

fn refuse(step: Step, error: StoreError) {
    match step {
        Step::Begin { reply, .. } => drop(reply.send(Err(error))),
        Step::Peek { reply, .. } => drop(reply.send(Err(error))),
        Step::Write { reply, .. } => drop(reply.send(Err(error))),
    }
}

/// Whether the caller has gone and nothing is lost by doing nothing. A write is carried out all the same: what its caller
/// found out is true even if nobody listens to the answer.
fn is_forgotten(step: &Step) -> bool {
    match step {
        Step::Begin { reply, .. } => reply.is_closed(),
        Step::Peek { reply, .. } => reply.is_closed(),
        Step::Write { .. } => false,
    }
}

/// Whether the error may be about one of a batch's steps, such as an outcome that is too large, and not about all.
fn can_be_one_steps_fault(error: &sqlx::Error) -> bool {
    matches!(kind(error), StoreErrorKind::Full | StoreErrorKind::Other)
}
