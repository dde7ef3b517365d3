//! The handler: reads a payment and answers with a receipt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// What the handlers of one server share.
#[derive(Clone, Debug)]
pub(super) struct Desk(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// How often a handler ran, to tell replays from executions.
    runs: AtomicU64,
    /// Whether slow payments may end.
    released: watch::Sender<bool>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Payment {
    pub(super) amount: u32,
    pub(super) currency: String,
    pub(super) customer: String,
    pub(super) order: String,
    pub(super) method: String,
    pub(super) capture: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Receipt {
    id: u64,
    status: &'static str,
    amount: u32,
    currency: String,
    customer: String,
    order: String,
    method: String,
}

impl Default for Desk {
    fn default() -> Self {
        Self(Arc::new(Inner {
            runs: AtomicU64::new(0),
            released: watch::Sender::new(false),
        }))
    }
}

impl Desk {
    /// Takes the payment, which is all that the handler does.
    pub(super) fn take(&self, payment: Payment) -> Receipt {
        Receipt {
            id: self.0.runs.fetch_add(1, Ordering::Relaxed),
            status: if payment.capture { "captured" } else { "authorized" },
            amount: payment.amount,
            currency: payment.currency,
            customer: payment.customer,
            order: payment.order,
            method: payment.method,
        }
    }
}

/// Everything there is to ask of a server.
pub(super) fn router(desk: Desk) -> Router {
    Router::new()
        .route("/payments", post(pay))
        .route("/slow-payments", post(pay_slowly))
        .with_state(desk.clone())
        .merge(controls(desk))
}

/// Takes whatever is posted, to any of many places.
pub(super) fn sink(desk: Desk) -> Router {
    Router::new()
        .route("/hook/{place}", post(swallow))
        .with_state(desk.clone())
        .merge(controls(desk))
}

/// What the client of the measurement asks and no payer would.
pub(super) fn controls(desk: Desk) -> Router {
    Router::new()
        .route("/runs", get(runs))
        .route("/release", get(release))
        .with_state(desk)
}

async fn pay(State(desk): State<Desk>, Json(payment): Json<Payment>) -> (StatusCode, Json<Receipt>) {
    (StatusCode::CREATED, Json(desk.take(payment)))
}

/// Answers once it is released, so that duplicates have something to wait for.
async fn pay_slowly(State(desk): State<Desk>, payment: Json<Payment>) -> (StatusCode, Json<Receipt>) {
    let mut released = desk.0.released.subscribe();
    // The sender lives in the desk, so this ends by a release only.
    let _ = released.wait_for(|released| *released).await;
    pay(State(desk), payment).await
}

async fn swallow(State(desk): State<Desk>, body: Bytes) -> StatusCode {
    desk.0.runs.fetch_add(u64::from(!body.is_empty()), Ordering::Relaxed);
    StatusCode::NO_CONTENT
}

async fn runs(State(desk): State<Desk>) -> String {
    desk.0.runs.load(Ordering::Relaxed).to_string()
}

async fn release(State(desk): State<Desk>) -> &'static str {
    desk.0.released.send_replace(true);
    "released"
}
