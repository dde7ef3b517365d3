//! Where events of others come in.
//!
//! On an address of its own: senders are strangers, so nothing of the operators may be there, and the gateway's address belongs
//! to the service behind it, whose paths are its own. An event is verified, enqueued and acknowledged. A worker posts it to its
//! service later, on the engine that delivers events: so a service that is down, slow or not ready loses nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use exactly::clock::{Clock as _, WallClock};
use exactly::queue::{Enqueued, Found, Task};
use exactly::webhook::{EventId, Receipt, Refused, Verified};
use exactly::{StoreError, StoreErrorKind};
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::admin::problem::Problem;
use crate::config::{Inbox, InboxSource};
use crate::store::Ledger;
use crate::work::letter::{INBOX_KIND, Letter, QUARANTINE_KIND, lane_of};

/// More than any of the known senders has. Escaped, it still fits into a task.
const BODY_MAX: usize = 512 << 10;
/// How long a sender may take to send a body.
const BODY_PATIENCE: Duration = Duration::from_secs(10);
/// How long the store may take.
const STORE_PATIENCE: Duration = Duration::from_secs(5);
/// The most requests at one time: bodies are in memory before anybody knows whose they are.
const REQUESTS_MAX: usize = 256;

struct Door {
    sources: BTreeMap<String, InboxSource>,
    queue: Arc<dyn Ledger>,
    running: Semaphore,
}

/// What answers senders.
pub(crate) fn router(queue: Arc<dyn Ledger>, inbox: &Inbox) -> Router {
    let door = Door {
        sources: inbox.sources.clone(),
        queue,
        running: Semaphore::new(REQUESTS_MAX),
    };
    Router::new()
        .route("/v1/inbox/{source}", post(receive))
        .fallback(async || StatusCode::NOT_FOUND)
        .with_state(Arc::new(door))
}

async fn receive(State(door): State<Arc<Door>>, Path(name): Path<String>, request: Request) -> Response {
    let Ok(_permit) = door.running.try_acquire() else {
        return Problem::busy(REQUESTS_MAX).into_response();
    };
    let Some(source) = door.sources.get(&name) else {
        return Problem::no_such_source().into_response();
    };
    let (parts, body) = request.into_parts();
    let body = match timeout(BODY_PATIENCE, Limited::new(body, BODY_MAX).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            return rejected(Problem::body_too_large(BODY_MAX).into_response());
        }
        Ok(Err(_)) => return rejected(Problem::unreadable("the body ended early; nothing was done").into_response()),
        Err(_) => return rejected(Problem::body_late(BODY_PATIENCE).into_response()),
    };
    // Before anything is written: whoever is not the sender claims no id.
    let verified = match source.verifier.verify(&parts.headers, &body, WallClock.now()) {
        Ok(verified) => verified,
        Err(why) => return Receipt::Rejected(Refused::Unverified(why)).into_response(),
    };
    if source.sign.is_some() && EventId::new(&*verified.event_id).is_err() {
        let why = "the id of the event cannot be signed again: it has a dot, or more than 128 bytes; nothing was done";
        return rejected(Problem::unreadable(why).into_response());
    }
    let Ok(text) = str::from_utf8(&body) else {
        return rejected(Problem::unreadable("the body is no UTF-8, as events are; nothing was done").into_response());
    };
    let letter = Letter::new(&parts.headers, text);
    if letter.written().len() > Task::PAYLOAD_BYTES_MAX {
        return rejected(Problem::body_too_large(BODY_MAX).into_response());
    }
    match timeout(STORE_PATIENCE, door.take_in(&name, &verified, &letter)).await {
        Ok(Ok(receipt)) => receipt.into_response(),
        Ok(Err(error)) => {
            tracing::warn!(source = name, %error, "event not received");
            // Why it failed is not the sender's business.
            Problem::no_answer("keep the event", STORE_PATIENCE).into_response()
        }
        Err(_) => Problem::no_answer("keep the event", STORE_PATIENCE).into_response(),
    }
}

impl Door {
    async fn take_in(&self, name: &str, verified: &Verified, letter: &Letter) -> Result<Receipt, StoreError> {
        let key = format!("{name} {}", verified.event_id);
        let task = |kind: &'static str, key: String| match Task::new(kind, key, letter.written()) {
            Ok(task) => Ok(task.in_lane(lane_of(name))),
            Err(invalid) => Err(Receipt::Rejected(Refused::Unusable(invalid))),
        };
        let event = match task(INBOX_KIND, key.clone()) {
            Ok(event) => event,
            Err(receipt) => return Ok(receipt),
        };
        let found = match self.enqueue(event).await? {
            // It is ours now, and its service has not got it yet.
            None => return Ok(Receipt::Deferred),
            // Whatever becomes of it, sending it again changes nothing.
            Some(found) if !self.differs(&found, letter).await? => return Ok(Receipt::Duplicate),
            Some(found) => found,
        };
        tracing::error!(source = name, task = %found.id, "an id came with another body, which is quarantined");
        match task(QUARANTINE_KIND, format!("{key} {}", letter.digest())) {
            Ok(held) => {
                self.enqueue(held).await?;
                Ok(Receipt::Quarantined)
            }
            Err(receipt) => Ok(receipt),
        }
    }

    /// Whether it came before with another body. What nobody has signed may change on the way, as a `Content-Type` does.
    async fn differs(&self, found: &Found, letter: &Letter) -> Result<bool, StoreError> {
        if !found.differs {
            return Ok(false);
        }
        let first = self.queue.show(found.id).await?;
        let first = first.and_then(|first| Letter::read(&first.payload).ok());
        Ok(first.is_none_or(|first| first.body != letter.body))
    }

    async fn enqueue(&self, task: Task) -> Result<Option<Found>, StoreError> {
        match self.queue.enqueue(&[task]).await?.into_iter().next() {
            Some(Enqueued::New(_)) => Ok(None),
            Some(Enqueued::Found(found)) => Ok(Some(found)),
            None => Err(StoreError::new(StoreErrorKind::Other, "nothing was enqueued")),
        }
    }
}

fn rejected(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert("webhook-receipt", HeaderValue::from_static("rejected"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
