//! What logs are told about a task.
//!
//! Operators find a task by its id or its key's digest, and never see the key. Nothing is made into text unless somebody
//! listens.

use tracing::Span;
use tracing::field::Empty;

use crate::digest;
use crate::queue::{Failure, FailureKind, Leased, Rescued, TaskState};

/// What a handler's own lines stand in.
pub(super) fn span(task: &Leased) -> Span {
    let span = tracing::info_span!(
        "task",
        task = %task.lease.id,
        kind = &*task.kind,
        key = Empty,
        fence = task.lease.fence.get(),
        attempt = task.attempt(),
    );
    // A digest costs more than a span that nobody looks at.
    if !span.is_disabled() {
        span.record("key", digest::short(&task.key));
    }
    span
}

/// A task went from one state to another.
pub(super) fn moved(task: &Leased, from: TaskState, to: TaskState, failure: Option<&Failure>) {
    tracing::debug!(
        task = %task.lease.id,
        kind = &*task.kind,
        key = %digest::short(&task.key),
        fence = task.lease.fence.get(),
        attempt = task.attempt(),
        from = from.as_str(),
        to = to.as_str(),
        failure = failure.map(|failure| failure.kind.as_str()),
        why = failure.and_then(why),
        "task moved"
    );
}

/// Somebody has to look at it.
pub(super) fn buried(task: &Leased, failure: &Failure) {
    tracing::error!(
        task = %task.lease.id,
        kind = &*task.kind,
        key = %digest::short(&task.key),
        fence = task.lease.fence.get(),
        attempt = task.attempt(),
        from = TaskState::Running.as_str(),
        to = TaskState::Dead.as_str(),
        failure = failure.kind.as_str(),
        why = why(failure),
        "task buried"
    );
}

/// The same for one that was rescued once too often. Which attempt it was, only its history knows.
pub(super) fn buried_by_rescue(rescued: &Rescued, failure: &Failure) {
    tracing::error!(
        task = %rescued.id,
        kind = &*rescued.kind,
        key = %digest::short(&rescued.key),
        from = TaskState::Running.as_str(),
        to = TaskState::Dead.as_str(),
        failure = failure.kind.as_str(),
        why = why(failure),
        "task buried"
    );
}

pub(super) fn rescued(rescued: &Rescued) {
    tracing::warn!(
        task = %rescued.id,
        kind = &*rescued.kind,
        key = %digest::short(&rescued.key),
        from = TaskState::Running.as_str(),
        to = TaskState::Waiting.as_str(),
        "task rescued: its lease ended without a word"
    );
}

/// Somebody else has the task, or may have.
pub(super) fn lost(task: &Leased, why: &'static str) {
    tracing::warn!(
        task = %task.lease.id,
        kind = &*task.kind,
        key = %digest::short(&task.key),
        fence = task.lease.fence.get(),
        attempt = task.attempt(),
        why,
        "lease lost"
    );
}

/// The queue answers, but does not take this.
pub(super) fn given_up(task: &Leased) {
    tracing::error!(
        task = %task.lease.id,
        kind = &*task.kind,
        key = %digest::short(&task.key),
        fence = task.lease.fence.get(),
        attempt = task.attempt(),
        "the queue does not take how this task ended; its lease decides"
    );
}

/// What a failure says of itself. What cannot be read is quoted in it, and payloads are in no line.
fn why(failure: &Failure) -> Option<&str> {
    (failure.kind != FailureKind::Unreadable).then_some(failure.message.as_str())
}
