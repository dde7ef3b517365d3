//! `exactly schedules`: when something is due.

mod next;
mod show;

use self::next::Next;
use crate::cli::Ended;

/// What to do about schedules.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Say when a pattern fires next, in a time zone.
    Next(Box<Next>),
}

impl Args {
    pub(crate) fn run(self) -> Ended {
        match self.command {
            Command::Next(next) => next.run(),
        }
    }
}
