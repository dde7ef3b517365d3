//! `exactly calls`: what operators do, from a terminal.
//!
//! The same commands work through the API of a running server and straight on a store. Both end at the same desk, so both
//! refuse, do and print the same.

mod client;
mod command;
mod ids;
mod reach;
mod show;
mod table;

use std::path::Path;
use std::process::ExitCode;

pub(crate) use self::client::{Client, Secret};
use self::command::Command;
pub(crate) use self::command::{counted, duration, header, parsed, whole};
pub(crate) use self::reach::ReachArgs;
pub(crate) use self::show::{print, when};
pub(crate) use self::table::{Table, plain};
use crate::admin::problem::Problem;
use crate::cli::Ended;

/// Where the calls are, and what to do about them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    reach: ReachArgs,
    /// Print JSON, as the API answers it.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

/// Why a command did not do what it was told.
#[derive(Debug)]
pub(crate) enum Refused {
    /// It was told wrongly.
    Usage(String),
    /// It was told "no", and why.
    Failed(String),
}

impl Args {
    pub(crate) async fn run(self) -> Ended {
        ended(async {
            self.command.check()?;
            let reach = self.reach.open().await?;
            self.command.run(&reach, self.json).await
        })
        .await
    }
}

/// What a command ends with that was carried out, or told why not.
pub(crate) async fn ended(done: impl Future<Output = Result<(), Refused>>) -> Ended {
    match done.await {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(Refused::Failed(why)) => Err(why.into()),
        Err(Refused::Usage(why)) => {
            eprintln!("exactly: {why}");
            Ok(ExitCode::from(2))
        }
    }
}

/// What a file has, or standard input if it is `-`.
pub(crate) fn read_text(path: &Path) -> Result<String, Refused> {
    let failed = |error: std::io::Error| Refused::Failed(format!("read {}: {error}", path.display()));
    if path == Path::new("-") {
        return std::io::read_to_string(std::io::stdin()).map_err(failed);
    }
    std::fs::read_to_string(path).map_err(failed)
}

impl Refused {
    pub(crate) fn failed(error: impl std::fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        let call = problem
            .call
            .map(|id| format!("call {}: ", &id[..16.min(id.len())]))
            .unwrap_or_default();
        let again = problem
            .retry_after
            .map(|seconds| format!("; try again in {seconds} s"))
            .unwrap_or_default();
        Self::Failed(format!("{call}{}{again}", problem.detail))
    }
}
