//! Jobs, schedules and events for services in any language: a job is a request, its answer the outcome.
//!
//! The worker, the scheduler and the dispatcher of events are the library's. Here is what makes them speak HTTP: `errand` says
//! what a job sends, `run` sends it and `verdict` judges the answer, `definition` and `plans` make plans of stored schedules, and
//! `audience` asks a service whom they are for. `letter` is what is kept of an event of others, and `forwarder` passes it on.
//! `dead` tells of jobs that failed for good.

mod audience;
mod dead;
pub(crate) mod definition;
pub(crate) mod depths;
pub(crate) mod errand;
mod forwarder;
pub(crate) mod letter;
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
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use self::dead::Obituaries;
use self::errand::HTTP_KIND;
use self::forwarder::Forwarder;
use self::letter::{INBOX_KIND, QUARANTINE_KIND};
use self::outcome::OUTCOME_BYTES_MAX;
use self::plans::StoredPlans;
pub(crate) use self::plans::is_ours;
use self::run::Runner;
use crate::config::Config;
use crate::store::Ledger;

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
    pub(crate) async fn start(
        queue: &Arc<dyn Ledger>,
        config: &Config,
        nudge: &Nudge,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let (jobs, timeouts) = (&config.jobs, config.timeouts);
        telemetry::describe_worker();
        telemetry::describe_scheduler();
        let client = Client::builder().answer_bytes_max(OUTCOME_BYTES_MAX).build()?;
        let plans = StoredPlans::new(Arc::clone(queue), audience::client()?);
        let scheduler = Scheduler::new(Arc::clone(queue), Arc::new(plans));
        let runner = Runner::new(client, Arc::clone(queue), jobs);
        let forwarder = Forwarder::new(queue, config)?;
        // Before anything is leased.
        forwarder::cap_lanes(&**queue, &config.inbox).await?;
        let (drain, settle) = (timeouts.drain, SETTLE_FOR_MAX.min(timeouts.drain / 4));
        let tasks: Arc<dyn Queue> = Arc::<dyn Ledger>::clone(queue);
        let mut worker = Worker::builder(Arc::clone(&tasks));
        if let Some(obituaries) = Obituaries::new(queue, config)? {
            let runtime = Handle::current();
            worker = worker.on_buried(move |buried| obituaries.tell(buried, &runtime));
        }
        let running = config
            .events
            .dispatcher(queue)?
            .register(worker)
            .handle(HTTP_KIND, runner.clone())
            .handle(INBOX_KIND, forwarder.clone())
            .handle(QUARANTINE_KIND, forwarder)
            .schedule(&scheduler)
            .otherwise(runner)
            .concurrency(jobs.concurrency)
            .lane_concurrency(jobs.lane_concurrency())
            .prefetch(jobs.prefetch)
            .lease(jobs.lease)
            .sweep_every(SWEEP_EVERY.min(jobs.lease))
            .drain_for(drain.saturating_sub(settle))
            .start()?;
        let nudge = nudge.clone();
        let scheduling = async move { scheduler.run_nudged(PASS_EVERY_DEFAULT, &nudge.0).await };
        Ok(Self {
            running,
            _scheduler: AbortOnDropHandle::new(tokio::spawn(scheduling)),
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
