//! Telling of jobs that are dead, as an event.

use std::sync::Arc;
use std::time::Duration;

use exactly::webhook::{Event, EventType, InvalidEvent, Outbox};
use exactly::worker::Buried;
use serde_json::json;
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::config::Config;
use crate::store::Ledger;

/// How often an event is published that the queue did not take, and how long to wait in between.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(2);

/// Publishes an event for each job that is buried.
#[derive(Clone, Debug)]
pub(super) struct Obituaries {
    outbox: Outbox<dyn Ledger>,
    event_type: EventType,
}

impl Obituaries {
    /// Nothing, unless the settings name a type for such events.
    pub(super) fn new(queue: &Arc<dyn Ledger>, config: &Config) -> Result<Option<Self>, InvalidEvent> {
        let Some(event_type) = config.jobs.dead_event.clone() else {
            return Ok(None);
        };
        let outbox = Outbox::new(Arc::clone(queue), config.events.source.as_str())?;
        Ok(Some(Self { outbox, event_type }))
    }

    /// Tells of a job, beside the work. Not of what the server does by itself: an event that could not be delivered would make
    /// another one.
    pub(super) fn tell(&self, buried: &Buried, runtime: &Handle) {
        if buried.kind.starts_with("exactly.") {
            return;
        }
        let data = json!({
            "id": buried.id.to_string(),
            "kind": buried.kind,
            "key": buried.key,
            "failure": { "kind": buried.failure.kind.to_string(), "message": buried.failure.message },
        });
        match Event::new(self.event_type.clone(), &data) {
            Ok(event) => drop(runtime.spawn(publish(self.outbox.clone(), event))),
            Err(error) => tracing::error!(task = %buried.id, %error, "no event tells of a job that is dead"),
        }
    }
}

async fn publish(outbox: Outbox<dyn Ledger>, event: Event) {
    for left in (0..TRIES).rev() {
        match outbox.publish(&event).await {
            Ok(_) => return,
            Err(error) if left == 0 => {
                tracing::error!(event = %event.id(), %error, "no event tells of a job that is dead");
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}
