//! Events by HTTP: the real server, real receivers, on PostgreSQL and on SQLite.

mod copies;
mod endpoints;
mod health;
mod input;
mod listen;
mod order;
mod replays;
mod retries;
mod sent;
mod terminal;

use exactly::clock::{Clock as _, WallClock};
use exactly::webhook::{Rejected, Verified, Verifier};
use http::{HeaderMap, HeaderName};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::PATIENCE;
use crate::jobs::{Backend, api, get, json_of, post};
use crate::server::{Server, until};
use crate::servers;
use crate::upstream::Upstream;
use crate::wire::Message;

/// A server that sends events, and a receiver for all of its endpoints, each at a path of its own.
struct News {
    server: Server,
    receiver: Upstream,
}

/// Attempts that come soon whenever the one before it was: on a busy machine the first may be late.
pub(crate) const OFTEN: &str = r#""0s", "50ms", "100ms", "200ms", "500ms", "1s", "2s", "4s", "8s", "16s", "1m""#;

/// Receivers are on this machine, attempts come at these times, and nobody is left alone.
pub(crate) fn quick(attempts: &str) -> String {
    format!(
        "[jobs]\nlease = \"1s\"\n[events]\nsource = \"shop\"\nallow = [\"127.0.0.1\"]\npark_after = 1000\n\
         attempts = [{attempts}]\n"
    )
}

impl News {
    async fn open(backend: Backend, receiver: Upstream) -> Self {
        Self::with(backend, receiver, &quick(OFTEN)).await
    }

    async fn with(backend: Backend, receiver: Upstream, settings: &str) -> Self {
        let settings = match backend {
            Backend::Sqlite => settings.to_owned(),
            Backend::Postgres => format!("store = \"{}\"\n{settings}", servers::postgres_database().await),
        };
        let server = Server::with(receiver.address, &settings);
        Self { server, receiver }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.receiver.address)
    }

    /// Makes an endpoint whose path is its id, and tells its secret.
    async fn endpoint(&self, id: &str, more: Value) -> String {
        let mut endpoint = json!({"id": id, "url": self.url(&format!("/{id}"))});
        endpoint
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let (status, made) = self.post("/v1/endpoints", endpoint).await;
        assert_eq!(status, 201, "{made}");
        made["secret"].as_str().unwrap_or_default().to_owned()
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        post(self.server.admin, path, &body).await
    }

    /// Does something to an endpoint by one word.
    async fn act(&self, path: &str) -> Value {
        let told = api(self.server.admin, "POST", path, None).await;
        assert_eq!(told.status(), 200, "{}", told.text());
        json_of(&told)
    }

    async fn patch(&self, path: &str, body: Value) -> (u16, Value) {
        let told = api(self.server.admin, "PATCH", path, Some(&body)).await;
        (told.status(), json_of(&told))
    }

    async fn get(&self, path: &str) -> Value {
        get(self.server.admin, path).await
    }

    /// Publishes an event that is new.
    async fn publish(&self, id: &str, event_type: &str) {
        let event = json!({"id": id, "type": event_type, "data": {"of": id}});
        let (status, row) = self.post("/v1/events", event).await;
        assert_eq!((status, &row["result"]), (201, &json!("new")), "{row}");
    }

    /// Waits until the one delivery of an event to an endpoint is in this state, and shows it.
    async fn until_delivery(&self, event: &str, endpoint: &str, state: &str) -> Value {
        let path = format!("/v1/deliveries?event={event}&endpoint={endpoint}");
        let reached = until(async || {
            let page = self.get(&path).await;
            let delivery = page["deliveries"].get(0)?.clone();
            (delivery["state"] == state).then_some(delivery)
        });
        let delivery = match timeout(PATIENCE, reached).await {
            Ok(delivery) => delivery,
            Err(late) => panic!("not {state}, {late}: {}", self.get(&path).await),
        };
        let id = delivery["id"].as_str().unwrap();
        self.get(&format!("/v1/deliveries/{id}")).await
    }

    /// What was posted to this endpoint.
    fn received(&self, endpoint: &str) -> Vec<Message> {
        let requests = self.receiver.requests().into_iter();
        let path = format!("/{endpoint}");
        requests.filter(|request| request.target() == path).collect()
    }

    async fn trail(&self) -> String {
        self.get("/v1/trail?limit=1000").await.to_string()
    }
}

/// What a receiver that has this secret makes of a request.
pub(crate) fn verified(secret: &str, request: &Message) -> Result<Verified, Rejected> {
    let headers: HeaderMap = request
        .headers
        .iter()
        .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
        .collect();
    Verifier::standard([secret.parse().unwrap()]).verify(&headers, &request.body, WallClock.now())
}
