//! What is asked about schedules.

use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use crate::admin::input::{Limit, Reason};

/// Why something is done.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Because {
    /// Why, for the trail.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Reason, required = false, inline)]
    pub(crate) reason: Option<Reason>,
}

/// Which occurrences to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OccurrencesQuery {
    /// At most so many; 100 unless told otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Limit, required = false, inline)]
    pub(crate) limit: Option<Limit>,
}
