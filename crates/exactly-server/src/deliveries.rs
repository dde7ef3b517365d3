//! `exactly deliveries`: what went where, and sending it again, from a terminal.

use std::fmt::Write as _;

use exactly::queue::TaskState;

use crate::admin::deliveries::ask::DeliveriesQuery;
use crate::admin::deliveries::wire::{AttemptResult, DeliveryDetail, DeliveryPage, DeliveryShown, Retried};
use crate::admin::input::{FilterText, Instant, Limit, Reason};
use crate::admin::jobs::ask::{JobIdText, RequeueOne};
use crate::admin::jobs::wire::JobState;
use crate::calls::{ReachArgs, Refused, Table, counted, ended, parsed, print, when};
use crate::cli::Ended;
use crate::events::reach::EventReach;

/// Where the deliveries are, and what to do about them.
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
    /// List deliveries.
    List(Box<List>),
    /// Show a delivery and its attempts.
    Show(Show),
    /// Make the next attempt now: of one that waits, or that is dead.
    Retry(Retry),
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only those to this endpoint.
    #[arg(long, value_name = "ID", value_parser = parsed::<FilterText>)]
    endpoint: Option<FilterText>,
    /// Only those of this event.
    #[arg(long, value_name = "ID", value_parser = parsed::<FilterText>)]
    event: Option<FilterText>,
    /// Only those of events of this type; `invoice.*` for all below a word.
    #[arg(long = "type", value_name = "TYPE", value_parser = parsed::<FilterText>)]
    event_type: Option<FilterText>,
    /// Only those in this state: `done` ones were delivered.
    #[arg(long, value_enum)]
    state: Option<JobState>,
    /// Only those that were made then or later.
    #[arg(long, value_name = "INSTANT", value_parser = parsed::<Instant>)]
    since: Option<Instant>,
    /// Only those that were made before then.
    #[arg(long, value_name = "INSTANT", value_parser = parsed::<Instant>)]
    until: Option<Instant>,
    /// At most so many, up to 1000.
    #[arg(long, default_value = "100", value_parser = counted::<1000>)]
    limit: Limit,
    /// Go on after this id.
    #[arg(long, value_name = "ID", value_parser = parsed::<JobIdText>)]
    after: Option<JobIdText>,
}

#[derive(Debug, clap::Args)]
struct Show {
    /// The delivery's id.
    #[arg(value_parser = parsed::<JobIdText>)]
    id: JobIdText,
}

#[derive(Debug, clap::Args)]
struct Retry {
    /// The delivery's id.
    #[arg(value_parser = parsed::<JobIdText>)]
    id: JobIdText,
    /// Why, for the trail.
    #[arg(long, value_parser = parsed::<Reason>)]
    reason: Option<Reason>,
    /// Say what would be done.
    #[arg(long)]
    dry_run: bool,
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

impl Command {
    async fn run(self, reach: &EventReach, json: bool) -> Result<(), Refused> {
        match self {
            Self::List(list) => print(json, &reach.deliveries(&list.query()).await?, page),
            Self::Show(Show { id }) => print(json, &reach.delivery(id.id()).await?, detail),
            Self::Retry(retry) => {
                let wanted = RequeueOne {
                    dry_run: retry.dry_run,
                    reason: retry.reason,
                };
                let retried = reach.retry(retry.id.id(), &wanted).await?;
                print(json, &retried, |row| told(row, wanted.dry_run))
            }
        }
    }
}

impl List {
    fn query(self) -> DeliveriesQuery {
        DeliveriesQuery {
            endpoint: self.endpoint,
            event: self.event,
            event_type: self.event_type,
            state: self.state,
            since: self.since,
            until: self.until,
            limit: Some(self.limit),
            after: self.after,
        }
    }
}

fn page(page: &DeliveryPage) -> String {
    let mut text = if page.deliveries.is_empty() {
        "no deliveries\n".to_owned()
    } else {
        table(&page.deliveries)
    };
    if let Some(next) = &page.next {
        let _ = writeln!(text, "there may be more: --after {next}");
    }
    text
}

/// Deliveries, one to a line.
pub(crate) fn table(deliveries: &[DeliveryShown]) -> String {
    let mut table = Table::new([
        "ID", "STATE", "EVENT", "TYPE", "ENDPOINT", "REPLAY", "FAILED", "NEXT", "MADE",
    ]);
    for delivery in deliveries {
        let next = delivery
            .due_at
            .as_deref()
            .filter(|_| delivery.state == JobState::Waiting);
        table.row([
            &delivery.id,
            state(delivery.state),
            &delivery.event,
            delivery.event_type.as_deref().unwrap_or("-"),
            &delivery.endpoint,
            delivery.replay.as_deref().unwrap_or("-"),
            &delivery.failures.to_string(),
            &next.map_or_else(|| "-".to_owned(), when),
            &when(&delivery.made_at),
        ]);
    }
    table.to_string()
}

fn detail(detail: &DeliveryDetail) -> String {
    let delivery = &detail.delivery;
    let mut facts = Table::bare();
    facts.row(["id", &delivery.id]);
    facts.row(["state", state(delivery.state)]);
    facts.row(["event", &delivery.event]);
    facts.row(["endpoint", &delivery.endpoint]);
    if let Some(replay) = &delivery.replay {
        facts.row(["copied by replay", replay]);
    }
    if let Some(after) = &delivery.after {
        facts.row(["goes after", after]);
    }
    facts.row(["made", &when(&delivery.made_at)]);
    if let Some(due) = delivery
        .due_at
        .as_deref()
        .filter(|_| delivery.state == JobState::Waiting)
    {
        facts.row(["next attempt", &when(due)]);
    }
    facts.row(["body", detail.body.get()]);
    let mut text = facts.to_string();
    if !detail.attempts.is_empty() {
        let mut attempts = Table::new(["ATTEMPT", "ENDED", "RESULT", "NOTE"]);
        for (number, attempt) in (1..).zip(&detail.attempts) {
            let result = match attempt.result {
                AttemptResult::Delivered => "delivered",
                AttemptResult::Failed => "failed",
            };
            let failure = attempt.failure.as_ref();
            let note = failure.map(|failure| format!("{}: {}", failure.kind, failure.message));
            let answered = || {
                attempt
                    .status
                    .map(|status| format!("{status} in {} ms", attempt.took_ms.unwrap_or(0)))
            };
            attempts.row([
                &i32::to_string(&number),
                &attempt.ended_at.as_deref().map_or_else(|| "-".to_owned(), when),
                result,
                &note.or_else(answered).unwrap_or_default(),
            ]);
        }
        let _ = write!(text, "\n{attempts}");
    }
    if delivery.state == JobState::Dead {
        let id = &delivery.id;
        let _ = write!(
            text,
            "\nNo attempt is left. Once what was wrong is fixed:\n  exactly deliveries retry {id}\n"
        );
    }
    text
}

fn told(row: &Retried, dry_run: bool) -> String {
    let (id, was) = (&row.id, state(row.was));
    let due = if dry_run { "would be due now" } else { "is due now" };
    match &row.why {
        None => format!("{id}: was {was}, its next attempt {due}\n"),
        Some(why) if row.retried => format!("{id}: was {was}, its next attempt {due}; {why}\n"),
        Some(why) => format!("{id}: was {was}, left as it is: {why}\n"),
    }
}

fn state(state: JobState) -> &'static str {
    TaskState::from(state).as_str()
}
