//! A schedule as it is written down.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use exactly::clock::Timestamp;
use exactly::queue::Task;
use exactly::schedule::{Pattern, Zone};
use exactly::scheduler::{Plan, Tick};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

use super::errand::{Errand, Wrong, address, check_headers, hide_secrets};

/// What a job's body says of the occurrence that it is for, by this name.
const MEMBER: &str = "exactly";
/// More parts than processors of any cluster.
const SHARDS_MAX: u32 = 1024;
/// Subjects with longer names are known by a digest.
const SUBJECT_BYTES_MAX: usize = 255;

/// When, for whom, and what each gets.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ScheduleDefinition)]
pub(crate) struct Definition {
    /// `daily HH:MM`, `cron EXPRESSION` or `every DURATION`.
    #[schema(max_length = 255)]
    pub(crate) pattern: String,
    /// The time zone that the pattern is meant in. Not needed for `every`, and not accepted with `subjects`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 64)]
    pub(crate) zone: Option<String>,
    /// Who knows whom it is for, each in a zone of their own. Without it there is one job per occurrence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) subjects: Option<SubjectsAt>,
    /// How late an occurrence is still made up for, in seconds; a day unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, maximum = 604_800)]
    pub(crate) catch_up_s: Option<u64>,
    /// Whether it makes no jobs for now. Kept beside the definition, not in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) paused: Option<bool>,
    /// What is sent.
    pub(crate) job: Errand,
}

/// A service that knows the subjects of a schedule.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubjectsAt {
    /// Asked with `?zones=1` for zones, and with `?zone=…&shard=…&shards=…&after=…&limit=…` for subjects.
    #[schema(max_length = 8192)]
    pub(crate) url: String,
    /// What those requests carry.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    pub(crate) headers: BTreeMap<String, String>,
    /// In how many parts that run beside each other; one unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 1024)]
    pub(crate) shards: Option<u32>,
}

/// A definition whose every part was understood.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub(super) pattern: Pattern,
    /// `None`: each subject has its own.
    pub(super) zone: Option<Zone>,
    pub(super) catch_up: Duration,
}

impl Definition {
    /// The definition that was stored in these bytes.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Result<Self, Wrong> {
        serde_json::from_slice(bytes).map_err(|error| Wrong::new("definition", error))
    }

    pub(crate) fn to_bytes(&self) -> Bytes {
        serde_json::to_vec(self)
            .expect("texts and numbers are always JSON")
            .into()
    }

    /// Refuses what could never fire, while somebody is there to be told.
    pub(crate) fn check(&self, name: &str) -> Result<(), Wrong> {
        self.read(name).map(drop)
    }

    pub(super) fn read(&self, name: &str) -> Result<Read, Wrong> {
        let pattern: Pattern = self.pattern.parse().map_err(|error| Wrong::new("pattern", error))?;
        let zone = match (&self.zone, &self.subjects, &pattern) {
            (Some(_), Some(_), _) => {
                let why = "subjects have zones of their own; accepted is one of zone and subjects";
                return Err(Wrong::new("zone", why));
            }
            (Some(zone), None, _) => Some(zone.parse().map_err(|error| Wrong::new("zone", error))?),
            (None, Some(_), _) => None,
            (None, None, Pattern::Every(_)) => Some("UTC".parse().map_err(|error| Wrong::new("zone", error))?),
            (None, None, _) => {
                let why = "say where the pattern is meant, such as Europe/Oslo or UTC, or give subjects";
                return Err(Wrong::new("zone", why));
            }
        };
        let catch_up = self.catch_up_s.map_or(Plan::CATCH_UP_DEFAULT, Duration::from_secs);
        if catch_up > Plan::CATCH_UP_MAX {
            let most = Plan::CATCH_UP_MAX.as_secs();
            return Err(Wrong::new("catch_up_s", format!("accepted are 0 to {most}")));
        }
        self.check_subjects()?;
        self.check_job(name)?;
        Ok(Read {
            pattern,
            zone,
            catch_up,
        })
    }

    /// When it fires next after `now`; none, if each subject has a zone of its own.
    pub(crate) fn next(&self, name: &str, now: Timestamp) -> Option<String> {
        let read = self.read(name).ok()?;
        let now = jiff::Timestamp::from_millisecond(i64::try_from(now.as_millis()).ok()?).ok()?;
        let next = read.pattern.next_after(&read.zone?, now)?;
        Some(next.instant.to_string())
    }

    /// The same without what opens other doors, to be shown.
    pub(crate) fn without_secrets(mut self) -> Self {
        self.job = self.job.without_secrets();
        if let Some(subjects) = &mut self.subjects {
            hide_secrets(&mut subjects.headers);
        }
        self
    }

    fn check_subjects(&self) -> Result<(), Wrong> {
        let Some(subjects) = &self.subjects else { return Ok(()) };
        address("subjects.url", &subjects.url)?;
        check_headers("subjects.headers", &subjects.headers)?;
        if subjects
            .shards
            .is_some_and(|shards| !(1..=SHARDS_MAX).contains(&shards))
        {
            return Err(Wrong::new("subjects.shards", format!("accepted are 1 to {SHARDS_MAX}")));
        }
        let tells = self.job.body_text.is_none() && !matches!(self.job.method.as_deref(), Some("GET"));
        if !tells {
            let why = "the body tells which subject it is for: leave out body_text, and use no GET";
            return Err(Wrong::new("job.body_text", why));
        }
        Ok(())
    }

    fn check_job(&self, name: &str) -> Result<(), Wrong> {
        let at = |wrong: Wrong| Wrong::new(format!("job.{}", wrong.field), wrong.why);
        if self.adds_member() {
            members(&self.job).map_err(at)?;
        }
        let longest = format!("{name}:9999-12-31T23:59:59.999Z:{}", "s".repeat(SUBJECT_BYTES_MAX));
        self.job.task(&longest).map(drop).map_err(at)
    }

    /// Whether the body says which occurrence it is for: where there is a body to say it in.
    fn adds_member(&self) -> bool {
        self.job.body_text.is_none() && self.job.method.as_deref() != Some("GET")
    }

    /// What this subject gets for this occurrence; nobody in particular, if there is none.
    pub(super) fn task(&self, tick: &Tick, subject: Option<&str>) -> Result<Task, Wrong> {
        let mut job = self.job.clone();
        if self.adds_member() {
            let mut told = json!({
                "schedule": tick.schedule,
                "instant": tick.instant.to_string(),
                "local_date": tick.local_date.to_string(),
                "zone": tick.zone,
            });
            if let Some(subject) = subject {
                told["subject"] = json!(subject);
            }
            let mut members = members(&job)?;
            members.insert(MEMBER.to_owned(), raw(&told));
            job.body = Some(raw(&members));
        }
        let subject = subject.map_or_else(|| exactly::scheduler::Only::SUBJECT.to_owned(), known_by);
        job.task(&format!("{}:{}", tick.schedule, tick.key(&subject)))
    }
}

/// Refuses what cannot be the name of a schedule.
pub(crate) fn check_name(name: &str) -> Result<(), Wrong> {
    let most = Plan::NAME_BYTES_MAX;
    let accepted = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=most).contains(&name.len()) && name.bytes().all(accepted) {
        return Ok(());
    }
    let why = format!("accepted are letters, digits, `.`, `_` and `-`, at most {most} in all");
    Err(Wrong::new("name", why))
}

/// The members of a body that can have one more.
fn members(job: &Errand) -> Result<BTreeMap<String, Box<RawValue>>, Wrong> {
    let Some(body) = &job.body else {
        return Ok(BTreeMap::new());
    };
    serde_json::from_str(body.get())
        .map_err(|_| Wrong::new("body", "has to be an object, which is told what it is for by `exactly`"))
}

fn raw(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("texts are always JSON")
}

/// What a subject is known by in a key, which holds not every text.
fn known_by(subject: &str) -> String {
    if subject.len() <= SUBJECT_BYTES_MAX && !subject.is_empty() && !subject.chars().any(char::is_control) {
        return subject.to_owned();
    }
    format!("sha256-{}", exactly::Hex(&Sha256::digest(subject.as_bytes())))
}

/// Without headers and the query, which may hold secrets.
impl std::fmt::Debug for SubjectsAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = self.url.split(['?', '#']).next().unwrap_or_default();
        f.debug_struct("SubjectsAt")
            .field("place", &place)
            .field("shards", &self.shards)
            .finish_non_exhaustive()
    }
}
