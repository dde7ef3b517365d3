//! The handlers: one effect per order, inside the caller's transaction or outside of any.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use exactly_sql::{PgTx, SqliteTx};
use serde::{Deserialize, Serialize};
use sqlx::AssertSqlSafe;
use tokio::time::sleep;

use crate::history::Effect;
use crate::ledger::LedgerFile;
use crate::point::{Fuse, Point};

/// One in so many handlers fails in a way that leaves no effect.
const FAILS_ONE_IN: u32 = 25;

/// One in so many handlers outside of a transaction takes so long that its lease is renewed.
const SLOW_ONE_IN: u32 = 40;
const SLOW_MS: std::ops::Range<u64> = 400..1500;
const QUICK_MS: u64 = 8;

/// What a customer orders.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) key: String,
    pub(crate) amount: u32,
    pub(crate) declined: bool,
}

/// What a customer gets. The nonce proves which execution made it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) key: String,
    pub(crate) nonce: String,
    pub(crate) amount: u32,
}

/// What handlers need.
#[derive(Debug)]
pub(crate) struct Shop {
    pub(super) fuse: Arc<Fuse>,
    pub(super) ledger: Arc<LedgerFile>,
    pub(super) effects_table: String,
}

/// A transaction that an effect can be written into.
pub(super) trait Insert {
    fn insert(&mut self, table: &str, effect: &Effect) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

impl Insert for SqliteTx {
    async fn insert(&mut self, table: &str, effect: &Effect) -> Result<(), sqlx::Error> {
        let insert = format!("insert into {table} (key, nonce, amount) values (?, ?, ?)");
        let insert = sqlx::query(AssertSqlSafe(insert)).bind(&effect.key).bind(&effect.nonce);
        insert
            .bind(i64::from(effect.amount))
            .execute(&mut **self)
            .await
            .map(drop)
    }
}

impl Insert for PgTx {
    async fn insert(&mut self, table: &str, effect: &Effect) -> Result<(), sqlx::Error> {
        let insert = format!("insert into {table} (key, nonce, amount) values ($1, $2, $3)");
        let insert = sqlx::query(AssertSqlSafe(insert)).bind(&effect.key).bind(&effect.nonce);
        insert
            .bind(i64::from(effect.amount))
            .execute(&mut **self)
            .await
            .map(drop)
    }
}

/// Makes the effect in the transaction that the layer commits.
pub(super) async fn inside<T: Insert>(State(shop): State<Arc<Shop>>, mut tx: T, Json(order): Json<Order>) -> Response {
    let effect = execution_of(order.key, order.amount);
    if order.declined {
        return declined(effect);
    }
    shop.fuse.pass(Point::BeforeEffect).await;
    if tx.insert(&shop.effects_table, &effect).await.is_err() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    shop.fuse.pass(Point::AfterEffect).await;
    if fastrand::u32(..FAILS_ONE_IN) == 0 {
        // Rolled back together with the effect that is already in it.
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    done(effect)
}

/// Makes the effect where no transaction reaches.
pub(super) async fn outside(State(shop): State<Arc<Shop>>, Json(order): Json<Order>) -> Response {
    let effect = execution_of(order.key, order.amount);
    if shop.ledger.start(&effect.key, &effect.nonce).is_err() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    if order.declined {
        return declined(effect);
    }
    let slow = fastrand::u32(..SLOW_ONE_IN) == 0;
    let ms = fastrand::u64(if slow { SLOW_MS } else { 0..QUICK_MS });
    sleep(Duration::from_millis(ms)).await;
    if fastrand::u32(..FAILS_ONE_IN) == 0 {
        return match shop.ledger.free(&effect.key, &effect.nonce) {
            Ok(()) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        };
    }
    shop.fuse.pass(Point::BeforeEffect).await;
    let written = {
        let shop = Arc::clone(&shop);
        tokio::task::spawn_blocking(move || {
            let written = shop.ledger.effect(&effect.key, &effect.nonce, effect.amount);
            written.map(|()| effect)
        })
    };
    let Ok(Ok(effect)) = written.await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    shop.fuse.pass(Point::AfterEffect).await;
    done(effect)
}

/// The effect that this execution of the handler would make.
fn execution_of(key: String, amount: u32) -> Effect {
    let nonce = format!("{:032x}", fastrand::u128(..));
    Effect { key, nonce, amount }
}

fn done(effect: Effect) -> Response {
    (StatusCode::CREATED, Json(receipt(effect))).into_response()
}

/// An answer like any other, stored and replayed, but without an effect.
fn declined(effect: Effect) -> Response {
    (StatusCode::UNPROCESSABLE_ENTITY, Json(receipt(effect))).into_response()
}

fn receipt(effect: Effect) -> Receipt {
    Receipt {
        key: effect.key,
        nonce: effect.nonce,
        amount: effect.amount,
    }
}
