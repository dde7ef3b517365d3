//! What is asked about endpoints.

use std::collections::BTreeMap;
use std::fmt;

use exactly::webhook::{Secret, Signer, SigningKey};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use crate::admin::input::{Count, Instant, Limit, Reason, Text, Whole};
use crate::admin::jobs::ask::given;
use crate::admin::problem::{Answer, Problem};

pub(crate) type EndpointIdText = Text<64>;
pub(crate) type Concurrency = Count<1000>;
pub(crate) type PerSecond = Count<1_000_000>;
/// Up to 31 days.
pub(crate) type OverlapMs = Whole<0, 2_678_400_000>;

/// Which endpoints to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EndpointsQuery {
    /// At most so many; 100 unless told otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Limit, required = false, inline)]
    pub(crate) limit: Option<Limit>,
    /// Only those after the page that said so in `next`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = EndpointIdText, required = false, inline)]
    pub(crate) after: Option<EndpointIdText>,
}

/// How events are signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scheme {
    /// HMAC-SHA256, with a secret that both sides know: `whsec_…`.
    #[default]
    V1,
    /// ed25519: receivers get the public half, `whpk_…`, and cannot sign.
    V1a,
}

/// A secret or a key as it is written. Not shown by `Debug`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct SecretText(pub(crate) String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

/// A secret that is to sign from now on.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) secret: SecretText,
    /// Whether it was made here, so that it has to be told.
    pub(super) is_made: bool,
}

impl Chosen {
    /// The one that was given, or a new one.
    pub(super) fn new(given: Option<SecretText>, scheme: Option<Scheme>) -> Answer<Self> {
        if let Some(secret) = given {
            if scheme.is_some() {
                let why = "there is a secret too, which says how it signs; accepted is one of them";
                return Err(Problem::invalid("scheme", why));
            }
            let read = secret.0.parse::<Signer>();
            read.map_err(|why| Problem::invalid("secret", why))?;
            return Ok(Self { secret, is_made: false });
        }
        let secret = match scheme.unwrap_or_default() {
            Scheme::V1 => Secret::random().expose(),
            Scheme::V1a => SigningKey::random().expose(),
        };
        Ok(Self {
            secret: SecretText(secret),
            is_made: true,
        })
    }
}

/// An endpoint to create.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"id": "books", "url": "https://books.example/hook", "types": ["invoice.*"]}))]
pub(crate) struct NewEndpoint {
    /// What it is known by; a random one unless told otherwise.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub(crate) id: Option<String>,
    /// Where to post: an http or https address.
    #[schema(max_length = 2048)]
    pub(crate) url: String,
    /// What it wants to hear of: `invoice.paid`, or `invoice.*` for all below a word; everything if there is nothing in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, max_items = 100)]
    pub(crate) types: Vec<String>,
    /// What signs: `whsec_…` or `whsk_…`. Without one, one is made and told once.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false, max_length = 256)]
    pub(crate) secret: Option<SecretText>,
    /// What kind of secret is made, if none is given: `v1` unless told otherwise.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(inline, nullable = false)]
    pub(crate) scheme: Option<Scheme>,
    /// What is sent beside our own headers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    pub(crate) headers: BTreeMap<String, String>,
    /// How many deliveries are under way at once, over all servers; 256 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) concurrency: Option<Concurrency>,
    /// The most deliveries that a server begins within a second; no limit unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) per_second: Option<PerSecond>,
    /// Whether its deliveries wait at first.
    #[serde(default)]
    #[schema(required = false)]
    pub(crate) paused: bool,
}

/// What to change about an endpoint.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"types": ["invoice.*"], "per_second": 50}))]
pub(crate) struct EndpointChange {
    /// Where to post.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 2048)]
    pub(crate) url: Option<String>,
    /// What it wants to hear of; everything if there is nothing in it.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_items = 100)]
    pub(crate) types: Option<Vec<String>>,
    /// What is sent beside our own headers, all of it.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) headers: Option<BTreeMap<String, String>>,
    /// How many deliveries are under way at once, over all servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) concurrency: Option<Concurrency>,
    /// The most deliveries that a server begins within a second; null for no limit.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    #[expect(
        clippy::option_option,
        reason = "a null that was written means no limit, and none no change"
    )]
    pub(crate) per_second: Option<Option<PerSecond>>,
    /// What was made before this is given up instead of sent; null to send it after all.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    #[expect(
        clippy::option_option,
        reason = "a null that was written takes it back, and none changes nothing"
    )]
    pub(crate) discard_before: Option<Option<Instant>>,
    /// Why, for the trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) reason: Option<Reason>,
}

/// How a secret is replaced.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rotate {
    /// What signs from now on: `whsec_…` or `whsk_…`. Without one, one is made and told once.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false, max_length = 256)]
    pub(crate) secret: Option<SecretText>,
    /// What kind of secret is made, if none is given: `v1` unless told otherwise.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(inline, nullable = false)]
    pub(crate) scheme: Option<Scheme>,
    /// For how long the old ones still sign beside it, in milliseconds; a day unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) overlap_ms: Option<OverlapMs>,
    /// Why, for the trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) reason: Option<Reason>,
}

/// A test event.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TestEvent {
    /// Its type; `exactly.test` unless told otherwise.
    #[serde(
        rename = "type",
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(nullable = false, pattern = "^[A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+)*$", max_length = 128)]
    pub(crate) event_type: Option<String>,
    /// What it tells: any JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value, required = false)]
    pub(crate) data: Option<Box<RawValue>>,
}
