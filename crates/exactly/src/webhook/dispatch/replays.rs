//! Replays as they are kept.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::replay::{InvalidReplay, Replay, ReplayId, ReplayState, ReplayView, Tally};
use crate::queue::{Enqueued, Found, InspectQueue, Lane, Registry, Revision, Task, TaskState};
use crate::{StoreError, StoreErrorKind};

/// The kind of the tasks that a replay is made of.
pub const REPLAY_KIND: &str = "exactly.replay";

/// What the names of replays begin with among what a queue remembers.
const PREFIX: &str = "replay/";

/// How often a change is made again because somebody else's came first.
const ROUNDS_MAX: u32 = 16;

/// How many are read at once.
const PAGE: u32 = 500;

/// Sending again what was sent or could not be, in parts that any worker of a [`Dispatcher`](super::Dispatcher) does.
///
/// A replay is kept beside the tasks: what was asked for, how far it has come, and what became of what it came by. Each part is
/// a task, which moves that on and makes the next. Whatever process ends in between, the next one goes on there.
///
/// A delivery that waits or runs is left alone, so that nothing is sent by a replay and by its own schedule. A dead one is
/// revived, with its attempts to run anew. One that is done gets a copy, known by its event, its endpoint and the replay.
#[derive(Debug)]
pub struct Replays<Q: ?Sized>(Arc<Q>);

impl<Q: ?Sized> Clone for Replays<Q> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<Q: ?Sized> Replays<Q> {
    /// Those that this queue remembers.
    pub fn new(queue: Arc<Q>) -> Self {
        Self(queue)
    }

    pub(super) fn queue(&self) -> &Arc<Q> {
        &self.0
    }
}

/// One at a time: what one replay has set off, the next one sees.
pub(super) fn lane() -> Lane {
    Lane::new(REPLAY_KIND).expect("it is short and has no control characters")
}

impl<Q: Registry + InspectQueue + ?Sized> Replays<Q> {
    /// Starts a replay. One that was started with the same id and for the same is found as it stands.
    pub async fn start(&self, replay: &Replay) -> Result<ReplayView, ReplayError> {
        replay.check()?;
        if let Some((view, _)) = self.found(&replay.id).await? {
            return self.same(replay, view).await;
        }
        self.0.cap_lane(&lane(), Some(1)).await?;
        // The task says all that there is to say, so whoever is stopped from here on has started it.
        let first = ReplayView::first(replay.clone(), self.0.now().await?);
        let enqueued = self.0.enqueue(&[part(&first, Duration::ZERO)]).await?;
        if let Some(Enqueued::Found(found)) = enqueued.first()
            && found.differs
        {
            return Err(ReplayError::Taken(replay.id.clone()));
        }
        let view = self.write_first(first).await?;
        self.same(replay, view).await
    }

    async fn same(&self, replay: &Replay, view: ReplayView) -> Result<ReplayView, ReplayError> {
        if view.replay != *replay {
            return Err(ReplayError::Taken(replay.id.clone()));
        }
        self.go_on(&view, Duration::ZERO).await?;
        Ok(view)
    }

    /// Writes down a replay that has begun, unless somebody has.
    pub(super) async fn write_first(&self, first: ReplayView) -> Result<ReplayView, ReplayError> {
        let id = &first.replay.id;
        if self.0.write_card(&name(id), &written(&first), None).await?.is_some() {
            return Ok(first);
        }
        let found = self.found(id).await?;
        found.map(|(view, _)| view).ok_or_else(|| ReplayError::Busy(id.clone()))
    }

    /// The replay of this id, as it stands.
    pub async fn get(&self, id: &ReplayId) -> Result<Option<ReplayView>, ReplayError> {
        Ok(self.found(id).await?.map(|(view, _)| view))
    }

    /// All replays that can be read, by id.
    pub async fn list(&self) -> Result<Vec<ReplayView>, ReplayError> {
        let mut replays = Vec::new();
        let mut after = Box::from("");
        loop {
            let cards = self.0.cards(PREFIX, &after, PAGE).await?;
            let Some(last) = cards.last() else {
                return Ok(replays);
            };
            after = last.name.clone();
            // One that something else has written stops no other.
            replays.extend(cards.iter().filter_map(|card| read(&card.value).ok()));
        }
    }

    /// Lets a replay rest after the part that is under way.
    pub async fn pause(&self, id: &ReplayId) -> Result<ReplayView, ReplayError> {
        self.change(id, |view| {
            if view.state == ReplayState::Running {
                view.state = ReplayState::Paused;
            }
        })
        .await
    }

    /// Goes on with one that rests.
    pub async fn resume(&self, id: &ReplayId) -> Result<ReplayView, ReplayError> {
        let view = self
            .change(id, |view| {
                if view.state == ReplayState::Paused {
                    view.state = ReplayState::Running;
                    // The part that came by meanwhile has ended, and there is one of each number.
                    view.step += 1;
                }
            })
            .await?;
        self.go_on(&view, Duration::ZERO).await?;
        Ok(view)
    }

    /// Gives up what a replay has not set off yet.
    pub async fn cancel(&self, id: &ReplayId) -> Result<ReplayView, ReplayError> {
        let now = self.0.now().await?.as_millis();
        self.change(id, |view| {
            if matches!(view.state, ReplayState::Running | ReplayState::Paused) {
                view.state = ReplayState::Canceled;
                view.ended_at_ms = Some(now);
            }
        })
        .await
    }

    /// Notes what came of a part, if nobody else has, and how far that was; without a cursor it was the last.
    pub(super) async fn advance(
        &self,
        id: &ReplayId,
        step: u64,
        tally: &Tally,
        cursor: Option<&str>,
    ) -> Result<ReplayView, ReplayError> {
        let now = self.0.now().await?.as_millis();
        self.change(id, |view| {
            if view.step != step {
                return;
            }
            view.step += 1;
            view.tally.add(tally);
            view.cursor = cursor.map(str::to_owned);
            if cursor.is_none() && view.state != ReplayState::Canceled {
                view.state = ReplayState::Done;
                view.ended_at_ms = Some(now);
            }
        })
        .await
    }

    /// Sees to it that there is a task for what is next, and that it is not dead: somebody has buried it, or an older release.
    pub(super) async fn go_on(&self, view: &ReplayView, after: Duration) -> Result<(), ReplayError> {
        if view.state != ReplayState::Running {
            return Ok(());
        }
        let enqueued = self.0.enqueue(&[part(view, after)]).await?;
        if let Some(Enqueued::Found(Found {
            id,
            state: TaskState::Dead | TaskState::Held,
            ..
        })) = enqueued.first()
        {
            let _ = self.0.revive(&[*id]).await?;
        }
        Ok(())
    }

    async fn change(&self, id: &ReplayId, change: impl Fn(&mut ReplayView) + Send) -> Result<ReplayView, ReplayError> {
        for _ in 0..ROUNDS_MAX {
            let (mut view, revision) = self.found(id).await?.ok_or_else(|| ReplayError::Gone(id.clone()))?;
            let was = view.clone();
            change(&mut view);
            if view == was
                || self
                    .0
                    .write_card(&name(id), &written(&view), Some(revision))
                    .await?
                    .is_some()
            {
                return Ok(view);
            }
        }
        Err(ReplayError::Busy(id.clone()))
    }

    pub(super) async fn found(&self, id: &ReplayId) -> Result<Option<(ReplayView, Revision)>, ReplayError> {
        let card = self.0.read_card(&name(id)).await?;
        card.map(|card| Ok((read(&card.value)?, card.revision))).transpose()
    }
}

/// The task of the part that is next.
fn part(view: &ReplayView, after: Duration) -> Task {
    let key = format!("{} {}", view.replay.id, view.step);
    let payload = serde_json::to_vec(&view.replay).expect("a replay is made of texts and numbers");
    Task::new(REPLAY_KIND, key, payload)
        .expect("an id is short and visible, and types are few")
        .in_lane(lane())
        .after(after)
}

fn name(id: &ReplayId) -> String {
    format!("{PREFIX}{id}")
}

fn written(view: &ReplayView) -> Bytes {
    serde_json::to_vec(view)
        .expect("a replay is made of texts and numbers")
        .into()
}

fn read(value: &[u8]) -> Result<ReplayView, StoreError> {
    serde_json::from_slice(value).map_err(|error| {
        let context = format!("stored replay: {error}");
        StoreError::new(StoreErrorKind::Corrupt, context)
    })
}

/// Why a replay was not started or changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReplayError {
    /// It cannot be one.
    Invalid(InvalidReplay),
    /// One of this id was started for something else.
    Taken(ReplayId),
    /// There is none of this id.
    Gone(ReplayId),
    /// Others changed it each time.
    Busy(ReplayId),
    /// The queue could not answer.
    Store(StoreError),
}

impl From<InvalidReplay> for ReplayError {
    fn from(error: InvalidReplay) -> Self {
        Self::Invalid(error)
    }
}

impl From<StoreError> for ReplayError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(error) => error.fmt(f),
            Self::Taken(id) => write!(
                f,
                "start replay: {id} was started for something else; choose another id"
            ),
            Self::Gone(id) => write!(f, "find replay: there is no {id}"),
            Self::Busy(id) => write!(f, "change replay: others change {id} all the time; try again"),
            Self::Store(error) => write!(f, "change replay: {error}"),
        }
    }
}

impl std::error::Error for ReplayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Invalid(error) => Some(error),
            Self::Store(error) => Some(error),
            Self::Taken(_) | Self::Gone(_) | Self::Busy(_) => None,
        }
    }
}
