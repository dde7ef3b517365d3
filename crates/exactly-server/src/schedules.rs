//! `exactly schedules`: when something is due.

mod next;
mod show;
mod stored;
mod stored_show;

use self::next::Next;
use self::stored::{Change, Delete, List, OccurrencesArgs, Put, Show};
use crate::cli::Ended;

/// What to do about schedules.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the schedules that a server fires.
    List(Box<List>),
    /// Show a schedule.
    Show(Box<Show>),
    /// Write a schedule, new or in place of the one of that name.
    Put(Box<Put>),
    /// Let a schedule make no jobs for now.
    Pause(Box<Change>),
    /// Let a paused schedule make jobs again; what fell into the pause is left out.
    Resume(Box<Change>),
    /// Forget a schedule. Jobs that it has made stay.
    Delete(Box<Delete>),
    /// List occurrences of a schedule, and what became of them.
    Occurrences(Box<OccurrencesArgs>),
    /// Say when a pattern fires next, in a time zone.
    Next(Box<Next>),
}

impl Args {
    pub(crate) async fn run(self) -> Ended {
        match self.command {
            Command::List(list) => list.run().await,
            Command::Show(show) => show.run().await,
            Command::Put(put) => put.run().await,
            Command::Pause(change) => change.run(true).await,
            Command::Resume(change) => change.run(false).await,
            Command::Delete(delete) => delete.run().await,
            Command::Occurrences(occurrences) => occurrences.run().await,
            Command::Next(next) => next.run(),
        }
    }
}
