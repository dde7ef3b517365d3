//! The worked example of the contract's sources, on both databases.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(
    clippy::disallowed_methods,
    reason = "the servers' addresses come from `cargo xtask test`"
)]

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use refunds::{App, Entry, Provider, app};
use serde_json::{Value, json};
use tower::ServiceExt;

/// Who may settle what is in doubt.
const OPERATOR: &str = "desk";

/// The service on a database of its own, and what keeps that alive.
struct Shop {
    app: App,
    provider: Provider,
    _file: Option<tempfile::TempDir>,
}

impl Shop {
    async fn on_sqlite(provider: Provider) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", dir.path().join("shop.db").display());
        let app = app(&url, provider.clone(), OPERATOR).await.unwrap();
        Self {
            app,
            provider,
            _file: Some(dir),
        }
    }

    async fn on_postgres(provider: Provider) -> Self {
        let server =
            std::env::var("EXACTLY_TEST_POSTGRES_URL").expect("run `cargo xtask test`, which starts the servers");
        let name = format!("shop_{}", fastrand::u64(..));
        let pool = sqlx::PgPool::connect(&server).await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("create database {name}")))
            .execute(&pool)
            .await
            .unwrap();
        let url = format!("{}/{name}", server.rsplit_once('/').unwrap().0);
        let app = app(&url, provider.clone(), OPERATOR).await.unwrap();
        Self {
            app,
            provider,
            _file: None,
        }
    }

    async fn post(&self, path: &str, key: &str, body: &Value) -> Response<Body> {
        self.post_as("ada", path, key, body).await
    }

    async fn post_as(&self, user: &str, path: &str, key: &str, body: &Value) -> Response<Body> {
        let request = Request::post(path)
            .header("idempotency-key", key)
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()));
        self.send_as(user, request.unwrap()).await
    }

    async fn get_as(&self, user: &str, path: &str) -> Response<Body> {
        self.send_as(user, Request::get(path).body(Body::empty()).unwrap())
            .await
    }

    async fn send_as(&self, user: &str, mut request: Request<Body>) -> Response<Body> {
        let bearer = format!("Bearer {user}").parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
        self.app.router.clone().oneshot(request).await.unwrap()
    }

    async fn ledger(&self) -> Vec<Entry> {
        let entries = json_of(self.get_as("ada", "/ledger").await).await;
        let entry = |entry: &Value| Entry {
            account: entry["account"].as_str().unwrap().to_owned(),
            amount: entry["amount"].as_i64().unwrap(),
            why: entry["why"].as_str().unwrap().to_owned(),
        };
        entries.as_array().unwrap().iter().map(entry).collect()
    }
}

async fn json_of(response: Response<Body>) -> Value {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap_or(Value::Null)
}

fn key_status(response: &Response<Body>) -> &str {
    response.headers()["idempotency-status"].to_str().unwrap()
}

fn prompt() -> Provider {
    Provider::new(Duration::ZERO, 0)
}

async fn refunds_happen_once(shop: Shop) {
    let paid = shop
        .post("/payments", "pay-1", &json!({ "account": "ada", "amount": 5000 }))
        .await;
    assert_eq!(paid.status(), StatusCode::CREATED);
    let payment = json_of(paid).await["payment"].clone();
    let refund = json!({ "payment": payment, "amount": 1000 });

    // Same key twice: same refund, one ledger entry.
    let first = shop.post("/refunds", "refund-1", &refund).await;
    assert_eq!((first.status(), key_status(&first)), (StatusCode::CREATED, "stored"));
    let again = shop.post("/refunds", "refund-1", &refund).await;
    assert_eq!((again.status(), key_status(&again)), (StatusCode::CREATED, "replayed"));
    assert_eq!(json_of(first).await, json_of(again).await);

    // Another amount under the same key: refused.
    let other = shop
        .post("/refunds", "refund-1", &json!({ "payment": payment, "amount": 1 }))
        .await;
    assert_eq!(other.status(), StatusCode::CONFLICT);
    assert_eq!(json_of(other).await["code"], "CONFLICT.idempotency.payload_mismatch");

    // Another key with the same payload: a new refund.
    let second = shop.post("/refunds", "refund-2", &refund).await;
    assert_eq!((second.status(), key_status(&second)), (StatusCode::CREATED, "stored"));

    let amounts: Vec<_> = shop.ledger().await.iter().map(|entry| entry.amount).collect();
    assert_eq!(amounts, [5000, -1000, -1000]);
}

async fn ten_clicks_make_one_refund(shop: Shop) {
    shop.post("/payments", "pay-1", &json!({ "account": "ada", "amount": 5000 }))
        .await;
    let refund = json!({ "payment": 1, "amount": 1000 });
    let clicks = (0..10).map(|_| shop.post("/refunds", "refund-1", &refund));
    let mut stored = 0;
    for answer in futures_util::future::join_all(clicks).await {
        stored += usize::from(key_status(&answer) == "stored");
        assert_eq!(json_of(answer).await, json!({ "refund": 1, "amount": 1000 }));
    }
    assert_eq!(stored, 1);
    assert_eq!(shop.ledger().await.len(), 2);
}

async fn a_refused_refund_is_an_answer_like_any_other(shop: Shop) {
    shop.post("/payments", "pay-1", &json!({ "account": "ada", "amount": 500 }))
        .await;
    let too_much = json!({ "payment": 1, "amount": 501 });
    for status in ["stored", "replayed"] {
        let refused = shop.post("/refunds", "refund-1", &too_much).await;
        assert_eq!(
            (refused.status(), key_status(&refused)),
            (StatusCode::UNPROCESSABLE_ENTITY, status)
        );
    }
    assert_eq!(shop.ledger().await.len(), 1);
}

/// Keys are unique only for one user, and the provider knows none of them.
async fn the_same_key_of_two_users_pays_out_to_both(shop: Shop) {
    for user in ["ada", "bob"] {
        let payout = json!({ "account": user, "amount": 700 });
        let paid = shop.post_as(user, "/payouts", "1", &payout).await;
        assert_eq!((paid.status(), key_status(&paid)), (StatusCode::CREATED, "stored"));
    }
    assert_eq!(shop.provider.payouts(), 2);
}

/// A payout whose provider never answers is in doubt, and never paid twice, until someone asks the provider.
async fn a_silent_payout_is_settled_by_asking(shop: Shop) {
    let payout = json!({ "account": "ada", "amount": 700 });
    let first = shop.post("/payouts", "payout-1", &payout).await;
    assert_eq!(
        (first.status(), key_status(&first)),
        (StatusCode::GATEWAY_TIMEOUT, "unknown")
    );
    let doubt = shop.post("/payouts", "payout-1", &payout).await;
    assert_eq!(doubt.status(), StatusCode::CONFLICT);
    let doubt = json_of(doubt).await;
    assert_eq!(doubt["code"], "OUTCOME.unknown");
    assert_eq!(shop.provider.payouts(), 1);

    let link = doubt["settle"].as_str().unwrap();
    let listed = json_of(shop.get_as(OPERATOR, "/doubts").await).await;
    assert_eq!(listed, json!([{ "call": doubt["call"], "settle": link }]));
    let settled = shop.post_as(OPERATOR, link, "", &json!(null)).await;
    assert_eq!(
        json_of(settled).await,
        json!({ "happened": true, "settled": "Applied" })
    );
    let replay = shop.post("/payouts", "payout-1", &payout).await;
    assert_eq!(
        (replay.status(), key_status(&replay)),
        (StatusCode::CREATED, "replayed")
    );
    assert_eq!(shop.provider.payouts(), 1);
}

#[tokio::test]
async fn refunds_happen_once_on_sqlite() {
    refunds_happen_once(Shop::on_sqlite(prompt()).await).await;
}

#[tokio::test]
async fn refunds_happen_once_on_postgres() {
    refunds_happen_once(Shop::on_postgres(prompt()).await).await;
}

#[tokio::test]
async fn ten_clicks_make_one_refund_on_sqlite() {
    ten_clicks_make_one_refund(Shop::on_sqlite(prompt()).await).await;
}

#[tokio::test]
async fn ten_clicks_make_one_refund_on_postgres() {
    ten_clicks_make_one_refund(Shop::on_postgres(prompt()).await).await;
}

#[tokio::test]
async fn a_refused_refund_is_stored_on_sqlite() {
    a_refused_refund_is_an_answer_like_any_other(Shop::on_sqlite(prompt()).await).await;
}

#[tokio::test]
async fn a_refused_refund_is_stored_on_postgres() {
    a_refused_refund_is_an_answer_like_any_other(Shop::on_postgres(prompt()).await).await;
}

#[tokio::test]
async fn a_silent_payout_is_settled_by_asking_on_sqlite() {
    a_silent_payout_is_settled_by_asking(Shop::on_sqlite(Provider::new(Duration::ZERO, 1)).await).await;
}

#[tokio::test]
async fn a_silent_payout_is_settled_by_asking_on_postgres() {
    a_silent_payout_is_settled_by_asking(Shop::on_postgres(Provider::new(Duration::ZERO, 1)).await).await;
}

#[tokio::test]
async fn the_same_key_of_two_users_pays_out_to_both_on_sqlite() {
    the_same_key_of_two_users_pays_out_to_both(Shop::on_sqlite(prompt()).await).await;
}

#[tokio::test]
async fn the_same_key_of_two_users_pays_out_to_both_on_postgres() {
    the_same_key_of_two_users_pays_out_to_both(Shop::on_postgres(prompt()).await).await;
}

#[tokio::test]
async fn only_the_operator_sees_and_settles_doubts() {
    let shop = Shop::on_sqlite(Provider::new(Duration::ZERO, 1)).await;
    let payout = json!({ "account": "ada", "amount": 700 });
    for _ in ["silent", "in doubt"] {
        shop.post("/payouts", "payout-1", &payout).await;
    }
    let doubts = json_of(shop.get_as(OPERATOR, "/doubts").await).await;
    let link = doubts[0]["settle"].as_str().unwrap();
    // Not even the one whose payout it is: what happened is the provider's to say and ours to ask.
    for user in ["ada", "bob"] {
        assert_eq!(shop.get_as(user, "/doubts").await.status(), StatusCode::FORBIDDEN);
        let settled = shop.post_as(user, link, "", &json!(null)).await;
        assert_eq!(settled.status(), StatusCode::FORBIDDEN);
    }
    let doubt = shop.post("/payouts", "payout-1", &payout).await;
    assert_eq!(json_of(doubt).await["code"], "OUTCOME.unknown");
}

#[tokio::test]
async fn a_request_without_a_user_or_a_key_is_refused() {
    let shop = Shop::on_sqlite(prompt()).await;
    let send = |request: Request<Body>| shop.app.router.clone().oneshot(request);
    let nobody = send(Request::post("/payments").body(Body::empty()).unwrap())
        .await
        .unwrap();
    assert_eq!(nobody.status(), StatusCode::UNAUTHORIZED);
    let unkeyed = Request::post("/payments")
        .header("authorization", "Bearer ada")
        .body(Body::empty())
        .unwrap();
    assert_eq!(send(unkeyed).await.unwrap().status(), StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn an_unknown_database_is_named_in_the_error() {
    let error = app("mysql://localhost", prompt(), OPERATOR).await.unwrap_err();
    assert!(error.to_string().contains("mysql://localhost"), "{error}");
}
