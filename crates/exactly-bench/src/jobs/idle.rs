//! How soon a task starts on a queue that has nothing else to do, and what doing nothing costs.

use std::time::Duration;

use exactly::queue::Queue as _;
use exactly_sql::PgQueue;
use tokio::time::{Instant, sleep, timeout};

use super::ours;
use super::turn::Worker;
use crate::Result;
use crate::database::Database;
use crate::machine::Pid;
use crate::report::{Finding, Wanted};
use crate::versus::Ratio;

const DATABASE: &str = "bench_idle";

/// How many tasks are enqueued, one after the other, with pauses in which the worker goes to sleep.
const SAMPLES: u64 = 500;
const PAUSE_MS: std::ops::Range<u64> = 20..80;

/// How long nothing happens.
const IDLE: Duration = Duration::from_secs(30);

/// What is left of the work before is over by then.
const SETTLES: Duration = Duration::from_secs(3);

const STARTS_WITHIN: Duration = Duration::from_secs(10);

const START_P99_MS_MAX: f64 = 20.0;
const IDLE_CPU_PERCENT_MAX: f64 = 1.0;

pub(super) async fn measure(server: &Database, quick: bool) -> Result<Vec<Finding>> {
    let database = server.fresh_database(DATABASE).await?;
    let findings = on(&database, if quick { 10 } else { 1 }).await;
    drop(database);
    server.drop_database(DATABASE).await?;
    findings
}

async fn on(database: &Database, share: u32) -> Result<Vec<Finding>> {
    let samples = SAMPLES / u64::from(share);
    let contender = ours::starting();
    let mut worker = Worker::start(&contender, &database.url, samples).await?;
    let mut lines = worker.begin().await?;
    let queue = PgQueue::open(&database.url).await?;
    let mut took = Vec::new();
    for number in 0..samples {
        sleep(Duration::from_millis(fastrand::u64(PAUSE_MS))).await;
        let task = ours::noop(number)?;
        let enqueued = Instant::now();
        let _ = queue.enqueue(std::slice::from_ref(&task)).await?;
        loop {
            let line = timeout(STARTS_WITHIN, lines.next_line()).await;
            let line = line.map_err(|_| format!("task {number} did not start within {STARTS_WITHIN:?}"))??;
            if line.ok_or("the worker ended")? == task.key() {
                break;
            }
        }
        took.push(enqueued.elapsed().as_secs_f64() * 1000.0);
    }
    // It has a connection that listens too.
    drop(queue);
    sleep(SETTLES).await;
    let cpu = |worker: &Worker| -> Result<(Duration, Duration)> {
        let database = database.postmaster.map_or(Ok(Duration::ZERO), Pid::cpu_with_children)?;
        Ok((worker.pid.cpu()?, database))
    };
    let (before, since) = (cpu(&worker)?, Instant::now());
    sleep(IDLE / share).await;
    let (after, elapsed) = (cpu(&worker)?, since.elapsed());
    worker.stop().await?;
    let percent = |spent: Duration| spent.as_secs_f64() / elapsed.as_secs_f64() * 100.0;
    let own = percent(after.0.saturating_sub(before.0));
    let theirs = percent(after.1.saturating_sub(before.1));
    took.sort_by(f64::total_cmp);
    let at = |percentile: usize| took[(took.len() - 1) * percentile / 100];
    Ok(vec![
        Finding {
            notes: vec![format!(
                "p50 {:.2} ms, p99 {:.2} ms, longest {:.2} ms of {samples}",
                at(50),
                at(99),
                at(100)
            )],
            ..Finding::alone(
                "start",
                "99th percentile from before a task is enqueued until its handler runs, in another process, on an idle queue",
                "ms",
                Ratio::once(at(99)),
                Wanted::AtMost(START_P99_MS_MAX),
            )
        },
        Finding {
            notes: vec![format!(
                "the worker {own:.2} %, the database {theirs:.2} %, of one core in {elapsed:.0?}"
            )],
            ..Finding::alone(
                "idle",
                "CPU of a worker and its database while there is nothing to do, of one core",
                "%",
                Ratio::once(own + theirs),
                Wanted::AtMost(IDLE_CPU_PERCENT_MAX),
            )
        },
    ])
}
