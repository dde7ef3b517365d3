//! An event between the door and the books.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;

use super::head::{self, HEAD_BYTES_MAX};
use super::{Inbox, NotReceived, Receipt, Received, Refused};
use crate::queue::{Task, TransactionalQueue};

/// A request that is known to be an event of its sender, and of which nothing is noted yet.
///
/// It differs from a body that a handler has read and verified in what is left to do with it: [`apply`](Self::apply) notes the
/// event's id and runs the inbox's handler in one transaction, and gives the [receipt](Receipt) that the sender is to get. Its
/// inbox comes with it, so an event of one sender cannot be applied as another's.
///
/// **To be verified is not to be new.** The same event may be here many times, at once and for days. What is done outside of
/// `apply` is done each time, so have nothing there but what may be: counting, logging, turning a request away. Whoever answers
/// with a success and has not applied it has lost the event, because its sender is then done with it.
///
/// With the feature `axum` it is an extractor.
#[must_use = "nothing is noted of it before it is applied"]
pub struct Incoming<Q: TransactionalQueue> {
    inbox: Inbox<Q>,
    task: Task,
    event: Received,
}

impl<Q: TransactionalQueue> Inbox<Q> {
    /// Whether a request is an event of the sender. Nothing is written: for whoever has something to do between this and
    /// [applying](Incoming::apply) it. [`receive`](Self::receive) does both.
    pub fn verify(&self, headers: &HeaderMap, body: Bytes) -> Result<Incoming<Q>, Refused> {
        let len = body.len();
        if len > Self::BODY_BYTES_MAX {
            return Err(Refused::TooLarge { len });
        }
        let verified = self.0.verifier.verify(headers, &body, self.0.clock.now());
        let verified = verified.map_err(Refused::Unverified)?;
        let head = head::kept(&self.0.headers, headers);
        let len = head::len(&head);
        if len > HEAD_BYTES_MAX {
            return Err(Refused::HeadTooLarge { len });
        }
        let (payload, version) = head::written(&head, &body);
        let len = payload.len();
        if len > Self::BODY_BYTES_MAX {
            return Err(Refused::TooLarge { len });
        }
        let event = Received::new(Arc::clone(&self.0.source), verified.event_id, (head, body), 1);
        let task = Task::new(Arc::clone(&self.0.kind), event.id(), payload).map_err(Refused::Unusable)?;
        Ok(Incoming {
            inbox: self.clone(),
            task: task.with_version(version),
            event,
        })
    }
}

impl<Q: TransactionalQueue> Incoming<Q> {
    /// What came.
    pub fn event(&self) -> &Received {
        &self.event
    }

    /// Notes the event and runs the inbox's handler, in one transaction, unless that has happened before. The receipt is the
    /// answer that its sender is to get.
    ///
    /// Dropping the future is harmless: what was not committed is rolled back, and the event that is sent again finds out.
    pub async fn apply(self) -> Result<Receipt, NotReceived> {
        let Self { inbox, task, event } = self;
        let receipt = inbox.take_in(&task, &event).await;
        receipt.map_err(|error| NotReceived::new(Arc::clone(&inbox.0.source), error))
    }
}

impl<Q: TransactionalQueue> fmt::Debug for Incoming<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("event", &self.event)
            .finish_non_exhaustive()
    }
}
