//! What replays have made of deliveries.

use super::replay::{ReplayId, ReplayView};
use super::replays::{ReplayError, Replays};
use super::{DeliveryName, Which};
use crate::StoreError;
use crate::clock::Timestamp;
use crate::queue::{InspectQueue, Registry, TaskState};

/// Which copies there may be of deliveries, as of when it was asked for.
#[derive(Clone, Debug)]
pub struct Copies(Vec<ReplayView>);

impl<Q: Registry + InspectQueue + ?Sized> Replays<Q> {
    /// Which copies these replays may have made.
    pub async fn copies(&self) -> Result<Copies, ReplayError> {
        let mut replays = self.list().await?;
        replays.retain(|view| view.replay.which == Which::All && !view.replay.dry_run);
        Ok(Copies(replays))
    }

    /// The other one, of a delivery and its copies, that waits or runs. Whoever sends this one too sends it twice.
    pub async fn under_way(&self, name: &DeliveryName) -> Result<Option<DeliveryName>, ReplayError> {
        Ok(self.copies().await?.under_way(&**self.queue(), name).await?)
    }
}

impl Copies {
    /// The names of the copies that there may be of a delivery; fewer, if it is known when that was made.
    pub fn of(&self, name: &DeliveryName, made_at: Option<Timestamp>) -> impl Iterator<Item = DeliveryName> {
        let replays = self.0.iter().filter(move |view| {
            let is_in_time = made_at.is_none_or(|made_at| view.reaches(made_at));
            is_in_time && view.replay.may_copy(&name.event, &name.endpoint)
        });
        replays.map(|view| name.again(&view.replay.id))
    }

    pub(super) fn without(mut self, id: &ReplayId) -> Self {
        self.0.retain(|view| view.replay.id != *id);
        self
    }

    /// One at a time over all replays, so what one has set off the next one sees.
    pub(super) async fn under_way<Q: InspectQueue + ?Sized>(
        &self,
        queue: &Q,
        name: &DeliveryName,
    ) -> Result<Option<DeliveryName>, StoreError> {
        let all = std::iter::once(name.original()).chain(self.of(name, None));
        for other in all.filter(|other| other != name) {
            let view = queue.show(other.task_id()).await?;
            if view.is_some_and(|view| matches!(view.state, TaskState::Waiting | TaskState::Running)) {
                return Ok(Some(other));
            }
        }
        Ok(None)
    }
}
