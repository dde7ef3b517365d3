//! Our dispatcher, as a process of its own that works queued deliveries off.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exactly::queue::TransactionalQueue as _;
use exactly::webhook::delivery::{Course, Destinations, Sender};
use exactly::webhook::{
    Dispatcher, Endpoint, EndpointId, Endpoints, Event, EventId, EventType, Outbox, Parking, Secret,
};
use exactly::worker::{Builder, Worker};
use exactly_sql::PgQueue;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::time::sleep;

use crate::Result;
use crate::jobs::Order;
use crate::jobs::contender::{Contender, Program, Tables};
use crate::jobs::said;
use crate::load::ask;

pub(super) const NAME: &str = "exactly";
pub(super) const PROGRAM: &str = "deliveries";

/// Handlers at once, and tasks leased ahead.
const CONCURRENCY: usize = 64;
const PREFETCH: usize = 4000;
/// Connections of the dispatcher and of whoever publishes.
pub(super) const CONNECTIONS: u32 = 4;
const PUBLISHED_AT_ONCE: u64 = 500;
pub(super) const SOURCE: &str = "shop";
/// What endpoints are called that get what is queued.
pub(super) const DRAINED: &str = "drained";
/// How long an exchange may take with endpoints that are out to make it long.
const ENDURED: Duration = Duration::from_millis(300);
/// How often the sink is asked how much has arrived.
const ASKED_EVERY: Duration = Duration::from_millis(5);

/// Of deliveries alone: beside them are tasks that look after their endpoints' lanes some seconds later.
const DELIVERIES: Tables = Tables {
    left: "select count(*) from exactly.tasks where kind = 'exactly.delivery' and ended_at is null",
    failed: "select count(*) from exactly.tasks where kind = 'exactly.delivery' and state = 4",
    done: Some(
        "select count(*) from exactly.tasks where state in (3, 5) and ended_at is not null and kind = 'exactly.delivery'",
    ),
};

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Settings {
    /// Where everything goes, or nothing if there are endpoints already.
    sink: Option<SocketAddr>,
    endpoints: u64,
    /// Whether it goes on with endpoints that all fail, in little time.
    endures: bool,
}

/// Works deliveries to so many endpoints of one sink off.
pub(super) fn draining(sink: SocketAddr, endpoints: u64) -> Contender {
    contender(Settings {
        sink: Some(sink),
        endpoints,
        endures: false,
    })
}

/// Sends what comes to the endpoints that are there.
pub(super) fn serving() -> Contender {
    contender(Settings {
        sink: None,
        endpoints: 0,
        endures: false,
    })
}

/// The same, with a short deadline, two attempts soon after each other, and no endpoint parked.
pub(super) fn enduring() -> Contender {
    contender(Settings {
        sink: None,
        endpoints: 0,
        endures: true,
    })
}

fn contender(settings: Settings) -> Contender {
    Contender {
        name: NAME,
        program: Program::own(PROGRAM),
        settings: serde_json::json!(settings),
        processes: 1,
        jobs_max: None,
        tables: DELIVERIES,
    }
}

pub(super) async fn run(step: &str, order: Order<Settings>) -> Result<()> {
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS);
    let pool = pool.connect(&order.url).await?;
    let queue = Arc::new(PgQueue::builder(pool.clone()).start().await?);
    match (step, order.settings.sink) {
        ("fill", Some(sink)) => fill(&queue, &pool, sink, order.settings, order.jobs).await,
        (_, Some(sink)) => {
            let worker = dispatching(&queue, order.settings)?.prefetch(PREFETCH);
            said::work(async move {
                let _running = worker.start()?;
                let mut told = 0;
                loop {
                    let arrived: u64 = ask(sink, "/runs").await?.parse()?;
                    said::handled(arrived - told);
                    told = arrived;
                    sleep(ASKED_EVERY).await;
                }
            })
            .await
        }
        (_, None) => {
            let worker = dispatching(&queue, order.settings)?;
            said::work_silently(async move {
                let _running = worker.start()?;
                std::future::pending().await
            })
            .await
        }
    }
}

fn dispatching(queue: &Arc<PgQueue>, settings: Settings) -> Result<Builder> {
    let mut sender = Sender::builder().destinations(Destinations::default().allow_private());
    if settings.endures {
        sender = sender.deadline(ENDURED);
    }
    let mut dispatcher = Dispatcher::new(Arc::clone(queue), sender.build()?);
    if settings.endures {
        let never = Parking {
            failures: u32::MAX,
            ..Parking::default()
        };
        let course = Course::new([Duration::ZERO, 2 * ENDURED])?;
        dispatcher = dispatcher.with_parking(never).with_course(course);
    }
    let worker = Worker::builder(Arc::<PgQueue>::clone(queue));
    Ok(dispatcher.register(worker).concurrency(CONCURRENCY))
}

/// Queues so many deliveries: events for endpoints that are paused until all of them are fanned out.
async fn fill(
    queue: &Arc<PgQueue>,
    pool: &PgPool,
    sink: SocketAddr,
    settings: Settings,
    deliveries: u64,
) -> Result<()> {
    let ids = add_endpoints(queue, sink, DRAINED, settings.endpoints).await?;
    let known = Endpoints::new(Arc::clone(queue));
    for id in &ids {
        known.pause(id).await?;
    }
    publish(queue, DRAINED, deliveries / settings.endpoints).await?;
    let fanning_out = dispatching(queue, settings)?.prefetch(PREFETCH).start()?;
    let left = "select count(*) from exactly.tasks where kind = 'exactly.event' and ended_at is null";
    while sqlx::query_scalar::<_, i64>(left).fetch_one(pool).await? > 0 {
        sleep(Duration::from_millis(50)).await;
    }
    fanning_out.drain().await;
    for id in &ids {
        known.resume(id).await?;
    }
    Ok(())
}

/// Adds endpoints that all are places of one address and want what belongs to their name.
pub(super) async fn add_endpoints(
    queue: &Arc<PgQueue>,
    sink: SocketAddr,
    name: &str,
    count: u64,
) -> Result<Vec<EndpointId>> {
    let known = Endpoints::new(Arc::clone(queue));
    let mut ids = Vec::new();
    for place in 0..count {
        let id = EndpointId::new(format!("{name}-{place}"))?;
        let url = format!("http://{sink}/hook/{name}-{place}");
        let mut endpoint = Endpoint::new(id.clone(), url, Secret::random().expose());
        endpoint.types = vec![format!("{name}.*").parse()?];
        known.add(&endpoint).await?;
        ids.push(id);
    }
    Ok(ids)
}

/// What a shop would tell of an invoice.
#[derive(Debug, Serialize)]
pub(super) struct Invoice {
    pub(super) number: u64,
    pub(super) customer: &'static str,
    pub(super) amount_cents: u64,
    pub(super) currency: &'static str,
    pub(super) state: &'static str,
}

impl Invoice {
    pub(super) fn numbered(number: u64) -> Self {
        Self {
            number,
            customer: "cus_7fJ2kQ9sLmX0",
            amount_cents: 12_900 + number % 1000,
            currency: "EUR",
            state: "paid",
        }
    }
}

/// For the endpoints of this name.
pub(super) fn event(name: &str, number: u64) -> Result<Event> {
    let event_type = EventType::new(format!("{name}.paid"))?;
    Ok(Event::new(event_type, &Invoice::numbered(number))?)
}

/// An event as it is sent.
pub(super) fn sent(name: &str, number: u64) -> Result<(EventId, Bytes)> {
    let id = EventId::random();
    let body = serde_json::json!({
        "eventId": id.as_str(),
        "eventType": format!("{name}.paid"),
        "timestamp": "2026-02-19T07:00:00.500Z",
        "source": SOURCE,
        "data": Invoice::numbered(number),
    });
    Ok((id, serde_json::to_vec(&body)?.into()))
}

pub(super) async fn publish(queue: &Arc<PgQueue>, name: &str, events: u64) -> Result<()> {
    let outbox = Outbox::new(Arc::clone(queue), SOURCE)?;
    let mut first = 0;
    while first < events {
        let end = events.min(first + PUBLISHED_AT_ONCE);
        let batch = (first..end)
            .map(|number| event(name, number))
            .collect::<Result<Vec<_>>>()?;
        let mut tx = queue.open().await?;
        for published in outbox.publish_all_in(&mut tx, &batch).await? {
            let _ = published?;
        }
        queue.commit(tx).await?;
        first = end;
    }
    Ok(())
}
