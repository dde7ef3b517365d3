//! Events leave with the change that they tell of.

use std::fmt;
use std::sync::Arc;

use super::{Event, EventId, InvalidEvent};
use crate::StoreError;
use crate::queue::{BATCH_MAX, Enqueued, InvalidTask, Queue, Task, TransactionalQueue};

/// The kind of the task that an event is until it has become deliveries.
pub const EVENT_KIND: &str = "exactly.event";

/// Where events are published.
///
/// Publishing writes one row, the event itself. Who gets it is found out afterwards, by whoever leases it, so it costs the
/// caller's transaction the same with one endpoint and with a thousand. There is no cursor over what was published, which would
/// pass over the events of a transaction that commits late.
#[derive(Debug)]
pub struct Outbox<Q: ?Sized> {
    source: Box<str>,
    queue: Arc<Q>,
}

impl<Q: ?Sized> Clone for Outbox<Q> {
    fn clone(&self) -> Self {
        Self {
            source: self.source.clone(),
            queue: Arc::clone(&self.queue),
        }
    }
}

impl<Q: ?Sized> Outbox<Q> {
    /// The longest name of a source, in bytes.
    pub const SOURCE_BYTES_MAX: usize = 128;

    /// For events of this source, which is the name that consumers know the publishing service by.
    pub fn new(queue: Arc<Q>, source: impl Into<Box<str>>) -> Result<Self, InvalidEvent> {
        let source = source.into();
        let (len, most) = (source.len(), Self::SOURCE_BYTES_MAX);
        if !(1..=most).contains(&len) || source.chars().any(char::is_control) {
            return Err(InvalidEvent(format!(
                "{source:?} is no source: use 1 to {most} bytes without control characters"
            )));
        }
        Ok(Self { source, queue })
    }

    fn tasks(&self, events: &[Event]) -> Result<Vec<Task>, PublishError> {
        let task = |event: &Event| {
            let task = Task::new(EVENT_KIND, event.id().as_str(), event.stored(&self.source))?;
            Ok(match event.order_key() {
                Some(key) => task.in_lane(key.lane()),
                None => task,
            })
        };
        let tasks = events.iter().map(task).collect::<Result<_, InvalidTask>>();
        tasks.map_err(|error| PublishError::Invalid(InvalidEvent(error.to_string())))
    }
}

impl<Q: Queue + ?Sized> Outbox<Q> {
    /// Publishes an event by itself. If there is a change that it tells of, publish it [with it](Self::publish_in).
    pub async fn publish(&self, event: &Event) -> Result<Published, PublishError> {
        let enqueued = self.queue.enqueue(&self.tasks(std::slice::from_ref(event))?).await;
        published(event, enqueued.map_err(PublishError::Store)?.first())
    }

    /// The same for many, with an answer for each, in order.
    pub async fn publish_all(&self, events: &[Event]) -> Result<Vec<Result<Published, PublishError>>, PublishError> {
        let mut answers = Vec::with_capacity(events.len());
        for events in events.chunks(BATCH_MAX) {
            let enqueued = self.queue.enqueue(&self.tasks(events)?).await;
            answers.extend(each_published(events, &enqueued.map_err(PublishError::Store)?));
        }
        Ok(answers)
    }
}

impl<Q: TransactionalQueue> Outbox<Q> {
    /// Publishes an event if the transaction commits. Waits for another transaction that is about to publish the same one.
    pub async fn publish_in(&self, tx: &mut Q::Tx, event: &Event) -> Result<Published, PublishError> {
        let tasks = self.tasks(std::slice::from_ref(event))?;
        let enqueued = self.queue.enqueue_in(tx, &tasks).await.map_err(PublishError::Store)?;
        published(event, enqueued.first())
    }

    /// The same for many, with an answer for each, in order.
    pub async fn publish_all_in(
        &self,
        tx: &mut Q::Tx,
        events: &[Event],
    ) -> Result<Vec<Result<Published, PublishError>>, PublishError> {
        let mut answers = Vec::with_capacity(events.len());
        for events in events.chunks(BATCH_MAX) {
            let tasks = self.tasks(events)?;
            let enqueued = self.queue.enqueue_in(tx, &tasks).await.map_err(PublishError::Store)?;
            answers.extend(each_published(events, &enqueued));
        }
        Ok(answers)
    }
}

fn each_published<'a>(
    events: &'a [Event],
    enqueued: &'a [Enqueued],
) -> impl Iterator<Item = Result<Published, PublishError>> + 'a {
    let numbered = events.iter().enumerate();
    numbered.map(|(n, event)| published(event, enqueued.get(n)))
}

fn published(event: &Event, enqueued: Option<&Enqueued>) -> Result<Published, PublishError> {
    match enqueued {
        Some(Enqueued::New(_)) => Ok(Published::New),
        Some(Enqueued::Found(found)) if found.differs => Err(PublishError::OtherContent(event.id().clone())),
        Some(Enqueued::Found(_)) => Ok(Published::Before),
        None => Err(PublishError::Invalid(InvalidEvent(
            "the queue gave no answer".to_owned(),
        ))),
    }
}

/// What came of publishing an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Published {
    /// It will be delivered.
    New,
    /// It was published before, and nothing was changed.
    Before,
}

/// Why an event was not published.
#[derive(Debug)]
#[non_exhaustive]
pub enum PublishError {
    /// An event of this id was published before, with another content. It is not changed, since it may be delivered already.
    OtherContent(EventId),
    /// The event cannot be kept.
    Invalid(InvalidEvent),
    /// The queue could not answer.
    Store(StoreError),
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherContent(id) => write!(
                f,
                "publish event: {id} was published before with another content; give what happened now an id of its own"
            ),
            Self::Invalid(error) => write!(f, "publish event: {error}"),
            Self::Store(error) => write!(f, "publish event: {error}"),
        }
    }
}

impl std::error::Error for PublishError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::OtherContent(_) => None,
            Self::Invalid(error) => Some(error),
            Self::Store(error) => Some(error),
        }
    }
}
