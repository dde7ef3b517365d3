//! What a good engineer writes with sqlx and no library: the other side of the comparisons with PostgreSQL.
//!
//! Prepared statements, the key's text as primary key, the SHA-256 of the body compared, status, headers and body
//! stored. The table leaves room in its pages, so that completing a call touches no index, which few would think of.
//! Leases, fences and waiting duplicates are not there, and neither is their cost.

use axum::body::{self, Body};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use sha2::{Digest as _, Sha256};
use sqlx::{PgConnection, PgPool, Row as _};

use super::Style;
use super::handler::{self, Desk, Payment};
use crate::Result;

const BODY_MAX: usize = 1024 * 1024;

const TABLES: &str = "
    create table if not exists idempotency_keys (
        key text primary key,
        fingerprint bytea not null,
        status smallint,
        headers bytea,
        body bytea,
        created_at timestamptz not null default now(),
        completed_at timestamptz
    ) with (fillfactor = 70);
    create table if not exists payments (
        id bigint generated always as identity primary key,
        purchase text not null,
        customer text not null,
        amount bigint not null,
        currency text not null
    )";

const CLAIM: &str = "insert into idempotency_keys (key, fingerprint) values ($1, $2) on conflict (key) do nothing";
const COMPLETE: &str =
    "update idempotency_keys set status = $2, headers = $3, body = $4, completed_at = now() where key = $1";
const FIND: &str = "select fingerprint, status, headers, body from idempotency_keys where key = $1";
const BOOK: &str = "insert into payments (purchase, customer, amount, currency) values ($1, $2, $3, $4)";

#[derive(Clone, Debug)]
struct Keys {
    pool: PgPool,
    style: Style,
}

/// Creates what handlers write to, on either side.
pub(crate) async fn create_tables(pool: &PgPool) -> Result<()> {
    sqlx::raw_sql(TABLES).execute(pool).await?;
    Ok(())
}

/// The effect of a payment.
pub(super) async fn book(conn: &mut PgConnection, payment: &Payment) -> Result<(), sqlx::Error> {
    sqlx::query(BOOK)
        .bind(&payment.order)
        .bind(&payment.customer)
        .bind(i64::from(payment.amount))
        .bind(&payment.currency)
        .execute(conn)
        .await
        .map(drop)
}

pub(super) async fn router(desk: Desk, pool: PgPool, style: Style) -> Result<Router> {
    create_tables(&pool).await?;
    if style == Style::OneTransaction {
        let payments = Router::new()
            .route("/payments", post(pay_in_one_transaction))
            .with_state((pool, desk.clone()));
        return Ok(payments.merge(handler::controls(desk)));
    }
    let keys = Keys { pool, style };
    Ok(handler::router(desk).layer(middleware::from_fn_with_state(keys, protect)))
}

async fn protect(State(keys): State<Keys>, request: Request, next: Next) -> Response {
    let Some(key) = key_of(request.headers()) else {
        return next.run(request).await;
    };
    keys.run(&key, request, next)
        .await
        .unwrap_or_else(|error| unavailable(&error))
}

impl Keys {
    async fn run(&self, key: &str, request: Request, next: Next) -> Result<Response> {
        let (parts, body) = request.into_parts();
        let body = body::to_bytes(body, BODY_MAX).await?;
        let fingerprint = Sha256::digest(&body);
        if self.style == Style::SelectFirst
            && let Some(answer) = find(&mut *self.pool.acquire().await?, key, &fingerprint).await?
        {
            return Ok(answer);
        }
        if !self.claim(key, &fingerprint).await? {
            let found = find(&mut *self.pool.acquire().await?, key, &fingerprint).await?;
            return Ok(found.unwrap_or_else(|| StatusCode::CONFLICT.into_response()));
        }
        let answer = next.run(Request::from_parts(parts, Body::from(body))).await;
        let (parts, body) = answer.into_parts();
        let body = body::to_bytes(body, BODY_MAX).await?;
        self.complete(key, parts.status, &stored_headers(&parts.headers)?, &body)
            .await?;
        Ok(Response::from_parts(parts, Body::from(body)))
    }

    async fn claim(&self, key: &str, fingerprint: &[u8]) -> Result<bool, sqlx::Error> {
        let claim = sqlx::query(CLAIM).bind(key).bind(fingerprint);
        let claimed = if self.style == Style::TwoTransactions {
            let mut tx = self.pool.begin().await?;
            let claimed = claim.execute(&mut *tx).await?;
            tx.commit().await?;
            claimed
        } else {
            claim.execute(&self.pool).await?
        };
        Ok(claimed.rows_affected() == 1)
    }

    async fn complete(&self, key: &str, status: StatusCode, headers: &[u8], body: &[u8]) -> Result<()> {
        let status = i16::try_from(status.as_u16())?;
        let complete = sqlx::query(COMPLETE).bind(key).bind(status).bind(headers).bind(body);
        if self.style == Style::TwoTransactions {
            let mut tx = self.pool.begin().await?;
            complete.execute(&mut *tx).await?;
            tx.commit().await?;
        } else {
            complete.execute(&self.pool).await?;
        }
        Ok(())
    }
}

/// The whole of it in a handler: no middleware is in the way, and the body is read once.
async fn pay_in_one_transaction(
    State((pool, desk)): State<(PgPool, Desk)>,
    headers: HeaderMap,
    body: body::Bytes,
) -> Response {
    pay_once(&pool, &desk, &headers, &body)
        .await
        .unwrap_or_else(|error| unavailable(&error))
}

async fn pay_once(pool: &PgPool, desk: &Desk, headers: &HeaderMap, body: &[u8]) -> Result<Response> {
    let Some(key) = key_of(headers) else {
        return Ok(StatusCode::BAD_REQUEST.into_response());
    };
    let fingerprint = Sha256::digest(body);
    let mut tx = pool.begin().await?;
    let claimed = sqlx::query(CLAIM)
        .bind(&key)
        .bind(&*fingerprint)
        .execute(&mut *tx)
        .await?;
    if claimed.rows_affected() == 0 {
        let found = find(&mut tx, &key, &fingerprint).await?;
        return Ok(found.unwrap_or_else(|| StatusCode::CONFLICT.into_response()));
    }
    let payment: Payment = serde_json::from_slice(body)?;
    book(&mut tx, &payment).await?;
    let (parts, body) = (StatusCode::CREATED, Json(desk.take(payment)))
        .into_response()
        .into_parts();
    let body = body::to_bytes(body, BODY_MAX).await?;
    sqlx::query(COMPLETE)
        .bind(&key)
        .bind(i16::try_from(parts.status.as_u16())?)
        .bind(stored_headers(&parts.headers)?)
        .bind(&*body)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(Response::from_parts(parts, Body::from(body)))
}

/// The stored answer; `None` if there is none or it is not complete.
async fn find(conn: &mut PgConnection, key: &str, fingerprint: &[u8]) -> Result<Option<Response>> {
    let Some(row) = sqlx::query(FIND).bind(key).fetch_optional(conn).await? else {
        return Ok(None);
    };
    if row.try_get::<&[u8], _>(0)? != fingerprint {
        return Ok(Some(StatusCode::UNPROCESSABLE_ENTITY.into_response()));
    }
    let Some(status) = row.try_get::<Option<i16>, _>(1)? else {
        return Ok(None);
    };
    let headers: Vec<(&str, &str)> = serde_json::from_slice(row.try_get(2)?)?;
    let mut answer = Response::new(Body::from(row.try_get::<Vec<u8>, _>(3)?));
    *answer.status_mut() = StatusCode::from_u16(u16::try_from(status)?)?;
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes())?;
        answer.headers_mut().append(name, HeaderValue::from_str(value)?);
    }
    Ok(Some(answer))
}

fn key_of(headers: &HeaderMap) -> Option<String> {
    headers.get("idempotency-key")?.to_str().ok().map(str::to_owned)
}

fn stored_headers(headers: &HeaderMap) -> Result<Vec<u8>> {
    let mut kept = Vec::with_capacity(headers.len());
    for (name, value) in headers {
        kept.push((name.as_str(), value.to_str()?));
    }
    Ok(serde_json::to_vec(&kept)?)
}

fn unavailable(error: &crate::Error) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response()
}
