//! Events: what publishing, delivering and taking them in costs beside what one would do without.

mod deliveries;
mod exchange;
mod flow;
mod hostile;
mod posting;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::Result;
use crate::calls::bench_folder;
use crate::child::Server;
use crate::database::Database;
use crate::jobs::turn;
use crate::machine::{self, Facts};
use crate::report::{self, Finding, Wanted};
use crate::serve::App;
use crate::versus::{Course, Pace};

const ENDPOINTS: u64 = 20;

/// What can be measured.
const SCENARIOS: [(&str, &str); 6] = [
    ("drain", "queued deliveries, worked off as fast as they can be"),
    (
        "exchange",
        "transactions that publish an event, and such that take one in",
    ),
    ("latency", "how soon an event is delivered when nothing else happens"),
    ("isolation", "healthy endpoints beside one that never answers"),
    ("dead", "a million deliveries that wait for a dead endpoint"),
    ("hostile", "resident size beside receivers that drip, never end and lie"),
];

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only this scenario; may be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// How many deliveries are drained in a turn.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1000..))]
    deliveries: u64,
    /// How long one side's turn lasts where it is not counted.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// How many turns each side has.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Where the figures go; `target/bench/events.json` unless told otherwise.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Names the scenarios and ends.
    #[arg(long)]
    list: bool,
    /// Two short rounds, to see that everything runs; the figures mean little.
    #[arg(long)]
    quick: bool,
    /// How long, before each round, to wait for other programs to leave the cores alone.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    patience: u64,
    /// The PostgreSQL server to measure on.
    #[arg(long, env = "EXACTLY_TEST_POSTGRES_URL", hide_env_values = true, value_name = "URL")]
    postgres: Option<String>,
}

impl Options {
    fn is_wanted(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    fn pace(&self) -> Pace {
        let seconds = if self.quick { 0.5 } else { self.seconds };
        Pace {
            rounds: if self.quick { 2 } else { self.rounds.max(1) },
            round: Duration::from_secs_f64(seconds),
            warm_up: Duration::from_secs_f64(seconds.min(1.0)),
            patience: Duration::from_secs(self.patience),
        }
    }
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    if options.list {
        for (name, about) in SCENARIOS {
            println!("{name:<24}{about}");
        }
        return Ok(());
    }
    let is_unknown = |only: &&String| !SCENARIOS.iter().any(|(name, _)| name == *only);
    if let Some(name) = options.only.iter().find(is_unknown) {
        return Err(format!("no scenario `{name}`; --list names them").into());
    }
    let folder = bench_folder()?;
    let missing = "events need a PostgreSQL server: run this by `cargo xtask bench`, or name one by --postgres";
    let server = Database::connect(options.postgres.as_deref().ok_or(missing)?).await?;
    let mut facts = Facts::gather(&folder)?;
    facts.postgres = Some(server.describe().await?);
    let (pace, share) = (options.pace(), if options.quick { 20 } else { 1 });
    let mut findings = Vec::new();
    for (name, about) in SCENARIOS.into_iter().filter(|(name, _)| options.is_wanted(name)) {
        eprintln!("{name}: {about}");
        machine::calm(pace.patience).await?;
        match name {
            "drain" => findings.push(drain(&server, options.deliveries / share, pace).await?),
            "exchange" => findings.extend(exchange::measure(&server, pace).await?),
            "latency" => findings.push(flow::latency(&server, share).await?),
            "isolation" => findings.push(flow::isolation(&server, share, pace).await?),
            "dead" => findings.extend(flow::dead_endpoint(&server, share).await?),
            _ => findings.push(hostile::measure(&server, options.quick).await?),
        }
    }
    report::print(&facts, &findings);
    let json = options.json.clone().unwrap_or_else(|| folder.join("events.json"));
    report::write_json(&json, &facts, &findings)?;
    println!("\nwritten to {}", json.display());
    Ok(())
}

/// Whether a program of that name is one of those here.
pub(crate) fn is_ours(program: &str) -> bool {
    [deliveries::PROGRAM, posting::PROGRAM].contains(&program)
}

/// A worker of our own, as a process that `run` started.
pub(crate) async fn work(program: &str, step: &str, order: &str) -> Result<()> {
    match program {
        deliveries::PROGRAM => deliveries::run(step, serde_json::from_str(order)?).await,
        _ => posting::run(step, serde_json::from_str(order)?).await,
    }
}

/// Both post to one sink, which is new in each turn: what it has counted says how far they are.
async fn drain(server: &Database, deliveries: u64, pace: Pace) -> Result<Finding> {
    let mut courses = [posting::NAME, deliveries::NAME].map(|name| Course {
        name: name.to_owned(),
        turns: Vec::new(),
    });
    for round in 1..=pace.rounds {
        machine::calm(pace.patience).await?;
        for (side, course) in courses.iter_mut().enumerate() {
            let sink = Server::start(&App::Sink).await?;
            let contender = if side == 0 {
                posting::posting(sink.address, ENDPOINTS)
            } else {
                deliveries::draining(sink.address, ENDPOINTS)
            };
            let turn = turn::turn(server, &contender, deliveries).await?;
            turn.print(round, &course.name);
            course.turns.push(turn);
        }
    }
    Ok(Finding::throughput(
        "drain",
        "queued deliveries over plain HTTP to twenty endpoints, against a bare client that posts the same bodies",
        Wanted::AtLeast(0.4),
        courses.into(),
    ))
}
