//! Who works on what, and how it ends.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use super::{Failure, Lane, TaskId, TaskState};
use crate::clock::Timestamp;

/// How long a lease lasts unless it is asked for otherwise or renewed.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(30);

/// How often a task is taken from a worker that vanished before it counts as what makes workers vanish.
pub const RESCUES_MAX_DEFAULT: u32 = 5;

/// The kinds of tasks that go on for as long as it takes, however often they are rescued: those by which an event becomes
/// deliveries, an endpoint's lane is mended and a replay goes on. Their handlers run nothing of anybody else's, so a lease that
/// is lost says nothing about the task; and what would die with one of them was promised. For whoever makes a queue.
pub const RESCUED_FOR_EVER: [&str; 3] = ["exactly.event", "exactly.mend", "exactly.replay"];

/// One start of one process, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkerId(Uuid);

impl WorkerId {
    /// A new one.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// One that was stored.
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// To store it.
    pub const fn as_uuid(&self) -> &Uuid {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A worker's question for work.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Who asks.
    pub worker: WorkerId,
    /// The most tasks to lease.
    pub most: u32,
    /// How long for.
    pub lease: Duration,
    /// From where.
    pub lanes: Lanes,
    /// How much of one lane at most, if that is limited.
    pub share: Option<Share>,
    /// Only tasks that were rescued fewer times than this. Others pass over the rest, but not in a lane whose cap is one: what would be
    /// next there keeps its turn. A queue may do the same in any lane that has a cap.
    pub rescues_below: Option<u32>,
}

/// How much of one lane a worker takes, so that those which take long leave room for others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The most tasks of a lane that the worker has at once.
    pub most: u32,
    /// The same for a lane that has a cap, where that is less.
    pub capped: Option<u32>,
    /// How many it has of which lane.
    pub held: HashMap<Lane, u32>,
}

impl Share {
    /// The most of a lane that has a cap, or has none.
    pub fn most(&self, is_capped: bool) -> u32 {
        let capped = self.capped.filter(|_| is_capped);
        capped.map_or(self.most, |capped| capped.min(self.most))
    }

    /// How many more of this lane it takes, which has a cap or has none.
    pub fn room(&self, lane: &Lane, is_capped: bool) -> u32 {
        let held = self.held.get(lane).copied().unwrap_or(0);
        self.most(is_capped).saturating_sub(held)
    }

    /// The lanes that it takes no more of, if they have a cap, or if they have none.
    pub fn full(&self, is_capped: bool) -> impl Iterator<Item = &Lane> {
        self.held.keys().filter(move |lane| self.room(lane, is_capped) == 0)
    }
}

/// By how many tasks an ask for so many is filled. Of many, the last part in eight is not worth another look, so a queue may leave it out
/// though there is more.
pub const fn filled(asked: u32) -> u32 {
    const MANY: u32 = 256;
    if asked < MANY { asked } else { asked - asked / 8 }
}

impl Ask {
    /// For at most so many tasks of any lane, for the default time.
    pub fn new(worker: WorkerId, most: u32) -> Self {
        Self {
            worker,
            most,
            lease: LEASE_DEFAULT,
            lanes: Lanes::All,
            share: None,
            rescues_below: None,
        }
    }

    /// So much of one lane.
    #[must_use]
    pub fn sharing(mut self, share: Option<Share>) -> Self {
        self.share = share;
        self
    }

    /// How many tasks of this lane may be leased, which has a cap or has none, beside what the cap says.
    pub fn room(&self, lane: &Lane, is_capped: bool) -> u32 {
        self.share
            .as_ref()
            .map_or(u32::MAX, |share| share.room(lane, is_capped))
    }

    /// Only what was rescued fewer times than this.
    #[must_use]
    pub fn rescued_below(mut self, rescues: Option<u32>) -> Self {
        self.rescues_below = rescues;
        self
    }

    /// Whether a task that was rescued so often is left out.
    pub fn leaves_out(&self, rescues: u32) -> bool {
        self.rescues_below.is_some_and(|below| rescues >= below)
    }

    /// For so long.
    #[must_use]
    pub fn for_time(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// From these lanes.
    #[must_use]
    pub fn from_lanes(mut self, lanes: Lanes) -> Self {
        self.lanes = lanes;
        self
    }
}

/// The lanes that a worker serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// Whatever there is.
    All,
    /// These.
    Only(Vec<Lane>),
}

/// What a task's writes are checked against. It rises each time that the task is leased or taken away, so an effect
/// elsewhere can remember the highest that it has seen and refuse what is lower. It starts from the clock, so it is higher
/// still if the task was forgotten and is enqueued again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// The fence of a task that is enqueued now, before it is ever leased: the milliseconds of the queue's clock.
    pub const fn first(now: Timestamp) -> Self {
        Self(now.as_millis())
    }

    /// The fence of this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The right to settle a task, for as long as nobody else has leased or rescued it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Which task.
    pub id: TaskId,
    /// Which of its leases.
    pub fence: Fence,
}

/// A task that a worker has leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    /// What settles it.
    pub lease: Lease,
    /// Which handler it is for.
    pub kind: Box<str>,
    /// What it is known by, among its kind.
    pub key: Box<str>,
    /// The lane that it came from.
    pub lane: Lane,
    /// Whether the lane had a [cap](super::Queue::cap_lane).
    pub is_capped: bool,
    /// What its handler gets.
    pub payload: Bytes,
    /// The version of its algorithm.
    pub version: u32,
    /// How many attempts have failed since it was enqueued or revived.
    pub failures: u32,
    /// How often it was taken from a worker that vanished.
    pub rescues: u32,
    /// When it was enqueued.
    pub enqueued_at: Timestamp,
    /// Since when it has been due: since it was enqueued, retried, deferred or revived, and its delay was over. Being released
    /// or rescued does not change it.
    pub due_at: Timestamp,
}

impl Leased {
    /// Which attempt this is, counted from 1: those that failed and those that were lost are behind it. One that its own
    /// worker has stopped does not count.
    pub fn attempt(&self) -> u32 {
        self.failures.saturating_add(self.rescues).saturating_add(1)
    }
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// Whose.
    pub lease: Lease,
    /// How.
    pub end: End,
}

impl Settlement {
    /// This lease ends so.
    pub fn new(lease: Lease, end: End) -> Self {
        Self { lease, end }
    }
}

/// How an attempt ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It happened, and this is its outcome.
    Done(Bytes),
    /// It failed, and is tried again after this time.
    Retry {
        /// Counted from when it is settled.
        after: Duration,
        /// Why it failed.
        failure: Failure,
    },
    /// It failed for good.
    Bury(Failure),
    /// It is not to run before somebody [revives](super::Queue::revive) it.
    Hold(Failure),
    /// It was not started, or was stopped without a trace. It waits again as it did, at its place in its lane, and no attempt
    /// is used up.
    Release,
    /// It is not its turn, and nothing was begun. It waits again for this time, and no attempt is used up.
    Defer {
        /// Counted from when it is settled.
        after: Duration,
    },
}

impl End {
    /// The state that it leaves a task in.
    pub fn state(&self) -> TaskState {
        match self {
            Self::Done(_) => TaskState::Done,
            Self::Retry { .. } | Self::Release | Self::Defer { .. } => TaskState::Waiting,
            Self::Bury(_) => TaskState::Dead,
            Self::Hold(_) => TaskState::Held,
        }
    }

    /// What came of the task, if it is done.
    pub fn outcome(&self) -> Option<&Bytes> {
        match self {
            Self::Done(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// Why the attempt failed, if it did.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Retry { failure, .. } | Self::Bury(failure) | Self::Hold(failure) => Some(failure),
            Self::Done(_) | Self::Release | Self::Defer { .. } => None,
        }
    }

    /// Whether it gives a task back as if nothing had been begun.
    pub fn is_given_back(&self) -> bool {
        matches!(self, Self::Release | Self::Defer { .. })
    }

    /// Whether a task that is in this state under the same fence was left so by an end like this one. `noted` is what its
    /// history says of the attempt with that fence. Which way a task was [given back](Self::is_given_back) leaves no trace, so
    /// either of them is taken for the other.
    pub fn left(&self, state: TaskState, outcome: Option<&[u8]>, noted: Option<&Failure>) -> bool {
        self.state() == state && self.outcome().map(Bytes::as_ref) == outcome && self.failure() == noted
    }
}

/// A task that was taken from a lease that had ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rescued {
    /// Which one.
    pub id: TaskId,
    /// Its kind.
    pub kind: Box<str>,
    /// Its key.
    pub key: Box<str>,
    /// Whether it waits again; otherwise it is dead.
    pub waits: bool,
}
