//! Jobs: how fast queues work them off, take them in, and carry out their effects.
//!
//! Every contender is a program of its own and every turn has a database of its own, so that one's tables, statistics and
//! dead rows are not another's. The clock runs from the first claim until the contender's tables say that all is done.

mod claim;
pub(crate) mod contender;
mod fan_out;
mod figures;
mod handwritten;
mod idle;
mod inserts;
mod ours;
mod peers;
pub(crate) mod said;
mod standing;
pub(crate) mod turn;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;

use self::contender::Contender;
use self::peers::Folder;
use self::standing::{Entry, Outcome, Standing};
use crate::Result;
use crate::calls::bench_folder;
use crate::database::Database;
use crate::machine::{self, Facts};
use crate::report;
use crate::versus::Course;

const BURN: &str = "burn";
const ENQUEUE: &str = "enqueue";
const EFFECT: &str = "effect";
const START: &str = "start";
const CLAIM: &str = "claim";
const FAN_OUT: &str = "fan-out";

/// A commit per job takes that much longer than a batch of them.
const EFFECT_SHARE: u64 = 10;

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only this scenario; may be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Only this contender; may be given several times.
    #[arg(long, value_name = "NAME")]
    contender: Vec<String>,
    /// How many jobs a turn has; those with an effect are a tenth of it, and five times as many rows fill a table and have
    /// a schedule.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(100..))]
    jobs: u64,
    /// How many turns each side has.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Where the figures go; `target/bench/jobs.json` unless told otherwise.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Names the scenarios and ends.
    #[arg(long)]
    list: bool,
    /// Two rounds of few jobs, to see that everything runs; the figures mean little.
    #[arg(long)]
    quick: bool,
    /// How long, before each round, to wait for other programs to leave the cores alone.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    patience: u64,
    /// The PostgreSQL server to measure on.
    #[arg(long, env = "EXACTLY_TEST_POSTGRES_URL", hide_env_values = true, value_name = "URL")]
    postgres: Option<String>,
}

/// What a worker of our own is told, as those of the peers are.
#[derive(Debug, Deserialize)]
pub(crate) struct Order<S> {
    pub(crate) url: String,
    pub(crate) jobs: u64,
    pub(crate) settings: S,
}

/// One thing to measure.
#[derive(Debug)]
struct Scenario {
    name: &'static str,
    about: &'static str,
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: BURN,
        about: "jobs that do nothing, worked off as fast as they can be",
    },
    Scenario {
        name: ENQUEUE,
        about: "keyed jobs, taken in by the thousand",
    },
    Scenario {
        name: EFFECT,
        about: "jobs with an effect of one row in the transaction that completes them",
    },
    Scenario {
        name: START,
        about: "how soon a task starts on an idle queue, and what an idle queue costs",
    },
    Scenario {
        name: CLAIM,
        about: "what leasing costs when the table is full",
    },
    Scenario {
        name: FAN_OUT,
        about: "subjects of a schedule, fanned out and run",
    },
];

/// Somebody who takes part, or why not.
type Candidate = (&'static str, Result<Contender>);

pub(crate) async fn run(options: &Options) -> Result<()> {
    if options.list {
        for scenario in SCENARIOS {
            println!("{:<24}{}", scenario.name, scenario.about);
        }
        return Ok(());
    }
    let chosen = options.chosen()?;
    let folder = bench_folder()?;
    let missing = "jobs need a PostgreSQL server: run this by `cargo xtask bench`, or name one by --postgres";
    let server = Database::connect(options.postgres.as_deref().ok_or(missing)?).await?;
    let mut facts = Facts::gather(&folder)?;
    facts.postgres = Some(server.describe().await?);
    let (mut standings, mut alone) = (Vec::new(), Vec::new());
    for scenario in chosen {
        eprintln!("{}: {}", scenario.name, scenario.about);
        let jobs = options.jobs_of(scenario);
        let patience = Duration::from_secs(options.patience);
        match scenario.name {
            START => alone.extend(idle::measure(&server, options.quick).await?),
            CLAIM => alone.push(claim::measure(&server, jobs, options.rounds(), patience).await?),
            FAN_OUT => alone.push(fan_out::measure(&server, jobs).await?),
            _ => standings.push(measure(options, &server, scenario).await?),
        }
    }
    let mut findings = figures::findings(&standings);
    findings.append(&mut alone);
    if !standings.is_empty() {
        standing::print(&standings);
    }
    report::print(&facts, &findings);
    let json = options.json.clone().unwrap_or_else(|| folder.join("jobs.json"));
    standing::write_json(&json, &facts, &standings, &findings)?;
    println!("\nwritten to {}", json.display());
    Ok(())
}

/// A worker of our own, as a process that `run` started.
pub(crate) async fn work(program: &str, step: &str, order: &str) -> Result<()> {
    match program {
        handwritten::NAME => handwritten::run(step, serde_json::from_str(order)?).await,
        inserts::NAME => inserts::run(step, serde_json::from_str(order)?).await,
        ours::NAME => ours::run(step, serde_json::from_str(order)?).await,
        _ => Err(format!("no worker `{program}`").into()),
    }
}

async fn measure(options: &Options, server: &Database, scenario: &'static Scenario) -> Result<Standing> {
    let jobs = options.jobs_of(scenario);
    let mut candidates = candidates(scenario).await?;
    if !options.contender.is_empty() {
        candidates.retain(|(name, _)| options.contender.iter().any(|wanted| wanted == name));
    }
    let mut entries: Vec<(Entry, Option<Contender>)> = candidates.into_iter().map(|it| entered(it, jobs)).collect();
    for round in 1..=options.rounds() {
        machine::calm(Duration::from_secs(options.patience)).await?;
        // Whoever is first has the cooler machine, so the order turns around.
        let mut order: Vec<usize> = (0..entries.len()).collect();
        if round % 2 == 0 {
            order.reverse();
        }
        for at in order {
            let (entry, contender) = &mut entries[at];
            take_turn(server, round, entry, contender).await;
        }
    }
    Ok(Standing {
        scenario: scenario.name,
        what: format!("{}, {jobs} of them in a turn", scenario.about),
        entries: entries.into_iter().map(|(entry, _)| entry).collect(),
    })
}

async fn candidates(scenario: &Scenario) -> Result<Vec<Candidate>> {
    Ok(match scenario.name {
        BURN => {
            let mut all: Vec<Candidate> = ours::burning().map(|ours| (ours.name, Ok(ours))).into();
            all.extend(peers::all(&Folder::find()?).await);
            all
        }
        ENQUEUE => vec![
            (ours::NAME, Ok(ours::enqueuing())),
            (inserts::NAME, Ok(inserts::contender())),
        ],
        EFFECT => vec![
            (ours::NAME, Ok(ours::affecting())),
            (handwritten::NAME, Ok(handwritten::contender())),
        ],
        name => return Err(format!("no scenario `{name}`").into()),
    })
}

fn entered((name, candidate): Candidate, jobs: u64) -> (Entry, Option<Contender>) {
    let (jobs, outcome, contender) = match candidate {
        Ok(contender) => {
            let course = Course {
                name: name.to_owned(),
                turns: Vec::new(),
            };
            (contender.jobs(jobs), Outcome::Measured(course), Some(contender))
        }
        Err(reason) => (jobs, Outcome::NotMeasured(reason.to_string()), None),
    };
    (Entry { name, jobs, outcome }, contender)
}

/// One turn. Whoever fails is out, and the others go on.
async fn take_turn(server: &Database, round: u32, entry: &mut Entry, contender: &mut Option<Contender>) {
    let (Some(fit), Outcome::Measured(course)) = (&*contender, &mut entry.outcome) else {
        return;
    };
    match turn::turn(server, fit, entry.jobs).await {
        Ok(turn) => {
            standing::print_turn(round, entry.name, &turn);
            course.turns.push(turn);
        }
        Err(error) => {
            eprintln!("  {round}  {:<34} failed: {error}", entry.name);
            entry.outcome = Outcome::NotMeasured(format!("its turn {round} failed: {error}"));
            *contender = None;
        }
    }
}

impl Options {
    fn chosen(&self) -> Result<Vec<&'static Scenario>> {
        let unknown = |name: &&String| !SCENARIOS.iter().any(|scenario| scenario.name == **name);
        if let Some(name) = self.only.iter().find(unknown) {
            return Err(format!("no scenario `{name}`; --list names them").into());
        }
        let is_chosen =
            |scenario: &&Scenario| self.only.is_empty() || self.only.iter().any(|name| name == scenario.name);
        Ok(SCENARIOS.iter().filter(is_chosen).collect())
    }

    fn jobs_of(&self, scenario: &Scenario) -> u64 {
        let jobs = if self.quick { 10_000 } else { self.jobs };
        if scenario.name == EFFECT {
            jobs / EFFECT_SHARE
        } else {
            jobs
        }
    }

    fn rounds(&self) -> u32 {
        if self.quick { 2 } else { self.rounds.max(1) }
    }
}
