//! An event for one endpoint.

use super::fan_out::delivery;
use super::{DeliveryName, EndpointError, EndpointId, Endpoints};
use crate::queue::{InspectQueue, Registry, TaskId};
use crate::webhook::{Event, Stored};
use crate::{StoreError, StoreErrorKind};

impl<Q: Registry + InspectQueue + ?Sized> Endpoints<Q> {
    /// Delivers an event to this endpoint alone, whatever types it wants: to try it out. Tells the delivery. Nobody else hears
    /// of it, and it is not among the events that were published.
    pub async fn try_out(&self, id: &EndpointId, source: &str, event: &Event) -> Result<TaskId, EndpointError> {
        if self.get(id).await?.is_none() {
            return Err(EndpointError::Gone(id.clone()));
        }
        let queue = self.queue();
        let now = queue.now().await?;
        let stored = Stored::read(&event.stored(source))
            .map_err(|error| StoreError::new(StoreErrorKind::Other, error.to_string()))?;
        let delivery = delivery(&DeliveryName::new(event.id().clone(), id.clone()), &stored.body(now));
        let _ = queue.enqueue(std::slice::from_ref(&delivery)).await?;
        Ok(delivery.id())
    }
}
