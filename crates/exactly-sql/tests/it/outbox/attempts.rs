//! How often an endpoint is tried that always fails, by the clock of the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use exactly::queue::{InspectQueue as _, Registry, TaskState};
use exactly::webhook::delivery::{Course, Destinations, Sender};
use exactly::webhook::{
    DeliveryName, Dispatcher, Endpoint, EndpointId, Endpoints, EventId, Outbox, Parking, Published, Secret,
};
use exactly::worker::Worker;
use exactly_conformance::TransactionalQueueHarness;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use super::event;
use crate::postgres::queue::Yard;
use crate::sqlite::queue::Shop;

const A_STEP: Duration = Duration::from_millis(20);

/// Ten attempts, each with its row, and then the dead letter.
async fn what_always_fails_ends_dead_after_ten_attempts<H>(time_stands_still: bool)
where
    H: TransactionalQueueHarness<Queue: Registry>,
{
    let harness = H::fresh().await;
    let queue = harness.open().await;
    let (listener, arrived) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Arc::default());
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let counting: Arc<AtomicUsize> = Arc::clone(&arrived);
    let refuse = move || {
        counting.fetch_add(1, Ordering::SeqCst);
        async { StatusCode::SERVICE_UNAVAILABLE }
    };
    let routes = Router::new().route("/hook", post(refuse));
    let serving = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });

    let books = EndpointId::new("books").unwrap();
    let endpoint = Endpoint::new(books.clone(), url, Secret::random().expose());
    Endpoints::new(Arc::clone(&queue)).add(&endpoint).await.unwrap();
    let sender = Sender::builder().destinations(Destinations::default().allow_private());
    let offsets: Vec<_> = (0..10).map(|n| Duration::from_millis(200) * n).collect();
    let dispatcher = Dispatcher::new(Arc::clone(&queue), sender.build().unwrap())
        .with_course(Course::new(offsets).unwrap())
        .with_parking(Parking {
            failures: 1000,
            ..Parking::default()
        });
    let worker = dispatcher.register(Worker::builder(Arc::<H::Queue>::clone(&queue)));
    let running = worker.poll_every(A_STEP).start().unwrap();

    let outbox = Outbox::new(Arc::clone(&queue), "shop").unwrap();
    assert_eq!(outbox.publish(&event("evt_1", 1)).await.unwrap(), Published::New);
    let delivery = DeliveryName::new(EventId::new("evt_1").unwrap(), books).task_id();
    let ends = async {
        loop {
            let view = queue.show(delivery).await.unwrap();
            if let Some(view) = view.filter(|view| view.state == TaskState::Dead) {
                break view;
            }
            sleep(A_STEP).await;
            if time_stands_still {
                harness.elapse(A_STEP).await;
            }
        }
    };
    let dead = timeout(Duration::from_mins(1), ends).await.unwrap();
    assert_eq!((dead.failures, arrived.load(Ordering::SeqCst)), (10, 10));
    assert_eq!(queue.attempts(delivery).await.unwrap().len(), 10);
    running.drain().await;
    serving.abort();
}

#[tokio::test]
async fn what_always_fails_ends_dead_after_ten_attempts_on_postgres() {
    what_always_fails_ends_dead_after_ten_attempts::<Yard>(false).await;
}

#[tokio::test]
async fn what_always_fails_ends_dead_after_ten_attempts_on_sqlite() {
    what_always_fails_ends_dead_after_ten_attempts::<Shop>(true).await;
}
