//! What is asked about events.

use exactly::webhook::{Event, EventId, EventType, OrderKey};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use crate::admin::input::{FilterText, Instant, Limit};
use crate::admin::jobs::ask::JobIdText;
use crate::admin::jobs::ask::given;
use crate::admin::jobs::wire::JobState;
use crate::config::Source;
use crate::work::errand::Wrong;

/// The most events in one request.
pub(crate) const EVENTS_MAX: usize = 1000;

/// Which events to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventsQuery {
    /// Only those of this type; `invoice.*` for all below a word.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[param(value_type = String, required = false, pattern = "^[A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+)*(\\.\\*)?$", max_length = 128)]
    pub(crate) event_type: Option<FilterText>,
    /// Only those in this state: `done` once it is known who gets them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline, nullable = false)]
    pub(crate) state: Option<JobState>,
    /// Only those that were published then or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Instant, required = false, inline)]
    pub(crate) since: Option<Instant>,
    /// Only those that were published before then.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Instant, required = false, inline)]
    pub(crate) until: Option<Instant>,
    /// At most so many; 100 unless told otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Limit, required = false, inline)]
    pub(crate) limit: Option<Limit>,
    /// Only those after the page that said so in `next`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = JobIdText, required = false, inline)]
    pub(crate) after: Option<JobIdText>,
}

/// An event to publish.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"id": "inv-17-paid", "type": "invoice.paid", "data": {"invoice": 17}}))]
pub(crate) struct NewEvent {
    /// What it is known by, everywhere and for good. Without one it gets a random one, and published twice it is two events.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, pattern = "^[!-\\-/-~]{1,128}$")]
    pub(crate) id: Option<String>,
    /// What kind of thing happened: words with dots between them.
    #[serde(rename = "type")]
    #[schema(pattern = "^[A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+)*$", max_length = 128)]
    pub(crate) event_type: String,
    /// What there is to tell: any JSON, sent as it is written here, up to 512 KiB.
    #[schema(value_type = serde_json::Value)]
    pub(crate) data: Box<RawValue>,
    /// When it happened, if that is not now. It is then part of what may not change under the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) timestamp: Option<Instant>,
    /// Who tells of it; as the server is configured, unless told otherwise.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_length = 1, max_length = 128)]
    pub(crate) source: Option<String>,
    /// Sent to each endpoint after what was published before it with the same one, and was sent there or given up. It is part of
    /// what may not change under the id. 1 to 128 bytes of text without control characters.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_length = 1, max_length = 128)]
    pub(crate) order_key: Option<String>,
}

impl NewEvent {
    /// The event, and its source if it names one.
    pub(super) fn read(&self) -> Result<(Event, Option<String>), Wrong> {
        let id = match &self.id {
            Some(id) => EventId::new(id.as_str()).map_err(|why| Wrong::new("id", why))?,
            None => EventId::random(),
        };
        let event_type = EventType::new(self.event_type.as_str()).map_err(|why| Wrong::new("type", why))?;
        let mut event = Event::with_id(id, event_type, &self.data).map_err(|why| Wrong::new("data", why))?;
        if let Some(at) = self.timestamp {
            event = event.at(at.0);
        }
        if let Some(key) = &self.order_key {
            let key = OrderKey::new(key.as_str()).map_err(|why| Wrong::new("order_key", why))?;
            event = event.ordered_by(key);
        }
        let source = self.source.as_deref().map(str::parse::<Source>).transpose();
        let source = source.map_err(|why| Wrong::new("source", why))?;
        Ok((event, source.map(|source| source.0)))
    }
}

/// Without what it tells, which is others' business.
impl std::fmt::Debug for NewEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewEvent")
            .field("type", &self.event_type)
            .finish_non_exhaustive()
    }
}

/// Many events to publish.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEvents {
    /// Each is read by itself: one that is wrong does not keep others out.
    #[schema(value_type = Vec<NewEvent>, min_items = 1, max_items = 1000)]
    pub(crate) events: Vec<Box<RawValue>>,
}

/// One event, or many.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it describes what is read in two steps")]
pub(crate) enum NewEventsBody {
    One(Box<NewEvent>),
    Many(NewEvents),
}
