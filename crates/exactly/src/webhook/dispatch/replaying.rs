//! One part of a replay after the other.

use std::sync::Arc;
use std::time::Duration;

use super::copies::Copies;
use super::fan_out::{CHUNK_BYTES_MAX, again, delivery};
use super::replay::{Replay, ReplayId, ReplayState, ReplayView, Tally, Which};
use super::replays::{ReplayError, Replays};
use super::roster::{List, Roster};
use super::{DELIVERY_KIND, DeliveryName, Enclosed, EndpointId};
use crate::StoreError;
use crate::clock::Timestamp;
use crate::queue::{
    End, Failure, FailureKind, InspectQueue, Leased, Registry, Task, TaskFilter, TaskId, TaskState, TaskView, Walk,
};
use crate::spread::Spread;
use crate::webhook::EventType;
use crate::worker::{Handler, Ran, Run};

/// How many deliveries one part sets off at most.
const PART_MAX: u32 = 1000;

/// How many pages one part reads at most, so that it ends while its lease lasts.
const PAGES_MAX: u32 = 50;

/// How many deliveries are read at once. Few, because each may be large.
const PAGE: u32 = 64;

/// How many tasks one page looks at.
const STEPS_MAX: u32 = 5000;

/// Does the parts of replays.
#[derive(Debug)]
pub(super) struct Replaying<Q: ?Sized> {
    pub(super) queue: Arc<Q>,
    pub(super) replays: Replays<Q>,
    pub(super) roster: Arc<Roster<Q>>,
    pub(super) spread: Spread,
}

impl<Q: Registry + InspectQueue + ?Sized> Handler for Replaying<Q> {
    fn run<'a>(&'a self, task: &'a Leased) -> Run<'a> {
        Box::pin(async move {
            let Some((id, step)) = named(task) else {
                let failure = Failure::new(FailureKind::Unreadable, format!("{:?} names no part", task.key));
                return Ran::End(End::Bury(failure));
            };
            Ran::End(match self.run_part(&id, step, task).await {
                Ok(()) => End::Done("".into()),
                Err(error) => again(task, &error.to_string(), &self.spread),
            })
        })
    }
}

/// What a replay needs to judge deliveries.
struct Sight {
    view: ReplayView,
    endpoints: Arc<List>,
    /// Those that others may have made of the same deliveries.
    others: Copies,
    now: Timestamp,
}

/// A page of deliveries, and behind which the next one begins.
struct Page {
    deliveries: Vec<TaskView>,
    next: Option<String>,
}

/// What is to become of a delivery.
enum Fate {
    Revive(TaskId),
    Send(Task),
    LeaveAlone,
    Skip,
}

impl<Q: Registry + InspectQueue + ?Sized> Replaying<Q> {
    async fn run_part(&self, id: &ReplayId, step: u64, task: &Leased) -> Result<(), ReplayError> {
        let view = match self.replays.found(id).await? {
            Some((view, _)) => view,
            // Whoever has started it was stopped before it was written down.
            None if step == 0 => match serde_json::from_slice(&task.payload) {
                Ok(replay) => {
                    let first = ReplayView::first(replay, self.queue.now().await?);
                    self.replays.write_first(first).await?
                }
                Err(_) => return Ok(()),
            },
            None => return Ok(()),
        };
        if view.step != step || view.state != ReplayState::Running {
            // It was done before, by somebody who may have been stopped before the next part was there.
            return self.replays.go_on(&view, Duration::ZERO).await;
        }
        let sight = self.sight(view).await?;
        let (tally, cursor) = self.part(&sight).await?;
        let view = self.replays.advance(id, step, &tally, cursor.as_deref()).await?;
        self.replays.go_on(&view, rest(&sight.view.replay, &tally)).await
    }

    async fn sight(&self, view: ReplayView) -> Result<Sight, ReplayError> {
        let endpoints = self.roster.fresh().await.map_err(|error| unavailable(&error))?;
        let others = self.replays.copies().await?.without(&view.replay.id);
        Ok(Sight {
            view,
            endpoints,
            others,
            now: self.queue.now().await?,
        })
    }

    /// Goes on over deliveries until enough were set off. Tells what became of them, and how far it came; nothing at the end.
    async fn part(&self, sight: &Sight) -> Result<(Tally, Option<String>), StoreError> {
        let replay = &sight.view.replay;
        let most = replay.per_second.unwrap_or(PART_MAX).clamp(1, PART_MAX);
        let (mut tally, mut cursor) = (Tally::default(), sight.view.cursor.clone());
        for _ in 0..PAGES_MAX {
            let left = u64::from(most).saturating_sub(set_off(&tally));
            let Some(limit) = u32::try_from(left).ok().filter(|left| *left > 0) else {
                break;
            };
            let page = self.page(sight, cursor.as_deref(), limit.min(PAGE)).await?;
            self.see_to(sight, &page.deliveries, &mut tally).await?;
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        Ok((tally, cursor))
    }

    async fn page(&self, sight: &Sight, after: Option<&str>, limit: u32) -> Result<Page, StoreError> {
        let replay = &sight.view.replay;
        if replay.event.is_some() {
            return self.page_of_event(sight, after, limit).await;
        }
        let walk = Walk {
            filter: TaskFilter {
                kind: Some(DELIVERY_KIND.to_owned()),
                lane: replay.endpoint.as_ref().map(EndpointId::lane),
                state: (replay.which == Which::Failed).then_some(TaskState::Dead),
                version: None,
            },
            since: replay.since_ms.map(Timestamp::from_millis),
            before: Some(sight.view.before()),
            after: after.and_then(|after| after.parse().ok()),
            steps: STEPS_MAX,
            limit,
        };
        let walked = self.queue.walk(&walk).await?;
        Ok(Page {
            deliveries: walked.tasks,
            next: walked.next.map(|next| next.to_string()),
        })
    }

    /// The deliveries of one event are found by their names, an endpoint at a time.
    async fn page_of_event(&self, sight: &Sight, after: Option<&str>, limit: u32) -> Result<Page, StoreError> {
        let replay = &sight.view.replay;
        let Some(event) = &replay.event else {
            return Ok(Page {
                deliveries: Vec::new(),
                next: None,
            });
        };
        let meant = |id: &&EndpointId| {
            let to = replay.endpoint.as_ref();
            to.is_none_or(|to| to == *id) && after.is_none_or(|after| id.as_str() > after)
        };
        let mut ids: Vec<_> = sight.endpoints.ids().filter(meant).collect();
        ids.sort_unstable();
        let is_last = ids.len() <= usize::try_from(limit).unwrap_or(usize::MAX);
        ids.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        let mut deliveries = Vec::new();
        for id in &ids {
            let original = DeliveryName {
                event: event.clone(),
                endpoint: (*id).clone(),
                replay: None,
            };
            let copies = sight.others.of(&original, None);
            for name in std::iter::once(original.clone()).chain(copies) {
                let view = self.queue.show(name.task_id()).await?;
                deliveries.extend(view.filter(|view| sight.view.reaches(view.enqueued_at)));
            }
        }
        let next = ids.last().filter(|_| !is_last).map(|id| id.as_str().to_owned());
        Ok(Page { deliveries, next })
    }

    /// Does with deliveries what is to become of them.
    async fn see_to(&self, sight: &Sight, deliveries: &[TaskView], tally: &mut Tally) -> Result<(), StoreError> {
        let (mut revive, mut send) = (Vec::new(), Vec::new());
        for view in deliveries {
            let Some(name) = sight.wanted(view) else { continue };
            tally.seen += 1;
            let fate = self.fate(sight, view, &name).await?;
            if matches!(fate, Fate::Revive(_) | Fate::Send(_)) && sight.is_older(view) {
                tally.older += 1;
            }
            match fate {
                Fate::Revive(id) => revive.push(id),
                Fate::Send(task) => send.push(task),
                Fate::LeaveAlone => tally.left_alone += 1,
                Fate::Skip => tally.skipped += 1,
            }
        }
        if sight.view.replay.dry_run {
            tally.revived += count(&revive);
            tally.sent_again += count(&send);
            return Ok(());
        }
        let revived = if revive.is_empty() {
            Vec::new()
        } else {
            self.queue.revive(&revive).await?
        };
        for was in revived {
            match was {
                Some(TaskState::Dead | TaskState::Held) => tally.revived += 1,
                Some(_) => tally.left_alone += 1,
                None => tally.skipped += 1,
            }
        }
        tally.sent_again += count(&send);
        for tasks in by_size(&send) {
            // One that is there was enqueued by a worker that was stopped before it could say so.
            let _ = self.queue.enqueue(tasks).await?;
        }
        Ok(())
    }

    /// What is to become of a delivery. Of one and its copies at most one is on its way.
    async fn fate(&self, sight: &Sight, view: &TaskView, name: &DeliveryName) -> Result<Fate, StoreError> {
        let replay = &sight.view.replay;
        if !sight.endpoints.has(&name.endpoint) {
            return Ok(Fate::Skip);
        }
        let is_dead = match view.state {
            TaskState::Waiting | TaskState::Running => return Ok(Fate::LeaveAlone),
            TaskState::Dead | TaskState::Held => true,
            TaskState::Done => false,
        };
        let is_copy = name.replay.is_some();
        if is_copy && replay.which == Which::All {
            // The one that it is a copy of stands for it, while that is remembered.
            if self.queue.show(name.original().task_id()).await?.is_some() {
                return Ok(Fate::Skip);
            }
        }
        // Only what was done has copies.
        if (is_copy || !is_dead) && sight.others.under_way(&*self.queue, name).await?.is_some() {
            return Ok(Fate::LeaveAlone);
        }
        Ok(if is_dead {
            Fate::Revive(view.id)
        } else {
            let copy = name.again(&replay.id);
            // What is sent again is in order with nothing.
            match Enclosed::read(&view.payload) {
                Ok(enclosed) => Fate::Send(delivery(&copy, &enclosed.body)),
                Err(_) => Fate::Skip,
            }
        })
    }
}

impl Sight {
    /// What a delivery is known by, if the replay is about it.
    fn wanted(&self, view: &TaskView) -> Option<DeliveryName> {
        let replay = &self.view.replay;
        let name = DeliveryName::of_key(&view.key)?;
        if name.replay.as_ref() == Some(&replay.id) || (replay.which == Which::Failed && view.state != TaskState::Dead)
        {
            return None;
        }
        let is_wanted = replay.types.is_empty() || event_type(view).is_some_and(|of| replay.wants(&of));
        is_wanted.then_some(name)
    }

    /// Whether who has had it need not remember it any more.
    fn is_older(&self, view: &TaskView) -> bool {
        self.now.since(view.enqueued_at) > Replay::REMEMBERED_FOR
    }
}

/// How long the next part waits, so that no more is set off in a second than it may be.
fn rest(replay: &Replay, tally: &Tally) -> Duration {
    let done = u32::try_from(set_off(tally)).unwrap_or(u32::MAX);
    match replay.per_second.filter(|_| !replay.dry_run) {
        Some(per_second) => Duration::from_secs(1).saturating_mul(done) / per_second.max(1),
        None => Duration::ZERO,
    }
}

fn set_off(tally: &Tally) -> u64 {
    tally.revived + tally.sent_again
}

fn event_type(view: &TaskView) -> Option<EventType> {
    Enclosed::read(&view.payload).ok()?.event_type()
}

/// In parts that a statement has time for.
fn by_size(tasks: &[Task]) -> impl Iterator<Item = &[Task]> {
    let mut bytes = 0;
    tasks.chunk_by(move |one, next| {
        bytes += one.payload().len();
        let fits = bytes + next.payload().len() <= CHUNK_BYTES_MAX;
        if !fits {
            bytes = 0;
        }
        fits
    })
}

fn count<T>(list: &[T]) -> u64 {
    u64::try_from(list.len()).unwrap_or(u64::MAX)
}

fn unavailable(error: &super::EndpointError) -> StoreError {
    StoreError::new(crate::StoreErrorKind::Unavailable, format!("read endpoints: {error}"))
}

/// The replay and the number of a part.
fn named(task: &Leased) -> Option<(ReplayId, u64)> {
    let (id, step) = task.key.split_once(' ')?;
    Some((ReplayId::new(id).ok()?, step.parse().ok()?))
}
