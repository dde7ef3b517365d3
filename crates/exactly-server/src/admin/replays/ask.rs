//! What is asked about replays.

use exactly::webhook::{EndpointId, EventId, Replay, ReplayId, TypeFilter, Which};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::admin::endpoints::ask::PerSecond;
use crate::admin::input::{Instant, Limit, Reason, Text};
use crate::admin::jobs::ask::given;
use crate::admin::problem::{Answer, Problem};

pub(crate) type ReplayIdText = Text<64>;

/// Which replays to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ReplaysQuery {
    /// At most so many; 100 unless told otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Limit, required = false, inline)]
    pub(crate) limit: Option<Limit>,
    /// Only those after the page that said so in `next`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = ReplayIdText, required = false, inline)]
    pub(crate) after: Option<ReplayIdText>,
}

/// Which deliveries a replay is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WhichText {
    /// Those in the dead letter: each is sent again, with all its attempts.
    Failed,
    /// Those that were delivered too: each is sent once more, with the same id.
    All,
}

/// A replay to start. All conditions have to hold.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"id": "after-the-outage", "which": "failed", "endpoint": "books", "per_second": 50}))]
pub(crate) struct NewReplay {
    /// What it is known by: started again with the same id it is the same replay. A random one unless told otherwise.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub(crate) id: Option<String>,
    /// Only what has failed for good, or all.
    #[schema(inline)]
    pub(crate) which: WhichText,
    /// Of this event; with an endpoint, it is about one delivery.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, pattern = "^[!-\\-/-~]{1,128}$")]
    pub(crate) event: Option<String>,
    /// To this endpoint.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub(crate) endpoint: Option<String>,
    /// Of events of these types: `invoice.paid`, or `invoice.*` for all below a word; of all if there is nothing in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, max_items = 100)]
    pub(crate) types: Vec<String>,
    /// Made then or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) since: Option<Instant>,
    /// Made before then, and in any case before the replay was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) until: Option<Instant>,
    /// The most deliveries that it sets off within a second; no limit unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) per_second: Option<PerSecond>,
    /// Only count what would be done.
    #[serde(default)]
    #[schema(required = false)]
    pub(crate) dry_run: bool,
    /// Why, for the trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) reason: Option<Reason>,
}

impl NewReplay {
    pub(super) fn read(&self) -> Answer<Replay> {
        let id = match &self.id {
            Some(id) => ReplayId::new(id.as_str()).map_err(|why| Problem::invalid("id", why))?,
            None => ReplayId::random(),
        };
        let event = self.event.as_deref().map(EventId::new).transpose();
        let endpoint = self.endpoint.as_deref().map(EndpointId::new).transpose();
        let numbered = self.types.iter().enumerate();
        let types: Answer<Vec<TypeFilter>> = numbered
            .map(|(n, text)| text.parse().map_err(|why| Problem::invalid(format!("types[{n}]"), why)))
            .collect();
        if let (Some(since), Some(until)) = (self.since, self.until)
            && since.0 >= until.0
        {
            let why = format!("is not after {}, which is `since`", String::from(since));
            return Err(Problem::invalid("until", why));
        }
        let mut replay = Replay::new(id, self.which.into());
        replay.event = event.map_err(|why| Problem::invalid("event", why))?;
        replay.endpoint = endpoint.map_err(|why| Problem::invalid("endpoint", why))?;
        replay.types = types?;
        replay.since_ms = self.since.map(|since| since.0.as_millis());
        replay.until_ms = self.until.map(|until| until.0.as_millis());
        replay.per_second = self.per_second.map(PerSecond::get);
        replay.dry_run = self.dry_run;
        Ok(replay)
    }
}

impl From<WhichText> for Which {
    fn from(which: WhichText) -> Self {
        match which {
            WhichText::Failed => Self::Failed,
            WhichText::All => Self::All,
        }
    }
}

impl From<Which> for WhichText {
    fn from(which: Which) -> Self {
        match which {
            Which::Failed => Self::Failed,
            Which::All => Self::All,
        }
    }
}
