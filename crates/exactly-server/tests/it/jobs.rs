//! Jobs and schedules by HTTP: the real server, a real service behind its jobs, on PostgreSQL and on SQLite.

mod ends;
mod lanes;
mod ledger;
mod lives;
mod schedules;
mod terminal;

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::PATIENCE;
use crate::client::ask;
use crate::server::{Server, TOKEN, until};
use crate::servers;
use crate::upstream::Upstream;
use crate::wire::Message;

/// Where a server keeps its tasks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Backend {
    Postgres,
    Sqlite,
}

/// A server with jobs, and a service that they call.
struct Shop {
    server: Server,
    upstream: Upstream,
}

/// Leases that end soon, and retries that come soon.
const QUICK: &str = "[jobs]\nlease = \"1s\"\nretries = [\"50ms\", \"100ms\"]\n";

impl Shop {
    async fn open(backend: Backend, upstream: Upstream) -> Self {
        Self::with(backend, upstream, QUICK).await
    }

    async fn with(backend: Backend, upstream: Upstream, settings: &str) -> Self {
        let settings = match backend {
            Backend::Sqlite => settings.to_owned(),
            Backend::Postgres => format!("store = \"{}\"\n{settings}", servers::postgres_database().await),
        };
        let server = Server::with(upstream.address, &settings);
        Self { server, upstream }
    }

    /// The address of a job.
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.upstream.address)
    }

    async fn enqueue(&self, job: Value) -> (u16, Value) {
        post(self.server.admin, "/v1/jobs", &job).await
    }

    /// Enqueues a job that is new, and gives its id.
    async fn new_job(&self, job: Value) -> String {
        let (status, row) = self.enqueue(job).await;
        assert_eq!((status, &row["result"]), (201, &json!("new")), "{row}");
        row["id"].as_str().unwrap().to_owned()
    }

    async fn job(&self, id: &str) -> Value {
        get(self.server.admin, &format!("/v1/jobs/{id}")).await
    }

    /// Waits until a job is in this state.
    async fn until_job(&self, id: &str, state: &str) -> Value {
        let reached = until(async || {
            let shown = self.job(id).await;
            (shown["job"]["state"] == state).then_some(shown)
        });
        match timeout(PATIENCE, reached).await {
            Ok(shown) => shown,
            Err(late) => panic!("not {state}, {late}: {}", self.job(id).await),
        }
    }
}

pub(crate) async fn api(admin: SocketAddr, method: &str, path: &str, body: Option<&Value>) -> Message {
    let request = ask(method, path).bearer(TOKEN);
    let request = match body {
        Some(body) => request
            .header("content-type", "application/json")
            .body(body.to_string()),
        None => request,
    };
    request.to(admin).await
}

pub(crate) fn json_of(message: &Message) -> Value {
    serde_json::from_slice(&message.body).unwrap_or_else(|_| panic!("no JSON: {message:?}"))
}

pub(crate) async fn post(admin: SocketAddr, path: &str, body: &Value) -> (u16, Value) {
    let told = api(admin, "POST", path, Some(body)).await;
    (told.status(), json_of(&told))
}

async fn put(admin: SocketAddr, path: &str, body: &Value) -> (u16, Value) {
    let told = api(admin, "PUT", path, Some(body)).await;
    (told.status(), json_of(&told))
}

pub(crate) async fn get(admin: SocketAddr, path: &str) -> Value {
    let told = api(admin, "GET", path, None).await;
    assert_eq!(told.status(), 200, "{}", told.text());
    json_of(&told)
}

/// The requests to this path.
fn requests_to(upstream: &Upstream, path: &str) -> Vec<Message> {
    let requests = upstream.requests().into_iter();
    requests.filter(|request| request.target() == path).collect()
}
