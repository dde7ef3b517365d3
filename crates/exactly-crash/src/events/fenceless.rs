//! A queue that does not look at fences, to see that the lab notices.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exactly::queue::{Ask, Enqueued, Lane, Lease, Leased, Queue, Rescued, Ruling, Settlement, Task, TaskId, TaskState};
use exactly::store::Reply;
use exactly::{Fenced, StoreError, StoreErrorKind};
use exactly_sql::PgQueue;
use sqlx::AssertSqlSafe;
use tokio::sync::watch;

use crate::crew::LEASE;

/// Every lease is renewed, and whoever settles late is believed, whatever has become of the task meanwhile. Leases are as short
/// as for everybody, so a worker that takes them for longer ones works on when they have ended.
#[derive(Debug)]
pub(super) struct Fenceless {
    queue: Arc<PgQueue>,
    settle: String,
}

impl Fenceless {
    pub(super) fn new(queue: Arc<PgQueue>, schema: &str) -> Self {
        let settle = format!(
            "update {schema}.tasks
             set state = $2, outcome = $3, due_at = case when $2 = 0 then clock_timestamp() end,
                 ended_at = case when $2 > 1 then clock_timestamp() end
             where id = $1"
        );
        Self { queue, settle }
    }

    async fn insist(&self, settlement: &Settlement) -> Result<(), sqlx::Error> {
        let settle = sqlx::query(AssertSqlSafe(self.settle.clone()));
        let settle = settle
            .bind(*settlement.lease.id.as_uuid())
            .bind(settlement.end.state().code())
            .bind(settlement.end.outcome().map(|outcome| outcome.to_vec()));
        settle.execute(self.queue.pool()).await.map(drop)
    }
}

impl Queue for Fenceless {
    fn renew<'a>(&'a self, leases: &'a [Lease], _: Duration) -> Reply<'a, Vec<Ruling>> {
        Box::pin(async move {
            let rulings = self.queue.renew(leases, LEASE).await?;
            Ok(vec![Ruling::Applied; rulings.len()])
        })
    }

    fn settle<'a>(&'a self, settlements: &'a [Settlement]) -> Reply<'a, Vec<Ruling>> {
        Box::pin(async move {
            let mut rulings = self.queue.settle(settlements).await?;
            for (ruling, settlement) in rulings.iter_mut().zip(settlements) {
                if *ruling == Ruling::Superseded {
                    let insisted = self.insist(settlement).await;
                    insisted.map_err(|error| StoreError::new(StoreErrorKind::Other, error.to_string()))?;
                    *ruling = Ruling::Applied;
                }
            }
            Ok(rulings)
        })
    }

    fn enqueue<'a>(&'a self, tasks: &'a [Task]) -> Reply<'a, Vec<Enqueued>> {
        self.queue.enqueue(tasks)
    }

    fn lease<'a>(&'a self, ask: &'a Ask) -> Reply<'a, Vec<Leased>> {
        Box::pin(async move {
            let ask = Ask {
                lease: LEASE,
                ..ask.clone()
            };
            self.queue.lease(&ask).await
        })
    }

    fn rescue(&self, rescues_max: u32, limit: u32) -> Reply<'_, Vec<Rescued>> {
        self.queue.rescue(rescues_max, limit)
    }

    fn revive<'a>(&'a self, ids: &'a [TaskId]) -> Reply<'a, Vec<Option<TaskState>>> {
        self.queue.revive(ids)
    }

    fn conclude<'a>(&'a self, seen: Lease, outcome: &'a Bytes) -> Reply<'a, Fenced> {
        self.queue.conclude(seen, outcome)
    }

    fn hasten<'a>(&'a self, ids: &'a [TaskId]) -> Reply<'a, Vec<Option<TaskState>>> {
        self.queue.hasten(ids)
    }

    fn prune(&self, state: TaskState, age: Duration, limit: u32) -> Reply<'_, u32> {
        self.queue.prune(state, age, limit)
    }

    fn prune_marks(&self, age: Duration, limit: u32) -> Reply<'_, u32> {
        self.queue.prune_marks(age, limit)
    }

    fn pause_lane<'a>(&'a self, lane: &'a Lane) -> Reply<'a, ()> {
        self.queue.pause_lane(lane)
    }

    fn resume_lane<'a>(&'a self, lane: &'a Lane) -> Reply<'a, ()> {
        self.queue.resume_lane(lane)
    }

    fn cap_lane<'a>(&'a self, lane: &'a Lane, cap: Option<u32>) -> Reply<'a, ()> {
        self.queue.cap_lane(lane, cap)
    }

    fn arrivals(&self) -> watch::Receiver<u64> {
        self.queue.arrivals()
    }
}
