//! Telling people what became of tasks.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;

use super::kinds::Kinds;
use super::{Buried, attempt, log};
use crate::queue::{End, Failure, Leased, Rescued, TaskState};
use crate::{Fenced, telemetry};

/// What an alert hook is.
pub(crate) type OnBuried = Box<dyn Fn(&Buried) + Send + Sync>;

/// Metrics, logs and alerts, all of what the queue has confirmed.
pub(super) struct Books {
    pub(super) kinds: Kinds,
    pub(super) on_buried: Option<OnBuried>,
}

impl Books {
    /// The queue has answered.
    pub(super) fn settled(&self, task: &Leased, end: &End, fenced: Fenced) {
        if fenced == Fenced::Superseded {
            // What was not started is no loss.
            if !end.is_given_back() {
                telemetry::job_leases_lost(1);
            }
            log::lost(task, "how it ended came too late");
            return;
        }
        self.kinds.count(&task.kind, end);
        let (to, failure) = match end {
            End::Done(_) => (TaskState::Done, None),
            End::Retry { failure, .. } => (TaskState::Waiting, Some(failure)),
            End::Hold(failure) => (TaskState::Held, Some(failure)),
            End::Release | End::Defer { .. } => (TaskState::Waiting, None),
            End::Bury(failure) => {
                log::buried(task, failure);
                self.buried(&Buried {
                    id: task.lease.id,
                    kind: task.kind.clone(),
                    key: task.key.clone(),
                    failure: failure.clone(),
                });
                return;
            }
        };
        log::moved(task, TaskState::Running, to, failure);
    }

    /// A handler has settled its task itself.
    pub(super) fn settled_itself(&self, task: &Leased) {
        self.kinds.count(&task.kind, &End::Done(Bytes::new()));
        log::moved(task, TaskState::Running, TaskState::Done, None);
    }

    pub(super) fn rescued(&self, rescued: &[Rescued], rescues_max: u32) {
        for rescued in rescued {
            telemetry::job_rescued();
            if rescued.waits {
                log::rescued(rescued);
                continue;
            }
            let failure = Failure::lost(rescues_max.saturating_add(1));
            log::buried_by_rescue(rescued, &failure);
            self.buried(&Buried {
                id: rescued.id,
                kind: rescued.kind.clone(),
                key: rescued.key.clone(),
                failure,
            });
        }
    }

    fn buried(&self, buried: &Buried) {
        telemetry::job_buried(self.kinds.label(&buried.kind), buried.failure.kind);
        if let Some(on_buried) = &self.on_buried {
            alert(on_buried, buried);
        }
    }
}

/// Tells somebody. An alert that cannot be raised must not end whoever raises it.
pub(crate) fn alert(on_buried: &OnBuried, buried: &Buried) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| on_buried(buried))) {
        let panic = attempt::message(&*panic);
        tracing::error!(task = %buried.id, panic, "the callback for buried tasks panicked");
    }
}

impl fmt::Debug for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Books")
            .field("kinds", &self.kinds)
            .finish_non_exhaustive()
    }
}
