//! `exactly events`: publishing, and what became of it, from a terminal.
//!
//! As with jobs, the same commands work through the API of a running server and straight on a store, and both end at the same
//! desk. `exactly endpoints` and `exactly deliveries` are the others.

mod command;
pub(crate) mod reach;
mod show;

use self::command::Command;
use crate::calls::{ReachArgs, ended};
use crate::cli::Ended;

/// Where the events are, and what to do about them.
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
            let reach = self.reach.open_events().await?;
            self.command.run(&reach, self.json).await
        })
        .await
    }
}
