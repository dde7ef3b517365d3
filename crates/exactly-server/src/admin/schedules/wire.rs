//! What goes over the wire about schedules.

use exactly::queue::{Entry, TaskView};
use exactly::scheduler::Tick;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::admin::input::rfc3339;
use crate::admin::jobs::wire::{JobFailure, JobState};
use crate::work::definition::Definition;

/// A schedule as it stands.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ScheduleShown {
    pub(crate) name: String,
    pub(crate) paused: bool,
    /// What was written of it. Values of headers that open other doors are left out. Null for one of a program that has a
    /// scheduler of its own.
    #[schema(required)]
    pub(crate) definition: Option<Definition>,
    /// When it fires next; null if it is paused, if each subject has a zone of its own, or if it cannot be read.
    #[schema(required, format = DateTime)]
    pub(crate) next: Option<String>,
    /// Up to when its occurrences have become jobs.
    #[schema(required, format = DateTime)]
    pub(crate) position: Option<String>,
    #[schema(format = DateTime)]
    pub(crate) changed_at: String,
    /// Why it does not fire, if it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) wrong: Option<String>,
}

/// All schedules, by name.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct SchedulesShown {
    pub(crate) schedules: Vec<ScheduleShown>,
}

/// A schedule or an endpoint that is gone.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Erased {
    pub(crate) name: String,
}

/// One occurrence in one zone, and what became of it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct OccurrenceShown {
    /// The id of the task that stands for it.
    pub(crate) id: String,
    pub(crate) zone: String,
    /// When it is due.
    #[schema(required, format = DateTime)]
    pub(crate) instant: Option<String>,
    /// The local date that it stands for.
    #[schema(required, format = Date)]
    pub(crate) local_date: Option<String>,
    /// `regular`, `shifted` or `first_of_two`: what the clocks do there.
    #[schema(required)]
    pub(crate) kind: Option<String>,
    pub(crate) state: JobState,
    /// `fired`, `shifted`, `caught_up`, `deduplicated`, `missed` or `withdrawn`; null until it has ended.
    #[schema(required)]
    pub(crate) ended: Option<String>,
    #[schema(required)]
    pub(crate) failure: Option<JobFailure>,
}

/// Occurrences of a schedule, the latest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Occurrences {
    #[schema(max_items = 1000)]
    pub(crate) occurrences: Vec<OccurrenceShown>,
    /// Whether there are more than these.
    pub(crate) more: bool,
}

#[derive(Deserialize)]
struct Ended {
    ended: String,
}

#[derive(Deserialize)]
struct UnknownZone {
    unknown_zone: String,
}

impl ScheduleShown {
    /// As it stands at `now`.
    pub(super) fn of(entry: &Entry, now: exactly::clock::Timestamp) -> Self {
        let read = crate::work::is_ours(entry).then(|| Definition::of_bytes(&entry.definition));
        let next = match &read {
            Some(Ok(definition)) if !entry.paused => definition.next(&entry.name, now),
            _ => None,
        };
        let (definition, wrong) = match read {
            Some(Ok(definition)) => {
                let wrong = definition.check(&entry.name).err();
                (Some(definition.without_secrets()), wrong)
            }
            Some(Err(wrong)) => (None, Some(wrong)),
            None => (None, None),
        };
        Self {
            name: entry.name.to_string(),
            paused: entry.paused,
            definition,
            next,
            position: entry.position.map(rfc3339),
            changed_at: rfc3339(entry.changed_at),
            wrong: wrong.map(|wrong| wrong.to_string()),
        }
    }
}

impl From<&TaskView> for OccurrenceShown {
    fn from(view: &TaskView) -> Self {
        let tick: Option<Tick> = serde_json::from_slice(&view.payload).ok();
        let unknown = || serde_json::from_slice::<UnknownZone>(&view.payload).ok();
        let ended = view
            .outcome
            .as_deref()
            .and_then(|outcome| serde_json::from_slice(outcome).ok());
        let kind = tick.as_ref().and_then(|tick| {
            let kind = serde_json::to_value(tick.kind).ok()?;
            kind.as_str().map(str::to_owned)
        });
        Self {
            id: view.id.to_string(),
            zone: match &tick {
                Some(tick) => tick.zone.clone(),
                None => unknown().map(|unknown| unknown.unknown_zone).unwrap_or_default(),
            },
            instant: tick.as_ref().map(|tick| tick.instant.to_string()),
            local_date: tick.as_ref().map(|tick| tick.local_date.to_string()),
            kind,
            state: view.state.into(),
            ended: ended.map(|Ended { ended }| ended),
            failure: view.failure.as_ref().map(Into::into),
        }
    }
}
