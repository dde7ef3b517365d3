//! Handlers of a user's own router that take events, over real sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::Router;
use axum::extract::{FromRef, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use exactly::webhook::{Inbox, Incoming};
use exactly_conformance::TransactionalQueueHarness;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use super::{FORGED, Office, on_both, signed, signed_by};

on_both! {
    of_copies_that_are_verified_one_is_applied
    what_is_not_the_senders_never_gets_to_a_handler
    an_event_that_is_not_applied_is_not_noted
    a_handler_sees_what_came_before_it_is_applied
}

/// What a service keeps beside its inbox.
struct Service<H: TransactionalQueueHarness> {
    inbox: Inbox<H::Queue>,
    desk: Arc<Desk>,
}

#[derive(Default)]
struct Desk {
    /// How many events got as far as the handler.
    seen: AtomicUsize,
    /// Whether they are turned away there.
    is_closed: AtomicBool,
}

impl<H: TransactionalQueueHarness> Clone for Service<H> {
    fn clone(&self) -> Self {
        Self {
            inbox: self.inbox.clone(),
            desk: Arc::clone(&self.desk),
        }
    }
}

impl<H: TransactionalQueueHarness> FromRef<Service<H>> for Inbox<H::Queue> {
    fn from_ref(service: &Service<H>) -> Self {
        service.inbox.clone()
    }
}

impl<H: TransactionalQueueHarness> FromRef<Service<H>> for Arc<Desk> {
    fn from_ref(service: &Service<H>) -> Self {
        Arc::clone(&service.desk)
    }
}

async fn hook<H: TransactionalQueueHarness>(State(desk): State<Arc<Desk>>, incoming: Incoming<H::Queue>) -> Response {
    desk.seen.fetch_add(1, Ordering::SeqCst);
    if desk.is_closed.load(Ordering::SeqCst) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let seen = format!("{} {}", incoming.event().source(), incoming.event().id());
    let mut response = incoming.apply().await.into_response();
    response.headers_mut().insert("x-seen", seen.parse().unwrap());
    response
}

/// A service on a socket of its own.
struct Door {
    address: SocketAddr,
    desk: Arc<Desk>,
    serving: AbortHandle,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Door {
    async fn of<H: TransactionalQueueHarness>(office: &Office<H>) -> Self {
        let desk = Arc::default();
        let service = Service::<H> {
            inbox: office.inbox.clone(),
            desk: Arc::clone(&desk),
        };
        let routes = Router::new().route("/hook", post(hook::<H>)).with_state(service);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self {
            address,
            desk,
            serving: serving.abort_handle(),
        }
    }

    fn seen(&self) -> usize {
        self.desk.seen.load(Ordering::SeqCst)
    }
}

/// The head and the body of the answer, as they came.
async fn send(address: SocketAddr, headers: &HeaderMap, body: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut request = format!(
        "POST /hook HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        request += &[name.as_str(), ": ", value.to_str().unwrap(), "\r\n"].concat();
    }
    request += "\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    // Who refuses a large body may close before all of it is there.
    let _ = stream.write_all(body.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    (head.to_lowercase(), body.to_owned())
}

#[track_caller]
fn assert_told(head: &str, status: u16, receipt: &str) {
    assert!(head.starts_with(&format!("http/1.1 {status} ")), "{head}");
    assert!(head.contains(&format!("webhook-receipt: {receipt}")), "{head}");
}

/// The extractor lets every copy through, and applying them tells them apart.
async fn of_copies_that_are_verified_one_is_applied<H: TransactionalQueueHarness>() {
    const COPIES: usize = 20;
    let office = Office::<H>::new().await;
    let door = Door::of(&office).await;
    let mut copies = JoinSet::new();
    for _ in 0..COPIES {
        let (address, headers) = (door.address, signed("evt_1", "paid"));
        copies.spawn(async move { send(address, &headers, "paid").await.0 });
    }
    let heads = copies.join_all().await;
    let of = |receipt: &str| {
        let told = format!("webhook-receipt: {receipt}");
        heads.iter().filter(|head| head.contains(&told)).count()
    };
    assert_eq!((of("applied"), of("duplicate")), (1, COPIES - 1), "{heads:?}");
    assert_eq!((office.effects("evt_1").await, office.runs()), (1, 1));
    assert_eq!(door.seen(), COPIES);
    let (head, _) = send(door.address, &signed("evt_1", "paid twice"), "paid twice").await;
    assert_told(&head, 409, "quarantined");
}

async fn what_is_not_the_senders_never_gets_to_a_handler<H: TransactionalQueueHarness>() {
    let office = Office::<H>::new().await;
    let door = Door::of(&office).await;
    let mut odd = signed("evt_1", "paid");
    odd.insert("webhook-timestamp", "yesterday".parse().unwrap());
    let large = "x".repeat(Inbox::<H::Queue>::BODY_BYTES_MAX + 1);
    for (headers, body, status) in [
        (signed_by(FORGED, "evt_1", "paid"), "paid", 401),
        (signed("evt_1", "paid"), "paid twice", 401),
        (HeaderMap::new(), "paid", 401),
        (odd, "paid", 400),
        (signed("evt_1", &large), &*large, 413),
    ] {
        let (head, problem) = send(door.address, &headers, body).await;
        assert_told(&head, status, "rejected");
        assert!(head.contains("content-type: application/problem+json"), "{head}");
        let problem: serde_json::Value = serde_json::from_str(&problem).unwrap();
        assert_eq!(
            (&problem["status"], &problem["retryable"]),
            (&status.into(), &false.into())
        );
    }
    assert_eq!((door.seen(), office.state("evt_1").await), (0, None));
    let (head, _) = send(door.address, &signed("evt_1", "paid"), "paid").await;
    assert_told(&head, 200, "applied");
}

/// Whoever turns a verified event away has not claimed its id.
async fn an_event_that_is_not_applied_is_not_noted<H: TransactionalQueueHarness>() {
    let office = Office::<H>::new().await;
    let door = Door::of(&office).await;
    door.desk.is_closed.store(true, Ordering::SeqCst);
    let (head, _) = send(door.address, &signed("evt_1", "paid"), "paid").await;
    assert!(head.starts_with("http/1.1 503 "), "{head}");
    assert_eq!((door.seen(), office.state("evt_1").await), (1, None));
    door.desk.is_closed.store(false, Ordering::SeqCst);
    let (head, _) = send(door.address, &signed("evt_1", "paid"), "paid").await;
    assert_told(&head, 200, "applied");
    assert_eq!((office.effects("evt_1").await, office.runs()), (1, 1));
}

async fn a_handler_sees_what_came_before_it_is_applied<H: TransactionalQueueHarness>() {
    let office = Office::<H>::new().await;
    let door = Door::of(&office).await;
    let (head, _) = send(door.address, &signed("evt_7", "paid"), "paid").await;
    assert_told(&head, 200, "applied");
    assert!(head.contains("x-seen: payments evt_7"), "{head}");
}
