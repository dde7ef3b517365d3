//! Events that are in order with others, from real databases.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use exactly::queue::{InspectQueue as _, Registry};
use exactly::webhook::{DeliveryName, Enclosed, Endpoint, EndpointId, Endpoints, EventId, OrderKey, Outbox, Secret};
use exactly_conformance::QueueHarness;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::event;
use super::through::work;

const EVENTS: usize = 200;
const KEYS: usize = 10;
const ENDPOINTS: [&str; 3] = ["a", "b", "c"];

/// What each endpoint took, in this order, and how often it has refused what.
#[derive(Debug, Default)]
struct Desk {
    taken: BTreeMap<String, Vec<usize>>,
    refused: BTreeMap<(String, usize), usize>,
}

type Shared = Arc<Mutex<Desk>>;

/// Refuses some events once, some twice and most never.
async fn receive(State(desk): State<Shared>, Path(endpoint): Path<String>, headers: HeaderMap) -> StatusCode {
    let number: usize = headers["webhook-id"].to_str().unwrap()["evt_".len()..].parse().unwrap();
    let mut desk = desk.lock().unwrap();
    let refused = desk.refused.entry((endpoint.clone(), number)).or_default();
    if *refused < ((number * 7 + endpoint.len()) % 11).saturating_sub(8) {
        *refused += 1;
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    desk.taken.entry(endpoint).or_default().push(number);
    StatusCode::OK
}

async fn receiver() -> (String, Shared, JoinSet<()>) {
    let (listener, desk) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Shared::default());
    let url = format!("http://{}", listener.local_addr().unwrap());
    let routes = Router::new()
        .route("/{endpoint}", post(receive))
        .with_state(Arc::clone(&desk));
    let mut serving = JoinSet::new();
    serving.spawn(async move { axum::serve(listener, routes).await.unwrap() });
    (url, desk, serving)
}

/// Two workers, which find all events there: each endpoint takes those of each key in the order in which they were published, and
/// each delivery says what went before it.
async fn every_key_is_in_order_at_every_endpoint<H: QueueHarness<Queue: Registry>>() {
    let harness = H::fresh().await;
    let queues = [harness.open().await, harness.open().await];
    let (url, desk, _serving) = receiver().await;
    for name in ENDPOINTS {
        let id = EndpointId::new(name).unwrap();
        let endpoint = Endpoint::new(id, format!("{url}/{name}"), Secret::random().expose());
        Endpoints::new(Arc::clone(&queues[0])).add(&endpoint).await.unwrap();
    }
    let outbox = Outbox::new(Arc::clone(&queues[0]), "shop").unwrap();
    let events: Vec<_> = (0..EVENTS)
        .map(|n| {
            let key = OrderKey::new(format!("inv-{}", n % KEYS)).unwrap();
            event(&format!("evt_{n:03}"), 7).ordered_by(key)
        })
        .collect();
    // Some are there when the workers come, in one step, and others follow one by one.
    let (first, later) = events.split_at(EVENTS / 2);
    for published in outbox.publish_all(first).await.unwrap() {
        assert_eq!(published.unwrap(), exactly::webhook::Published::New);
    }
    let _running = queues.each_ref().map(|queue| work(queue, Duration::from_millis(20)));
    for event in later {
        let _ = outbox.publish(event).await.unwrap();
    }
    let all = async {
        while desk.lock().unwrap().taken.values().map(Vec::len).sum::<usize>() < EVENTS * ENDPOINTS.len() {
            sleep(Duration::from_millis(20)).await;
            // SQLite, whose clock here is the harness's.
            if !H::WAKES_OTHERS {
                harness.elapse(Duration::from_millis(20)).await;
            }
        }
    };
    let all = timeout(Duration::from_mins(1), all).await;
    assert!(all.is_ok(), "{:?} {:?}", desk, queues[0].depths().await.unwrap());
    for (endpoint, taken) in &desk.lock().unwrap().taken {
        for key in 0..KEYS {
            let of_key: Vec<_> = taken.iter().filter(|n| **n % KEYS == key).copied().collect();
            let expected: Vec<_> = (key..EVENTS).step_by(KEYS).collect();
            assert_eq!(of_key, expected, "{key} at {endpoint}");
        }
    }
    for n in 0..EVENTS {
        for endpoint in ENDPOINTS {
            let name = |n: usize| EventId::new(format!("evt_{n:03}")).unwrap();
            let delivery = DeliveryName::new(name(n), EndpointId::new(endpoint).unwrap());
            let view = queues[0].show(delivery.task_id()).await.unwrap().unwrap();
            assert_eq!(
                Enclosed::read(&view.payload).unwrap().after().cloned(),
                n.checked_sub(KEYS).map(name)
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_is_in_order_on_postgres() {
    every_key_is_in_order_at_every_endpoint::<crate::postgres::queue::Yard>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_is_in_order_on_sqlite() {
    every_key_is_in_order_at_every_endpoint::<crate::sqlite::queue::Shop>().await;
}
