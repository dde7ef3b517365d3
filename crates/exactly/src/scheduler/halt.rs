//! Why a scheduler's own task did not come to its end, and what becomes of it then.

use std::time::Duration;

use tokio::time::timeout;

use crate::queue::{End, Failure, FailureKind, Leased};
use crate::retry::{Jitter, Schedule};
use crate::store::Reply;
use crate::{StoreError, StoreErrorKind};

/// Waits for somebody else: for a process that knows the plan, or for a calendar that is right. About as long as has been
/// waited for already, and no longer than is worth looking again.
const LOOK_AGAIN: Schedule = Schedule::Doubling {
    base: Duration::from_secs(1),
    jitter: Jitter::Full,
    cap: Duration::from_mins(15),
};

/// So often a task looks for a process that knows its plan, or for a service that answers, which takes about a day. Counted and not timed, because one that
/// is caught up may be a week late when it is made.
const LOOKS_MAX: u32 = 100;

/// What keeps a tick or a chunk from its end.
#[derive(Debug)]
pub(super) enum Halt {
    /// A store or an audience did not answer, or not so that it could be understood.
    Failed(StoreError),
    /// This process does not know the plan of this name, though the book has it. One that does may be next: a release may be
    /// on its way, or a program with plans of its own may share the queue.
    Unknown(String),
    /// By the calendar it is not due for so long. The calendar may have jumped, now or when the tick was made.
    Early(Duration),
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl Halt {
    /// How the attempt ends. What is nobody's fault waits for as long as it takes, but the queue counts those attempts too.
    pub(super) fn end(self, task: &Leased, random: u64) -> End {
        let retry = task.failures.saturating_add(1);
        let wait = |schedule: &Schedule| schedule.wait(retry, Duration::ZERO, Duration::MAX, random);
        match self {
            Self::Failed(error) => {
                let message = error.to_string();
                if matches!(error.kind(), StoreErrorKind::Refused | StoreErrorKind::Corrupt) {
                    return End::Bury(Failure::new(FailureKind::Logic, message));
                }
                let failure = Failure::new(FailureKind::Transient, message);
                // A service that is down for the morning is no reason for a day without its jobs.
                match wait(&Schedule::SCHEDULED).or_else(|| wait(&LOOK_AGAIN).filter(|_| retry < LOOKS_MAX)) {
                    Some(after) => End::Retry { after, failure },
                    None => End::Bury(failure),
                }
            }
            Self::Unknown(schedule) => {
                let message =
                    format!("schedule {schedule:?} is not known here; add its plan to this process or delete it");
                match wait(&LOOK_AGAIN).filter(|_| retry < LOOKS_MAX) {
                    Some(after) => End::Retry {
                        after,
                        failure: Failure::new(FailureKind::Transient, message),
                    },
                    None => End::Bury(Failure::new(FailureKind::Logic, message)),
                }
            }
            Self::Early(by) => {
                let message = format!("by the calendar it is due in {by:?}");
                End::Retry {
                    after: wait(&LOOK_AGAIN).map_or(by, |wait| wait.min(by)),
                    failure: Failure::new(FailureKind::Transient, message),
                }
            }
        }
    }
}

/// What plans and audiences say, who may be a service that hangs.
pub(super) async fn answered<T>(what: &str, within: Duration, asked: Reply<'_, T>) -> Result<T, StoreError> {
    let late = |_| {
        let context = format!("{what}: no answer within {within:?}");
        Err(StoreError::new(StoreErrorKind::Unavailable, context))
    };
    timeout(within, asked).await.unwrap_or_else(late)
}
