//! Schedules that a server fires.

use std::path::PathBuf;

use super::stored_show as show;
use crate::admin::input::{Limit, Reason};
use crate::admin::schedules::ask::{Because, OccurrencesQuery};
use crate::calls::{ReachArgs, Refused, counted, ended, parsed, print, read_text};
use crate::cli::Ended;
use crate::jobs::reach::JobReach;
use crate::work::definition::Definition;

/// Where the schedules are.
#[derive(Debug, clap::Args)]
pub(super) struct At {
    #[command(flatten)]
    reach: ReachArgs,
    /// Print JSON, as the API answers it.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct List {
    #[command(flatten)]
    at: At,
}

#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// The schedule's name.
    name: String,
    #[command(flatten)]
    at: At,
}

/// What a definition looks like.
const PUT_HELP: &str = r#"Example:
  echo '{"pattern": "daily 09:00", "zone": "Europe/Berlin", "job": {"url": "http://127.0.0.1:8000/reports"}}' |
    exactly schedules put reports -"#;

#[derive(Debug, clap::Args)]
#[command(after_help = PUT_HELP)]
pub(super) struct Put {
    /// The schedule's name: letters, digits, `.`, `_` and `-`.
    name: String,
    /// The definition, as the API takes it; `-` for standard input.
    file: PathBuf,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, clap::Args)]
pub(super) struct Change {
    /// The schedule's name.
    name: String,
    /// Why, for the trail.
    #[arg(long, value_parser = parsed::<Reason>)]
    reason: Option<Reason>,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, clap::Args)]
pub(super) struct Delete {
    /// The schedule's name.
    name: String,
    /// Do it.
    #[arg(long)]
    yes: bool,
    /// Why, for the trail.
    #[arg(long, value_parser = parsed::<Reason>)]
    reason: Option<Reason>,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, clap::Args)]
pub(super) struct OccurrencesArgs {
    /// The schedule's name.
    name: String,
    /// At most so many, up to 1000.
    #[arg(long, default_value = "20", value_parser = counted::<1000>)]
    limit: Limit,
    #[command(flatten)]
    at: At,
}

impl At {
    async fn open(&self) -> Result<JobReach, Refused> {
        self.reach.open_jobs().await
    }
}

impl List {
    pub(super) async fn run(self) -> Ended {
        ended(async {
            let schedules = self.at.open().await?.schedules().await?;
            print(self.at.json, &schedules, show::schedules)
        })
        .await
    }
}

impl Show {
    pub(super) async fn run(self) -> Ended {
        ended(async {
            let schedule = self.at.open().await?.schedule(&self.name).await?;
            print(self.at.json, &schedule, show::schedule)
        })
        .await
    }
}

impl Put {
    pub(super) async fn run(self) -> Ended {
        ended(async {
            let definition = self.definition()?;
            let schedule = self.at.open().await?.put_schedule(&self.name, definition).await?;
            print(self.at.json, &schedule, show::schedule)
        })
        .await
    }

    fn definition(&self) -> Result<Definition, Refused> {
        let (place, text) = (self.file.display(), read_text(&self.file)?);
        serde_json::from_str(&text).map_err(|error| Refused::Usage(format!("{place}: {error}")))
    }
}

impl Change {
    pub(super) async fn run(self, paused: bool) -> Ended {
        ended(async {
            let because = Because { reason: self.reason };
            let schedule = self
                .at
                .open()
                .await?
                .pause_schedule(&self.name, paused, &because)
                .await?;
            print(self.at.json, &schedule, show::schedule)
        })
        .await
    }
}

impl Delete {
    pub(super) async fn run(self) -> Ended {
        ended(async {
            if !self.yes {
                let why = "the schedule will fire no more: say --yes to delete it, or pause it";
                return Err(Refused::Usage(why.to_owned()));
            }
            let because = Because { reason: self.reason };
            let erased = self.at.open().await?.erase_schedule(&self.name, &because).await?;
            print(self.at.json, &erased, |erased| format!("{}: deleted\n", erased.name))
        })
        .await
    }
}

impl OccurrencesArgs {
    pub(super) async fn run(self) -> Ended {
        ended(async {
            let query = OccurrencesQuery {
                limit: Some(self.limit),
            };
            let occurrences = self.at.open().await?.occurrences(&self.name, &query).await?;
            print(self.at.json, &occurrences, show::occurrences)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_in_the_help_is_a_definition() {
        let example = PUT_HELP.split('\'').nth(1).unwrap();
        let definition: Definition = serde_json::from_str(example).unwrap();
        assert_eq!(definition.pattern, "daily 09:00");
    }
}
