//! What leasing costs when the table is full, against when it is empty.

use std::time::Duration;

use exactly::queue::{Ask, End, Leased, Queue as _, Ruling, Settlement, TaskState, WorkerId};
use exactly_sql::PgQueue;
use tokio::time::Instant;

use super::ours;
use crate::Result;
use crate::database::Database;
use crate::machine;
use crate::report::{Finding, Wanted};
use crate::versus::Ratio;

const FULL: &str = "bench_claim_full";
const EMPTY: &str = "bench_claim_empty";

/// Done rows, and waiting ones, for each job of a turn: a million each if a turn has 200 000.
const ROWS_PER_JOB: u64 = 5;

/// How many tasks are claimed at once, and how often per round.
const BATCH: u32 = 100;
const CLAIMS: u32 = 60;

const COST_MAX: f64 = 1.5;
const LEASE: Duration = Duration::from_hours(1);

pub(super) async fn measure(server: &Database, jobs: u64, rounds: u32, patience: Duration) -> Result<Finding> {
    let full = server.fresh_database(FULL).await?;
    let empty = server.fresh_database(EMPTY).await?;
    let finding = on(&full, &empty, jobs * ROWS_PER_JOB, rounds, patience).await;
    drop((full, empty));
    server.drop_database(FULL).await?;
    server.drop_database(EMPTY).await?;
    finding
}

async fn on(full: &Database, empty: &Database, rows: u64, rounds: u32, patience: Duration) -> Result<Finding> {
    // Each by itself, as in the empty table: what waits in sheaves is found at once.
    let crowd = PgQueue::at(&full.url).sheaf_from(u32::MAX).start().await?;
    eprintln!("  {rows} rows that are done, and as many that wait");
    ours::fill(&crowd, 0..rows, 5000, ours::noop).await?;
    ours::burn_all(&crowd).await?;
    ours::fill(&crowd, rows..2 * rows, 5000, ours::noop).await?;
    full.execute("vacuum (analyze)".to_owned()).await?;
    full.settle().await?;
    let alone = PgQueue::open(&empty.url).await?;

    let (mut ratios, mut theirs, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds {
        machine::calm(patience).await?;
        let (mut few, mut many) = (Vec::new(), Vec::new());
        for claim in 0..CLAIMS {
            let first = u64::from(round * CLAIMS + claim) * u64::from(BATCH);
            ours::fill(&alone, first..first + u64::from(BATCH), u64::from(BATCH), ours::noop).await?;
            few.push(claim_on(&alone).await?);
            many.push(claim_on(&crowd).await?);
            alone.prune(TaskState::Done, Duration::ZERO, BATCH).await?;
        }
        let (few, many) = (median(few), median(many));
        eprintln!("  {round}  empty {:.2} ms, full {:.2} ms", few * 1000.0, many * 1000.0);
        ratios.push(many / few);
        theirs.push(few * 1000.0);
        ours.push(many * 1000.0);
    }
    let shown = |times: Vec<f64>| format!("{:.2} ms", median(times));
    Ok(Finding {
        against: "an empty table".to_owned(),
        theirs: shown(theirs),
        ours: shown(ours),
        ..Finding::alone(
            "claim",
            &format!("leasing {BATCH} tasks where {rows} are done and {rows} wait"),
            "",
            Ratio::of(ratios.into_iter()),
            Wanted::AtMost(COST_MAX),
        )
    })
}

/// Leases a batch, and says how long that took. What was leased is done afterwards.
async fn claim_on(queue: &PgQueue) -> Result<f64> {
    let ask = Ask::new(WorkerId::random(), BATCH).for_time(LEASE);
    let started = Instant::now();
    let leased = queue.lease(&ask).await?;
    let took = started.elapsed().as_secs_f64();
    if leased.len() != usize::try_from(BATCH)? {
        return Err(format!("{} tasks were leased, not {BATCH}", leased.len()).into());
    }
    let done = |task: &Leased| Settlement::new(task.lease, End::Done("".into()));
    let settled = queue.settle(&leased.iter().map(done).collect::<Vec<_>>()).await?;
    if settled.iter().any(|ruling| *ruling != Ruling::Applied) {
        return Err("a task that was leased could not be settled".into());
    }
    Ok(took)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
