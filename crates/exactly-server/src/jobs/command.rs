//! The commands.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgGroup;
use exactly::clock::millis;
use exactly::queue::{Lane, TaskId};
use serde_json::value::{RawValue, to_raw_value};

use super::reach::JobReach;
use super::rows::{json_lines, steps};
use super::show;
use crate::admin::input::{FilterText, Instant, Limit, Reason};
use crate::admin::jobs::ask::{
    Cap, DelayMs, JOBS_MAX, JobIdText, JobsQuery, LaneChange, NewJob, Requeue, RequeueOne, ResolveJob, Version,
};
use crate::admin::jobs::wire::{EnqueuedRows, JobState, Requeued};
use crate::calls::{Refused, counted, duration, header, parsed, print, whole};
use crate::work::errand::HTTP_KIND;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List jobs.
    List(List),
    /// Show a job, its attempts and its outcome.
    Show(Which),
    /// Enqueue a job, or as many as a file has.
    Enqueue(Box<Enqueue>),
    /// Let dead and held jobs run again.
    Requeue(RequeueArgs),
    /// Say that a dead or held job has happened, so that it never runs again.
    Resolve(ResolveArgs),
    /// List lanes, and how much is in them.
    Lanes,
    /// Keep the jobs of a lane where they are.
    Pause(LaneArgs),
    /// Let the jobs of a paused lane run again.
    Resume(LaneArgs),
    /// Limit how many jobs of a lane run at once.
    Cap(CapArgs),
}

/// Which jobs.
#[derive(Debug, clap::Args)]
pub(super) struct Chosen {
    /// Only those in this state.
    #[arg(long, value_enum)]
    state: Option<JobState>,
    /// Only those of this kind.
    #[arg(long, value_parser = parsed::<FilterText>)]
    kind: Option<FilterText>,
    /// Only those in this lane.
    #[arg(long, value_parser = parsed::<FilterText>)]
    lane: Option<FilterText>,
    /// Only those of this version.
    #[arg(long = "job-version", value_name = "NUMBER", value_parser = whole::<0, { u32::MAX as u64 }>)]
    version: Option<Version>,
}

#[derive(Debug, clap::Args)]
pub(super) struct List {
    #[command(flatten)]
    chosen: Chosen,
    /// At most so many, up to 1000.
    #[arg(long, default_value = "100", value_parser = counted::<1000>)]
    limit: Limit,
    /// Go on after this id.
    #[arg(long, value_name = "ID", value_parser = parsed::<JobIdText>)]
    after: Option<JobIdText>,
}

/// One job.
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("which").required(true).args(["id", "key"])))]
pub(super) struct Which {
    /// The job's id.
    #[arg(value_parser = parsed::<JobIdText>)]
    id: Option<JobIdText>,
    /// The job's key, instead of its id.
    #[arg(long)]
    key: Option<String>,
    /// The kind that the key is of.
    #[arg(long, default_value = HTTP_KIND)]
    kind: String,
}

#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("source").required(true).args(["key", "file"])))]
pub(super) struct Enqueue {
    /// What the job is known by, among its kind.
    #[arg(long, requires = "url")]
    key: Option<String>,
    /// Jobs as the API takes them, one JSON object per line; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Where its request goes.
    #[arg(long, conflicts_with = "file")]
    url: Option<String>,
    /// The method of its request [default: POST]
    #[arg(long, conflicts_with = "file")]
    method: Option<String>,
    /// A header of its request; can be repeated.
    #[arg(long, value_name = "NAME: VALUE", conflicts_with = "file", value_parser = header)]
    header: Vec<(String, String)>,
    /// The body of its request, as JSON.
    #[arg(long, value_name = "JSON", conflicts_with_all = ["file", "body_text"])]
    body: Option<String>,
    /// The body of its request, as text.
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    body_text: Option<String>,
    /// How long one attempt may take: 10s, 5m.
    #[arg(long, value_name = "DURATION", conflicts_with = "file", value_parser = duration)]
    timeout: Option<Duration>,
    /// Hold it, instead of sending it again, when nobody knows what came of it.
    #[arg(long, conflicts_with = "file")]
    not_repeatable: bool,
    /// What kind of job it is [default: http]
    #[arg(long, conflicts_with = "file")]
    kind: Option<String>,
    /// The lane that it waits in [default: the one of its kind]
    #[arg(long, conflicts_with = "file")]
    lane: Option<String>,
    /// The version of the algorithm that is to do it.
    #[arg(long, value_name = "NUMBER", conflicts_with = "file")]
    job_version: Option<u32>,
    /// Due so long from now: 10s, 24h.
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["file", "run_at"], value_parser = duration)]
    delay: Option<Duration>,
    /// Due at this instant, such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "INSTANT", conflicts_with = "file", value_parser = parsed::<Instant>)]
    run_at: Option<Instant>,
}

#[derive(Debug, clap::Args)]
pub(super) struct RequeueArgs {
    /// The job's id; without one, those that fit.
    #[arg(value_parser = parsed::<JobIdText>, conflicts_with_all = ["state", "kind", "lane", "version"])]
    id: Option<JobIdText>,
    #[command(flatten)]
    chosen: Chosen,
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
pub(super) struct ResolveArgs {
    /// The job's id.
    #[arg(value_parser = parsed::<JobIdText>)]
    id: JobIdText,
    /// What came of it, as JSON, to be told to whoever asks for the job again.
    #[arg(long, value_name = "JSON")]
    outcome: Option<String>,
    /// The attempt that this is about, as `show` has it; without one, the last.
    #[arg(long)]
    fence: Option<u64>,
    /// Why, for the trail.
    #[arg(long, value_parser = parsed::<Reason>)]
    reason: Option<Reason>,
    /// Do it.
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct LaneArgs {
    /// The lane's name.
    lane: String,
    /// Why, for the trail.
    #[arg(long, value_parser = parsed::<Reason>)]
    reason: Option<Reason>,
}

#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("most_or_none").required(true).args(["most", "none"])))]
pub(super) struct CapArgs {
    /// The lane's name.
    lane: String,
    /// At most so many at once, over all servers.
    #[arg(value_parser = counted::<1_000_000>)]
    most: Option<Cap>,
    /// Take the limit away.
    #[arg(long)]
    none: bool,
    /// Why, for the trail.
    #[arg(long, value_parser = parsed::<Reason>)]
    reason: Option<Reason>,
}

impl Command {
    /// Refuses what cannot be before anything is opened.
    pub(super) fn check(&self) -> Result<(), Refused> {
        match self {
            Self::Requeue(requeue) => requeue.check(),
            Self::Resolve(resolve) => resolve.check(),
            _ => Ok(()),
        }
    }

    pub(super) async fn run(self, reach: &JobReach, json: bool) -> Result<(), Refused> {
        match self {
            Self::List(list) => print(json, &reach.list(&list.query()).await?, show::page),
            Self::Show(which) => print(json, &reach.show(which.id()).await?, show::detail),
            Self::Enqueue(enqueue) => enqueue.run(reach, json).await,
            Self::Requeue(requeue) => requeue.run(reach, json).await,
            Self::Resolve(resolve) => resolve.run(reach, json).await,
            Self::Lanes => print(json, &reach.lanes().await?, show::lanes),
            Self::Pause(LaneArgs { lane, reason }) => {
                let change = LaneChange {
                    paused: Some(true),
                    cap: None,
                    reason,
                };
                change_lane(reach, json, lane, change).await
            }
            Self::Resume(LaneArgs { lane, reason }) => {
                let change = LaneChange {
                    paused: Some(false),
                    cap: None,
                    reason,
                };
                change_lane(reach, json, lane, change).await
            }
            Self::Cap(cap) => {
                let change = LaneChange {
                    paused: None,
                    cap: Some(cap.most),
                    reason: cap.reason,
                };
                change_lane(reach, json, cap.lane, change).await
            }
        }
    }
}

impl List {
    fn query(self) -> JobsQuery {
        JobsQuery {
            state: self.chosen.state,
            kind: self.chosen.kind,
            lane: self.chosen.lane,
            version: self.chosen.version,
            limit: Some(self.limit),
            after: self.after,
        }
    }
}

impl Which {
    fn id(&self) -> TaskId {
        match (self.id, &self.key) {
            (Some(id), _) => id.id(),
            (None, key) => TaskId::of(&self.kind, key.as_deref().unwrap_or_default()),
        }
    }
}

impl Enqueue {
    async fn run(self, reach: &JobReach, json: bool) -> Result<(), Refused> {
        let jobs = match &self.file {
            Some(path) => json_lines(path, "job")?,
            None => vec![self.job()?],
        };
        let mut total = EnqueuedRows {
            new: 0,
            found: 0,
            invalid: 0,
            rows: Vec::new(),
        };
        // Step by step, so that no request is too large; what is enqueued stays so if one fails.
        for step in steps(&jobs, JOBS_MAX) {
            let step = reach.enqueue(step.to_vec()).await?;
            total.new = total.new.saturating_add(step.new);
            total.found = total.found.saturating_add(step.found);
            total.invalid = total.invalid.saturating_add(step.invalid);
            total.rows.extend(step.rows);
        }
        print(json, &total, show::enqueued)?;
        match total.invalid {
            0 => Ok(()),
            wrong => Err(Refused::Failed(format!(
                "{wrong} of {} jobs are wrong, and were left out",
                total.rows.len()
            ))),
        }
    }

    fn job(self) -> Result<Box<RawValue>, Refused> {
        let body = self.body.map(RawValue::from_string).transpose();
        let body = body.map_err(|error| Refused::Usage(format!("--body is not JSON: {error}")))?;
        let delay_ms = self.delay.map(|delay| DelayMs::try_from(millis(delay))).transpose();
        let job = NewJob {
            key: self.key.unwrap_or_default(),
            delay_ms: delay_ms.map_err(|why| Refused::Usage(format!("--delay: {why}")))?,
            run_at: self.run_at,
            url: self.url.unwrap_or_default(),
            method: self.method,
            headers: self.header.into_iter().collect::<BTreeMap<_, _>>(),
            body,
            body_text: self.body_text,
            timeout_ms: self.timeout.map(millis),
            repeatable: !self.not_repeatable,
            kind: self.kind,
            lane: self.lane,
            version: self.job_version,
        };
        to_raw_value(&job).map_err(Refused::failed)
    }
}

impl RequeueArgs {
    fn check(&self) -> Result<(), Refused> {
        if self.id.is_none() && !matches!(self.chosen.state, Some(JobState::Dead | JobState::Held)) {
            let why = "say which jobs: an id, or --state dead or held";
            return Err(Refused::Usage(why.to_owned()));
        }
        if !self.yes && !self.dry_run {
            let why = "this runs jobs again: say --yes to do it, or --dry-run to see what it would do";
            return Err(Refused::Usage(why.to_owned()));
        }
        Ok(())
    }

    /// Page by page, so that no step takes long.
    async fn run(self, reach: &JobReach, json: bool) -> Result<(), Refused> {
        if let Some(id) = self.id {
            let wanted = RequeueOne {
                dry_run: self.dry_run,
                reason: self.reason,
            };
            let row = reach.requeue_one(id.id(), &wanted).await?;
            return print(json, &row, |row| show::requeued_one(row, self.dry_run));
        }
        let mut wanted = Requeue {
            state: self.chosen.state,
            kind: self.chosen.kind,
            lane: self.chosen.lane,
            version: self.chosen.version,
            dry_run: self.dry_run,
            reason: self.reason,
            ..Requeue::default()
        };
        let mut total = Requeued {
            dry_run: self.dry_run,
            requeued: 0,
            rows: Vec::new(),
            next: None,
        };
        loop {
            let step = reach.requeue(&wanted).await?;
            total.requeued = total.requeued.saturating_add(step.requeued);
            total.rows.extend(step.rows);
            let Some(next) = step.next else { break };
            wanted.after = Some(JobIdText::try_from(next).map_err(Refused::failed)?);
        }
        print(json, &total, show::requeued)
    }
}

impl ResolveArgs {
    fn check(&self) -> Result<(), Refused> {
        if !self.yes {
            let why = "this ends the job for good: find out that it happened, and say --yes";
            return Err(Refused::Usage(why.to_owned()));
        }
        Ok(())
    }

    async fn run(self, reach: &JobReach, json: bool) -> Result<(), Refused> {
        let outcome = self.outcome.map(RawValue::from_string).transpose();
        let said = ResolveJob {
            outcome: outcome.map_err(|error| Refused::Usage(format!("--outcome is not JSON: {error}")))?,
            fence: self.fence,
            reason: self.reason,
        };
        let resolved = reach.resolve(self.id.id(), &said).await?;
        print(json, &resolved, show::resolved)?;
        match resolved.why {
            None => Ok(()),
            Some(_) => Err(Refused::Failed("the job was left as it is".to_owned())),
        }
    }
}

async fn change_lane(reach: &JobReach, json: bool, lane: String, change: LaneChange) -> Result<(), Refused> {
    let lane = Lane::new(lane).map_err(|error| Refused::Usage(error.to_string()))?;
    print(json, &reach.change_lane(lane, &change).await?, show::lane)
}
