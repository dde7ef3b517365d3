//! All rounds, one after the other.

use std::fmt::Display;

use tokio::time::Instant;

use crate::arguments::{Arguments, Command, Half};
use crate::check::{Fault, Violation};
use crate::failure::{Failure, Result};
use crate::plan::{Cell, KILLS_PER_ROUND};
use crate::report::{Report, Row};
use crate::round::{Outcome, Round};
use crate::sabotaged::Sabotage;
use crate::victim;
use crate::work::{self, WorkCell, WorkOutcome, WorkRound, WorkRow, WorkSabotage};

/// Kills per round of a control.
const CONTROL_KILLS: u32 = 8;

/// Enough for every named point to have its turn, twice.
const CONTROL_ROUNDS_MAX: u32 = 6;

const VIOLATIONS_SHOWN: usize = 10;

/// Whether the promises held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They did, and the controls show that the lab would have noticed otherwise.
    Green,
    /// They did not, or the lab is blind.
    Red,
}

/// Does what the command line asks for.
pub async fn run(arguments: Arguments) -> Result<Verdict, Failure> {
    match arguments.command {
        Some(Command::Victim(victim)) => {
            victim::serve(victim).await?;
            return Ok(Verdict::Green);
        }
        Some(Command::WorkVictim(victim)) => {
            work::serve(victim).await?;
            return Ok(Verdict::Green);
        }
        None => {}
    }
    let (calls, works) = arguments.cells()?;
    let seed = arguments.seed.unwrap_or_else(|| u64::from(fastrand::u32(..)));
    let started = Instant::now();
    eprintln!("seed {seed}");
    let mut report = Report::new(seed);
    if !arguments.control {
        for cell in &calls {
            report.rows.push(run_cell(*cell, seed, &arguments).await?);
        }
        for cell in &works {
            report.work.push(run_work(*cell, seed, &arguments).await?);
        }
    }
    let controls = if arguments.control { usize::MAX } else { 1 };
    for control in calls.iter().flat_map(|cell| cell.controls().take(controls)) {
        report.rows.push(run_control(control, seed, &arguments).await?);
    }
    for control in works.iter().flat_map(|cell| cell.controls().take(controls)) {
        report.work.push(run_work_control(control, seed, &arguments).await?);
    }
    report.seconds = started.elapsed().as_secs_f64();
    if arguments.json {
        println!("{}", report.json());
    } else {
        println!("{report}");
    }
    Ok(if report.is_green() {
        Verdict::Green
    } else {
        Verdict::Red
    })
}

async fn run_cell(cell: Cell, seed: u64, arguments: &Arguments) -> Result<Row> {
    let mut row = Row::new(cell);
    for number in 0.. {
        let left = arguments.kills.saturating_sub(row.kills.total());
        if left == 0 {
            break;
        }
        let kills = left.min(KILLS_PER_ROUND);
        let outcome = run_round(cell, number, kills, seed, arguments).await?;
        if !outcome.findings.violations.is_empty() {
            show(&outcome.findings.violations);
            eprintln!("{}", again(cell, seed, arguments));
        }
        row.add(&outcome);
    }
    Ok(row)
}

/// Kills until it is red. What is gone breaks only where a race or a kill falls into the gap, and chance may spare a
/// round.
async fn run_control(cell: Cell, seed: u64, arguments: &Arguments) -> Result<Row> {
    let mut row = Row::new(cell);
    for number in 0..CONTROL_ROUNDS_MAX {
        let outcome = run_round(cell, number, CONTROL_KILLS, seed, arguments).await?;
        row.add(&outcome);
        if row.is_green() {
            break;
        }
    }
    Ok(row)
}

async fn run_round(cell: Cell, number: u32, kills: u32, seed: u64, arguments: &Arguments) -> Result<Outcome> {
    let round = Round {
        cell,
        number,
        kills,
        seed,
        url: arguments.url(cell.store)?,
    };
    let started = Instant::now();
    let outcome = round.run().await.map_err(|failure| {
        let again = again(cell, seed, arguments);
        Failure::new(format!("{cell}, round {number}: {failure}\n{again}"))
    })?;
    eprintln!("{}", progress(&round, &outcome, started.elapsed().as_secs_f64()));
    Ok(outcome)
}

async fn run_work(cell: WorkCell, seed: u64, arguments: &Arguments) -> Result<WorkRow> {
    let mut row = WorkRow::new(cell);
    for number in 0.. {
        let left = cell.kills(arguments.kills).saturating_sub(row.kills());
        if left == 0 {
            break;
        }
        let outcome = run_work_round(cell, number, left.min(cell.kills_per_round()), seed, arguments).await?;
        if !outcome.violations.is_empty() {
            show_some(&outcome.violations);
            eprintln!("{}", work_again(cell, seed, arguments));
        }
        row.add(&outcome);
    }
    Ok(row)
}

async fn run_work_control(cell: WorkCell, seed: u64, arguments: &Arguments) -> Result<WorkRow> {
    let mut row = WorkRow::new(cell);
    for number in 0..CONTROL_ROUNDS_MAX {
        row.add(&run_work_round(cell, number, cell.kills_per_round(), seed, arguments).await?);
        if row.is_green() {
            break;
        }
    }
    Ok(row)
}

async fn run_work_round(
    cell: WorkCell,
    number: u32,
    kills: u32,
    seed: u64,
    arguments: &Arguments,
) -> Result<WorkOutcome> {
    let round = WorkRound {
        cell,
        number,
        kills,
        seed,
        url: arguments.url(cell.store)?,
    };
    let started = Instant::now();
    let outcome = round.run().await.map_err(|failure| {
        let again = work_again(cell, seed, arguments);
        Failure::new(format!("{cell}, round {number}: {failure}\n{again}"))
    })?;
    let verdict = match outcome.violations.len() {
        0 => "ok".to_owned(),
        broken => format!("{broken} violations"),
    };
    eprintln!(
        "{cell}, round {number}: {} kills, {} freezes, {} tasks, {} rescues, {:.1} s: {verdict}",
        outcome.blows.kills,
        outcome.blows.freezes,
        outcome.tasks,
        outcome.rescues,
        started.elapsed().as_secs_f64()
    );
    Ok(outcome)
}

fn work_again(cell: WorkCell, seed: u64, arguments: &Arguments) -> String {
    let control = if cell.sabotage == WorkSabotage::None {
        ""
    } else {
        " --control"
    };
    format!(
        "to repeat: cargo xtask crash --only {} --store {} --kills {} --seed {seed}{control}",
        Half::Work.name(),
        cell.store.name(),
        arguments.kills
    )
}

fn progress(round: &Round, outcome: &Outcome, seconds: f64) -> String {
    let Outcome { kills, findings } = outcome;
    let counts = findings.counts;
    let verdict = match findings.violations.len() {
        0 => "ok".to_owned(),
        broken => format!("{broken} violations, {} duplicates", counts.duplicates),
    };
    format!(
        "{}, round {}: {} kills ({} at points), {} keys, {} requests, {} effects, {} in doubt, {seconds:.1} s: {verdict}",
        round.cell,
        round.number,
        kills.total(),
        kills.named,
        counts.keys,
        counts.requests,
        counts.effects,
        counts.in_doubt,
    )
}

fn show(violations: &[Violation]) {
    // The gravest first: what happened twice or got lost tells more than its consequences.
    let mut violations: Vec<&Violation> = violations.iter().collect();
    violations.sort_by_key(|violation| !matches!(violation.fault, Fault::Duplicate(_) | Fault::Lost));
    show_some(&violations);
}

fn show_some(violations: &[impl Display]) {
    for violation in violations.iter().take(VIOLATIONS_SHOWN) {
        eprintln!("  {violation}");
    }
    if violations.len() > VIOLATIONS_SHOWN {
        eprintln!("  and {} more", violations.len() - VIOLATIONS_SHOWN);
    }
}

/// How to see it again. The seed repeats who is killed when, not how the machine interleaves the rest.
fn again(cell: Cell, seed: u64, arguments: &Arguments) -> String {
    let control = if cell.sabotage == Sabotage::None {
        ""
    } else {
        " --control"
    };
    format!(
        "to repeat: cargo xtask crash --only calls --store {} --guarantee {} --kills {} --seed {seed}{control}",
        cell.store.name(),
        cell.guarantee.name(),
        arguments.kills
    )
}
