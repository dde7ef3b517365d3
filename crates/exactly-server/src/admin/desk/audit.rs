//! Writing down what is done, before and after.

use std::future::Future;

use exactly::CallId;
use exactly::store::Note;

use super::{Desk, asked};
use crate::admin::input::{Actor, Reason};
use crate::admin::problem::{Answer, Problem};

/// What somebody is about to do.
#[derive(Debug)]
pub(crate) struct Deed<'a> {
    actor: &'a Actor,
    action: &'static str,
    call: Option<CallId>,
    detail: String,
}

impl<'a> Deed<'a> {
    pub(crate) fn new(actor: &'a Actor, action: &'static str, call: Option<CallId>, detail: String) -> Self {
        Self {
            actor,
            action,
            call,
            detail,
        }
    }

    pub(crate) fn because(mut self, reason: Option<&Reason>) -> Self {
        if let Some(reason) = reason {
            self.detail = format!("{}; reason: {}", self.detail, reason.as_ref());
        }
        self
    }

    fn note(&self, detail: String) -> Note {
        Note {
            call: self.call,
            actor: self.actor.as_ref().to_owned(),
            action: self.action.to_owned(),
            detail,
        }
    }
}

impl Desk {
    /// Does it between two entries of the trail. If the first cannot be written, it is not done.
    pub(crate) async fn audited<T>(
        &self,
        deed: Deed<'_>,
        act: impl Future<Output = Answer<T>>,
        told: impl FnOnce(&T) -> String,
    ) -> Answer<T> {
        let intent = deed.note(format!("asked: {}", deed.detail));
        asked("write the trail", self.store.note(&intent))
            .await
            .map_err(untraced)?;
        let answer = act.await;
        let outcome = match &answer {
            Ok(done) => format!("done: {}", told(done)),
            Err(problem) if problem.status < 500 => format!("refused: {problem}"),
            Err(problem) => format!("failed: {problem}"),
        };
        let result = deed.note(outcome);
        // It is done, or not, whatever becomes of this entry; the first one stands.
        if let Err(problem) = asked("write the trail", self.store.note(&result)).await {
            tracing::error!(call = ?result.call, action = result.action, detail = result.detail, %problem,
                "the trail does not say how an action ended");
        }
        answer
    }
}

fn untraced(mut problem: Problem) -> Problem {
    problem.detail = format!(
        "nothing was done, because it cannot be written down: {}",
        problem.detail
    );
    problem
}
