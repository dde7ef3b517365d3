//! What goes over the wire about events that came in.

use std::collections::BTreeMap;

use exactly::queue::{AttemptView, TaskView};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::admin::input::rfc3339;
use crate::admin::jobs::wire::{JobFailure, JobState};
use crate::work::letter::{Letter, digest_of, named};

/// An event that came in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReceivedShown {
    pub(crate) source: String,
    /// As its sender has it.
    pub(crate) id: String,
    /// The SHA-256 of its body, if its id came before with another one; null for the first.
    #[schema(required, pattern = "^[0-9a-f]{64}$")]
    pub(crate) digest: Option<String>,
    /// `done` once its service has it; `dead` when there is no attempt left; `held` if it is quarantined.
    pub(crate) state: JobState,
    #[schema(format = DateTime)]
    pub(crate) received_at: String,
    /// When its service has had it, or it was given up.
    #[schema(required, format = DateTime)]
    pub(crate) ended_at: Option<String>,
    /// How many attempts at its service have failed.
    pub(crate) failures: u32,
    /// Why the last one did.
    #[schema(required)]
    pub(crate) failure: Option<JobFailure>,
    /// The job that it is, to be requeued.
    pub(crate) job: String,
}

/// One page of events that came in.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct InboxPage {
    #[schema(max_items = 1000)]
    pub(crate) events: Vec<ReceivedShown>,
    /// What to give as `after` for the next page; null after the last one.
    #[schema(required)]
    pub(crate) next: Option<String>,
}

/// An event that came in, with everything that is known of it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct InboxDetail {
    pub(crate) event: ReceivedShown,
    /// What is passed on of its head.
    pub(crate) headers: BTreeMap<String, String>,
    /// What was signed, byte for byte.
    pub(crate) body: String,
    /// Why attempts at its service failed, oldest first.
    pub(crate) attempts: Vec<JobFailure>,
}

impl ReceivedShown {
    pub(super) fn of(view: &TaskView) -> Self {
        let (source, id) = named(&view.key);
        Self {
            source: source.to_owned(),
            id: id.to_owned(),
            digest: digest_of(&view.key).map(str::to_owned),
            state: view.state.into(),
            received_at: rfc3339(view.enqueued_at),
            ended_at: view.ended_at.map(rfc3339),
            failures: view.failures,
            failure: view.failure.as_ref().map(Into::into),
            job: view.id.to_string(),
        }
    }
}

impl InboxDetail {
    pub(super) fn of(view: &TaskView, attempts: &[AttemptView]) -> Self {
        let letter: Option<Letter> = Letter::read(&view.payload).ok();
        let (headers, body) = letter.map(|letter| (letter.headers, letter.body)).unwrap_or_default();
        Self {
            event: ReceivedShown::of(view),
            headers,
            body,
            attempts: attempts.iter().map(|attempt| (&attempt.failure).into()).collect(),
        }
    }
}
