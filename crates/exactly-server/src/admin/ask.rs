//! What is asked of the operators' part of the API.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::input::{
    AttemptNumber, Base64, ClaimName, FilterText, IdText, Instant, KeepMs, Limit, Number, Reason, Status,
};
use super::wire::Phase;

/// Which records to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Only those of this phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline, nullable = false)]
    pub(crate) phase: Option<Phase>,
    /// Only those of this operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = FilterText, required = false, inline)]
    pub(crate) operation: Option<FilterText>,
    /// Only those of this principal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = FilterText, required = false, inline)]
    pub(crate) principal: Option<FilterText>,
    /// Only those whose key was first used before this instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Instant, required = false, inline)]
    pub(crate) created_before: Option<Instant>,
    /// At most so many; 100 unless told otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Limit, required = false, inline)]
    pub(crate) limit: Option<Limit>,
    /// Only those after the page that said so in `next`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = IdText, required = false, inline)]
    pub(crate) after: Option<IdText>,
}

/// What to show of a record.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ShowQuery {
    /// Whether to show the key, which opens its principal's answer. It is written into the trail.
    #[serde(default)]
    #[param(required = false)]
    pub(crate) reveal: bool,
}

/// Why a record is freed, and which one was seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FreeQuery {
    /// Why, for the trail.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Reason, required = false, inline)]
    pub(crate) reason: Option<Reason>,
    /// Only if this is still the latest attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = AttemptNumber, required = false, inline)]
    pub(crate) attempt: Option<AttemptNumber>,
    /// Only if this is still the latest claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = ClaimName, required = false, inline)]
    pub(crate) claim: Option<ClaimName>,
}

/// What came of an attempt that was in doubt. `happened` needs `answer` for a call of the gateway, or `outcome_base64`
/// for one that was begun here.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resolve {
    pub(crate) outcome: Came,
    /// The answer that every repetition of the request gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<HttpAnswer>,
    /// The outcome as its owner would have stored it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) outcome_base64: Option<Base64>,
    /// How long `outcome_base64` is kept, in milliseconds; a day unless told otherwise, forever if null. How long an
    /// `answer` is kept is its route's to say.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    #[expect(
        clippy::option_option,
        reason = "a null that was written means forever, and none a day"
    )]
    pub(crate) keep_ms: Option<Option<KeepMs>>,
    /// Why, for the trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) reason: Option<Reason>,
    /// Only if this is still the latest attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) attempt: Option<AttemptNumber>,
    /// Only if this is still the latest claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) claim: Option<ClaimName>,
}

/// Whether an effect happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Came {
    Happened,
    DidNotHappen,
}

/// An HTTP answer. At most one of `body` and `body_base64`; without either it is empty.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpAnswer {
    #[schema(inline)]
    pub(crate) status: Status,
    #[serde(default)]
    #[schema(required = false)]
    pub(crate) headers: BTreeMap<String, String>,
    /// A body of text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1_048_576)]
    pub(crate) body: Option<String>,
    /// A body of bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) body_base64: Option<Base64>,
}

/// Which finished records to forget before their retention ends. Their keys become new operations.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Purge {
    /// Only those of this operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) operation: Option<FilterText>,
    /// Only those of this principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) principal: Option<FilterText>,
    /// Only those whose key was first used before this instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) created_before: Option<Instant>,
    /// Every finished record. Needed if nothing else says which.
    #[serde(default)]
    pub(crate) all: bool,
    /// Whether to count only. True unless told otherwise.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub(crate) dry_run: bool,
    /// At most so many; 1000 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) limit: Option<Limit>,
    /// Go on after the answer that said so in `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) after: Option<IdText>,
    /// Why, for the trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) reason: Option<Reason>,
}

/// Which entries of the trail to read.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TrailQuery {
    /// Only those about this call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = IdText, required = false, inline)]
    pub(crate) call: Option<IdText>,
    /// Only those with a higher number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Number, required = false, inline)]
    pub(crate) after: Option<Number>,
    /// At most so many; 100 unless told otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Limit, required = false, inline)]
    pub(crate) limit: Option<Limit>,
}

fn yes() -> bool {
    true
}

/// Tells a null that was written from a field that was not.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}
