//! A receiver that does as it is told, and remembers what it got.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::SOON;

/// A request that arrived.
#[derive(Clone, Debug)]
pub(super) struct Arrived {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// What it was answered.
    pub(super) answer: StatusCode,
}

impl Arrived {
    pub(super) fn event(&self) -> &str {
        self.headers["webhook-id"].to_str().unwrap()
    }
}

#[derive(Debug, Default)]
struct Desk {
    arrived: Vec<Arrived>,
    /// What to answer to the next ones; 200 when there is nothing in it.
    answers: Vec<StatusCode>,
    always: Option<StatusCode>,
    /// How often an event is still refused.
    refused: BTreeMap<String, u32>,
    retry_after: Option<HeaderValue>,
    /// Nobody is answered while there is one.
    held: Option<Arc<Semaphore>>,
}

#[derive(Debug)]
pub(super) struct Receiver {
    url: String,
    desk: Arc<Mutex<Desk>>,
    serving: JoinHandle<()>,
}

impl Receiver {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let desk = Arc::new(Mutex::new(Desk::default()));
        let router = Router::new()
            .route("/hook", post(receive))
            .with_state(Arc::clone(&desk));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, desk, serving }
    }

    pub(super) fn url(&self) -> String {
        self.url.clone()
    }

    /// Answers so, once each and in this order.
    pub(super) fn answer(&self, answers: impl IntoIterator<Item = u16>) {
        let answers = answers.into_iter().map(|code| StatusCode::from_u16(code).unwrap());
        self.desk.lock().unwrap().answers = answers.collect();
    }

    /// Refuses this event so often.
    pub(super) fn refuse(&self, event: &str, times: u32) {
        self.desk.lock().unwrap().refused.insert(event.to_owned(), times);
    }

    /// The events that were taken, in the order in which they were.
    pub(super) fn taken(&self) -> Vec<String> {
        let arrived = self.arrived();
        let taken = arrived.iter().filter(|it| it.answer.is_success());
        taken.map(|it| it.event().to_owned()).collect()
    }

    /// Answers so until it is told otherwise.
    pub(super) fn always(&self, answer: u16) {
        self.desk.lock().unwrap().always = Some(StatusCode::from_u16(answer).unwrap());
    }

    /// Asks to be left alone for so many seconds, with every answer.
    pub(super) fn ask_for(&self, seconds: u16) {
        self.desk.lock().unwrap().retry_after = Some(seconds.into());
    }

    /// Answers nobody.
    pub(super) fn hold(&self) {
        self.desk.lock().unwrap().held = Some(Arc::new(Semaphore::new(0)));
    }

    /// Answers all of them.
    pub(super) fn let_go(&self) {
        let held = self.desk.lock().unwrap().held.take();
        held.unwrap().add_permits(1000);
    }

    pub(super) fn arrived(&self) -> Vec<Arrived> {
        self.desk.lock().unwrap().arrived.clone()
    }

    /// Waits for so many requests.
    pub(super) async fn has(&self, count: usize) -> Vec<Arrived> {
        let arrived = timeout(SOON, async {
            while self.arrived().len() < count {
                sleep(Duration::from_millis(5)).await;
            }
            self.arrived()
        });
        arrived.await.unwrap()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

type Said = (StatusCode, HeaderMap, &'static str);

async fn receive(State(desk): State<Arc<Mutex<Desk>>>, headers: HeaderMap, body: Bytes) -> Said {
    let (answer, asked, held) = {
        let mut desk = desk.lock().unwrap();
        let event = headers.get("webhook-id").and_then(|id| id.to_str().ok());
        let refusals = event.and_then(|event| desk.refused.get_mut(event));
        let refused = refusals.filter(|left| **left > 0).map(|left| {
            *left -= 1;
            StatusCode::SERVICE_UNAVAILABLE
        });
        let next = (!desk.answers.is_empty()).then(|| desk.answers.remove(0));
        let answer = refused.or(next).or(desk.always).unwrap_or(StatusCode::OK);
        desk.arrived.push(Arrived { headers, body, answer });
        (answer, desk.retry_after.clone(), desk.held.clone())
    };
    if let Some(held) = held {
        let _ = held.acquire().await.unwrap();
    }
    let asked = asked.map(|asked| (RETRY_AFTER, asked));
    (answer, asked.into_iter().collect(), "received and noted")
}
