//! The commands.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use exactly::CallId;
use exactly::clock::{Clock as _, Timestamp, WallClock};

use super::reach::Reach;
use super::{Refused, ids, show};
use crate::admin::ask::{Came, FreeQuery, HttpAnswer, ListQuery, Purge, Resolve, ShowQuery, TrailQuery};
use crate::admin::input::{
    AttemptNumber, Base64, ClaimName, Count, FilterText, HexBytes, Instant, Limit, Number, Reason, Status, Whole,
};
use crate::admin::wire::{Call, Phase, Purged};

/// How many ids a purge prints as JSON.
const IDS_MAX: usize = 1000;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List calls.
    List(List),
    /// Show a call and its history.
    Show(Show),
    /// Say what came of a call in doubt.
    Resolve(Box<ResolveArgs>),
    /// Let go of a key: what was lost did not happen, what is done is forgotten.
    Free(Free),
    /// Forget finished calls before their retention ends.
    Purge(PurgeArgs),
    /// Read what operators did.
    Trail(TrailArgs),
}

/// Which calls.
#[derive(Debug, clap::Args)]
pub(super) struct Chosen {
    /// Only those of this operation, such as "POST /refunds".
    #[arg(long, value_parser = parsed::<FilterText>)]
    operation: Option<FilterText>,
    /// Only those of this principal.
    #[arg(long, value_parser = parsed::<FilterText>)]
    principal: Option<FilterText>,
    /// Only those begun before this instant, such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "INSTANT", value_parser = parsed::<Instant>)]
    created_before: Option<Instant>,
    /// Only those begun longer ago than this: 10m, 24h, 7d.
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "created_before")]
    older_than: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// Only those of this phase.
    #[arg(long, value_enum)]
    phase: Option<Phase>,
    #[command(flatten)]
    chosen: Chosen,
    /// At most so many, up to 1000.
    #[arg(long, default_value = "100", value_parser = counted::<1000>)]
    limit: Limit,
    /// Go on after this id.
    #[arg(long, value_name = "ID", value_parser = parsed::<HexBytes<32>>)]
    after: Option<HexBytes<32>>,
}

#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// The call's id, or its first 8 digits or more.
    id: String,
    /// Show the key, which opens its principal's answer. It is written into the trail.
    #[arg(long)]
    reveal: bool,
}

#[derive(Debug, clap::Args)]
#[group(id = "came", required = true, multiple = false, args = ["happened", "did_not_happen"])]
pub(super) struct ResolveArgs {
    /// The call's id, or its first 8 digits or more.
    id: String,
    /// It happened: say what it answered.
    #[arg(long)]
    happened: bool,
    /// It did not happen: the next request runs it.
    #[arg(long)]
    did_not_happen: bool,
    /// The status of its HTTP answer.
    #[arg(long, conflicts_with = "did_not_happen", value_parser = whole::<200, 599>)]
    status: Option<Status>,
    /// A header of its HTTP answer; can be repeated.
    #[arg(long, value_name = "NAME: VALUE", requires = "status", value_parser = header)]
    header: Vec<(String, String)>,
    /// The body of its HTTP answer.
    #[arg(long, value_name = "TEXT", requires = "status")]
    body: Option<String>,
    /// The same from a file.
    #[arg(long, value_name = "FILE", requires = "status", conflicts_with = "body")]
    body_file: Option<PathBuf>,
    /// The outcome of a call that was not made over HTTP, from a file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["status", "did_not_happen"])]
    outcome_file: Option<PathBuf>,
    #[command(flatten)]
    deed: DeedArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct Free {
    /// The call's id, or its first 8 digits or more.
    id: String,
    #[command(flatten)]
    deed: DeedArgs,
}

/// What goes with an action on one call.
#[derive(Debug, clap::Args)]
pub(super) struct DeedArgs {
    /// Only if this is still the latest attempt.
    #[arg(long, value_parser = counted::<{ u32::MAX }>)]
    attempt: Option<AttemptNumber>,
    /// Only if this is still the latest claim, as `show` names it.
    #[arg(long, value_parser = parsed::<ClaimName>)]
    claim: Option<ClaimName>,
    #[command(flatten)]
    sure: Sure,
}

/// Whether it is meant.
#[derive(Debug, clap::Args)]
pub(super) struct Sure {
    /// Why, for the trail.
    #[arg(long, value_parser = parsed::<Reason>)]
    reason: Option<Reason>,
    /// Do it.
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
    /// Say what would be done.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct PurgeArgs {
    #[command(flatten)]
    chosen: Chosen,
    /// Every finished call.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    sure: Sure,
}

#[derive(Debug, clap::Args)]
pub(super) struct TrailArgs {
    /// Only what was done to this call.
    #[arg(long, value_name = "ID")]
    call: Option<String>,
    /// Only entries with a higher number.
    #[arg(long, value_name = "NUMBER", value_parser = whole::<0, 9_007_199_254_740_991>)]
    after: Option<Number>,
    /// At most so many, up to 1000.
    #[arg(long, default_value = "100", value_parser = counted::<1000>)]
    limit: Limit,
}

impl Command {
    /// Refuses what cannot be before anything is opened.
    pub(super) fn check(&self) -> Result<(), Refused> {
        match self {
            Self::List(_) => Ok(()),
            Self::Show(show) => ids::check(&show.id),
            Self::Resolve(resolve) => ids::check(&resolve.id).and_then(|()| resolve.deed.sure.check()),
            Self::Free(free) => ids::check(&free.id).and_then(|()| free.deed.sure.check()),
            Self::Purge(purge) => purge.sure.check(),
            Self::Trail(trail) => trail.call.as_deref().map_or(Ok(()), ids::check),
        }
    }

    pub(super) async fn run(self, reach: &Reach, json: bool) -> Result<(), Refused> {
        match self {
            Self::List(list) => show::print(json, &reach.list(&list.query()).await?, show::page),
            Self::Show(Show { id, reveal }) => {
                let id = ids::find(reach, &id).await?;
                show::print(json, &reach.show(id, ShowQuery { reveal }).await?, show::detail)
            }
            Self::Resolve(resolve) => resolve.run(reach, json).await,
            Self::Free(free) => free.run(reach, json).await,
            Self::Purge(purge) => purge.run(reach, json).await,
            Self::Trail(trail) => {
                let call = match &trail.call {
                    Some(id) => Some(HexBytes(*ids::find(reach, id).await?.as_bytes())),
                    None => None,
                };
                let query = TrailQuery {
                    call,
                    after: trail.after,
                    limit: Some(trail.limit),
                };
                show::print(json, &reach.trail(&query).await?, show::trail)
            }
        }
    }
}

impl Chosen {
    fn before(&self) -> Option<Instant> {
        let long_ago = |age: Duration| {
            let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
            Instant(Timestamp::from_millis(WallClock.now().as_millis().saturating_sub(age)))
        };
        self.created_before.or(self.older_than.map(long_ago))
    }
}

impl List {
    fn query(self) -> ListQuery {
        ListQuery {
            phase: self.phase,
            created_before: self.chosen.before(),
            operation: self.chosen.operation,
            principal: self.chosen.principal,
            limit: Some(self.limit),
            after: self.after,
        }
    }
}

impl ResolveArgs {
    async fn run(self, reach: &Reach, json: bool) -> Result<(), Refused> {
        let (answer, outcome_base64) = (self.answer()?, self.outcome()?);
        if self.happened && answer.is_none() && outcome_base64.is_none() {
            let why = "it happened, so say what it answered: --status with --body, or --outcome-file";
            return Err(Refused::Usage(why.to_owned()));
        }
        let (id, seen) = self.deed.look(reach, &self.id).await?;
        if self.deed.sure.dry_run {
            return DeedArgs::would(json, &seen, "settled", seen.phase == Phase::InDoubt);
        }
        let resolve = Resolve {
            outcome: if self.happened {
                Came::Happened
            } else {
                Came::DidNotHappen
            },
            answer,
            outcome_base64,
            keep_ms: None,
            attempt: self.deed.attempt,
            claim: self.deed.claim_seen(&seen)?,
            reason: self.deed.sure.reason,
        };
        show::print(json, &reach.resolve(id, resolve).await?, show::settled)
    }

    fn answer(&self) -> Result<Option<HttpAnswer>, Refused> {
        let Some(status) = self.status else { return Ok(None) };
        Ok(Some(HttpAnswer {
            status,
            headers: self.header.iter().cloned().collect::<BTreeMap<_, _>>(),
            body: self.body.clone(),
            body_base64: self.body_file.as_deref().map(read).transpose()?,
        }))
    }

    fn outcome(&self) -> Result<Option<Base64>, Refused> {
        self.outcome_file.as_deref().map(read).transpose()
    }
}

impl Free {
    async fn run(self, reach: &Reach, json: bool) -> Result<(), Refused> {
        let (id, seen) = self.deed.look(reach, &self.id).await?;
        if self.deed.sure.dry_run {
            return DeedArgs::would(json, &seen, "freed", seen.phase != Phase::InFlight);
        }
        let query = FreeQuery {
            attempt: self.deed.attempt,
            claim: self.deed.claim_seen(&seen)?,
            reason: self.deed.sure.reason,
        };
        show::print(json, &reach.free(id, query).await?, show::settled)
    }
}

impl DeedArgs {
    async fn look(&self, reach: &Reach, id: &str) -> Result<(CallId, Call), Refused> {
        let id = ids::find(reach, id).await?;
        let seen = reach.show(id, ShowQuery::default()).await?;
        Ok((id, seen.call))
    }

    /// Acts on what was seen, and on nothing that came after it.
    fn claim_seen(&self, seen: &Call) -> Result<Option<ClaimName>, Refused> {
        match self.claim {
            Some(claim) => Ok(Some(claim)),
            None => ClaimName::try_from(seen.claim.clone())
                .map(Some)
                .map_err(Refused::failed),
        }
    }

    fn would(json: bool, seen: &Call, done: &str, can_be: bool) -> Result<(), Refused> {
        let would = if can_be { "would be" } else { "would not be" };
        show::print(json, seen, |call| {
            format!("{}: is {}, {would} {done}\n", call.id, show::phase(call.phase))
        })
    }
}

impl Sure {
    fn check(&self) -> Result<(), Refused> {
        if self.yes || self.dry_run {
            return Ok(());
        }
        let why = "this changes what happens to requests: say --yes to do it, or --dry-run to see what it would do";
        Err(Refused::Usage(why.to_owned()))
    }
}

impl PurgeArgs {
    /// Page by page, so that no step takes long; what is gone stays gone if one fails.
    async fn run(self, reach: &Reach, json: bool) -> Result<(), Refused> {
        let mut purge = Purge {
            created_before: self.chosen.before(),
            operation: self.chosen.operation,
            principal: self.chosen.principal,
            all: self.all,
            dry_run: self.sure.dry_run,
            limit: None,
            after: None,
            reason: self.sure.reason,
        };
        let mut total = Purged {
            dry_run: purge.dry_run,
            matched: 0,
            purged: 0,
            ids: Vec::new(),
            next: None,
        };
        loop {
            let step = reach.purge(&purge).await?;
            total.matched = total.matched.saturating_add(step.matched);
            total.purged = total.purged.saturating_add(step.purged);
            let room = IDS_MAX.saturating_sub(total.ids.len());
            total.ids.extend(step.ids.into_iter().take(room));
            let Some(next) = step.next else { break };
            purge.after = Some(HexBytes::try_from(next).map_err(Refused::failed)?);
        }
        show::print(json, &total, show::purged)
    }
}

fn read(path: &Path) -> Result<Base64, Refused> {
    let bytes = fs::read(path).map_err(|error| Refused::Failed(format!("read {}: {error}", path.display())))?;
    // The one place where limits are kept.
    Base64::try_from(STANDARD.encode(bytes)).map_err(|why| Refused::Usage(format!("{}: {why}", path.display())))
}

pub(crate) fn parsed<T: TryFrom<String, Error = String>>(text: &str) -> Result<T, String> {
    T::try_from(text.to_owned())
}

pub(crate) fn counted<const MAX: u32>(text: &str) -> Result<Count<MAX>, String> {
    let count: u32 = text.parse().map_err(|_| format!("accepted are 1 to {MAX}"))?;
    count.try_into()
}

pub(crate) fn whole<const MIN: u64, const MAX: u64>(text: &str) -> Result<Whole<MIN, MAX>, String> {
    let number: u64 = text.parse().map_err(|_| format!("accepted are {MIN} to {MAX}"))?;
    number.try_into()
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    crate::config::duration(text).ok_or_else(|| "accepted are a number and a unit: 10s, 5m, 24h or 7d".to_owned())
}

pub(crate) fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("accepted is NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}
