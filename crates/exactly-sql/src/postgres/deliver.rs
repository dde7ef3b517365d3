//! Answers, from the database to the callers.

use exactly::{CallId, StoreError, StoreErrorKind};
use sqlx::PgConnection;

use super::flush::{PgFlush, Way};
use super::listen::notify;
use super::session::{BATCH_TIMEOUT, within};
use super::work::Answer;
use crate::batch::Step;
use crate::error::Shared;

/// A batch that is committed.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) answers: Vec<Option<Answer>>,
    pub(super) settled: Vec<CallId>,
    pub(super) waited: Vec<CallId>,
    /// Open for the notification that may follow.
    pub(super) conn: PgConnection,
}

impl PgFlush {
    /// Tells the callers, and then those who wait. Whose record is held waits aside.
    pub(super) async fn deliver(&self, steps: Vec<Step>, done: Done) {
        let held = self.deliver_free(steps, done).await;
        self.set_aside(held.into_iter().map(|(_, step)| step).collect());
    }

    /// The same, but returns the steps whose record is held, with their places in the batch.
    pub(super) async fn deliver_free(&self, steps: Vec<Step>, done: Done) -> Vec<(usize, Step)> {
        let (unheard, held) = self.answer(steps, done).await;
        if unheard.is_empty() {
            return held;
        }
        match self.carry_out(&unheard, Way::Quick).await {
            Ok(done) => {
                let (left, held) = self.answer(unheard, done).await;
                self.again.queue(left);
                self.set_aside(held.into_iter().map(|(_, step)| step).collect());
            }
            Err(error) => self.fail(unheard, error),
        }
        held
    }

    /// Tells every caller of a batch why it failed.
    pub(super) fn fail(&self, steps: Vec<Step>, error: sqlx::Error) {
        // What the server says to have failed has left no trace.
        let left_no_trace = error.as_database_error().is_some();
        let error = Shared::new(error);
        let failed = steps.into_iter().filter_map(|step| {
            let told = error.told(step.attempted());
            if left_no_trace {
                step.refuse(told)
            } else {
                step.fail(told)
            }
        });
        self.again.queue(failed.collect());
    }

    /// Returns what gives back the claims that nobody heard of, and what has no answer yet.
    async fn answer(&self, steps: Vec<Step>, done: Done) -> (Vec<Step>, Vec<(usize, Step)>) {
        let mut unheard = Vec::new();
        let mut held = Vec::new();
        for (place, (step, answer)) in steps.into_iter().zip(done.answers).enumerate() {
            match answer {
                Some(Answer::Held) => held.push((place, step)),
                answer => unheard.extend(tell(step, answer)),
            }
        }
        self.wake(&done.settled, &done.waited, done.conn).await;
        (unheard, held)
    }

    async fn wake(&self, settled: &[CallId], waited: &[CallId], mut conn: PgConnection) {
        for id in settled {
            self.wakeups.wake(id);
        }
        if !waited.is_empty()
            // Waiters elsewhere poll too, so a lost notification only delays them.
            && let Err(error) = within(BATCH_TIMEOUT, notify(&mut conn, &self.channel, waited)).await
        {
            tracing::warn!(%error, "notify those who wait for calls in other processes");
            return;
        }
        self.sessions.give_back(conn);
    }
}

fn tell(step: Step, answer: Option<Answer>) -> Option<Step> {
    match answer {
        Some(Answer::Begun(verdict)) => return step.begun(verdict),
        Some(Answer::Peeked(verdict)) => step.peeked(verdict),
        Some(Answer::Fenced(fenced)) => step.written(fenced),
        Some(Answer::Failed(error)) => {
            let told = error.told(step.attempted());
            return step.refuse(told);
        }
        Some(Answer::Held) | None => {
            let context = format!("{}: others kept changing the record", step.attempted());
            return step.refuse(StoreError::new(StoreErrorKind::Unavailable, context));
        }
    }
    None
}
