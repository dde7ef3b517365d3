//! A payments service that is slow and flaky on purpose, and knows nothing of keys.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

/// The service. Clones share their books.
#[derive(Clone, Default)]
pub(super) struct Payments {
    books: Arc<Mutex<Books>>,
}

#[derive(Default)]
struct Books {
    made: Vec<Payment>,
    by_call: HashMap<String, usize>,
    under_way: HashSet<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Payment {
    number: usize,
    order: String,
    amount: u64,
}

#[derive(Deserialize)]
struct Order {
    order: String,
    amount: u64,
}

#[derive(Deserialize)]
struct Of {
    order: Option<String>,
}

/// What goes wrong with one request.
#[derive(Clone, Copy)]
enum Mishap {
    Nothing,
    /// Turned away before anything happened.
    Busy,
    /// Paid, and then longer silent than the gateway waits.
    Silence,
    /// Paid, and the answer breaks off.
    Break,
}

impl Mishap {
    fn draw() -> Self {
        match fastrand::u8(..100) {
            0..10 => Self::Busy,
            10..14 => Self::Silence,
            14..20 => Self::Break,
            _ => Self::Nothing,
        }
    }
}

impl Payments {
    pub(super) fn serve(listener: TcpListener) -> Self {
        let payments = Self::default();
        let router = Router::new()
            .route("/payments", post(pay))
            .route("/payments/by-call/{call}", get(by_call))
            .route("/ledger", get(ledger))
            .with_state(payments.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        payments
    }

    /// How many payments were made.
    pub(super) fn count(&self) -> usize {
        self.books().made.len()
    }

    /// How often each order was paid.
    pub(super) fn by_order(&self) -> HashMap<String, u32> {
        let mut orders = HashMap::new();
        for payment in &self.books().made {
            *orders.entry(payment.order.clone()).or_default() += 1;
        }
        orders
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pays. Every request is a payment: nobody here looks for duplicates.
    fn make(&self, call: &str, order: Order) -> Payment {
        let mut books = self.books();
        let payment = Payment {
            number: books.made.len() + 1,
            order: order.order,
            amount: order.amount,
        };
        books.by_call.insert(call.to_owned(), payment.number);
        books.made.push(payment.clone());
        payment
    }
}

async fn pay(State(payments): State<Payments>, headers: HeaderMap, Json(order): Json<Order>) -> Response {
    let call = headers
        .get("exactly-call")
        .and_then(|call| call.to_str().ok())
        .unwrap_or_default();
    let mishap = Mishap::draw();
    if matches!(mishap, Mishap::Busy) {
        return (StatusCode::SERVICE_UNAVAILABLE, "too busy to pay").into_response();
    }
    payments.books().under_way.insert(call.to_owned());
    pause(5..80).await;
    let payment = payments.make(call, order);
    payments.books().under_way.remove(call);
    match mishap {
        Mishap::Silence => {
            pause(1500..2500).await;
            Json(payment).into_response()
        }
        Mishap::Break => {
            let torn = futures_util::stream::iter([Ok("{\"num"), Err(std::io::Error::other("torn"))]);
            Body::from_stream(torn).into_response()
        }
        Mishap::Nothing | Mishap::Busy => (StatusCode::CREATED, Json(payment)).into_response(),
    }
}

/// What was done for a call. 404 only if it is certain that nothing was and nothing will be.
async fn by_call(State(payments): State<Payments>, Path(call): Path<String>) -> Response {
    let books = payments.books();
    if books.under_way.contains(&call) {
        return StatusCode::TOO_EARLY.into_response();
    }
    match books.by_call.get(&call) {
        Some(number) => (StatusCode::CREATED, Json(books.made[number - 1].clone())).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn ledger(State(payments): State<Payments>, Query(of): Query<Of>) -> Response {
    let books = payments.books();
    let wanted = |payment: &&Payment| of.order.as_ref().is_none_or(|order| *order == payment.order);
    let listed: Vec<_> = books.made.iter().filter(wanted).cloned().collect();
    Json(listed).into_response()
}

async fn pause(milliseconds: std::ops::Range<u64>) {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(milliseconds))).await;
}
