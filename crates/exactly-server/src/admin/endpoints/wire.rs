//! What goes over the wire about endpoints.

use std::collections::BTreeMap;

use exactly::clock::Timestamp;
use exactly::webhook::{Endpoint, EndpointFailure, EndpointHealth, EndpointSecret, Signer, Standing};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ask::Scheme;
use crate::admin::input::rfc3339;
use crate::work::errand::hide_secrets;

/// Whether an endpoint gets anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EndpointState {
    /// It does.
    Active,
    /// Somebody has paused it, and its deliveries wait.
    Paused,
    /// It said that it is gone, or somebody has disabled it. Its deliveries wait.
    Disabled,
}

/// Where events go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct EndpointShown {
    pub(crate) id: String,
    pub(crate) url: String,
    /// What it wants to hear of; everything if there is nothing in it.
    pub(crate) types: Vec<String>,
    pub(crate) state: EndpointState,
    /// Why it is disabled.
    #[schema(required)]
    pub(crate) reason: Option<String>,
    /// What is sent beside our own headers. Values that open other doors are left out.
    pub(crate) headers: BTreeMap<String, String>,
    /// How many deliveries are under way at once, over all servers.
    pub(crate) concurrency: u32,
    /// The most deliveries that a server begins within a second; null for no limit.
    #[schema(required)]
    pub(crate) per_second: Option<u32>,
    /// What was made before this is given up instead of sent.
    #[schema(required, format = DateTime)]
    pub(crate) discard_before: Option<String>,
    /// What signs, the newest first.
    pub(crate) secrets: Vec<SecretShown>,
}

/// A secret, as far as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct SecretShown {
    /// Null if it cannot be read.
    #[schema(required)]
    pub(crate) scheme: Option<Scheme>,
    /// What receivers verify with, if it is a key of ed25519.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) public_key: Option<String>,
    /// It signs until then; null for one that is not being replaced.
    #[schema(required, format = DateTime)]
    pub(crate) until: Option<String>,
}

/// One page of endpoints, by id.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct EndpointPage {
    #[schema(max_items = 1000)]
    pub(crate) endpoints: Vec<EndpointShown>,
    /// What to give as `after` for the next page; null after the last one.
    #[schema(required)]
    pub(crate) next: Option<String>,
}

/// An endpoint with a secret that was made for it.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct EndpointMade {
    pub(crate) endpoint: EndpointShown,
    /// What signs, if it was made here. It is shown this once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) secret: Option<String>,
}

impl std::fmt::Debug for EndpointMade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndpointMade")
            .field("endpoint", &self.endpoint.id)
            .finish_non_exhaustive()
    }
}

/// How an endpoint is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = EndpointHealth)]
pub(crate) struct HealthShown {
    /// How many deliveries wait for it.
    pub(crate) waiting: u64,
    /// How many are under way.
    pub(crate) running: u64,
    /// How many have no attempt left.
    pub(crate) dead: u64,
    /// It failed all the time, and is left alone until then; null if it is not.
    #[schema(required, format = DateTime)]
    pub(crate) parked_until: Option<String>,
    /// When it last took something, to within ten seconds; null if it never has.
    #[schema(required, format = DateTime)]
    pub(crate) last_success: Option<String>,
    /// What it last failed at, the newest first. Of many in one second some are left out.
    #[schema(max_items = 5)]
    pub(crate) last_failures: Vec<FailureShown>,
}

/// An attempt at an endpoint that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = EndpointFailure)]
pub(crate) struct FailureShown {
    #[schema(format = DateTime)]
    pub(crate) at: String,
    pub(crate) event: String,
    /// The status of the answer; null if there was none.
    #[schema(required)]
    pub(crate) status: Option<u16>,
    /// With the beginning of the answer, if there was one.
    pub(crate) why: String,
}

/// An endpoint, and how it is doing: what a terminal shows.
#[derive(Debug, Serialize)]
pub(crate) struct EndpointSeen {
    #[serde(flatten)]
    pub(crate) endpoint: EndpointShown,
    pub(crate) health: HealthShown,
}

/// A test event that is on its way.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Tested {
    pub(crate) event: String,
    pub(crate) endpoint: String,
    /// What to look at for what came of it.
    pub(crate) delivery: String,
}

impl From<&Endpoint> for EndpointShown {
    fn from(endpoint: &Endpoint) -> Self {
        let (state, reason) = match &endpoint.standing {
            Standing::Active => (EndpointState::Active, None),
            Standing::Paused => (EndpointState::Paused, None),
            Standing::Disabled { reason } => (EndpointState::Disabled, Some(reason.clone())),
        };
        let mut headers = endpoint.headers.clone();
        hide_secrets(&mut headers);
        Self {
            id: endpoint.id.to_string(),
            url: endpoint.url.clone(),
            types: endpoint.types.iter().map(ToString::to_string).collect(),
            state,
            reason,
            headers,
            concurrency: endpoint.concurrency,
            per_second: endpoint.per_second,
            discard_before: at(endpoint.discard_before_ms),
            secrets: endpoint.secrets.iter().map(Into::into).collect(),
        }
    }
}

impl From<&EndpointSecret> for SecretShown {
    fn from(secret: &EndpointSecret) -> Self {
        let (scheme, public_key) = match secret.secret.parse() {
            Ok(Signer::V1(_)) => (Some(Scheme::V1), None),
            Ok(Signer::V1a(key)) => (Some(Scheme::V1a), Some(key.public().to_string())),
            Err(_) => (None, None),
        };
        Self {
            scheme,
            public_key,
            until: at(secret.until_ms),
        }
    }
}

impl From<&EndpointHealth> for HealthShown {
    fn from(health: &EndpointHealth) -> Self {
        Self {
            waiting: health.waiting,
            running: health.running,
            dead: health.dead,
            parked_until: at(health.parked_until_ms),
            last_success: at(health.last_success_ms),
            last_failures: health.last_failures.iter().map(Into::into).collect(),
        }
    }
}

impl From<&EndpointFailure> for FailureShown {
    fn from(failure: &EndpointFailure) -> Self {
        Self {
            at: rfc3339(Timestamp::from_millis(failure.at_ms)),
            event: failure.event.to_string(),
            status: failure.status,
            why: failure.why.clone(),
        }
    }
}

fn at(ms: Option<u64>) -> Option<String> {
    ms.map(|ms| rfc3339(Timestamp::from_millis(ms)))
}
