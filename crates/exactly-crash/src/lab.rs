//! All rounds, one after the other.

use tokio::time::Instant;

use crate::arguments::{Arguments, Command};
use crate::failure::{Failure, Result};
use crate::report::Report;
use crate::trial::{Lot, Tally as _, Told as _, Trial};
use crate::{events, victim, work};

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
        Some(Command::EventVictim(victim)) => {
            events::serve(victim).await?;
            return Ok(Verdict::Green);
        }
        None => {}
    }
    let cells = arguments.cells()?;
    let seed = arguments.seed.unwrap_or_else(|| u64::from(fastrand::u32(..)));
    let started = Instant::now();
    eprintln!("seed {seed}");
    let mut report = Report::new(seed);
    if !arguments.control {
        for cell in &cells.calls {
            report.rows.push(run_trial(*cell, seed, &arguments).await?);
        }
        for cell in &cells.work {
            report.work.push(run_trial(*cell, seed, &arguments).await?);
        }
        for cell in &cells.events {
            report.events.push(run_trial(*cell, seed, &arguments).await?);
        }
    }
    let controls = if arguments.control { usize::MAX } else { 1 };
    for control in cells.calls.iter().flat_map(|cell| cell.controls().take(controls)) {
        report.rows.push(run_control(control, seed, &arguments).await?);
    }
    for control in cells.work.iter().flat_map(|cell| cell.controls().take(controls)) {
        report.work.push(run_control(control, seed, &arguments).await?);
    }
    // These are short.
    for control in cells.events.iter().flat_map(|cell| cell.controls()) {
        report.events.push(run_control(control, seed, &arguments).await?);
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

async fn run_trial<T: Trial>(trial: T, seed: u64, arguments: &Arguments) -> Result<T::Row> {
    let mut row = trial.row();
    for number in 0.. {
        let left = trial.kills(arguments.kills).saturating_sub(row.kills());
        if left == 0 {
            break;
        }
        let kills = left.min(trial.kills_per_round());
        let outcome = run_round(trial, number, kills, seed, arguments).await?;
        let violations = outcome.violations();
        if !violations.is_empty() {
            show(&violations);
            eprintln!("{}", again(trial, seed, arguments));
        }
        row.add(&outcome);
    }
    Ok(row)
}

/// Kills until it is red. What is gone breaks only where a race or a kill falls into the gap, and chance may spare a
/// round.
async fn run_control<T: Trial>(trial: T, seed: u64, arguments: &Arguments) -> Result<T::Row> {
    let mut row = trial.row();
    for number in 0..CONTROL_ROUNDS_MAX {
        row.add(&run_round(trial, number, trial.kills_per_round(), seed, arguments).await?);
        if row.is_green() {
            break;
        }
    }
    Ok(row)
}

async fn run_round<T: Trial>(
    trial: T,
    number: u32,
    kills: u32,
    seed: u64,
    arguments: &Arguments,
) -> Result<T::Outcome> {
    let lot = Lot {
        number,
        kills,
        seed,
        url: arguments.url(trial.store())?,
    };
    let started = Instant::now();
    let outcome = trial.run(lot).await.map_err(|failure| {
        let again = again(trial, seed, arguments);
        Failure::new(format!("{trial}, round {number}: {failure}\n{again}"))
    })?;
    let (summary, seconds) = (outcome.summary(), started.elapsed().as_secs_f64());
    let verdict = match outcome.violations().len() {
        0 => "ok".to_owned(),
        broken => format!("{broken} violations"),
    };
    eprintln!("{trial}, round {number}: {summary}, {seconds:.1} s: {verdict}");
    Ok(outcome)
}

fn show(violations: &[String]) {
    for violation in violations.iter().take(VIOLATIONS_SHOWN) {
        eprintln!("  {violation}");
    }
    if violations.len() > VIOLATIONS_SHOWN {
        eprintln!("  and {} more", violations.len() - VIOLATIONS_SHOWN);
    }
}

/// How to see it again. The seed repeats who is killed when, not how the machine interleaves the rest.
fn again(trial: impl Trial, seed: u64, arguments: &Arguments) -> String {
    let control = if trial.is_control() { " --control" } else { "" };
    let (flags, kills) = (trial.flags(), arguments.kills);
    format!("to repeat: cargo xtask crash {flags} --kills {kills} --seed {seed}{control}")
}
