//! Calls to the queue, each in a task of its own, so that none holds up another.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::attempt::contained;
use super::settler::{Batch, Unsettled};
use crate::queue::{Ask, BATCH_MAX, Lease, Leased, Queue, Rescued, Ruling, Settlement};
use crate::{StoreError, StoreErrorKind};

/// The most tasks that one call rescues.
pub(super) const RESCUES: u32 = 1000;

/// What came of a call.
#[derive(Debug)]
pub(super) enum Answer {
    Leased {
        asked: u32,
        /// When the call began: no lease can have begun before.
        at: Instant,
        tasks: Result<Vec<Leased>, StoreError>,
    },
    Renewed {
        leases: Vec<Lease>,
        at: Instant,
        rulings: Result<Vec<Ruling>, StoreError>,
    },
    Settled {
        batch: Batch,
        rulings: Result<Vec<Ruling>, StoreError>,
    },
    Rescued(Result<Vec<Rescued>, StoreError>),
}

#[derive(Debug)]
pub(super) struct Calls {
    queue: Arc<dyn Queue>,
    /// Dropping it ends them.
    under_way: JoinSet<Answer>,
    /// How long a call may take. Whatever a queue hangs on, it is then asked anew.
    patience: Duration,
}

impl Calls {
    pub(super) fn new(queue: Arc<dyn Queue>, patience: Duration) -> Self {
        Self {
            queue,
            under_way: JoinSet::new(),
            patience,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// The next answer; `None` if there is no call under way.
    pub(super) async fn next(&mut self) -> Option<Answer> {
        loop {
            // A call that was cancelled is one of a runtime that is being shut down.
            if let Ok(answer) = self.under_way.join_next().await? {
                return Some(answer);
            }
        }
    }

    pub(super) fn lease(&mut self, ask: Ask) {
        let queue = Arc::clone(&self.queue);
        // What comes while the lease lasts is of use; what does not come is lost until it has ended.
        let patience = ask.lease;
        self.under_way.spawn(async move {
            let at = Instant::now();
            let tasks = bounded("lease tasks", patience, queue.lease(&ask)).await;
            let asked = ask.most;
            Answer::Leased { asked, at, tasks }
        });
    }

    pub(super) fn renew(&mut self, leases: Vec<Lease>, lease: Duration) {
        let (queue, patience) = (Arc::clone(&self.queue), self.patience);
        self.under_way.spawn(async move {
            let at = Instant::now();
            let renew = async {
                let mut rulings = Vec::with_capacity(leases.len());
                for leases in leases.chunks(BATCH_MAX) {
                    rulings.append(&mut queue.renew(leases, lease).await?);
                }
                Ok(rulings)
            };
            let rulings = bounded("renew leases", patience, renew).await;
            let rulings = rulings.and_then(|rulings| complete("renew leases", leases.len(), rulings));
            Answer::Renewed { leases, at, rulings }
        });
    }

    pub(super) fn settle(&mut self, batch: Batch) {
        let (queue, patience) = (Arc::clone(&self.queue), self.patience);
        self.under_way.spawn(async move {
            let settlement = |unsettled: &Unsettled| Settlement::new(unsettled.task.lease, unsettled.end.clone());
            let settlements: Vec<Settlement> = batch.unsettled.iter().map(settlement).collect();
            let rulings = bounded("settle tasks", patience, queue.settle(&settlements)).await;
            let rulings = rulings.and_then(|rulings| complete("settle tasks", settlements.len(), rulings));
            Answer::Settled { batch, rulings }
        });
    }

    pub(super) fn rescue(&mut self, rescues_max: u32) {
        let (queue, patience) = (Arc::clone(&self.queue), self.patience);
        self.under_way.spawn(async move {
            let rescued = queue.rescue(rescues_max, RESCUES);
            Answer::Rescued(bounded("rescue tasks", patience, rescued).await)
        });
    }
}

/// What the queue answers in time. A panic of a queue is one call that failed, not the end of the worker.
async fn bounded<T>(
    attempted: &'static str,
    patience: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match timeout(patience, contained(call)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(panic)) => {
            let context = format!("{attempted}: the queue panicked: {panic}");
            Err(StoreError::new(StoreErrorKind::Other, context))
        }
        Err(_) => {
            let context = format!("{attempted}: no answer within {patience:?}");
            Err(StoreError::new(StoreErrorKind::Unavailable, context))
        }
    }
}

/// Refuses an answer that leaves out some of what was asked.
fn complete(attempted: &'static str, asked: usize, rulings: Vec<Ruling>) -> Result<Vec<Ruling>, StoreError> {
    if rulings.len() == asked {
        return Ok(rulings);
    }
    let context = format!("{attempted}: {} answers to {asked} questions", rulings.len());
    Err(StoreError::new(StoreErrorKind::Other, context))
}
