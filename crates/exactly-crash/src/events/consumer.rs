//! Applies events, on a database of its own.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{MethodRouter, post};
use exactly::JobError;
use exactly::clock::{Clock as _, WallClock};
use exactly::webhook::{Inbox, Received, Verifier};
use exactly::worker::Worker;
use exactly_sql::PgQueue;
use serde::Deserialize;
use sqlx::AssertSqlSafe;
use tokio::time::sleep;

use super::EventSabotage;
use super::plan::ENDPOINTS;
use super::producer::Told;
use super::victim::EventVictimArguments;
use crate::crew::{LEASE, POLL, SWEEP};
use crate::failure::{Result, failed};
use crate::place::Place;
use crate::victim::{READY, bind};

/// How long an event takes at most, once its row is written.
const TAKES_MS: u64 = 20;

/// What comes in.
#[derive(Debug, Deserialize)]
struct Envelope {
    data: Told,
}

/// Applies until it is killed.
pub(super) async fn consume(queue: PgQueue, place: &Place, arguments: &EventVictimArguments) -> Result<()> {
    let queue = Arc::new(queue);
    let write = format!(
        "insert into {} (key, nonce, amount) values ($1, $2, 1)",
        place.effects_table()
    );
    let mut routes = Router::new();
    let mut worker = Worker::builder(Arc::<PgQueue>::clone(&queue))
        .lease(LEASE)
        .sweep_every(SWEEP)
        .poll_every(POLL)
        .rescues_max(u32::MAX);
    for endpoint in ENDPOINTS {
        let secret = arguments.secret.parse().map_err(failed("read secret"))?;
        let verifier = Verifier::standard([secret]);
        let path = format!("/{endpoint}");
        if arguments.sabotage == EventSabotage::NoNote {
            routes = routes.route(&path, loose(&queue, endpoint, verifier, write.clone()));
            continue;
        }
        let inbox = inbox(&queue, endpoint, verifier, write.clone())?;
        routes = routes.route(&path, inbox.route());
        worker = inbox.retried_by(worker);
    }
    let _running = match arguments.sabotage {
        EventSabotage::NoNote => None,
        _ => Some(worker.start().map_err(failed("start worker"))?),
    };
    let listener = bind(arguments.port).await?;
    println!("{READY}");
    axum::serve(listener, routes).await.map_err(failed("serve"))
}

/// Notes an event and applies it in one transaction.
fn inbox(queue: &Arc<PgQueue>, endpoint: &'static str, verifier: Verifier, write: String) -> Result<Inbox<PgQueue>> {
    let inbox = Inbox::builder(Arc::clone(queue), endpoint)
        .verifier(verifier)
        .handler(move |tx, event: &Received| {
            let write = write.clone();
            Box::pin(async move {
                let Envelope { data } = event.json()?;
                let row = sqlx::query(AssertSqlSafe(write));
                let row = row.bind(format!("{} {endpoint}", event.id())).bind(data.nonce);
                row.execute(&mut **tx).await.map_err(JobError::transient)?;
                take_time().await;
                Ok(())
            })
        });
    inbox.build().map_err(failed("build inbox"))
}

/// Applies whatever the sender sends: what the lab must notice.
fn loose(queue: &Arc<PgQueue>, endpoint: &'static str, verifier: Verifier, write: String) -> MethodRouter {
    let pool = queue.pool().clone();
    let verifier = Arc::new(verifier);
    post(move |headers: HeaderMap, body: Bytes| {
        let (pool, verifier, write) = (pool.clone(), Arc::clone(&verifier), write.clone());
        async move {
            let known = verifier.verify(&headers, &body, WallClock.now());
            let event = known.map_err(|_| StatusCode::UNAUTHORIZED)?.event_id;
            let envelope: Envelope = serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
            let row = sqlx::query(AssertSqlSafe(write));
            let row = row.bind(format!("{event} {endpoint}")).bind(envelope.data.nonce);
            let written = row.execute(&pool).await;
            written.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
            take_time().await;
            Ok::<_, StatusCode>(StatusCode::OK)
        }
    })
}

async fn take_time() {
    sleep(Duration::from_millis(fastrand::u64(..TAKES_MS))).await;
}
