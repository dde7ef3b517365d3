//! What goes over the wire about events.

use exactly::queue::TaskView;
use exactly::webhook::Stored;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::admin::deliveries::wire::DeliveryShown;
use crate::admin::input::rfc3339;
use crate::admin::jobs::wire::{JobFailure, JobState, shown};

/// What became of an event that was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PublishResult {
    /// It will be delivered.
    New,
    /// It was published before, and nothing was changed.
    Found,
    /// An event of this id was published before, with another content. Nothing was changed.
    Conflict,
    /// It is wrong, and was left out.
    Invalid,
}

/// What became of one event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct PublishedRow {
    pub(crate) result: PublishResult,
    /// The event's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) id: Option<String>,
    /// The part of it that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) field: Option<String>,
    /// What is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) reason: Option<String>,
}

/// What became of each event, in the order in which they were given.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct PublishedRows {
    pub(crate) new: u32,
    pub(crate) found: u32,
    pub(crate) conflicts: u32,
    pub(crate) invalid: u32,
    #[schema(max_items = 1000)]
    pub(crate) rows: Vec<PublishedRow>,
}

/// What became of one event, or of many.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum PublishedEvents {
    One(Box<PublishedRow>),
    Many(PublishedRows),
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct EventShown {
    pub(crate) id: String,
    /// Null if it cannot be read.
    #[serde(rename = "type")]
    #[schema(required)]
    pub(crate) event_type: Option<String>,
    #[schema(required)]
    pub(crate) source: Option<String>,
    #[schema(format = DateTime)]
    pub(crate) published_at: String,
    /// When it happened, if that was said.
    #[schema(required, format = DateTime)]
    pub(crate) timestamp: Option<String>,
    /// What it is in order with, if it is with anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) order_key: Option<String>,
    /// `waiting` or `running` until it is known who gets it, then `done`.
    pub(crate) state: JobState,
    /// How many endpoints wanted it; null until that is known.
    #[schema(required)]
    pub(crate) deliveries: Option<u64>,
    /// Why it has not become deliveries yet.
    #[schema(required)]
    pub(crate) failure: Option<JobFailure>,
}

/// One page of events.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct EventPage {
    #[schema(max_items = 1000)]
    pub(crate) events: Vec<EventShown>,
    /// What to give as `after` for the next page; null after the last one.
    #[schema(required)]
    pub(crate) next: Option<String>,
}

/// An event with everything that is known of it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct EventDetail {
    pub(crate) event: EventShown,
    /// What it tells.
    #[schema(value_type = serde_json::Value)]
    pub(crate) data: Box<RawValue>,
    /// Its deliveries, by endpoint, with the copies that replays have made; the first 1000 of them.
    #[schema(max_items = 1000)]
    pub(crate) deliveries: Vec<DeliveryShown>,
}

/// Whom an event went to, as its task remembers it.
#[derive(Debug, Default, Deserialize)]
pub(super) struct FannedOut {
    pub(super) deliveries: u64,
    #[serde(default)]
    pub(super) to: Vec<String>,
}

impl FannedOut {
    pub(super) fn of(view: &TaskView) -> Option<Self> {
        serde_json::from_slice(view.outcome.as_deref()?).ok()
    }
}

impl EventShown {
    pub(super) fn of(view: &TaskView, stored: Option<&Stored>) -> Self {
        Self {
            id: view.key.to_string(),
            event_type: stored.map(|stored| stored.event_type.to_string()),
            source: stored.map(|stored| stored.source.to_string()),
            published_at: rfc3339(view.enqueued_at),
            timestamp: stored.and_then(|stored| stored.timestamp.clone()),
            order_key: stored.and_then(|stored| stored.order_key.as_ref().map(ToString::to_string)),
            state: view.state.into(),
            deliveries: FannedOut::of(view).map(|fanned| fanned.deliveries),
            failure: view.failure.as_ref().map(Into::into),
        }
    }
}

impl EventDetail {
    pub(super) fn of(view: &TaskView, deliveries: Vec<DeliveryShown>) -> Self {
        let stored = Stored::read(&view.payload).ok();
        let event = EventShown::of(view, stored.as_ref());
        Self {
            event,
            data: stored.map_or_else(|| shown(&view.payload), |stored| stored.data),
            deliveries,
        }
    }
}
