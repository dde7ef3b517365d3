//! What is remembered of attempts.

use exactly::clock::Timestamp;
use exactly::queue::{Failure, Fence, TaskState, WorkerId};
use sqlx::sqlite::SqliteArguments;

use crate::sqlite::queue::table::{bind, fence_number, worker_bytes};
use crate::sqlite::table::timestamp;

/// An attempt that ended without an outcome.
pub(super) struct Note {
    pub(super) task: i64,
    pub(super) fence: Fence,
    pub(super) worker: Option<WorkerId>,
    pub(super) started_at: Timestamp,
    pub(super) ended_at: Timestamp,
    pub(super) then: TaskState,
    pub(super) failure: Failure,
}

impl Note {
    pub(super) fn bind(&self, arguments: &mut SqliteArguments) -> Result<(), sqlx::Error> {
        bind(arguments, self.task)?;
        bind(arguments, fence_number(self.fence))?;
        bind(arguments, worker_bytes(self.worker))?;
        bind(arguments, timestamp(self.started_at))?;
        bind(arguments, timestamp(self.ended_at))?;
        bind(arguments, self.then.code())?;
        bind(arguments, self.failure.kind.code())?;
        bind(arguments, self.failure.message.as_str())
    }
}
