//! Sending again what was sent, or could not be.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{EndpointId, TypeFilter};
use crate::clock::{Timestamp, millis};
use crate::webhook::{EventId, EventType};

/// Which deliveries to make again. All conditions have to hold.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Replay {
    /// What it is known by. Starting it again is the same replay.
    pub id: ReplayId,
    /// Only what has failed for good, or all.
    pub which: Which,
    /// Of this event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<EventId>,
    /// To this endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<EndpointId>,
    /// Of events of these types; of all if there is nothing in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<TypeFilter>,
    /// Made at this time or later, in milliseconds on the queue's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// Made before this time, and in any case before the replay was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// The most deliveries that it sets off in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<u32>,
    /// Only counts what it would do.
    #[serde(default)]
    pub dry_run: bool,
}

impl Replay {
    /// How long those who receive events are to remember them. What is older may be applied a second time.
    pub const REMEMBERED_FOR: Duration = Duration::from_hours(7 * 24);

    /// The most types that can be named.
    pub const TYPES_MAX: usize = 100;

    /// A replay of all such deliveries.
    pub fn new(id: ReplayId, which: Which) -> Self {
        Self {
            id,
            which,
            event: None,
            endpoint: None,
            types: Vec::new(),
            since_ms: None,
            until_ms: None,
            per_second: None,
            dry_run: false,
        }
    }

    pub(super) fn check(&self) -> Result<(), InvalidReplay> {
        let mut faults = Vec::new();
        if self.per_second == Some(0) {
            faults.push("per_second is 0: use 1 or more, or leave it out".to_owned());
        }
        let (types, most) = (self.types.len(), Self::TYPES_MAX);
        if types > most {
            faults.push(format!("there are {types} types: use {most} at most"));
        }
        if let (Some(since), Some(until)) = (self.since_ms, self.until_ms)
            && since >= until
        {
            faults.push(format!(
                "it ends at {until}, which is not after {since}, when it begins"
            ));
        }
        if faults.is_empty() {
            Ok(())
        } else {
            Err(InvalidReplay(faults.join("; ")))
        }
    }

    pub(super) fn wants(&self, event_type: &EventType) -> bool {
        self.types.is_empty() || self.types.iter().any(|filter| filter.takes(event_type))
    }

    /// Whether it may have made a copy of the delivery of this event to this endpoint.
    pub(super) fn may_copy(&self, event: &EventId, endpoint: &EndpointId) -> bool {
        let (of, to) = (self.event.as_ref(), self.endpoint.as_ref());
        let meant = of.is_none_or(|of| of == event) && to.is_none_or(|to| to == endpoint);
        self.which == Which::All && !self.dry_run && meant
    }
}

/// Which deliveries a replay is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// Those in the dead letter.
    Failed,
    /// Those that were delivered too.
    All,
}

/// A replay as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct ReplayView {
    /// What was asked for.
    pub replay: Replay,
    /// Whether it goes on.
    pub state: ReplayState,
    /// When it was started, in milliseconds on the queue's clock.
    pub started_at_ms: u64,
    /// When it was through, or given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at_ms: Option<u64>,
    /// What has become of deliveries so far; of a dry run, what would have.
    pub tally: Tally,
    /// How many parts of it have begun. The one with this number is at work, or waits.
    pub(super) step: u64,
    /// Behind which it goes on.
    pub(super) cursor: Option<String>,
}

/// What has become of the deliveries that a replay came by. After a crash some of those that were revived count as left alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct Tally {
    /// How many were looked at.
    pub seen: u64,
    /// Dead ones that wait again.
    pub revived: u64,
    /// Done ones that are sent once more.
    pub sent_again: u64,
    /// Those that wait or run, or whose copy does: they are sent in any case.
    pub left_alone: u64,
    /// Those that cannot be sent, because their endpoint was deleted, or that another one stands for.
    pub skipped: u64,
    /// How many of those that are sent are older than receivers are to [remember](Replay::REMEMBERED_FOR).
    pub older: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        self.seen += other.seen;
        self.revived += other.revived;
        self.sent_again += other.sent_again;
        self.left_alone += other.left_alone;
        self.skipped += other.skipped;
        self.older += other.older;
    }
}

/// Whether a replay goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayState {
    /// It does.
    Running,
    /// Until it is resumed.
    Paused,
    /// Somebody has given it up. What it had set off by then goes on.
    Canceled,
    /// It has come to its end.
    Done,
}

impl ReplayView {
    pub(super) fn first(replay: Replay, now: Timestamp) -> Self {
        Self {
            replay,
            state: ReplayState::Running,
            started_at_ms: now.as_millis(),
            ended_at_ms: None,
            tally: Tally::default(),
            step: 0,
            cursor: None,
        }
    }

    /// What was made at this time or later is not part of it. Otherwise it would come by its own copies for ever.
    pub(super) fn before(&self) -> Timestamp {
        let started = self.started_at_ms.saturating_add(1);
        Timestamp::from_millis(self.replay.until_ms.map_or(started, |until| until.min(started)))
    }

    /// Whether what was made then may be part of it.
    pub(super) fn reaches(&self, made_at: Timestamp) -> bool {
        let since = self.replay.since_ms.map(Timestamp::from_millis);
        since.is_none_or(|since| made_at >= since) && made_at < self.before()
    }

    /// What somebody should know before they let it go on: it asks for events that receivers need not remember any more.
    pub fn warning(&self) -> Option<String> {
        const DAYS: u64 = Replay::REMEMBERED_FOR.as_secs() / (24 * 60 * 60);
        let older = self.tally.older;
        if older > 0 {
            return Some(format!(
                "{older} of these were made more than {DAYS} days ago: who has had one may have forgotten it, and apply it again"
            ));
        }
        let oldest = self.started_at_ms.saturating_sub(millis(Replay::REMEMBERED_FOR));
        let reaches_back = self.replay.since_ms.is_none_or(|since| since < oldest);
        (self.state != ReplayState::Done && reaches_back).then(|| {
            format!(
                "it reaches back more than {DAYS} days: who has had an event so long ago may have forgotten it, and apply it again"
            )
        })
    }
}

/// What a replay is known by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct ReplayId(Box<str>);

impl ReplayId {
    /// The longest, in bytes.
    pub const BYTES_MAX: usize = 64;

    /// A new one.
    pub fn random() -> Self {
        Self(format!("rp_{}", Uuid::new_v4().simple()).into())
    }

    /// One that somebody has chosen.
    pub fn new(id: impl Into<Box<str>>) -> Result<Self, InvalidReplay> {
        let id = id.into();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if !(1..=Self::BYTES_MAX).contains(&id.len()) || !id.bytes().all(plain) {
            let most = Self::BYTES_MAX;
            return Err(InvalidReplay(format!(
                "{id:?} is no id: use 1 to {most} of a-z, 0-9, _ and -"
            )));
        }
        Ok(Self(id))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ReplayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ReplayId {
    type Err = InvalidReplay;

    fn from_str(id: &str) -> Result<Self, InvalidReplay> {
        Self::new(id)
    }
}

impl TryFrom<String> for ReplayId {
    type Error = InvalidReplay;

    fn try_from(id: String) -> Result<Self, InvalidReplay> {
        Self::new(id)
    }
}

impl From<ReplayId> for String {
    fn from(id: ReplayId) -> Self {
        id.0.into()
    }
}

/// What was wrong with a replay, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidReplay(String);

impl fmt::Display for InvalidReplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read replay: {}", self.0)
    }
}

impl std::error::Error for InvalidReplay {}
