//! The whole way: an event of one service is applied by another, each on its own database.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use exactly::queue::{InspectQueue, Registry, TransactionalQueue};
use exactly::webhook::delivery::{Course, Destinations, Sender};
use exactly::webhook::{Dispatcher, Endpoint, EndpointId, Endpoints, Inbox, Outbox, Parking, Secret, Verifier};
use exactly::worker::{Running, Worker};
use exactly_conformance::TransactionalQueueHarness;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use super::event;
use crate::postgres::queue::Yard;
use crate::sqlite::queue::Shop;

const EVENTS: u64 = 60;

/// A way that loses every third request before and every fourth answer after.
async fn lossy(lost: &AtomicUsize, request: Request, next: Next) -> Response {
    let n = lost.fetch_add(1, Ordering::Relaxed);
    if n.is_multiple_of(3) {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    let response = next.run(request).await;
    if n.is_multiple_of(4) {
        return StatusCode::GATEWAY_TIMEOUT.into_response();
    }
    response
}

/// Has a worker deliver, again and again within twenty seconds.
pub(super) fn work<Q: Registry + InspectQueue>(queue: &Arc<Q>, poll_every: Duration) -> Running {
    let sender = Sender::builder().destinations(Destinations::default().allow_private());
    let offsets: Vec<_> = (0..100).map(|n| Duration::from_millis(200 * n)).collect();
    let dispatcher = Dispatcher::new(Arc::clone(queue), sender.build().unwrap())
        .with_course(Course::new(offsets).unwrap())
        .with_parking(Parking {
            failures: 1000,
            ..Parking::default()
        });
    let worker = Worker::builder(Arc::<Q>::clone(queue)).poll_every(poll_every);
    dispatcher.register(worker).start().unwrap()
}

/// The same to this endpoint.
async fn deliver<Q: Registry + InspectQueue>(queue: &Arc<Q>, endpoint: Endpoint) -> Running {
    Endpoints::new(Arc::clone(queue)).add(&endpoint).await.unwrap();
    work(queue, Duration::from_millis(100))
}

/// Every event that was committed is applied once, none that was rolled back, though requests and answers are lost.
///
/// `time_stands_still` unless somebody moves it, where the producer's harness has a clock of its own.
async fn every_event_is_applied_once<P, C>(time_stands_still: bool)
where
    P: TransactionalQueueHarness<Queue: Registry>,
    C: TransactionalQueueHarness,
{
    let (producer, consumer) = (P::fresh().await, Arc::new(C::fresh().await));
    let (queue, inbox_queue) = (producer.open().await, consumer.open().await);
    let secret = Secret::random().expose();
    let applied = Arc::clone(&consumer);
    let inbox = Inbox::builder(inbox_queue, "shop")
        .verifier(Verifier::standard([secret.parse().unwrap()]))
        .handler(move |tx, event| {
            let applied = Arc::clone(&applied);
            Box::pin(async move {
                applied.effect(tx, event.id()).await;
                Ok(())
            })
        })
        .build()
        .unwrap();
    let (listener, lost) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Arc::default());
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let way = from_fn(move |request: Request, next: Next| {
        let lost: Arc<AtomicUsize> = Arc::clone(&lost);
        async move { lossy(&lost, request, next).await }
    });
    let routes = Router::new().route("/hook", inbox.route()).layer(way);
    let serving = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });

    let _running = deliver(&queue, Endpoint::new(EndpointId::new("books").unwrap(), url, secret)).await;
    let outbox = Outbox::new(Arc::clone(&queue), "shop").unwrap();
    for n in 0..EVENTS {
        let mut tx = queue.open().await.unwrap();
        let id = format!("evt_{n}");
        producer.effect(&mut tx, &id).await;
        let _ = outbox.publish_in(&mut tx, &event(&id, n)).await.unwrap();
        if n.is_multiple_of(5) {
            queue.rollback(tx).await.unwrap();
        } else {
            queue.commit(tx).await.unwrap();
        }
    }
    let all = async {
        for n in (0..EVENTS).filter(|n| !n.is_multiple_of(5)) {
            while consumer.effects(&format!("evt_{n}")).await == 0 {
                sleep(Duration::from_millis(20)).await;
                if time_stands_still {
                    producer.elapse(Duration::from_millis(20)).await;
                }
            }
        }
    };
    let all = timeout(Duration::from_mins(1), all).await;
    assert!(all.is_ok(), "{:?}", queue.depths().await.unwrap());
    // What was answered and not heard comes again.
    sleep(Duration::from_millis(500)).await;
    if time_stands_still {
        producer.elapse(Duration::from_secs(1)).await;
        sleep(Duration::from_millis(500)).await;
    }
    for n in 0..EVENTS {
        let id = format!("evt_{n}");
        let sent = u64::from(!n.is_multiple_of(5));
        assert_eq!(
            (producer.effects(&id).await, consumer.effects(&id).await),
            (sent, sent),
            "{id}"
        );
    }
    serving.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_postgres_to_sqlite_every_event_is_applied_once() {
    every_event_is_applied_once::<Yard, Shop>(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_sqlite_to_postgres_every_event_is_applied_once() {
    every_event_is_applied_once::<Shop, Yard>(true).await;
}
