//! Calls of a client that has a journal.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use exactly::client::{Client, ErrorKind, Journal as _, Outcome};
use exactly::retry::Stop;
use exactly_sql::SqliteJournal;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::{DAY, Desk, names};

/// A service that does everything once per key.
#[derive(Clone, Default)]
pub(super) struct Service {
    seen: Arc<Mutex<Vec<String>>>,
    effects: Arc<Mutex<Vec<String>>>,
    /// Told of every request that arrives.
    pub(super) arrived: Arc<Notify>,
    /// What the next requests are answered with; without an answer they wait for ever.
    answers: Arc<Mutex<Vec<Option<u16>>>>,
}

impl Service {
    /// A service that answers its first requests so, and does what it is asked from then on.
    pub(super) async fn start(answers: impl IntoIterator<Item = Option<u16>>) -> (Self, String) {
        let service = Self::default();
        service.answers.lock().unwrap().extend(answers);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/refunds", listener.local_addr().unwrap());
        let app = Router::new()
            .route("/refunds", post(refund))
            .with_state(service.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        (service, url)
    }

    /// The key of every request that arrived.
    pub(super) fn keys(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    pub(super) fn effects(&self) -> usize {
        self.effects.lock().unwrap().len()
    }
}

async fn refund(State(service): State<Service>, headers: HeaderMap, _: Bytes) -> Response {
    let key = headers["idempotency-key"].to_str().unwrap().to_owned();
    service.seen.lock().unwrap().push(key.clone());
    let answer = {
        let mut answers = service.answers.lock().unwrap();
        (!answers.is_empty()).then(|| answers.remove(0))
    };
    let word = match answer {
        Some(Some(status)) if status >= 400 => {
            service.arrived.notify_one();
            return StatusCode::from_u16(status).unwrap().into_response();
        }
        _ => {
            let mut effects = service.effects.lock().unwrap();
            if effects.contains(&key) {
                "replayed"
            } else {
                effects.push(key);
                "stored"
            }
        }
    };
    service.arrived.notify_one();
    if answer == Some(None) {
        std::future::pending::<()>().await;
    }
    (StatusCode::CREATED, [("idempotency-status", word)], "rf_1").into_response()
}

fn client(journal: SqliteJournal) -> Client {
    Client::builder().journal(Arc::new(journal)).build().unwrap()
}

async fn refund_with(client: &Client, url: &str, amount: u32) -> Outcome {
    let call = client.post(url).operation("refund-17").json(&amount);
    call.retries(0).within(Duration::from_millis(300)).send().await
}

#[tokio::test]
async fn a_restarted_client_goes_on_with_its_key() {
    let (service, url) = Service::start([None]).await;
    let desk = Desk::new();
    let outcome = refund_with(&client(desk.open().await), &url, 10).await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert_eq!(names(&desk.open().await).await, ["refund-17"]);

    let again = client(desk.open().await);
    let outcome = refund_with(&again, &url, 10).await;
    assert!(matches!(&outcome, Outcome::Applied(_)), "{outcome:?}");
    let keys = service.keys();
    assert_eq!((keys.len(), service.effects()), (2, 1));
    assert_eq!(keys[0], keys[1]);
    assert_eq!(outcome.account().key().unwrap().as_str(), keys[0]);
    assert!(names(&desk.open().await).await.is_empty());
    // Known to have happened, it is asked for once more and answered as before.
    assert!(matches!(refund_with(&again, &url, 10).await, Outcome::Applied(_)));
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn a_refusal_after_a_restart_does_not_hide_what_may_have_happened() {
    let (service, url) = Service::start([None, Some(401)]).await;
    let desk = Desk::new();
    let _ = refund_with(&client(desk.open().await), &url, 10).await;
    let outcome = refund_with(&client(desk.open().await), &url, 10).await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert_eq!(names(&desk.open().await).await, ["refund-17"]);
    let outcome = refund_with(&client(desk.open().await), &url, 10).await;
    assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn other_bytes_for_an_operation_are_not_sent() {
    let (service, url) = Service::start([None]).await;
    let desk = Desk::new();
    let _ = refund_with(&client(desk.open().await), &url, 10).await;
    let outcome = refund_with(&client(desk.open().await), &url, 1000).await;
    let Outcome::NotApplied(not) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(not.error().unwrap().kind(), ErrorKind::KeyReused);
    assert_eq!(service.keys().len(), 1);
}

#[tokio::test]
async fn what_was_refused_may_be_tried_anew() {
    let (service, url) = Service::start([Some(422)]).await;
    let desk = Desk::new();
    let outcome = refund_with(&client(desk.open().await), &url, 1000).await;
    assert!(matches!(outcome, Outcome::NotApplied(_)), "{outcome:?}");
    let outcome = refund_with(&client(desk.open().await), &url, 10).await;
    assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    let keys = service.keys();
    assert_ne!(keys[0], keys[1], "another request is another call");
}

#[tokio::test]
async fn an_expired_call_is_reported_and_not_sent() {
    for (answer, says) in [(None, "new operation"), (Some(201), "it happened")] {
        let (service, url) = Service::start([answer]).await;
        let desk = Desk::new();
        let _ = refund_with(&client(desk.open().await), &url, 10).await;
        desk.clock.advance(DAY);
        let outcome = refund_with(&client(desk.open().await), &url, 10).await;
        let Outcome::Unknown(unknown) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(unknown.account().stop(), Some(Stop::Expired));
        assert_eq!(unknown.key().unwrap().as_str(), service.keys()[0]);
        let error = unknown.error().unwrap();
        assert_eq!(error.kind(), ErrorKind::Expired);
        assert!(error.to_string().contains(says), "{error}");
        assert!(matches!(unknown.resolve().await, Outcome::Unknown(_)));
        assert_eq!(service.keys().len(), 1, "nothing was sent");
    }
}

#[tokio::test]
async fn a_call_without_a_name_is_kept_too_and_its_key_is_not_its_name() {
    let (service, url) = Service::start([None]).await;
    let desk = Desk::new();
    let call = client(desk.open().await).post(&url).body("10").key("my-own-secret");
    let outcome = call.retries(0).within(Duration::from_millis(200)).send().await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    let kept = desk.open().await.unsettled(10).await.unwrap();
    assert_eq!(kept[0].key.as_str(), "my-own-secret");
    assert!(kept[0].operation.starts_with(&format!("POST {url} #")), "{kept:?}");
    assert!(!format!("{kept:?}").contains("secret"), "{kept:?}");
    // The same key resumes it: a refusal is not the last word.
    let call = client(desk.open().await).post(&url).body("10").key("my-own-secret");
    assert!(matches!(call.send().await, Outcome::Applied(_)));
    assert_eq!((service.effects(), service.keys().len()), (1, 2));
}

#[tokio::test]
async fn nothing_is_sent_that_cannot_be_written_down() {
    let (service, url) = Service::start([]).await;
    let desk = Desk::new();
    drop(desk.open().await);
    let full = desk.open_with(|options| options.pragma("max_page_count", "8")).await;
    let full = client(full);
    let (mut refused, mut applied) = (None, 0);
    for _ in 0..1000 {
        let outcome = full
            .post(&url)
            .body("10")
            .operation("x".repeat(500) + &refused_name())
            .send()
            .await;
        match outcome {
            Outcome::Applied(_) => applied += 1,
            outcome => {
                refused = Some(outcome);
                break;
            }
        }
    }
    // Somebody may have sent the operation of that name before, and been able to write it down.
    assert_not_written(&refused.expect("the file is full at some time"), "unknown", "full");
    assert_eq!(service.keys().len(), applied, "what was refused was not sent");

    let readonly = client(desk.open_with(|options| options.read_only(true)).await);
    assert_not_written(&readonly.post(&url).body("10").send().await, "not_applied", "readonly");
    assert_eq!(service.keys().len(), applied);
}

fn refused_name() -> String {
    exactly::client::fresh_key().as_str().to_owned()
}

#[track_caller]
fn assert_not_written(outcome: &Outcome, ending: &str, why: &str) {
    assert_eq!(outcome.as_str(), ending, "{outcome:?}");
    let error = match outcome {
        Outcome::NotApplied(not) => not.error(),
        Outcome::Unknown(unknown) => unknown.error(),
        Outcome::Applied(_) => None,
    };
    let error = error.expect("it says why");
    assert_eq!(error.kind(), ErrorKind::Journal);
    assert!(format!("{error:?}").contains(why), "{error:?}");
}
