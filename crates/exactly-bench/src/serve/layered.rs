//! The handler behind our layer.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::{get, post};
use axum::{Json, Router};
use exactly::layer::{Guarantee, IdempotencyLayer, Policy, Principal};
use exactly::once::Limits;
use exactly::{Keep, MemoryStore, Store};
use exactly_sql::{PgStore, PgTx, SqliteStore};

use super::handler::{self, Desk, Payment, Receipt};
use super::{Place, Records, Terms};
use crate::Result;

/// Who sends every request.
pub(crate) const PRINCIPAL: &str = "merchant-7";

/// How many records a sweep asks for at once, as the library's own loop does.
const SWEEP_STEP: u32 = 1000;

pub(super) async fn leased(desk: Desk, records: &Records, terms: Terms) -> Result<Router> {
    let store: Arc<dyn Store> = match records {
        Records::Memory => Arc::new(MemoryStore::new()),
        Records::Sqlite { path, group_commit } => {
            Arc::new(SqliteStore::at(path).group_commit(*group_commit).start().await?)
        }
        Records::Postgres(place) => Arc::new(postgres(place).await?),
    };
    let policy = Policy::playbook()
        .wait(Duration::from_secs(terms.wait_s))
        .keep(Keep::For(Duration::from_secs(terms.keep_s)));
    let limits = Limits {
        waiters_max: terms.waiters_max,
        ..Limits::default()
    };
    let layer = IdempotencyLayer::builder(Arc::clone(&store))
        .principal(principal())
        .policy(policy)
        .limits(limits)
        .build()?;
    let sweep = Router::new().route("/sweep/{records}", get(sweep)).with_state(store);
    Ok(handler::router(desk).layer(layer).merge(sweep))
}

pub(super) async fn transactional(desk: Desk, place: &Place) -> Result<Router> {
    let store = Arc::new(postgres(place).await?);
    super::handwritten::create_tables(store.pool()).await?;
    let layer = IdempotencyLayer::transactional(store)
        .principal(principal())
        .policy(Policy::playbook().guarantee(Guarantee::Transactional))
        .build()?;
    let payments = Router::new()
        .route("/payments", post(pay))
        .with_state(desk.clone())
        .layer(layer);
    Ok(payments.merge(handler::controls(desk)))
}

async fn postgres(place: &Place) -> Result<PgStore> {
    let pool = place.pool().await?;
    Ok(PgStore::builder(pool).schema(&place.schema).start().await?)
}

/// Stands for an authentication that ran before, at no cost that the others would not have too.
fn principal() -> impl Fn(&Parts) -> Option<Principal> {
    let merchant = Principal::new(PRINCIPAL);
    move |_| Some(merchant.clone())
}

async fn pay(
    State(desk): State<Desk>,
    mut tx: PgTx,
    Json(payment): Json<Payment>,
) -> Result<(StatusCode, Json<Receipt>), StatusCode> {
    let paid = super::handwritten::book(&mut tx, &payment).await;
    paid.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok((StatusCode::CREATED, Json(desk.take(payment))))
}

/// Deletes so many expired records as fast as the store does it, step by step, and says how many there were.
async fn sweep(State(store): State<Arc<dyn Store>>, Path(records): Path<u32>) -> Result<String, StatusCode> {
    let mut swept = 0;
    while swept < records {
        let step = SWEEP_STEP.min(records - swept);
        let deleted = store.sweep(step).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        swept += deleted;
        if deleted < step {
            break;
        }
        tokio::task::yield_now().await;
    }
    Ok(swept.to_string())
}
