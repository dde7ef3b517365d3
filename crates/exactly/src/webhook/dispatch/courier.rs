//! Deliveries: tasks that are sent.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metrics::counter;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::breaker::{Breaker, Parking};
use super::endpoints::MEND_KIND;
use super::fan_out::FanOut;
use super::gathered::Gathered;
use super::health::Notes;
use super::letter::Addressee;
use super::lines::Lines;
use super::mend::Mend;
use super::ordered::OrderedLanes;
use super::pace::Pace;
use super::replaying::Replaying;
use super::roster::{Known, Roster};
use super::turn::waits_for;
use super::{
    DELIVERY_KIND, DeliveryName, Enclosed, Endpoint, EndpointError, EndpointId, Endpoints, REPLAY_KIND, Replays,
    Standing, Turn,
};
use crate::queue::{End, Failure, FailureKind, InspectQueue, Leased, Registry};
use crate::spread::Spread;
use crate::telemetry::WEBHOOK_DELIVERY_SUCCESS;
use crate::webhook::delivery::{Answer, Attempt, Course, Exchange, Sender, Verdict, verdict};
use crate::webhook::{EVENT_KIND, EventId};
use crate::worker::{Builder, Handler, Ran, Run};

/// How old what is known of an endpoint may be when something is sent to it.
const ENDPOINT_AGE_MAX: Duration = Duration::from_secs(1);

/// How soon something is tried again that waits for somebody else than the endpoint: our own database, or people.
const SOON: Duration = Duration::from_secs(5);

/// One endpoint takes one part in so many of a worker's places at most. One that answers slowly and never fails is not parked,
/// and would take all of them, whatever it may have over all processes.
const LANE_PARTS: usize = 4;

/// How often it is tried in one attempt.
const LOOKS_MAX: u32 = 24;

/// Sends events to endpoints: what a worker needs to do so.
#[derive(Debug)]
pub struct Dispatcher<Q: ?Sized> {
    queue: Arc<Q>,
    sender: Sender,
    course: Course,
    parking: Parking,
}

impl<Q: Registry + ?Sized> Dispatcher<Q> {
    /// For the events of this queue.
    pub fn new(queue: Arc<Q>, sender: Sender) -> Self {
        Self {
            queue,
            sender,
            course: Course::default(),
            parking: Parking::default(),
        }
    }

    /// With attempts at other times.
    #[must_use]
    pub fn with_course(mut self, course: Course) -> Self {
        self.course = course;
        self
    }

    /// With other terms for endpoints that fail.
    #[must_use]
    pub fn with_parking(mut self, parking: Parking) -> Self {
        self.parking = parking;
        self
    }
}

impl<Q: Registry + InspectQueue + ?Sized> Dispatcher<Q> {
    /// Has a worker do it, and what is [replayed](Replays).
    pub fn register(self, worker: Builder) -> Builder {
        let endpoints = Endpoints::new(Arc::clone(&self.queue));
        let roster = Arc::new(Roster::new(endpoints.clone()));
        let fan_out = FanOut {
            queue: Arc::clone(&self.queue),
            gathered: Gathered::new(Arc::clone(&self.queue)),
            roster: Arc::clone(&roster),
            lines: Lines::new(Arc::clone(&self.queue)),
            lanes: OrderedLanes::default(),
            spread: Spread::new(),
        };
        let replaying = Replaying {
            queue: Arc::clone(&self.queue),
            replays: Replays::new(Arc::clone(&self.queue)),
            roster: Arc::clone(&roster),
            spread: Spread::new(),
        };
        let mend = Mend(endpoints.clone());
        let notes = Arc::new(Notes::new(Arc::clone(&self.queue)));
        let courier = Courier {
            queue: self.queue,
            endpoints,
            roster,
            sender: self.sender,
            course: self.course,
            breaker: Breaker::new(self.parking),
            notes,
            pace: Pace::default(),
        };
        worker
            .lane_part_or(LANE_PARTS)
            .handle(EVENT_KIND, fan_out)
            .handle(DELIVERY_KIND, courier)
            .handle(REPLAY_KIND, replaying)
            .handle(MEND_KIND, mend)
    }
}

/// Makes one POST of each attempt at a delivery.
#[derive(Debug)]
struct Courier<Q: ?Sized> {
    queue: Arc<Q>,
    endpoints: Endpoints<Q>,
    roster: Arc<Roster<Q>>,
    sender: Sender,
    course: Course,
    breaker: Breaker,
    notes: Arc<Notes<Q>>,
    pace: Pace,
}

/// What is kept of a delivery that was made.
#[derive(Debug, Serialize)]
struct Delivered<'a> {
    status: u16,
    took_ms: u128,
    /// The beginning of what the endpoint said.
    #[serde(skip_serializing_if = "str::is_empty")]
    response: &'a str,
    #[serde(skip_serializing_if = "is_false")]
    cut: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl<Q: Registry + InspectQueue + ?Sized> Handler for Courier<Q> {
    fn run<'a>(&'a self, task: &'a Leased) -> Run<'a> {
        Box::pin(async move {
            let Some(DeliveryName { event, endpoint, .. }) = DeliveryName::of_key(&task.key) else {
                return buried(FailureKind::Unreadable, format!("{:?} names no delivery", task.key));
            };
            let enclosed = match Enclosed::read(&task.payload) {
                Ok(enclosed) => enclosed,
                Err(error) => return buried(FailureKind::Unreadable, error.to_string()),
            };
            match self.cleared(task, &endpoint, enclosed.turn.as_ref()).await {
                Ok(addressee) => self.deliver(task, (&event, &enclosed.body), &addressee).await,
                Err(ran) => ran,
            }
        })
    }
}

impl<Q: Registry + InspectQueue + ?Sized> Courier<Q> {
    /// The endpoint, if it is to get this delivery at its turn; otherwise what becomes of the delivery.
    async fn cleared(&self, task: &Leased, id: &EndpointId, turn: Option<&Turn>) -> Result<Arc<Addressee>, Ran> {
        let addressee = self.open(task, id).await?;
        if let Some(turn) = turn {
            self.in_turn(task, turn, id).await?;
        }
        if self.pace.turn(&addressee.endpoint).await {
            // It may have been changed while this waited.
            return self.open(task, id).await;
        }
        Ok(addressee)
    }

    /// Whether the delivery that goes first is over; otherwise this one waits.
    async fn in_turn(&self, task: &Leased, turn: &Turn, endpoint: &EndpointId) -> Result<(), Ran> {
        // Whatever was sent of this one, it was its turn then. If the first one is sent again by hand, that holds up nothing.
        if task.failures > 0 {
            return Ok(());
        }
        match waits_for(&*self.queue, turn, endpoint).await {
            Ok(None) => Ok(()),
            Ok(Some(after)) => Err(Ran::End(End::Defer { after })),
            Err(error) => Err(later(task, &error)),
        }
    }

    /// The same, at this moment.
    async fn open(&self, task: &Leased, id: &EndpointId) -> Result<Arc<Addressee>, Ran> {
        let addressee = match self.patiently(id).await {
            Ok(Some(Known::Endpoint(addressee))) => addressee,
            Ok(Some(Known::Unreadable)) => return Err(self.closed(task, id).await),
            Ok(None) => return Err(buried(FailureKind::Logic, format!("endpoint {id} was deleted"))),
            Err(error) => return Err(later(task, &error)),
        };
        if !addressee.endpoint.standing.is_active() {
            return Err(self.closed(task, id).await);
        }
        if addressee.endpoint.discards(task.enqueued_at) {
            let why = "discarded, as somebody asked for".to_owned();
            return Err(buried(FailureKind::Logic, why));
        }
        Ok(addressee)
    }

    async fn endpoint(&self, id: &EndpointId) -> Result<Option<Known>, EndpointError> {
        let recent = self.roster.recent(ENDPOINT_AGE_MAX).await?;
        if let Some(known) = recent.get(id) {
            return Ok(Some(known));
        }
        Ok(self.roster.fresh().await?.get(id))
    }

    /// The endpoint, also if our own database is away for a while: nothing was sent then, so it is to use up no attempt.
    async fn patiently(&self, id: &EndpointId) -> Result<Option<Known>, EndpointError> {
        for _ in 0..LOOKS_MAX {
            if let Ok(endpoint) = self.endpoint(id).await {
                return Ok(endpoint);
            }
            sleep(SOON).await;
        }
        self.endpoint(id).await
    }

    async fn deliver(&self, task: &Leased, (event, body): (&EventId, &Bytes), addressee: &Addressee) -> Ran {
        let began = Instant::now();
        let letter = match addressee.letter(event, body) {
            Ok(letter) => letter,
            Err(why) => return self.unsendable(&self.attempt(task, began).await, &why),
        };
        let exchange = self.sender.send(letter.parcel(body)).await;
        self.concluded(task, (event, &addressee.endpoint), &exchange, began)
            .await
    }

    /// The endpoint gets nothing for now, and its lane is open nonetheless: somebody was stopped between changing the one and
    /// the other, or has just changed both.
    async fn closed(&self, task: &Leased, endpoint: &EndpointId) -> Ran {
        let mended = async {
            self.roster.fresh().await?;
            self.endpoints.mend_surely(endpoint).await
        };
        match mended.await {
            Ok(()) => Ran::End(End::Release),
            Err(error) => later(task, &error),
        }
    }

    async fn concluded(
        &self,
        task: &Leased,
        (event, endpoint): (&EventId, &Endpoint),
        exchange: &Exchange,
        began: Instant,
    ) -> Ran {
        if exchange.is_delivered() {
            counter!(WEBHOOK_DELIVERY_SUCCESS, "result" => "delivered").increment(1);
            self.breaker.worked(&endpoint.id);
            self.notes.worked(&endpoint.id);
            return Ran::End(End::Done(told(exchange)));
        }
        // In a place of its own: most deliveries are made, and each would make room for it.
        Box::pin(self.failed(task, (event, endpoint), exchange, began)).await
    }

    async fn failed(
        &self,
        task: &Leased,
        (event, endpoint): (&EventId, &Endpoint),
        exchange: &Exchange,
        began: Instant,
    ) -> Ran {
        let attempt = self.attempt(task, began).await;
        counter!(WEBHOOK_DELIVERY_SUCCESS, "result" => "failed").increment(1);
        let (end, parked_for) = match verdict(exchange, &self.course, &attempt) {
            // Not of one that has failed.
            Verdict::Delivered => (End::Done(told(exchange)), None),
            // Nothing more is sent to it, so there is nothing to leave alone.
            Verdict::Gone => (self.gone(&attempt, endpoint).await, None),
            Verdict::Retry { after, failure } => {
                let parked_for = self.park_if_due(&endpoint.id, began).await;
                (End::Retry { after, failure }, parked_for)
            }
            Verdict::Dead(failure) => (End::Bury(failure), self.park_if_due(&endpoint.id, began).await),
        };
        if let Some(failure) = end.failure() {
            let status = exchange.answer.as_ref().ok().map(|answer| answer.status.as_u16());
            let failed = (status, failure);
            self.notes.failed(&endpoint.id, event, failed, parked_for).await;
        }
        Ran::End(end)
    }

    /// The endpoint wants nothing any more. What it has not got waits until somebody decides, however long that takes.
    async fn gone(&self, attempt: &Attempt, endpoint: &Endpoint) -> End {
        const REASON: &str = "the endpoint answered 410 Gone";
        // Unless somebody has changed it since this was sent.
        let disable = |now: &mut Endpoint| {
            if now.url == endpoint.url && now.standing.is_active() {
                let reason = REASON.to_owned();
                now.standing = Standing::Disabled { reason };
            }
        };
        match self.endpoints.change(&endpoint.id, disable).await {
            Ok(now) if now.standing.is_active() => {}
            Ok(_) => tracing::error!(endpoint = %endpoint.id, "endpoint disabled: {REASON}"),
            Err(EndpointError::Gone(_)) => {}
            Err(error) => return soon(&format!("{REASON}, and could not be disabled: {error}")),
        }
        End::Retry {
            after: self.course.next(attempt, None).unwrap_or(SOON),
            failure: Failure::new(FailureKind::Transient, REASON),
        }
    }

    /// It could not even be sent. What is wrong can be mended at the endpoint, and then this is tried again.
    fn unsendable(&self, attempt: &Attempt, why: &str) -> Ran {
        let failure = Failure::new(FailureKind::Logic, why);
        Ran::End(match self.course.next(attempt, None) {
            Some(after) => End::Retry { after, failure },
            None => End::Bury(failure),
        })
    }

    async fn attempt(&self, task: &Leased, began: Instant) -> Attempt {
        let took = began.elapsed();
        Attempt::ended(task, self.queue.now().await.ok(), took)
    }

    /// Leaves an endpoint alone that fails all the time: its deliveries wait in their lane, and take no place of others. Tells for
    /// how long, if it does.
    async fn park_if_due(&self, endpoint: &EndpointId, began: Instant) -> Option<Duration> {
        let parked_for = self.breaker.failed(endpoint, began, Instant::now())?;
        if let Err(error) = self.park(endpoint, parked_for).await {
            tracing::warn!(%endpoint, %error, "an endpoint that fails could not be parked");
            return None;
        }
        tracing::warn!(%endpoint, ?parked_for, "endpoint parked, because it fails all the time");
        Some(parked_for)
    }

    async fn park(&self, endpoint: &EndpointId, parked_for: Duration) -> Result<(), EndpointError> {
        let began = Instant::now();
        // First what ends it: the other way round, a crash in between would leave it parked for good.
        self.endpoints.mend_later(endpoint, parked_for).await?;
        self.queue.pause_lane(&endpoint.lane()).await?;
        if began.elapsed() >= parked_for {
            // So slowly that its end may have come before it.
            self.endpoints.mend_lane(endpoint).await?;
        }
        Ok(())
    }
}

fn told(exchange: &Exchange) -> Bytes {
    let (status, body, cut) = match &exchange.answer {
        Ok(Answer { status, body, cut, .. }) => (status.as_u16(), &body[..], *cut),
        Err(_) => (0, &[][..], false),
    };
    let delivered = Delivered {
        status,
        took_ms: exchange.took.as_millis(),
        response: &String::from_utf8_lossy(body),
        cut,
    };
    serde_json::to_vec(&delivered)
        .expect("texts and numbers can be written")
        .into()
}

pub(super) fn buried(kind: FailureKind, message: String) -> Ran {
    Ran::End(End::Bury(Failure::new(kind, message)))
}

/// Our own database was in the way, and nothing was sent: no attempt is used up, by which one that is not in its turn would look
/// as if it had been.
fn later(task: &Leased, error: &dyn fmt::Display) -> Ran {
    tracing::warn!(task = %task.lease.id, %error, "a delivery waits");
    Ran::End(End::Defer { after: SOON })
}

pub(super) fn soon(message: &str) -> End {
    End::Retry {
        after: SOON,
        failure: Failure::new(FailureKind::Transient, message),
    }
}
