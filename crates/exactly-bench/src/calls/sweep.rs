//! Whether forgetting stands in the way of calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Bench, records};
use crate::load::{Keys, ask};
use crate::report::{Finding, Wanted};
use crate::serve::{App, Records, Terms};
use crate::versus::{Course, Expected, Side, Turn, turn};
use crate::{Result, machine};

pub(super) const NAME: &str = "sweep";

/// Enough to keep the store busy, few enough that the latency is the store's and not that of a queue for the cores.
const CLIENTS: usize = 16;
const SERIES: u32 = 3;
const P99_MAX: f64 = 2.0;

/// The sweep ends by itself; this is only a bound.
const SWEEP_WITHIN: Duration = Duration::from_mins(10);

pub(super) async fn run(bench: &Bench) -> Result<Vec<Finding>> {
    let expired: u64 = if bench.quick { 20_000 } else { 1_000_000 };
    let database = bench.postgres()?;
    let place = database.fresh("sweep").await?;
    let app = App::Leased {
        records: Records::Postgres(place.clone()),
        terms: Terms::default(),
    };
    let start = Side::start(
        "layer",
        &app,
        CLIENTS,
        Keys::Fresh,
        Expected::Executions,
        database.postmaster,
    );
    let mut side = start.await?;
    side.clients.fill(SERIES, 1).await?;
    // One more than is swept: the first one was made by a request and is kept.
    records::multiply(database, &place, SERIES, expired + 1, Some("-1 hour")).await?;
    database.settle().await?;

    turn(&mut side, bench.pace.warm_up).await?;
    let mut quiet = course("no sweep");
    let mut swept = course("during a sweep");
    let per_round = expired / u64::from(bench.pace.rounds);
    for round in 1..=bench.pace.rounds {
        machine::calm(bench.pace.patience).await?;
        side.keys = Keys::Fresh;
        quiet
            .turns
            .push(shown(round, "no sweep", turn(&mut side, bench.pace.round).await?));
        let during = turn_during_sweep(&mut side, per_round).await?;
        swept.turns.push(shown(round, "during a sweep", during));
    }
    drop(side);
    database.drop(&place).await?;
    Ok(vec![finding(expired, quiet, swept)])
}

/// Runs the load for as long as the sweep of so many records takes.
async fn turn_during_sweep(side: &mut Side, records: u64) -> Result<Turn> {
    let stopped = Arc::new(AtomicBool::new(false));
    side.keys = Keys::FreshUntil(Arc::clone(&stopped));
    let address = side.server.address;
    let sweep = async move {
        let swept = ask(address, &format!("/sweep/{records}")).await;
        stopped.store(true, Ordering::Relaxed);
        swept
    };
    let (turn, swept) = tokio::join!(turn(side, SWEEP_WITHIN), sweep);
    let swept: u64 = swept?.parse()?;
    if swept != records {
        return Err(format!("only {swept} of {records} expired records were swept").into());
    }
    turn
}

fn finding(expired: u64, quiet: Course, swept: Course) -> Finding {
    let p99 = |course: &Course| course.median(|turn| turn.p99_ms);
    Finding {
        scenario: NAME,
        what: format!("p99 of a first execution while {expired} expired records are swept, {CLIENTS} clients"),
        against: quiet.name.clone(),
        theirs: format!("{:.1} ms", p99(&quiet)),
        ours: format!("{:.1} ms", p99(&swept)),
        ratio: swept.over(&quiet, |turn| turn.p99_ms),
        cpu_ratio: None,
        wanted: Wanted::AtMost(P99_MAX),
        foreign_max: quiet.foreign_max().max(swept.foreign_max()),
        notes: [&quiet, &swept].map(Course::describe).to_vec(),
        courses: vec![quiet, swept],
    }
}

fn course(name: &str) -> Course {
    Course {
        name: name.to_owned(),
        turns: Vec::new(),
    }
}

fn shown(round: u32, name: &str, turn: Turn) -> Turn {
    turn.print(round, name);
    turn
}
