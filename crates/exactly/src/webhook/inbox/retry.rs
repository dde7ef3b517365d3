//! Events whose handler failed are applied by a worker.

use std::sync::Arc;

use bytes::Bytes;

use super::{APPLIED, Inbox, Received, STALE, head};
use crate::job::{JobError, conclude};
use crate::queue::{Leased, TransactionalQueue};
use crate::worker::{Builder, Handler, Ran, Run};

impl<Q: TransactionalQueue> Inbox<Q> {
    /// Makes the worker apply what was deferred, by the same handler: after about 30 s, 2 min and 5 min, then it is dead. Also
    /// what somebody has revived, be it dead or [quarantined](Self::quarantine_kind).
    pub fn retried_by(&self, worker: Builder) -> Builder {
        let worker = worker.handle(self.kind(), Retries(self.clone()));
        worker.handle(self.quarantine_kind(), Retries(self.clone()))
    }
}

/// Applies events of one inbox that are tasks.
struct Retries<Q: TransactionalQueue>(Inbox<Q>);

impl<Q: TransactionalQueue> Retries<Q> {
    async fn attempt(&self, task: &Leased) -> Result<Ran, JobError> {
        let Self(inbox) = self;
        let (queue, terms) = (&*inbox.0.queue, &inbox.0.terms);
        let event = inbox.stored(task);
        let mut tx = terms.bounded("open transaction", queue.open()).await?;
        let worked = inbox.apply_again(&mut tx, &event).await;
        conclude(queue, terms, tx, task, worked).await
    }
}

impl<Q: TransactionalQueue> Handler for Retries<Q> {
    fn run<'a>(&'a self, task: &'a Leased) -> Run<'a> {
        Box::pin(async move {
            let ran = self.attempt(task).await;
            ran.unwrap_or_else(|error| Ran::End(self.0.0.terms.failed(task, &error)))
        })
    }
}

impl<Q: TransactionalQueue> Inbox<Q> {
    fn stored(&self, task: &Leased) -> Received {
        // In quarantine a digest stands behind the id, which has no space in it.
        let id = task.key.split(' ').next().unwrap_or(&task.key);
        let sent = head::read(&task.payload, task.version);
        Received::new(Arc::clone(&self.0.source), id, sent, task.attempt())
    }

    async fn apply_again(&self, tx: &mut Q::Tx, event: &Received) -> Result<Bytes, JobError> {
        let is_newer = self.is_newer(tx, event).await.map_err(JobError::transient)?;
        if !is_newer {
            return Ok(Bytes::from_static(STALE));
        }
        self.apply(tx, event, self.0.terms.time_limit).await?;
        Ok(Bytes::from_static(APPLIED))
    }
}
