//! What is asked about deliveries.

use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use crate::admin::input::{FilterText, Instant, Limit};
use crate::admin::jobs::ask::JobIdText;
use crate::admin::jobs::wire::JobState;

/// Which deliveries to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeliveriesQuery {
    /// Only those to this endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = String, required = false, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub(crate) endpoint: Option<FilterText>,
    /// Only those of this event.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = String, required = false, pattern = "^[!-\\-/-~]{1,128}$")]
    pub(crate) event: Option<FilterText>,
    /// Only those of events of this type; `invoice.*` for all below a word.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[param(value_type = String, required = false, pattern = "^[A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+)*(\\.\\*)?$", max_length = 128)]
    pub(crate) event_type: Option<FilterText>,
    /// Only those in this state: `done` ones were delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline, nullable = false)]
    pub(crate) state: Option<JobState>,
    /// Only those that were made then or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Instant, required = false, inline)]
    pub(crate) since: Option<Instant>,
    /// Only those that were made before then.
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
