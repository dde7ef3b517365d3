//! What a handler knows about its job beside the job itself.

use tokio_util::sync::{CancellationToken, DropGuard};

use crate::clock::Timestamp;
use crate::queue::{Fence, Leased, TaskId};

/// Which job this is, and which attempt at it.
#[derive(Clone, Debug)]
pub struct Context {
    id: TaskId,
    fence: Fence,
    attempt: u32,
    version: u32,
    enqueued_at: Timestamp,
    stopped: CancellationToken,
}

impl Context {
    /// The context of this attempt. The guard is kept while the handler runs.
    pub(super) fn of(task: &Leased) -> (Self, DropGuard) {
        let stopped = CancellationToken::new();
        let guard = stopped.clone().drop_guard();
        let context = Self {
            id: task.lease.id,
            fence: task.lease.fence,
            attempt: task.attempt(),
            version: task.version,
            enqueued_at: task.enqueued_at,
            stopped,
        };
        (context, guard)
    }

    /// The job's id: the same for every attempt, so a good idempotency key for effects elsewhere.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Higher with every attempt. Whoever makes an effect can remember the highest that it has seen and refuse what is lower,
    /// which keeps out an attempt that was paused and has been replaced.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Counted from 1; those that failed and those that were lost are behind it.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The version of the algorithm that was stored with the job.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// When it was enqueued, by the queue's clock: the same for every attempt, so better than the time of day wherever the
    /// same inputs are to come to the same.
    pub fn enqueued_at(&self) -> Timestamp {
        self.enqueued_at
    }

    /// Cancelled when the handler ends or is stopped: because the job took too long, its lease was lost, or the worker shuts
    /// down. The handler itself is then dropped; this is for what it has handed to other threads and tasks.
    pub fn stopped(&self) -> &CancellationToken {
        &self.stopped
    }
}
