//! `exactly inbox`: events of others that came in, from a terminal.

use std::fmt::Write as _;

use exactly::queue::TaskState;

use crate::admin::inbox::ask::{InboxQuery, SourceText, WhichBody};
use crate::admin::inbox::wire::{InboxDetail, InboxPage};
use crate::admin::input::{FingerprintText, Limit};
use crate::admin::jobs::ask::JobIdText;
use crate::admin::jobs::wire::JobState;
use crate::calls::{ReachArgs, Refused, Table, counted, ended, parsed, plain, print, when};
use crate::cli::Ended;
use crate::events::reach::EventReach;

/// Where the events are, and which.
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

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List events that came in.
    List(List),
    /// Show an event that came in, and what its service said.
    Show(Show),
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only those of this source.
    #[arg(long, value_parser = parsed::<SourceText>)]
    source: Option<SourceText>,
    /// Only those in this state: the service has `done` ones.
    #[arg(long, value_enum)]
    state: Option<JobState>,
    /// Those whose id came before with another body.
    #[arg(long)]
    quarantined: bool,
    /// At most so many, up to 1000.
    #[arg(long, default_value = "100", value_parser = counted::<1000>)]
    limit: Limit,
    /// Go on after this id.
    #[arg(long, value_name = "ID", value_parser = parsed::<JobIdText>)]
    after: Option<JobIdText>,
}

#[derive(Debug, clap::Args)]
struct Show {
    /// Who has sent it.
    source: String,
    /// The event's id, as its sender has it.
    id: String,
    /// The quarantined one whose body has this SHA-256, as `list --quarantined` shows it.
    #[arg(long, value_name = "SHA256", value_parser = parsed::<FingerprintText>)]
    digest: Option<FingerprintText>,
}

impl Args {
    pub(crate) async fn run(self) -> Ended {
        ended(async {
            let reach = self.reach.open_events().await?;
            Box::pin(self.command.run(&reach, self.json)).await
        })
        .await
    }
}

impl Command {
    async fn run(self, reach: &EventReach, json: bool) -> Result<(), Refused> {
        match self {
            Self::List(list) => {
                let query = InboxQuery {
                    source: list.source,
                    state: list.state,
                    quarantined: list.quarantined,
                    limit: Some(list.limit),
                    after: list.after,
                };
                print(json, &reach.inbox(&query).await?, page)
            }
            Self::Show(Show { source, id, digest }) => {
                let received = reach.received(&source, &id, &WhichBody { digest }).await?;
                print(json, &received, detail)
            }
        }
    }
}

fn page(page: &InboxPage) -> String {
    let mut table = Table::new(["SOURCE", "ID", "STATE", "FAILED", "RECEIVED", "DIGEST"]);
    for event in &page.events {
        table.row([
            &event.source,
            &event.id,
            state(event.state),
            &event.failures.to_string(),
            &when(&event.received_at),
            event.digest.as_deref().unwrap_or("-"),
        ]);
    }
    let mut text = if page.events.is_empty() {
        "no events\n".to_owned()
    } else {
        table.to_string()
    };
    if let Some(next) = &page.next {
        let _ = writeln!(text, "there may be more: --after {next}");
    }
    text
}

fn detail(detail: &InboxDetail) -> String {
    let event = &detail.event;
    let mut facts = Table::bare();
    facts.row(["source", &event.source]);
    facts.row(["id", &event.id]);
    if let Some(digest) = &event.digest {
        facts.row(["digest", digest]);
    }
    facts.row(["state", state(event.state)]);
    facts.row(["received", &when(&event.received_at)]);
    if let Some(ended) = &event.ended_at {
        facts.row(["ended", &when(ended)]);
    }
    for (name, value) in &detail.headers {
        facts.row(["header", &format!("{name}: {value}")]);
    }
    facts.row(["body", &detail.body]);
    let mut text = facts.to_string();
    for (number, failure) in (1..).zip(&detail.attempts) {
        let why = plain(&format!("{}: {}", failure.kind, failure.message));
        let _ = writeln!(text, "attempt {} failed: {why}", i32::to_string(&number));
    }
    if matches!(event.state, JobState::Dead | JobState::Held) {
        let job = &event.job;
        let _ = write!(
            text,
            "\nOnce what was wrong is fixed:\n  exactly jobs requeue {job} --yes\n"
        );
    }
    text
}

fn state(state: JobState) -> &'static str {
    TaskState::from(state).as_str()
}
