//! Events come in once.
//!
//! A sender repeats an event until it is told that it arrived, so each may come many times, and two copies may come at once. An
//! [`Inbox`] runs the handler of one in the transaction that notes its id: both commit, or neither does. Whoever only remembers
//! ids in a cache loses an event when the process ends between the two, or applies it twice.
//!
//! | what comes | then | receipt | status |
//! |---|---|---|---|
//! | a request that cannot be verified | nothing is kept of it, so it keeps no genuine one out | [`Rejected`](Receipt::Rejected) | 401 or 400 |
//! | an event | noted and applied in one transaction | [`Applied`](Receipt::Applied) | 200 |
//! | it again | nothing | [`Duplicate`](Receipt::Duplicate) | 200 |
//! | its id with another body | kept, held, for people | [`Quarantined`](Receipt::Quarantined) | 409 |
//! | an event whose handler fails | undone; kept as a task that waits for a worker | [`Deferred`](Receipt::Deferred) | 202 |
//! | it again, while it waits or runs | nothing | [`Deferred`](Receipt::Deferred) | 202 |
//! | an event whose handler says that trying again cannot help, or it again | kept, dead or held, for people | [`Parked`](Receipt::Parked) | 202 |
//! | an event that is older than what was applied | noted, not applied | [`Stale`](Receipt::Stale) | 200 |
//! | anything while the database is away | nothing | none, an error | 503 |
//!
//! An effect happened, did not happen, or nobody knows. 200 says that there is nothing left to happen. 202 says that it has not
//! happened, and that the event is ours now: sending it again helps nobody, and an answer that makes a sender go on would end
//! with it giving up on this endpoint. After a lost commit nobody knows, so the answer is 503, and the event that is sent again
//! finds out: it waits for the lost transaction, and is a duplicate or is applied.
//!
//! [`Inbox::route`](Inbox) is all of it as an axum route, [`Incoming`] the first half as an argument of a handler of your own, which
//! then [applies](Incoming::apply) it. What is verified may still be a duplicate: only applying it tells.
//!
//! Ids are remembered until the queue [prunes](crate::queue::Queue::prune) them: keep what is done for
//! [a week](Inbox::REMEMBERED_FOR) at least, as [`hourly_tasks`](crate::sweep::hourly_tasks) does. What is deferred is retried by a worker that [knows](Inbox::retried_by) the inbox.

#[cfg(feature = "axum")]
mod axum;
mod builder;
mod head;
mod incoming;
mod receipt;
mod received;
mod retry;
mod version;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use tokio::time::timeout;

pub use self::builder::{InboxBuilder, InvalidInbox};
pub use self::incoming::Incoming;
pub use self::receipt::{NotReceived, Receipt, Refused};
pub use self::received::Received;
pub use self::version::Version;
use super::Verifier;
use crate::clock::Clock;
use crate::digest::Digest;
use crate::job::{JobError, Terms, roll_back};
use crate::queue::{End, Enqueued, Failure, FailureKind, Found, InspectQueue, Task, TaskState, TransactionalQueue};
use crate::sweep::REMEMBERED_FOR;
use crate::worker::Buried;
use crate::worker::attempt::contained;
use crate::worker::books::{OnBuried, alert};
use crate::{Hex, StoreError, StoreErrorKind, digest, telemetry};

/// A function of a transaction at work on an event.
pub type Applying<'a> = Pin<Box<dyn Future<Output = Result<(), JobError>> + Send + 'a>>;

/// What applies events.
type Apply<Tx> = dyn for<'t> Fn(&'t mut Tx, &'t Received) -> Applying<'t> + Send + Sync;

/// What tells how new an event is.
type Order = dyn Fn(&Received) -> Option<Version> + Send + Sync;

/// Where events of one sender come in. Cheap to clone.
///
/// ```
/// # use std::sync::Arc;
/// # use exactly::JobError;
/// # use exactly::queue::{InspectQueue, TransactionalQueue};
/// # use exactly::webhook::{Inbox, InvalidInbox, Verifier};
/// # async fn mark_paid<Tx>(_: &mut Tx, _: serde_json::Value) -> Result<(), std::io::Error> { Ok(()) }
/// fn payments<Q>(queue: Arc<Q>, verifier: Verifier) -> Result<Inbox<Q>, InvalidInbox>
/// where
///     Q: TransactionalQueue + InspectQueue,
/// {
///     Inbox::builder(queue, "payments")
///         .verifier(verifier)
///         .handler(|tx, event| {
///             Box::pin(async move { mark_paid(tx, event.json()?).await.map_err(JobError::transient) })
///         })
///         .build()
/// }
/// ```
pub struct Inbox<Q: TransactionalQueue>(Arc<Parts<Q>>);

struct Parts<Q: TransactionalQueue> {
    queue: Arc<Q>,
    /// The same queue, to look at what is there.
    ledger: Arc<dyn InspectQueue>,
    source: Arc<str>,
    /// The kind of tasks that events are.
    kind: Arc<str>,
    /// The kind of those that came with the id of another one.
    quarantine: Arc<str>,
    verifier: Verifier,
    /// What is kept of the head of a request.
    headers: Box<[HeaderName]>,
    clock: Arc<dyn Clock>,
    apply: Box<Apply<Q::Tx>>,
    order: Option<Box<Order>>,
    on_buried: Option<OnBuried>,
    time_limit: Duration,
    terms: Terms,
}

/// What became of an event in a transaction that is still open.
enum Noted {
    Applied,
    Stale,
    Found(Found),
}

impl<Q: TransactionalQueue> Inbox<Q> {
    /// The largest body of an event.
    pub const BODY_BYTES_MAX: usize = Task::PAYLOAD_BYTES_MAX;

    /// How long the ids of events are to be remembered at least.
    pub const REMEMBERED_FOR: Duration = REMEMBERED_FOR;

    /// An inbox for what this source sends, in the database of this queue.
    pub fn builder(queue: Arc<Q>, source: impl Into<Arc<str>>) -> InboxBuilder<Q> {
        InboxBuilder::new(queue, source.into())
    }

    /// Who sends.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// The kind of the tasks that events are in the ledger; their keys are the events' ids.
    pub fn kind(&self) -> &str {
        &self.0.kind
    }

    /// The kind of the tasks that are kept of events whose id was used before; their keys are that id and a digest of the body.
    /// Whoever revives one applies it beside the first.
    pub fn quarantine_kind(&self) -> &str {
        &self.0.quarantine
    }

    /// Verifies a request, and applies the event in it unless that has happened before.
    ///
    /// An error says that the database could not answer: whatever happened, the event that is sent again finds out. Dropping
    /// the future is as harmless: what was not committed is rolled back.
    pub async fn receive(&self, headers: &HeaderMap, body: Bytes) -> Result<Receipt, StoreError> {
        // Before anything is written: whoever is not the sender claims no id.
        match self.verify(headers, body) {
            Ok(incoming) => incoming.apply().await.map_err(NotReceived::into_store_error),
            Err(refused) => Ok(Receipt::Rejected(refused)),
        }
    }

    async fn take_in(&self, task: &Task, event: &Received) -> Result<Receipt, StoreError> {
        let queue = &self.0.queue;
        let mut tx = queue.open().await?;
        let noted = contained(self.note(&mut tx, task, event)).await;
        let receipt = match noted {
            Ok(Ok(Noted::Applied)) => Receipt::Applied,
            Ok(Ok(Noted::Stale)) => Receipt::Stale,
            Ok(Ok(Noted::Found(found))) => {
                roll_back(&**queue, tx).await;
                return self.judge(task, event, &found).await;
            }
            Ok(Err(Fault::Store(error))) => {
                roll_back(&**queue, tx).await;
                return Err(error);
            }
            Ok(Err(Fault::Handler(error))) => {
                roll_back(&**queue, tx).await;
                return self.keep(task, event, &self.0.terms.failed_first(&error)).await;
            }
            Err(panic) => {
                roll_back(&**queue, tx).await;
                let failure = Failure::new(FailureKind::Panicked, panic);
                return self.keep(task, event, &End::Bury(failure)).await;
            }
        };
        match queue.commit(tx).await {
            Ok(()) => Ok(receipt),
            // The database has refused what the handler did, as with a constraint that is checked last. It would each time.
            Err(error) if error.kind() == StoreErrorKind::Other => {
                let failed = self.0.terms.failed_first(&JobError::transient(error));
                self.keep(task, event, &failed).await
            }
            Err(error) => Err(error),
        }
    }

    /// Notes an event that is new, and applies it if nothing newer was.
    async fn note(&self, tx: &mut Q::Tx, task: &Task, event: &Received) -> Result<Noted, Fault> {
        let queue = &self.0.queue;
        let is_newer = self.is_newer(tx, event).await.map_err(Fault::Store)?;
        let done = End::Done(Bytes::from_static(if is_newer { APPLIED } else { STALE }));
        match queue.record_in(tx, task, &done).await.map_err(Fault::Store)? {
            Enqueued::Found(found) => Ok(Noted::Found(found)),
            Enqueued::New(_) if is_newer => {
                self.apply(tx, event, self.0.time_limit).await.map_err(Fault::Handler)?;
                Ok(Noted::Applied)
            }
            Enqueued::New(_) => Ok(Noted::Stale),
        }
    }

    /// Whether nothing newer, and not the same version, was applied to what this event is about. If so, it is the newest if the
    /// transaction commits.
    async fn is_newer(&self, tx: &mut Q::Tx, event: &Received) -> Result<bool, StoreError> {
        match self.0.order.as_ref().and_then(|order| order(event)) {
            Some(version) => {
                let mark = version.mark(&self.0.source);
                self.0.queue.raise_in(tx, &mark, version.number).await
            }
            None => Ok(true),
        }
    }

    async fn apply(&self, tx: &mut Q::Tx, event: &Received, limit: Duration) -> Result<(), JobError> {
        let applied = timeout(limit, (self.0.apply)(tx, event)).await;
        applied.unwrap_or_else(|_| Err(JobError::timeout(format!("no end within {limit:?}"))))
    }

    /// Keeps an event that could not be applied, in a transaction of its own: its first attempt is rolled back and ended so.
    async fn keep(&self, task: &Task, event: &Received, end: &End) -> Result<Receipt, StoreError> {
        if let Some(found) = self.record(task, end).await? {
            // Another copy of it was faster, or the commit that seemed lost was not.
            return self.judge(task, event, &found).await;
        }
        let (key, failure) = (digest::short(task.key()), end.failure());
        let why = failure.map(|failure| failure.message.as_str());
        let kind = failure.map(|failure| failure.kind.as_str());
        if let End::Bury(failure) = end {
            telemetry::job_buried(task.kind(), failure.kind);
            tracing::error!(task = %task.id(), kind = task.kind(), key, failure = kind, why, "event buried");
            if let Some(on_buried) = &self.0.on_buried {
                let buried = Buried {
                    id: task.id(),
                    kind: task.kind().into(),
                    key: task.key().into(),
                    failure: failure.clone(),
                };
                alert(on_buried, &buried);
            }
        } else {
            tracing::warn!(task = %task.id(), kind = task.kind(), key, failure = kind, why, "event not applied");
        }
        Ok(Receipt::of(end.state()))
    }

    /// What an event is that was there before.
    async fn judge(&self, task: &Task, event: &Received, found: &Found) -> Result<Receipt, StoreError> {
        if !found.differs || self.has_the_same_body(event, found).await? {
            return Ok(Receipt::of(found.state));
        }
        let mut body = Digest::new("quarantined event");
        body.part(event.body());
        let key = format!("{} {}", task.key(), Hex(&body.finish()));
        let held = Task::new(Arc::clone(&self.0.quarantine), key, task.payload().clone());
        let held = held.map(|held| held.with_version(task.version()));
        let held = held.map_err(|invalid| StoreError::new(StoreErrorKind::Other, invalid.to_string()))?;
        let (id, state) = (found.id, found.state);
        let failure = Failure::new(
            FailureKind::Inconsistent,
            format!("the id of this event came before with another body, which is {state} as task {id}"),
        );
        if self.record(&held, &End::Hold(failure)).await?.is_none() {
            let (first, key) = (id, digest::short(task.key()));
            tracing::error!(task = %held.id(), kind = held.kind(), key, %first, "event quarantined: another body under its id");
        }
        Ok(Receipt::Quarantined)
    }

    /// Whether an event that was found differs in what came with it only, which may be another when it is sent again.
    async fn has_the_same_body(&self, event: &Received, found: &Found) -> Result<bool, StoreError> {
        let stored = self.0.ledger.show(found.id).await?.ok_or_else(|| {
            let context = "receive event: what it was compared with was forgotten meanwhile";
            StoreError::new(StoreErrorKind::Unavailable, context)
        })?;
        let (_, body) = head::read(&stored.payload, stored.version);
        Ok(body == *event.body())
    }

    /// Records a task by itself, or tells what was there.
    async fn record(&self, task: &Task, end: &End) -> Result<Option<Found>, StoreError> {
        let queue = &self.0.queue;
        let mut tx = queue.open().await?;
        match queue.record_in(&mut tx, task, end).await {
            Ok(Enqueued::New(_)) => queue.commit(tx).await.map(|()| None),
            Ok(Enqueued::Found(found)) => {
                roll_back(&**queue, tx).await;
                Ok(Some(found))
            }
            Err(error) => {
                roll_back(&**queue, tx).await;
                Err(error)
            }
        }
    }
}

/// What is stored with an event that was applied.
const APPLIED: &[u8] = b"applied";
/// What is stored with one that was not, because a newer one was.
const STALE: &[u8] = b"stale";

/// Why an event could not be noted.
enum Fault {
    Store(StoreError),
    Handler(JobError),
}

impl Receipt {
    /// Of an event that is in this state.
    fn of(state: TaskState) -> Self {
        match state {
            TaskState::Done => Self::Duplicate,
            TaskState::Waiting | TaskState::Running => Self::Deferred,
            TaskState::Held | TaskState::Dead => Self::Parked,
        }
    }
}

impl<Q: TransactionalQueue> Clone for Inbox<Q> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<Q: TransactionalQueue> fmt::Debug for Inbox<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("source", &self.0.source)
            .finish_non_exhaustive()
    }
}
