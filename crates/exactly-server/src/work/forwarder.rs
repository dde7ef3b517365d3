//! Events of others, on their way to the service that they are for.
//!
//! On the parts that deliveries are sent with, and not as jobs are run: its sender has been told that the event is kept, and will
//! not send it again, so a service that refuses it for a while must not lose it.

use std::sync::Arc;
use std::time::Duration;

use exactly::StoreError;
use exactly::clock::{Clock as _, WallClock};
use exactly::queue::{End, Failure, FailureKind, Leased, TaskState};
use exactly::webhook::delivery::{
    Answer, Attempt, Course, Destinations, Exchange, InvalidSender, Parcel, Sender, Verdict, verdict,
};
use exactly::webhook::{EventId, ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, sign};
use exactly::worker::{Handler, Ran, Run};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;

use super::errand::{ATTEMPT, FENCE, IDEMPOTENCY_KEY, JOB_KEY};
use super::letter::{Letter, QUARANTINE_KIND, lane_of, named};
use crate::config::{Config, Inbox, InboxSource};
use crate::store::Ledger;

/// How many events of a source are under way at once, over all servers, unless an operator has said otherwise. A lane with a cap
/// has no more than a share of a worker's places: a service that never answers holds those, and no others.
const CAP_DEFAULT: u32 = 16;

/// Posts events to their services.
#[derive(Clone, Debug)]
pub(super) struct Forwarder {
    queue: Arc<dyn Ledger>,
    inbox: Arc<Inbox>,
    sender: Sender,
    course: Course,
}

impl Handler for Forwarder {
    fn run<'a>(&'a self, task: &'a Leased) -> Run<'a> {
        Box::pin(async move { Ran::End(self.end(task).await) })
    }
}

impl Forwarder {
    pub(super) fn new(queue: &Arc<dyn Ledger>, config: &Config) -> Result<Self, InvalidSender> {
        let events = &config.events;
        let sender = Sender::builder()
            .destinations(anywhere())
            .deadline(events.deadline)
            .connect_timeout(events.connect)
            .build()?;
        Ok(Self {
            queue: Arc::clone(queue),
            inbox: Arc::new(config.inbox.clone()),
            sender,
            course: events.course.clone(),
        })
    }

    async fn end(&self, task: &Leased) -> End {
        if *task.kind == *QUARANTINE_KIND && !self.was_held(task).await {
            let why = "the id of this event came before with another body; look at both, and requeue this one if its \
                       service is to have it too";
            return End::Hold(Failure::new(FailureKind::Inconsistent, why));
        }
        let letter = match Letter::read(&task.payload) {
            Ok(letter) => letter,
            Err(error) => return End::Bury(Failure::new(FailureKind::Unreadable, error.to_string())),
        };
        let (name, id) = named(&task.key);
        let Some(source) = self.inbox.sources.get(name) else {
            // Another server may know it, and this one may be told of it.
            let why = format!("[inbox.{name}] is not in the settings of this server");
            let attempt = self.attempt(task, Duration::ZERO).await;
            return self.again(&attempt, Failure::new(FailureKind::UnknownKind, why), None);
        };
        let headers = match headers(task, id, source, &letter) {
            Ok(headers) => headers,
            Err(why) => {
                let attempt = self.attempt(task, Duration::ZERO).await;
                return self.again(&attempt, Failure::new(FailureKind::Logic, why), None);
            }
        };
        let parcel = Parcel {
            url: &source.forward,
            headers,
            body: letter.body.into(),
        };
        let exchange = self.sender.send(parcel).await;
        self.judged(task, &exchange).await
    }

    async fn judged(&self, task: &Leased, exchange: &Exchange) -> End {
        let attempt = if exchange.is_delivered() {
            Attempt::default()
        } else {
            self.attempt(task, exchange.took).await
        };
        match verdict(exchange, &self.course, &attempt) {
            Verdict::Delivered => End::Done(told(exchange).into()),
            Verdict::Retry { after, failure } => End::Retry { after, failure },
            // There is no endpoint to disable, and who wrote its address into the settings did not mean to lose anything.
            Verdict::Gone => {
                let asked = exchange.answer.as_ref().ok().and_then(|answer| answer.retry_after);
                let failure = Failure::new(FailureKind::Transient, "the service answered 410 Gone");
                self.again(&attempt, failure, asked)
            }
            Verdict::Dead(failure) => End::Bury(failure),
        }
    }

    fn again(&self, attempt: &Attempt, failure: Failure, asked: Option<Duration>) -> End {
        match self.course.next(attempt, asked) {
            Some(after) => End::Retry { after, failure },
            None => End::Bury(failure),
        }
    }

    async fn attempt(&self, task: &Leased, took: Duration) -> Attempt {
        Attempt::ended(task, self.queue.now().await.ok(), took)
    }

    /// Whether somebody has looked at it and let it go.
    async fn was_held(&self, task: &Leased) -> bool {
        let attempts = self.queue.attempts(task.lease.id).await;
        attempts.is_ok_and(|attempts| attempts.iter().any(|attempt| attempt.then == TaskState::Held))
    }
}

/// Has each source that nobody has capped take its share of the places, and no more.
pub(super) async fn cap_lanes(queue: &dyn Ledger, inbox: &Inbox) -> Result<(), StoreError> {
    if inbox.sources.is_empty() {
        return Ok(());
    }
    let known = queue.lanes().await?;
    for lane in inbox.sources.keys().map(|name| lane_of(name)) {
        let is_capped = known.iter().any(|view| view.lane == lane && view.cap.is_some());
        if !is_capped {
            queue.cap_lane(&lane, Some(CAP_DEFAULT)).await?;
        }
    }
    Ok(())
}

/// Services are where the settings say, and whoever writes those chooses: no sender can name an address.
fn anywhere() -> Destinations {
    let all = ["0.0.0.0/0", "::/0"].map(|all| all.parse().expect("it is a network"));
    all.into_iter().fold(Destinations::default(), Destinations::allow)
}

/// What the service gets beside the body.
fn headers(task: &Leased, id: &str, source: &InboxSource, letter: &Letter) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &letter.headers {
        let name: HeaderName = name.parse().map_err(|_| format!("{name:?} is no name of a header"))?;
        headers.insert(name, visible(value)?);
    }
    headers.insert(ID_HEADER, visible(id)?);
    headers.insert(IDEMPOTENCY_KEY, visible(&task.lease.id.to_string())?);
    headers.insert(JOB_KEY, visible(&task.key)?);
    headers.insert(FENCE, HeaderValue::from(task.lease.fence.get()));
    headers.insert(ATTEMPT, HeaderValue::from(task.attempt()));
    if let Some(signer) = &source.sign {
        let event = EventId::new(id).map_err(|why| format!("it cannot be signed: {why}"))?;
        let now = WallClock.now();
        let signature = sign(std::slice::from_ref(signer), &event, now, letter.body.as_bytes());
        headers.insert(TIMESTAMP_HEADER, HeaderValue::from(now.as_millis() / 1000));
        headers.insert(SIGNATURE_HEADER, visible(&signature)?);
    }
    Ok(headers)
}

fn visible(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text).map_err(|_| format!("{text:?} cannot stand in a header"))
}

/// What is kept of the answer of a service that has the event, as it is of jobs.
fn told(exchange: &Exchange) -> Vec<u8> {
    let Ok(Answer { status, body, cut, .. }) = &exchange.answer else {
        return Vec::new();
    };
    let mut outcome = json!({ "status": status.as_u16(), "took_ms": exchange.took.as_millis() });
    if *cut {
        outcome["cut"] = json!(true);
    }
    if !body.is_empty() {
        outcome["body_text"] = json!(String::from_utf8_lossy(body));
    }
    outcome.to_string().into_bytes()
}
