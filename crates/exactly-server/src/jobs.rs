//! `exactly jobs`: what operators do about jobs and lanes, from a terminal.
//!
//! As with calls, the same commands work through the API of a running server and straight on a store, and both end at the
//! same desk.

mod command;
pub(crate) mod reach;
mod rows;
mod show;

use self::command::Command;
pub(crate) use self::rows::{json_lines, steps};
use crate::calls::{ReachArgs, ended};
use crate::cli::Ended;

/// Where the jobs are, and what to do about them.
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

impl Args {
    pub(crate) async fn run(self) -> Ended {
        ended(async {
            self.command.check()?;
            let reach = self.reach.open_jobs().await?;
            self.command.run(&reach, self.json).await
        })
        .await
    }
}
