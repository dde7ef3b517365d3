//! The routes.

use std::ops::DerefMut;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::http::{Response, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use exactly::layer::{CallInfo, Guarantee, IdempotencyLayer, KeyRule, Policy, Principal, Settlement};
use exactly::store::{Filter, Phase};
use exactly::{CallId, Inspect, TransactionalStore, sweep};
use exactly_sql::Tx;
use serde::Deserialize;
use serde_json::json;

use crate::App;
use crate::ledger::{Ledger, Refunded};
use crate::provider::{Provider, Silent};

/// How long a duplicate waits for the first answer.
const WAIT: Duration = Duration::from_secs(5);

/// Where a call in doubt is settled, before its id.
const SETTLE: &str = "/doubts/";

/// A store whose transactions are connections to the books.
pub(crate) trait Transactions: TransactionalStore<Tx: DerefMut<Target = Self::Books> + Sync> + Inspect {
    /// The connection.
    type Books: Ledger + 'static;
}

impl Transactions for exactly_sql::SqliteStore {
    type Books = sqlx::SqliteConnection;
}

impl Transactions for exactly_sql::PgStore {
    type Books = sqlx::PgConnection;
}

/// All routes on `store`.
pub(crate) fn router<S: Transactions>(store: Arc<S>, provider: Provider, operator: &str) -> App {
    let books = Policy::playbook()
        .key(KeyRule::Required)
        .guarantee(Guarantee::Transactional)
        .wait(WAIT);
    let payouts = Policy::playbook().key(KeyRule::Required).wait(WAIT);
    let books = IdempotencyLayer::transactional(Arc::clone(&store))
        .principal(|parts| parts.extensions.get::<Principal>().cloned())
        .settle_link(SETTLE)
        .policy(books)
        .build()
        .expect("the policy is a constant");
    let payouts = books.with_policy(payouts).expect("the policy is a constant");
    sweep::hourly(Arc::<S>::clone(&store));

    let desk = Desk {
        store,
        provider,
        payouts: payouts.clone(),
    };
    let doubts = Router::new()
        .route("/doubts", get(doubts::<S>))
        .route("/doubts/{call}", post(settle::<S>))
        .route_layer(from_fn_with_state(Principal::new(operator), operate));
    let router = Router::new()
        .route("/payments", post(pay::<S>).layer(books.clone()))
        .route("/refunds", post(refund::<S>).layer(books.clone()))
        .route("/payouts", post(pay_out::<S>).layer(payouts))
        .route("/ledger", get(entries::<S>).layer(books.clone()))
        .merge(doubts)
        .with_state(desk)
        .layer(from_fn(authenticate));
    App { router, layer: books }
}

struct Desk<S> {
    store: Arc<S>,
    provider: Provider,
    payouts: IdempotencyLayer,
}

/// Stands in for real authentication: the bearer token is the user. Keys belong to whoever this says.
async fn authenticate(mut request: Request, next: Next) -> axum::response::Response {
    let token = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let Some(user) = token
        .and_then(|token| token.strip_prefix("Bearer "))
        .filter(|user| !user.is_empty())
    else {
        return (StatusCode::UNAUTHORIZED, "send Authorization: Bearer USER").into_response();
    };
    let user = Principal::new(user);
    request.extensions_mut().insert(user);
    next.run(request).await
}

/// Lets only the operator through: doubts are of all users, and whoever settles one says whether money was paid.
async fn operate(
    State(operator): State<Principal>,
    Extension(user): Extension<Principal>,
    request: Request,
    next: Next,
) -> axum::response::Response {
    if user != operator {
        return (StatusCode::FORBIDDEN, "for the operator only").into_response();
    }
    next.run(request).await
}

#[derive(Deserialize)]
struct Payment {
    account: String,
    amount: u32,
}

async fn pay<S: Transactions>(mut tx: Tx<S::Tx>, Json(payment): Json<Payment>) -> Result<impl IntoResponse, Failed> {
    let id = tx.pay(&payment.account, payment.amount.into()).await?;
    Ok((
        StatusCode::CREATED,
        Json(json!({ "payment": id, "amount": payment.amount })),
    ))
}

#[derive(Deserialize)]
struct Refund {
    payment: i64,
    amount: u32,
}

async fn refund<S: Transactions>(mut tx: Tx<S::Tx>, Json(refund): Json<Refund>) -> Result<impl IntoResponse, Failed> {
    let problem = |status: StatusCode, error: &str| (status, Json(json!({ "error": error })));
    Ok(match tx.refund(refund.payment, refund.amount.into()).await? {
        Refunded::Yes(id) => (
            StatusCode::CREATED,
            Json(json!({ "refund": id, "amount": refund.amount })),
        ),
        Refunded::TooMuch => problem(
            StatusCode::UNPROCESSABLE_ENTITY,
            "more than what is left of the payment",
        ),
        Refunded::NoPayment => problem(StatusCode::NOT_FOUND, "no such payment"),
    })
}

async fn pay_out<S: Transactions>(
    State(desk): State<Desk<S>>,
    call: CallInfo,
    Json(payout): Json<Payment>,
) -> impl IntoResponse {
    // The provider gets the call's id as its request id, so that even a payout sent twice is made once. Not the key: that
    // is unique only among one user's, and two users' `1` would be one payout to the provider.
    match desk.provider.pay_out(&call.claim.id, payout.amount.into()).await {
        Ok(()) => (
            StatusCode::CREATED,
            Json(json!({ "paidOut": payout.amount, "account": payout.account })),
        ),
        Err(Silent) => (
            StatusCode::GATEWAY_TIMEOUT,
            Json(json!({ "error": "the provider did not answer" })),
        ),
    }
}

async fn entries<S: Transactions>(mut tx: Tx<S::Tx>) -> Result<impl IntoResponse, Failed> {
    Ok(Json(tx.entries().await?))
}

async fn doubts<S: Transactions>(State(desk): State<Desk<S>>) -> Result<impl IntoResponse, Failed> {
    let filter = Filter {
        phase: Some(Phase::InDoubt),
        ..Filter::default()
    };
    let page = desk.store.list(&filter).await?;
    let calls: Vec<_> = page
        .calls
        .iter()
        .map(|call| call.claim.id)
        .map(|id| json!({ "call": id.to_string(), "settle": format!("{SETTLE}{id}") }))
        .collect();
    Ok(Json(calls))
}

/// Asks the provider what it did, and ends the doubt with that.
async fn settle<S: Transactions>(
    State(desk): State<Desk<S>>,
    Path(call): Path<String>,
) -> Result<impl IntoResponse, Failed> {
    let Ok(id) = call.parse::<CallId>() else {
        return Ok((StatusCode::BAD_REQUEST, Json(json!({ "error": "not a call's id" }))));
    };
    let Some(view) = desk.store.get(&id).await?.filter(|view| view.phase == Phase::InDoubt) else {
        return Ok((StatusCode::NOT_FOUND, Json(json!({ "error": "no such call in doubt" }))));
    };
    let paid = desk.provider.look_up(&view.claim.id).await;
    let settlement = match paid {
        None => Settlement::DidNotHappen,
        Some(amount) => {
            let body = json!({ "paidOut": amount }).to_string();
            let answer = Response::builder()
                .status(201)
                .header(header::CONTENT_TYPE, "application/json");
            Settlement::Happened(
                answer
                    .body(body.into())
                    .expect("a constant status and header are valid"),
            )
        }
    };
    let fenced = desk.payouts.settle(&view.claim, settlement).await?;
    Ok((
        StatusCode::OK,
        Json(json!({ "happened": paid.is_some(), "settled": format!("{fenced:?}") })),
    ))
}

/// A failed statement or store: answered with 500, which rolls the transaction back.
struct Failed(Box<dyn std::error::Error>);

impl<E: std::error::Error + 'static> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> axum::response::Response {
        tracing::error!(error = %self.0, "request failed");
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

impl<S> Clone for Desk<S> {
    fn clone(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            provider: self.provider.clone(),
            payouts: self.payouts.clone(),
        }
    }
}
