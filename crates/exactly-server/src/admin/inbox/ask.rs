//! What is asked about events that came in.

use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use crate::admin::input::{FingerprintText, Limit, Text};
use crate::admin::jobs::ask::JobIdText;
use crate::admin::jobs::wire::JobState;

pub(crate) type SourceText = Text<64>;

/// Which of the bodies that came under an id.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhichBody {
    /// The quarantined one that has this SHA-256, instead of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = FingerprintText, required = false, inline)]
    pub(crate) digest: Option<FingerprintText>,
}

/// Which events to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct InboxQuery {
    /// Only those of this source.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = SourceText, required = false, inline)]
    pub(crate) source: Option<SourceText>,
    /// Only those in this state: the service has `done` ones, and `held` ones are quarantined.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline, nullable = false)]
    pub(crate) state: Option<JobState>,
    /// Those whose id came before with another body, instead of the others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[param(required = false)]
    pub(crate) quarantined: bool,
    /// At most so many; 100 unless told otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Limit, required = false, inline)]
    pub(crate) limit: Option<Limit>,
    /// Only those after the page that said so in `next`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = JobIdText, required = false, inline)]
    pub(crate) after: Option<JobIdText>,
}
