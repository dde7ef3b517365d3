//! Events that come in, on real databases.

mod copies;
#[cfg(feature = "axum")]
mod extractor;
mod failures;
mod heads;
#[cfg(feature = "postgres")]
mod lost;
mod order;
mod swept;
#[cfg(all(feature = "axum", feature = "postgres"))]
mod wire;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use exactly::JobError;
use exactly::clock::{Clock as _, Timestamp, WallClock};
use exactly::queue::{InspectQueue, TaskId, TaskState, TaskView};
use exactly::webhook::{
    EventId, ID_HEADER, Inbox, InboxBuilder, Receipt, Received, Refused, SIGNATURE_HEADER, Secret, Signer,
    TIMESTAMP_HEADER, Verifier, VerifyWith, sign,
};
use exactly_conformance::TransactionalQueueHarness;
use tokio::time::{sleep, timeout};

use axum::http::HeaderMap;

const SOURCE: &str = "payments";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const FORGED: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// How long to wait for a worker, or for a transaction elsewhere, before it counts as never.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the handler does after its effect.
#[derive(Clone, Copy, Debug)]
enum Does {
    Succeeds,
    FailsForNow,
    FailsForGood,
    CannotTell,
    Panics,
    Hangs,
}

/// An inbox whose handler makes one effect under the event's id, and then does what it is told.
struct Office<H: TransactionalQueueHarness> {
    harness: Arc<H>,
    queue: Arc<H::Queue>,
    inbox: Inbox<H::Queue>,
    script: Arc<Mutex<VecDeque<Does>>>,
    runs: Arc<AtomicUsize>,
}

impl<H: TransactionalQueueHarness> Office<H> {
    async fn new() -> Self {
        Self::at(Arc::new(H::fresh().await)).await
    }

    async fn at(harness: Arc<H>) -> Self {
        Self::with(harness, |inbox| inbox).await
    }

    async fn with(harness: Arc<H>, set_up: impl FnOnce(InboxBuilder<H::Queue>) -> InboxBuilder<H::Queue>) -> Self {
        let queue = harness.open().await;
        let script: Arc<Mutex<VecDeque<Does>>> = Arc::default();
        let runs: Arc<AtomicUsize> = Arc::default();
        let (effects, told, counted) = (Arc::clone(&harness), Arc::clone(&script), Arc::clone(&runs));
        let inbox = Inbox::builder(Arc::clone(&queue), SOURCE)
            .verifier(Verifier::standard([SECRET.parse::<VerifyWith>().unwrap()]))
            .handler(move |tx, event: &Received| {
                let (effects, told, counted) = (Arc::clone(&effects), Arc::clone(&told), Arc::clone(&counted));
                Box::pin(async move {
                    effects.effect(tx, event.id()).await;
                    counted.fetch_add(1, Ordering::SeqCst);
                    let does = told.lock().unwrap().pop_front();
                    match does.unwrap_or(Does::Succeeds) {
                        Does::Succeeds => Ok(()),
                        Does::FailsForNow => Err(JobError::transient("a service was busy")),
                        Does::FailsForGood => Err(JobError::logic("nobody is called so")),
                        Does::CannotTell => Err(JobError::unknown("the bank did not answer")),
                        Does::Panics => panic!("a handler that does not think of this"),
                        Does::Hangs => std::future::pending().await,
                    }
                })
            });
        let inbox = set_up(inbox).build().unwrap();
        Self {
            harness,
            queue,
            inbox,
            script,
            runs,
        }
    }

    fn script(&self, does: impl IntoIterator<Item = Does>) {
        *self.script.lock().unwrap() = does.into_iter().collect();
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    async fn receive(&self, id: &str, body: &'static str) -> Receipt {
        self.inbox.receive(&signed(id, body), Bytes::from(body)).await.unwrap()
    }

    async fn effects(&self, id: &str) -> u64 {
        self.harness.effects(id).await
    }

    fn task(&self, id: &str) -> TaskId {
        TaskId::of(self.inbox.kind(), id)
    }

    async fn view(&self, task: TaskId) -> Option<TaskView> {
        self.queue.show(task).await.unwrap()
    }

    async fn state(&self, id: &str) -> Option<TaskState> {
        self.view(self.task(id)).await.map(|view| view.state)
    }

    /// Waits until a task is as it should be.
    async fn becomes(&self, task: TaskId, is: impl Fn(&TaskView) -> bool) -> TaskView {
        let becomes = async {
            loop {
                match self.view(task).await {
                    Some(view) if is(&view) => return view,
                    _ => sleep(Duration::from_millis(10)).await,
                }
            }
        };
        let Ok(view) = timeout(PATIENCE, becomes).await else {
            panic!("it never became so, but: {:?}", self.view(task).await)
        };
        view
    }
}

/// The headers of a request that the sender has signed now.
fn signed(id: &str, body: &str) -> HeaderMap {
    signed_by(SECRET, id, body)
}

fn signed_by(secret: &str, id: &str, body: &str) -> HeaderMap {
    let secret: Secret = secret.parse().unwrap();
    let (id, now) = (EventId::new(id).unwrap(), WallClock.now());
    let seconds = now.as_millis() / 1000;
    let now = Timestamp::from_millis(seconds * 1000);
    let signature = sign(&[Signer::V1(secret)], &id, now, body.as_bytes());
    let mut headers = HeaderMap::new();
    headers.insert(ID_HEADER, id.as_str().parse().unwrap());
    headers.insert(TIMESTAMP_HEADER, seconds.to_string().parse().unwrap());
    headers.insert(SIGNATURE_HEADER, signature.parse().unwrap());
    headers
}

#[track_caller]
fn assert_rejected(receipt: &Receipt) {
    assert!(
        matches!(receipt, Receipt::Rejected(Refused::Unverified(_))),
        "{receipt:?}"
    );
}

/// One test per promise and database.
macro_rules! on_both {
    ($($promise:ident)+) => {
        #[cfg(feature = "postgres")]
        mod on_postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $promise() {
                    super::$promise::<crate::postgres::queue::Yard>().await;
                }
            )+
        }

        #[cfg(feature = "sqlite")]
        mod on_sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $promise() {
                    super::$promise::<crate::sqlite::queue::Shop>().await;
                }
            )+
        }
    };
}
use on_both;
