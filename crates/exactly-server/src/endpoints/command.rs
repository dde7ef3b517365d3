//! The commands about endpoints.

use std::path::PathBuf;
use std::time::Duration;

use exactly::clock::millis;
use exactly::webhook::EndpointId;
use serde_json::value::RawValue;

use super::show;
use crate::admin::endpoints::ask::{
    Concurrency, EndpointChange, EndpointIdText, EndpointsQuery, NewEndpoint, OverlapMs, PerSecond, Rotate, Scheme,
    SecretText, TestEvent,
};
use crate::admin::endpoints::desk::Action;
use crate::admin::endpoints::wire::EndpointSeen;
use crate::admin::input::{Limit, Reason};
use crate::admin::schedules::ask::Because;
use crate::calls::{Refused, counted, duration, header, parsed, print, read_text};
use crate::events::reach::EventReach;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List endpoints.
    List(List),
    /// Show an endpoint, without its secrets, and how it is doing.
    Show(Which),
    /// Create an endpoint, and show its secret, once.
    Create(Box<Create>),
    /// Change an endpoint; what is not said stays as it is.
    Change(Box<Change>),
    /// Hold the deliveries of an endpoint.
    Pause(Which),
    /// Send what has waited for an endpoint, and what comes.
    Resume(Which),
    /// Hold the deliveries of an endpoint, with a reason that is shown.
    Disable(Which),
    /// Give up what waits for an endpoint: it ends dead instead of being sent.
    Discard(Sure),
    /// Replace an endpoint's secret, and show the new one, once.
    Rotate(RotateArgs),
    /// Send a test event to an endpoint alone.
    Test(TestArgs),
    /// Forget an endpoint. What waits for it ends dead.
    Delete(Sure),
}

#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// At most so many, up to 1000.
    #[arg(long, default_value = "100", value_parser = counted::<1000>)]
    limit: Limit,
    /// Go on after this id.
    #[arg(long, value_name = "ID", value_parser = parsed::<EndpointIdText>)]
    after: Option<EndpointIdText>,
}

#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// The endpoint's id.
    id: EndpointId,
    /// Why, for the trail.
    #[arg(long, value_parser = parsed::<Reason>)]
    reason: Option<Reason>,
}

#[derive(Debug, clap::Args)]
pub(super) struct Sure {
    #[command(flatten)]
    which: Which,
    /// Do it.
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct Create {
    /// Where to post: an http or https address.
    #[arg(long)]
    url: String,
    /// What it is known by [default: a random one]
    #[arg(long)]
    id: Option<String>,
    /// What it wants to hear of: `invoice.paid`, or `invoice.*`; can be repeated [default: everything]
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    #[command(flatten)]
    secret: SecretArgs,
    /// A header that is sent along; can be repeated.
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(String, String)>,
    /// How many deliveries are under way at once [default: 256]
    #[arg(long, value_name = "NUMBER", value_parser = counted::<1000>)]
    concurrency: Option<Concurrency>,
    /// The most deliveries that a server begins within a second [default: no limit]
    #[arg(long, value_name = "NUMBER", value_parser = counted::<1_000_000>)]
    per_second: Option<PerSecond>,
    /// Let its deliveries wait at first.
    #[arg(long)]
    paused: bool,
}

/// What is to sign.
#[derive(Debug, clap::Args)]
pub(super) struct SecretArgs {
    /// A secret of your own, `whsec_…` or `whsk_…` [default: one is made and shown]
    #[arg(long, value_parser = secret)]
    secret: Option<SecretText>,
    /// The same out of a file, so that other users of the machine do not see it; `-` for standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "secret")]
    secret_file: Option<PathBuf>,
    /// What kind of secret is made [default: v1]
    #[arg(long, value_enum, conflicts_with_all = ["secret", "secret_file"])]
    scheme: Option<Scheme>,
}

impl SecretArgs {
    fn read(self) -> Result<(Option<SecretText>, Option<Scheme>), Refused> {
        let read = |path: &PathBuf| read_text(path).map(|text| SecretText(text.trim().to_owned()));
        let of_file = self.secret_file.as_ref().map(read).transpose()?;
        Ok((self.secret.or(of_file), self.scheme))
    }
}

#[derive(Debug, clap::Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of its own on the command line"
)]
pub(super) struct Change {
    /// The endpoint's id.
    id: EndpointId,
    /// Where to post.
    #[arg(long)]
    url: Option<String>,
    /// What it wants to hear of; can be repeated, and replaces what was there.
    #[arg(long = "type", value_name = "TYPE", conflicts_with = "all_types")]
    types: Vec<String>,
    /// Let it hear of everything.
    #[arg(long)]
    all_types: bool,
    /// A header that is sent along; can be repeated, and replaces all that were there.
    #[arg(long, value_name = "NAME: VALUE", conflicts_with = "no_headers", value_parser = header)]
    header: Vec<(String, String)>,
    /// Send no headers along.
    #[arg(long)]
    no_headers: bool,
    /// How many deliveries are under way at once.
    #[arg(long, value_name = "NUMBER", value_parser = counted::<1000>)]
    concurrency: Option<Concurrency>,
    /// The most deliveries that a server begins within a second.
    #[arg(long, value_name = "NUMBER", conflicts_with = "no_limit", value_parser = counted::<1_000_000>)]
    per_second: Option<PerSecond>,
    /// Begin as many within a second as come.
    #[arg(long)]
    no_limit: bool,
    /// Send what was discarded, once it is retried.
    #[arg(long)]
    keep_discarded: bool,
    /// Why, for the trail.
    #[arg(long, value_parser = parsed::<Reason>)]
    reason: Option<Reason>,
}

#[derive(Debug, clap::Args)]
pub(super) struct RotateArgs {
    /// The endpoint's id.
    id: EndpointId,
    #[command(flatten)]
    secret: SecretArgs,
    /// For how long the old ones sign beside it: 24h, 0s.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration)]
    overlap: Duration,
    /// Why, for the trail.
    #[arg(long, value_parser = parsed::<Reason>)]
    reason: Option<Reason>,
}

#[derive(Debug, clap::Args)]
pub(super) struct TestArgs {
    /// The endpoint's id.
    id: EndpointId,
    /// The event's type [default: exactly.test]
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// What it tells, as JSON.
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
}

impl Command {
    /// Refuses what cannot be before anything is opened.
    pub(super) fn check(&self) -> Result<(), Refused> {
        let why = match self {
            Self::Discard(sure) if !sure.yes => "what waits will not be sent: say --yes to discard it",
            Self::Delete(sure) if !sure.yes => {
                "what waits for it will end dead: say --yes to delete it, or pause or disable it"
            }
            _ => return Ok(()),
        };
        Err(Refused::Usage(why.to_owned()))
    }

    pub(super) async fn run(self, reach: &EventReach, json: bool) -> Result<(), Refused> {
        match self {
            Self::List(List { limit, after }) => {
                let query = EndpointsQuery {
                    limit: Some(limit),
                    after,
                };
                print(json, &reach.endpoints(&query).await?, show::page)
            }
            Self::Show(which) => {
                let seen = EndpointSeen {
                    endpoint: reach.endpoint(&which.id).await?,
                    health: reach.endpoint_health(&which.id).await?,
                };
                print(json, &seen, show::seen)
            }
            Self::Create(create) => print(json, &reach.create_endpoint(create.asked()?).await?, show::made),
            Self::Change(change) => {
                let (id, asked) = change.asked();
                print(json, &reach.change_endpoint(&id, asked).await?, show::endpoint)
            }
            Self::Pause(which) => act(reach, json, which, Action::Pause).await,
            Self::Resume(which) => act(reach, json, which, Action::Resume).await,
            Self::Disable(which) => act(reach, json, which, Action::Disable).await,
            Self::Discard(sure) => act(reach, json, sure.which, Action::Discard).await,
            Self::Rotate(rotate) => {
                let (id, asked) = rotate.asked()?;
                print(json, &reach.rotate_endpoint(&id, asked).await?, show::made)
            }
            Self::Test(test) => {
                let (id, asked) = test.asked()?;
                print(json, &reach.test_endpoint(&id, asked).await?, show::tested)
            }
            Self::Delete(Sure { which, .. }) => {
                let because = Because { reason: which.reason };
                let erased = reach.delete_endpoint(&which.id, &because).await?;
                print(json, &erased, |erased| format!("{}: deleted\n", erased.name))
            }
        }
    }
}

async fn act(reach: &EventReach, json: bool, which: Which, action: Action) -> Result<(), Refused> {
    let because = Because { reason: which.reason };
    let endpoint = reach.act_on_endpoint(&which.id, action, &because).await?;
    print(json, &endpoint, show::endpoint)
}

impl Create {
    fn asked(self) -> Result<NewEndpoint, Refused> {
        let (secret, scheme) = self.secret.read()?;
        Ok(NewEndpoint {
            id: self.id,
            url: self.url,
            types: self.types,
            secret,
            scheme,
            headers: self.header.into_iter().collect(),
            concurrency: self.concurrency,
            per_second: self.per_second,
            paused: self.paused,
        })
    }
}

impl Change {
    fn asked(self) -> (EndpointId, EndpointChange) {
        let types = (self.all_types || !self.types.is_empty()).then_some(self.types);
        let headers = self.header.into_iter();
        let headers = (self.no_headers || headers.len() > 0).then(|| headers.collect());
        let per_second = match self.per_second {
            Some(most) => Some(Some(most)),
            None => self.no_limit.then_some(None),
        };
        let change = EndpointChange {
            url: self.url,
            types,
            headers,
            concurrency: self.concurrency,
            per_second,
            discard_before: self.keep_discarded.then_some(None),
            reason: self.reason,
        };
        (self.id, change)
    }
}

impl RotateArgs {
    fn asked(self) -> Result<(EndpointId, Rotate), Refused> {
        let overlap = OverlapMs::try_from(millis(self.overlap));
        let (secret, scheme) = self.secret.read()?;
        let asked = Rotate {
            secret,
            scheme,
            overlap_ms: Some(overlap.map_err(|why| Refused::Usage(format!("--overlap: {why}")))?),
            reason: self.reason,
        };
        Ok((self.id, asked))
    }
}

impl TestArgs {
    fn asked(self) -> Result<(EndpointId, TestEvent), Refused> {
        let data = self.data.map(RawValue::from_string).transpose();
        let asked = TestEvent {
            event_type: self.event_type,
            data: data.map_err(|error| Refused::Usage(format!("--data is not JSON: {error}")))?,
        };
        Ok((self.id, asked))
    }
}

/// Whatever it is: what is wrong with it is told without showing it.
#[expect(clippy::unnecessary_wraps, reason = "the signature that clap wants")]
fn secret(text: &str) -> Result<SecretText, String> {
    Ok(SecretText(text.to_owned()))
}
