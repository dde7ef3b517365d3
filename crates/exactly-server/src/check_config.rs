//! `exactly check-config`.

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::Ended;
use crate::config::{Config, Fault};

/// What to look at.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file to check.
    #[arg(default_value = "exactly.toml")]
    config: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    good: bool,
    /// How many there are; none while the file is not good.
    routes: Option<usize>,
    faults: Vec<Told<'a>>,
}

#[derive(Debug, Serialize)]
struct Told<'a> {
    line: Option<usize>,
    key: Option<&'a str>,
    what: &'a str,
}

impl Args {
    pub(crate) fn run(self) -> Ended {
        let read = Config::read_to_serve(&self.config, |_| {});
        if !self.json {
            println!("{}: good, {} routes", self.config.display(), read?.routes.len());
            return Ok(ExitCode::SUCCESS);
        }
        let faults = read.as_ref().err().map_or(&[][..], |error| error.faults());
        let report = Report {
            good: read.is_ok(),
            routes: read.as_ref().ok().map(|config| config.routes.len()),
            faults: faults.iter().map(Told::of).collect(),
        };
        println!("{}", serde_json::to_string_pretty(&report)?);
        Ok(if report.good {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

impl<'a> Told<'a> {
    fn of(fault: &'a Fault) -> Self {
        Self {
            line: (fault.line > 0).then_some(fault.line),
            key: fault.key.as_deref(),
            what: &fault.what,
        }
    }
}
