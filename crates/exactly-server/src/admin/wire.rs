//! What goes over the wire about records and what people do to them.
//!
//! The command line prints these too, whether it asked the API or a store, so both say the same.

use exactly::Claim;
use exactly::store::{self, CallView, Noted};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

use super::input::{HexBytes, rfc3339};

/// How far a call got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Phase {
    /// An attempt holds a lease.
    InFlight,
    /// An attempt was lost mid-effect, and the key is held until someone settles it.
    InDoubt,
    /// An attempt was lost, and the next caller reruns it.
    Lost,
    /// It happened.
    Done,
}

/// A record. Its key is shown as a digest, and its stored answer not at all: both are one principal's secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Call {
    /// The record's identity.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub(crate) id: String,
    /// Whose key it is; null if it is everyone's.
    #[schema(required)]
    pub(crate) principal: Option<String>,
    /// What is asked for.
    pub(crate) operation: String,
    /// The start of the key's SHA-256, as logs have it.
    #[schema(pattern = "^[0-9a-f]{12}$")]
    pub(crate) key_digest: String,
    /// The key itself, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) key: Option<String>,
    /// The content of the request.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub(crate) fingerprint: String,
    pub(crate) phase: Phase,
    /// The latest attempt, counted from one.
    #[schema(minimum = 1)]
    pub(crate) attempt: u32,
    /// Names the latest claim without its token: give it back to act on what you saw, and on nothing newer.
    #[schema(pattern = "^[0-9a-f]{16}$")]
    pub(crate) claim: String,
    /// When the key was first used.
    #[schema(format = DateTime)]
    pub(crate) created_at: String,
    /// When the lease of an unfinished call ends, or ended.
    #[schema(required, format = DateTime)]
    pub(crate) lease_ends_at: Option<String>,
    /// When a finished call is forgotten; null if never.
    #[schema(required, format = DateTime)]
    pub(crate) expires_at: Option<String>,
    /// The size of the stored answer.
    #[schema(required)]
    pub(crate) outcome_bytes: Option<u64>,
}

/// One page of records, ordered by id.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct CallPage {
    #[schema(max_items = 1000)]
    pub(crate) calls: Vec<Call>,
    /// What to give as `after` for the next page; null after the last one.
    #[schema(required)]
    pub(crate) next: Option<String>,
}

/// A record and what is known of its past.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct CallDetail {
    pub(crate) call: Call,
    /// What the record tells and what the trail says about it, in order of time.
    pub(crate) history: Vec<Event>,
}

/// Something that happened to a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Event {
    /// When; null if the record does not tell.
    #[schema(required, format = DateTime)]
    pub(crate) at: Option<String>,
    /// What: `begun`, `attempt`, `lease`, `outcome`, or an operator's action.
    pub(crate) what: String,
    /// How it was asked for and what came of it.
    pub(crate) detail: String,
    /// Who did it, if a person did.
    #[schema(required)]
    pub(crate) actor: Option<String>,
}

/// What became of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Settled {
    pub(crate) id: String,
    pub(crate) was: Phase,
    pub(crate) now: Became,
}

/// What a record is after an operator's action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Became {
    /// It has an outcome, which repetitions get.
    Done,
    /// It is gone: the next request with its key runs.
    Absent,
}

/// What was forgotten, or would be.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Purged {
    pub(crate) dry_run: bool,
    /// How many records fit.
    pub(crate) matched: u32,
    /// How many of them are gone: none in a dry run, fewer where one changed meanwhile.
    #[expect(clippy::struct_field_names, reason = "the name that the API has for it")]
    pub(crate) purged: u32,
    /// Those that fit.
    #[schema(max_items = 1000)]
    pub(crate) ids: Vec<String>,
    /// What to give as `after` to go on; null when all were looked at.
    #[schema(required)]
    pub(crate) next: Option<String>,
}

/// What people did, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Trail {
    #[schema(max_items = 1000)]
    pub(crate) entries: Vec<Entry>,
    /// What to give as `after` for later entries; null if these are all.
    #[schema(required)]
    pub(crate) next: Option<u64>,
}

/// One thing that somebody did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    #[schema(format = DateTime)]
    pub(crate) at: String,
    /// The one call that it was done to.
    #[schema(required)]
    pub(crate) call: Option<String>,
    pub(crate) actor: String,
    pub(crate) action: String,
    pub(crate) detail: String,
}

impl Call {
    pub(crate) fn of(view: &CallView, reveal: bool) -> Self {
        let until = view.until.map(rfc3339);
        let (lease_ends_at, expires_at) = match view.phase {
            store::Phase::Done => (None, until),
            _ => (until, None),
        };
        Self {
            id: view.claim.id.to_string(),
            principal: view.scope.principal().map(str::to_owned),
            operation: view.scope.operation().to_owned(),
            key_digest: view.key.digest(),
            key: reveal.then(|| view.key.as_str().to_owned()),
            fingerprint: HexBytes(*view.fingerprint.as_bytes()).into(),
            phase: view.phase.into(),
            attempt: view.claim.attempt.get(),
            claim: claim_name(&view.claim).into(),
            created_at: rfc3339(view.created_at),
            lease_ends_at,
            expires_at,
            outcome_bytes: view.outcome_len,
        }
    }
}

/// Stands for a claim where its token must not be seen.
pub(crate) fn claim_name(claim: &Claim) -> HexBytes<8> {
    let digest = Sha256::new()
        .chain_update(b"exactly/claim/v1")
        .chain_update(claim.token.as_bytes())
        .finalize();
    let mut name = [0; 8];
    name.copy_from_slice(&digest[..8]);
    HexBytes(name)
}

impl From<Noted> for Entry {
    fn from(noted: Noted) -> Self {
        Self {
            number: noted.number,
            at: rfc3339(noted.at),
            call: noted.note.call.map(|call| call.to_string()),
            actor: noted.note.actor,
            action: noted.note.action,
            detail: noted.note.detail,
        }
    }
}

impl From<store::Phase> for Phase {
    fn from(phase: store::Phase) -> Self {
        match phase {
            store::Phase::InFlight => Self::InFlight,
            store::Phase::InDoubt => Self::InDoubt,
            store::Phase::Lost => Self::Lost,
            store::Phase::Done => Self::Done,
        }
    }
}

impl From<Phase> for store::Phase {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::InFlight => Self::InFlight,
            Phase::InDoubt => Self::InDoubt,
            Phase::Lost => Self::Lost,
            Phase::Done => Self::Done,
        }
    }
}
