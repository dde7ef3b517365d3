//! Claims that nobody heard of go back into the queue.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};

use super::Step;

/// How long to leave a store alone that could not take a claim back.
const GIVE_BACK_PAUSE: Duration = Duration::from_millis(250);

/// The way back into the queue, for what could not be given back. It does not keep the queue open.
#[derive(Clone, Debug)]
pub(crate) struct Again {
    queue: mpsc::WeakSender<Step>,
    room: Arc<Semaphore>,
    /// The batches' own.
    pub(crate) runtime: Handle,
}

impl Again {
    /// Into `queue`, with room for so many that wait. The runtime is the one that this is called in.
    pub(super) fn new(queue: &mpsc::Sender<Step>, room: usize) -> Self {
        Self {
            queue: queue.downgrade(),
            room: Arc::new(Semaphore::new(room)),
            runtime: Handle::current(),
        }
    }

    /// Queues steps that give back claims which were granted to callers who have gone.
    pub(crate) async fn at_once(&self, steps: Vec<Step>) {
        let Some(queue) = self.queue.upgrade() else { return };
        for step in steps {
            let _ = queue.send(step).await;
        }
    }

    /// Queues the steps once more, after a pause. If too many wait for that already, their leases decide.
    pub(crate) fn queue(&self, steps: Vec<Step>) {
        if steps.is_empty() {
            return;
        }
        let count = u32::try_from(steps.len()).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(count) else {
            tracing::warn!(
                claims = count,
                "too many claims wait to be given back; their leases decide"
            );
            return;
        };
        let again = self.clone();
        self.runtime.spawn(async move {
            tokio::time::sleep(GIVE_BACK_PAUSE).await;
            again.at_once(steps).await;
            drop(room);
        });
    }
}
