//! Idempotent calls: what the layer and its stores cost.

mod first;
mod growth;
mod records;
mod replay;
mod soak;
mod sweep;
mod waiters;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::database::Database;
use crate::machine::Facts;
use crate::report::{self, Finding};
use crate::versus::Pace;
use crate::{Error, Result};

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only this scenario; may be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// All but this scenario; may be given several times.
    #[arg(long, value_name = "NAME")]
    skip: Vec<String>,
    /// How long one side's turn lasts.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// How many turns each side has.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Where the figures go; `target/bench/calls.json` unless told otherwise.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Names the scenarios and ends.
    #[arg(long)]
    list: bool,
    /// Short turns and small tables, to see that everything runs; the figures mean little.
    #[arg(long)]
    quick: bool,
    /// How long, before each round, to wait for other programs to leave the cores alone.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    patience: u64,
    /// The soak too, which takes ten minutes.
    #[arg(long)]
    full: bool,
    /// The PostgreSQL server to measure on.
    #[arg(long, env = "EXACTLY_TEST_POSTGRES_URL", hide_env_values = true, value_name = "URL")]
    postgres: Option<String>,
}

/// One thing to measure.
#[derive(Debug)]
struct Scenario {
    name: &'static str,
    about: &'static str,
    needs_postgres: bool,
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: replay::MEMORY,
        about: "replays from memory, against the handler alone",
        needs_postgres: false,
    },
    Scenario {
        name: first::SQLITE,
        about: "first executions on SQLite, against a commit per step",
        needs_postgres: false,
    },
    Scenario {
        name: first::POSTGRES,
        about: "first executions on PostgreSQL, against hand-written middleware",
        needs_postgres: true,
    },
    Scenario {
        name: first::TRANSACTIONAL,
        about: "record and effect in one transaction, against a hand-written one",
        needs_postgres: true,
    },
    Scenario {
        name: replay::POSTGRES,
        about: "replays from PostgreSQL, against a hand-written select",
        needs_postgres: true,
    },
    Scenario {
        name: waiters::NAME,
        about: "10 000 duplicates that wait for one answer",
        needs_postgres: true,
    },
    Scenario {
        name: sweep::NAME,
        about: "begins while a million expired records are swept",
        needs_postgres: true,
    },
    Scenario {
        name: growth::NAME,
        about: "10 million records, against 100 thousand; takes minutes to fill",
        needs_postgres: true,
    },
    Scenario {
        name: soak::NAME,
        about: "resident size over ten minutes; only with --full or --only",
        needs_postgres: true,
    },
];

/// What every scenario is given.
#[derive(Debug)]
struct Bench {
    pace: Pace,
    quick: bool,
    folder: PathBuf,
    postgres: Option<Database>,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    if options.list {
        for scenario in SCENARIOS {
            println!("{:<24}{}", scenario.name, scenario.about);
        }
        return Ok(());
    }
    let chosen = options.chosen()?;
    let bench = Bench {
        pace: options.pace(),
        quick: options.quick,
        folder: bench_folder()?,
        postgres: match &options.postgres {
            Some(url) if chosen.iter().any(|scenario| scenario.needs_postgres) => Some(Database::connect(url).await?),
            _ => None,
        },
    };
    let mut facts = Facts::gather(&bench.folder)?;
    if let Some(postgres) = &bench.postgres {
        facts.postgres = Some(postgres.describe().await?);
    }
    let mut findings: Vec<Finding> = Vec::new();
    for scenario in chosen {
        eprintln!("{}: {}", scenario.name, scenario.about);
        findings.extend(bench.measure(scenario.name).await?);
    }
    report::print(&facts, &findings);
    let json = options.json.clone().unwrap_or_else(|| bench.folder.join("calls.json"));
    report::write_json(&json, &facts, &findings)?;
    println!("\nwritten to {}", json.display());
    Ok(())
}

impl Bench {
    async fn measure(&self, name: &str) -> Result<Vec<Finding>> {
        match name {
            replay::MEMORY => replay::memory(self).await,
            replay::POSTGRES => replay::postgres(self).await,
            first::SQLITE => first::sqlite(self).await,
            first::POSTGRES => first::postgres(self).await,
            first::TRANSACTIONAL => first::transactional(self).await,
            waiters::NAME => waiters::run(self).await,
            sweep::NAME => sweep::run(self).await,
            growth::NAME => growth::run(self).await,
            soak::NAME => soak::run(self).await,
            _ => Err(format!("no scenario `{name}`").into()),
        }
    }

    fn postgres(&self) -> Result<&Database> {
        let missing =
            "this scenario needs a PostgreSQL server: run it by `cargo xtask bench`, or name one by --postgres";
        self.postgres.as_ref().ok_or_else(|| missing.into())
    }
}

impl Options {
    fn chosen(&self) -> Result<Vec<&'static Scenario>> {
        let unknown = |name: &&String| !SCENARIOS.iter().any(|scenario| scenario.name == **name);
        if let Some(name) = self.only.iter().chain(&self.skip).find(unknown) {
            return Err(Error::from(format!("no scenario `{name}`; --list names them")));
        }
        let is_named = |names: &[String], scenario: &Scenario| names.iter().any(|name| name == scenario.name);
        let is_chosen = |scenario: &&Scenario| {
            let asked_for = if self.only.is_empty() {
                scenario.name != soak::NAME || self.full
            } else {
                is_named(&self.only, scenario)
            };
            asked_for && !is_named(&self.skip, scenario)
        };
        Ok(SCENARIOS.iter().filter(is_chosen).collect())
    }

    fn pace(&self) -> Pace {
        let patience = Duration::from_secs(self.patience);
        if self.quick {
            return Pace {
                rounds: 2,
                round: Duration::from_millis(500),
                warm_up: Duration::from_millis(200),
                patience,
            };
        }
        Pace {
            rounds: self.rounds.max(1),
            round: Duration::from_secs_f64(self.seconds),
            warm_up: Duration::from_secs_f64(self.seconds.min(1.0)),
            patience,
        }
    }
}

/// `bench` in the target folder that this program was built in.
pub(crate) fn bench_folder() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program
        .ancestors()
        .nth(2)
        .ok_or("this program is not in a target folder")?;
    let folder = target.join("bench");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}
