//! The commands about replays.

use exactly::webhook::ReplayId;

use super::show;
use crate::admin::endpoints::ask::PerSecond;
use crate::admin::input::{Instant, Limit, Reason};
use crate::admin::replays::ask::{NewReplay, ReplayIdText, ReplaysQuery, WhichText};
use crate::admin::replays::desk::ReplayAction;
use crate::admin::schedules::ask::Because;
use crate::calls::{Refused, counted, parsed, print};
use crate::events::reach::EventReach;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Send deliveries again: those that failed for good, or all. Servers do it in parts; `show` says how far it is.
    Start(Box<Start>),
    /// List replays.
    List(List),
    /// Show a replay and how far it has come.
    Show(Which),
    /// Let a replay rest after the part that is under way.
    Pause(Which),
    /// Go on with a replay that rests.
    Resume(Which),
    /// Give up what a replay has not set off yet.
    Cancel(Which),
}

#[derive(Debug, clap::Args)]
pub(super) struct Start {
    /// Which deliveries.
    #[arg(value_enum)]
    which: WhichText,
    /// What it is known by: started again with the same id it is the same replay [default: a random one]
    #[arg(long)]
    id: Option<String>,
    /// Only those of this event.
    #[arg(long, value_name = "ID")]
    event: Option<String>,
    /// Only those to this endpoint.
    #[arg(long, value_name = "ID")]
    endpoint: Option<String>,
    /// Only those of events of this type: `invoice.paid`, or `invoice.*`; can be repeated.
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Only those that were made then or later.
    #[arg(long, value_name = "INSTANT", value_parser = parsed::<Instant>)]
    since: Option<Instant>,
    /// Only those that were made before then.
    #[arg(long, value_name = "INSTANT", value_parser = parsed::<Instant>)]
    until: Option<Instant>,
    /// The most deliveries that it sets off within a second [default: no limit]
    #[arg(long, value_name = "NUMBER", value_parser = counted::<1_000_000>)]
    per_second: Option<PerSecond>,
    /// Only count what would be sent.
    #[arg(long)]
    dry_run: bool,
    /// Why, for the trail.
    #[arg(long, value_parser = parsed::<Reason>)]
    reason: Option<Reason>,
    /// Do it.
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// At most so many, up to 1000.
    #[arg(long, default_value = "100", value_parser = counted::<1000>)]
    limit: Limit,
    /// Go on after this id.
    #[arg(long, value_name = "ID", value_parser = parsed::<ReplayIdText>)]
    after: Option<ReplayIdText>,
}

#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// The replay's id.
    id: ReplayId,
    /// Why, for the trail.
    #[arg(long, value_parser = parsed::<Reason>)]
    reason: Option<Reason>,
}

impl Command {
    /// Refuses what cannot be before anything is opened.
    pub(super) fn check(&self) -> Result<(), Refused> {
        match self {
            Self::Start(start) if !start.yes && !start.dry_run => {
                let why = "this sends events again: say --yes to do it, or --dry-run to see how many";
                Err(Refused::Usage(why.to_owned()))
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn run(self, reach: &EventReach, json: bool) -> Result<(), Refused> {
        match self {
            Self::Start(start) => print(json, &reach.start_replay(start.asked()).await?, show::replay),
            Self::List(List { limit, after }) => {
                let query = ReplaysQuery {
                    limit: Some(limit),
                    after,
                };
                print(json, &reach.replays(&query).await?, show::page)
            }
            Self::Show(which) => print(json, &reach.replay(&which.id).await?, show::replay),
            Self::Pause(which) => act(reach, json, which, ReplayAction::Pause).await,
            Self::Resume(which) => act(reach, json, which, ReplayAction::Resume).await,
            Self::Cancel(which) => act(reach, json, which, ReplayAction::Cancel).await,
        }
    }
}

async fn act(reach: &EventReach, json: bool, which: Which, action: ReplayAction) -> Result<(), Refused> {
    let because = Because { reason: which.reason };
    let replay = reach.act_on_replay(&which.id, action, &because).await?;
    print(json, &replay, show::replay)
}

impl Start {
    fn asked(self) -> NewReplay {
        NewReplay {
            id: self.id,
            which: self.which,
            event: self.event,
            endpoint: self.endpoint,
            types: self.types,
            since: self.since,
            until: self.until,
            per_second: self.per_second,
            dry_run: self.dry_run,
            reason: self.reason,
        }
    }
}
