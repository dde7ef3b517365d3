//! `exactly replays`: sending again what failed, or all, from a terminal.

mod command;
mod show;

use self::command::Command;
use crate::calls::{ReachArgs, ended};
use crate::cli::Ended;

/// Where the replays are, and what to do about them.
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
            let reach = self.reach.open_events().await?;
            Box::pin(self.command.run(&reach, self.json)).await
        })
        .await
    }
}
