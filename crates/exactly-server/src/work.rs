//! Jobs and schedules for services in any language: a job is a request, its answer the outcome.
//!
//! The worker and the scheduler are the library's. Here is what makes them speak HTTP: `errand` says what a job sends, `run`
//! sends it and `verdict` judges the answer, `definition` and `plans` make plans of stored schedules, and `audience` asks a
//! service whom they are for.

mod audience;
pub(crate) mod definition;
pub(crate) mod depths;
pub(crate) mod errand;
mod outcome;
mod plans;
mod run;
mod verdict;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use exactly::client::Client;
use exactly::queue::Queue;
use exactly::retry::{Class, Policy};
use exactly::scheduler::{PASS_EVERY_DEFAULT, Scheduler};
use exactly::worker::{Running, Worker};
use exactly::{sweep, telemetry};
use futures_util::{StreamExt as _, stream};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use self::errand::HTTP_KIND;
use self::outcome::OUTCOME_BYTES_MAX;
pub(crate) use self::plans::is_ours;
use self::plans::{One, StoredPlans};
use self::run::Runner;
use crate::config::{Jobs, Timeouts};
use crate::store::Ledger;

/// How many schedules are seen to at one time, so that a service that does not answer holds up few others.
const PLANS_AT_ONCE: usize = 16;

/// How long the worker is left to tell the queue how things ended, out of the time that a server has to stop.
const SETTLE_FOR_MAX: Duration = Duration::from_secs(2);

/// How often tasks are taken from processes that vanished, unless leases are shorter.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// The class of all calls of jobs and schedules in metrics: when they are repeated is the queue's business.
const CLASS: Class = Class::Custom("job");

/// One attempt within this time.
fn once(time: Duration) -> Policy {
    Policy::of(CLASS).retries(0).within(time).attempt_within(time)
}

/// Tells the scheduler that schedules have changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nudge(Arc<Notify>);

impl Nudge {
    pub(crate) fn give(&self) {
        self.0.notify_one();
    }
}

/// A worker and a scheduler at work.
#[derive(Debug)]
pub(crate) struct Work {
    running: Running,
    _scheduler: AbortOnDropHandle<()>,
    _depths: AbortOnDropHandle<()>,
    _pruning: AbortOnDropHandle<()>,
}

impl Work {
    /// Starts to run what the queue holds, and to fill it by its schedules.
    pub(crate) fn start(
        queue: &Arc<dyn Ledger>,
        jobs: &Jobs,
        timeouts: Timeouts,
        nudge: &Nudge,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        telemetry::describe_worker();
        telemetry::describe_scheduler();
        let client = Client::builder().answer_bytes_max(OUTCOME_BYTES_MAX).build()?;
        let plans = Arc::new(StoredPlans::new(Arc::clone(queue), audience::client()?));
        let scheduler = Scheduler::new(Arc::clone(queue), Arc::<StoredPlans>::clone(&plans) as _);
        let runner = Runner::new(client, Arc::clone(queue), jobs);
        let (drain, settle) = (timeouts.drain, SETTLE_FOR_MAX.min(timeouts.drain / 4));
        let tasks: Arc<dyn Queue> = Arc::<dyn Ledger>::clone(queue);
        let running = Worker::builder(Arc::clone(&tasks))
            .handle(HTTP_KIND, runner.clone())
            .schedule(&scheduler)
            .otherwise(runner)
            .concurrency(jobs.concurrency)
            .prefetch(jobs.prefetch)
            .lease(jobs.lease)
            .sweep_every(SWEEP_EVERY.min(jobs.lease))
            .drain_for(drain.saturating_sub(settle))
            .start()?;
        Ok(Self {
            running,
            _scheduler: AbortOnDropHandle::new(tokio::spawn(schedule(plans, nudge.clone()))),
            _depths: depths::start(Arc::clone(queue)),
            _pruning: AbortOnDropHandle::new(sweep::hourly_tasks(tasks, jobs.keep_done)),
        })
    }

    /// Begins nothing more, waits for what runs, gives back the rest.
    pub(crate) async fn drain(self) {
        let drained = self.running.drain().await;
        if drained.stopped > 0 || drained.left > 0 {
            let (stopped, left) = (drained.stopped, drained.left);
            tracing::warn!(stopped, left, "stopped with jobs unfinished; they are run again");
        }
    }
}

/// Makes ticks for as long as it is polled. Each schedule is seen to by itself: one that is slow or broken, because the
/// service that knows its subjects is, keeps no other from firing.
async fn schedule(plans: Arc<StoredPlans>, nudge: Nudge) {
    loop {
        match plans.read().await {
            Ok(found) => {
                let passes = found.into_iter().map(|plan| async {
                    let one = One::new(plan, Arc::clone(&plans));
                    Scheduler::new(Arc::clone(plans.queue()), Arc::new(one)).pass().await
                });
                let mut passes = stream::iter(passes).buffer_unordered(PLANS_AT_ONCE);
                while let Some(passed) = passes.next().await {
                    // A schedule that failed has said so itself.
                    if let Err(error) = passed {
                        tracing::warn!(%error, "look for what is due; trying again");
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "read the schedules; trying again"),
        }
        let _ = timeout(PASS_EVERY_DEFAULT, nudge.0.notified()).await;
    }
}
