//! Answers, from the database to the callers.

use exactly::{CallId, StoreError, StoreErrorKind, Verdict};
use sqlx::PgConnection;

use super::flush::PgFlush;
use super::listen::notify;
use super::session::{BATCH_TIMEOUT, within};
use super::work::Answer;
use crate::batch::{Step, Write};
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
    /// Tells the callers, and then those who wait.
    pub(super) async fn deliver(&self, steps: Vec<Step>, done: Done) {
        let mut abandons = Vec::new();
        for (step, reply) in steps.into_iter().zip(done.answers) {
            let reply = reply.unwrap_or_else(|| Answer::Failed(contended(&step)));
            abandons.extend(answer(step, reply));
        }
        self.wake(&done.settled, &done.waited, done.conn).await;
        if abandons.is_empty() {
            return;
        }
        match self.carry_out(&abandons).await {
            Ok(done) => self.wake(&done.settled, &done.waited, done.conn).await,
            Err(error) => tracing::warn!(%error, claims = abandons.len(), "give back claims whose callers have gone"),
        }
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

/// Tells every caller of a batch why it failed.
pub(super) fn fail(steps: Vec<Step>, error: sqlx::Error) {
    let error = Shared::new(error);
    for step in steps {
        let failure = error.told(attempted(&step));
        answer(step, Answer::Failed(failure));
    }
}

/// Tells the caller. Returns what gives back a claim whose caller has gone: nobody acted on it, so it did not happen.
fn answer(step: Step, answer: Answer) -> Option<Step> {
    match (step, answer) {
        (Step::Begin { reply, .. }, Answer::Failed(error)) => drop(reply.send(Err(error))),
        (Step::Peek { reply, .. }, Answer::Failed(error)) => drop(reply.send(Err(error))),
        (Step::Write { reply, .. }, Answer::Failed(error)) => drop(reply.send(Err(error))),
        (Step::Peek { reply, .. }, Answer::Peeked(verdict)) => drop(reply.send(Ok(verdict))),
        (Step::Write { reply, .. }, Answer::Fenced(fenced)) => drop(reply.send(Ok(fenced))),
        (Step::Begin { reply, turn, .. }, Answer::Begun(verdict)) => {
            if let Err(Ok(Verdict::Run(claim))) = reply.send(Ok(verdict)) {
                return Some(Step::give_back(claim, Some(turn)));
            }
        }
        (step, answer) => unreachable!("the answer to {step:?} is {answer:?}"),
    }
    None
}

/// What a step attempted, for its error.
fn attempted(step: &Step) -> &'static str {
    match step {
        Step::Begin { .. } => "begin record",
        Step::Peek { .. } => "peek at record",
        Step::Write { write, .. } => match write {
            Write::Renew { .. } => "renew claim",
            Write::Complete { .. } => "complete record",
            Write::Abandon { .. } => "abandon claim",
            Write::Lose { .. } => "lose claim",
        },
    }
}

fn contended(step: &Step) -> StoreError {
    let context = format!("{}: others kept changing the record", attempted(step));
    StoreError::new(StoreErrorKind::Unavailable, context)
}
