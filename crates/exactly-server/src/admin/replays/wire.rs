//! What goes over the wire about replays.

use exactly::clock::Timestamp;
use exactly::webhook::{ReplayState, ReplayView, Tally};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ask::WhichText;
use crate::admin::input::rfc3339;

/// Whether a replay goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReplayStateText {
    /// It does.
    Running,
    /// Not until it is resumed.
    Paused,
    /// Somebody has given it up.
    Canceled,
    /// It has come to its end.
    Done,
}

/// A replay as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReplayShown {
    pub(crate) id: String,
    pub(crate) which: WhichText,
    /// Of this event; null for all.
    #[schema(required)]
    pub(crate) event: Option<String>,
    /// To this endpoint; null for all.
    #[schema(required)]
    pub(crate) endpoint: Option<String>,
    /// Of events of these types; of all if there is nothing in it.
    pub(crate) types: Vec<String>,
    #[schema(required, format = DateTime)]
    pub(crate) since: Option<String>,
    #[schema(required, format = DateTime)]
    pub(crate) until: Option<String>,
    #[schema(required)]
    pub(crate) per_second: Option<u32>,
    pub(crate) dry_run: bool,
    pub(crate) state: ReplayStateText,
    #[schema(format = DateTime)]
    pub(crate) started_at: String,
    /// When it was through, or given up.
    #[schema(required, format = DateTime)]
    pub(crate) ended_at: Option<String>,
    pub(crate) progress: Progress,
    /// What to know before it goes on: it reaches back further than receivers are to remember events.
    #[schema(required)]
    pub(crate) warning: Option<String>,
}

/// What has become of deliveries so far; in a dry run, what would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Progress {
    /// How many were looked at.
    pub(crate) seen: u64,
    /// Dead ones that wait again.
    pub(crate) revived: u64,
    /// Delivered ones that are sent once more.
    pub(crate) sent_again: u64,
    /// Those that wait or run, or whose copy does: they are sent in any case.
    pub(crate) left_alone: u64,
    /// Those whose endpoint was deleted, or that another one stands for.
    pub(crate) skipped: u64,
    /// How many of those that are sent are older than the 7 days that receivers are to remember events for.
    pub(crate) older: u64,
}

/// One page of replays, by id.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReplayPage {
    #[schema(max_items = 1000)]
    pub(crate) replays: Vec<ReplayShown>,
    /// What to give as `after` for the next page; null after the last one.
    #[schema(required)]
    pub(crate) next: Option<String>,
}

impl ReplayStateText {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Canceled => "canceled",
            Self::Done => "done",
        }
    }
}

impl From<&ReplayView> for ReplayShown {
    fn from(view: &ReplayView) -> Self {
        let replay = &view.replay;
        let at = |ms: u64| rfc3339(Timestamp::from_millis(ms));
        Self {
            id: replay.id.to_string(),
            which: replay.which.into(),
            event: replay.event.as_ref().map(ToString::to_string),
            endpoint: replay.endpoint.as_ref().map(ToString::to_string),
            types: replay.types.iter().map(ToString::to_string).collect(),
            since: replay.since_ms.map(at),
            until: replay.until_ms.map(at),
            per_second: replay.per_second,
            dry_run: replay.dry_run,
            state: view.state.into(),
            started_at: at(view.started_at_ms),
            ended_at: view.ended_at_ms.map(at),
            progress: view.tally.into(),
            warning: view.warning(),
        }
    }
}

impl From<ReplayState> for ReplayStateText {
    fn from(state: ReplayState) -> Self {
        match state {
            ReplayState::Running => Self::Running,
            ReplayState::Paused => Self::Paused,
            ReplayState::Canceled => Self::Canceled,
            ReplayState::Done => Self::Done,
        }
    }
}

impl From<Tally> for Progress {
    fn from(tally: Tally) -> Self {
        Self {
            seen: tally.seen,
            revived: tally.revived,
            sent_again: tally.sent_again,
            left_alone: tally.left_alone,
            skipped: tally.skipped,
            older: tally.older,
        }
    }
}
