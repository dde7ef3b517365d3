//! A route whose upstream joins: its own transaction completes the call, and whatever breaks, no outcome is unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Extension, Router};
use exactly::layer::{CallInfo, Guarantee, IdempotencyLayer, OutcomeUnknown, Policy};
use exactly::{Inspect as _, Keep};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::sync::Notify;
use tower::ServiceExt as _;

use super::{Place, url};

fn joined() -> Policy {
    Policy::playbook().guarantee(Guarantee::Joined)
}

/// A gateway on the place's records, and what is behind it.
struct Gateway {
    place: Place,
    layer: IdempotencyLayer,
}

/// One request as the upstream serves it.
struct Job {
    conn: PgConnection,
    schema: String,
    joins: HeaderMap,
    run: u32,
}

impl Gateway {
    async fn open(policy: Policy) -> Self {
        let place = Place::fresh();
        let builder = IdempotencyLayer::builder(place.open().await).global_keys();
        let layer = builder.policy(policy).build().unwrap();
        place
            .run(&format!("create table {}.payments (run int)", place.schema))
            .await;
        Self { place, layer }
    }

    /// The route, served by `upstream`.
    fn route<F, Fut>(&self, upstream: F) -> Router
    where
        F: Fn(Job) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Response> + Send + 'static,
    {
        let schema = self.place.schema.clone();
        let runs = Arc::new(AtomicU32::new(0));
        let handler = move |Extension(call): Extension<CallInfo>| {
            let (upstream, schema) = (upstream.clone(), schema.clone());
            let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
            async move {
                let conn = PgConnection::connect(&url()).await.unwrap();
                let joins = call.join_headers().collect();
                upstream(Job {
                    conn,
                    schema,
                    joins,
                    run,
                })
                .await
            }
        };
        Router::new().route("/", post(handler)).layer(self.layer.clone())
    }

    async fn payments(&self) -> i64 {
        let sql = format!("select count(*) from {}.payments", self.place.schema);
        let count = sqlx::query_scalar(AssertSqlSafe(sql));
        count.fetch_one(&self.place.pool).await.unwrap()
    }
}

impl Job {
    async fn sql(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        let sql = AssertSqlSafe(sql.replace("{schema}", &self.schema));
        sqlx::raw_sql(sql).execute(&mut self.conn).await.map(drop)
    }

    /// Makes the effect in a transaction, and leaves it open.
    async fn pay(&mut self) {
        let sql = format!("begin; insert into {{schema}}.payments values ({})", self.run);
        self.sql(&sql).await.unwrap();
    }

    async fn complete(&mut self) -> Result<(), sqlx::Error> {
        let body = format!("payment {}", self.run);
        self.complete_with(
            "'{\"Content-Type\": \"text/plain\", \"X-From\": \"upstream\"}'",
            &format!("'{body}'"),
        )
        .await
    }

    async fn complete_with(&mut self, headers: &str, body: &str) -> Result<(), sqlx::Error> {
        let header = |name: &str| self.joins[name].to_str().unwrap();
        let (call, token, keep) = (header("exactly-call"), header("exactly-token"), header("exactly-keep"));
        let sql = format!(
            "select {{schema}}.calls_complete(call => '{call}', token => '{token}', status => 201, headers => {headers},
                                        body => {body}, keep => '{keep}')"
        );
        self.sql(&sql).await
    }

    async fn commit(&mut self) {
        self.sql("commit").await.unwrap();
    }

    /// The whole job, done well.
    async fn serve(mut self) -> Response {
        self.pay().await;
        self.complete().await.unwrap();
        self.commit().await;
        let body = format!("payment {}", self.run);
        let headers = [
            ("content-type", "text/plain"),
            ("x-from", "live"),
            ("set-cookie", "a=b"),
        ];
        (StatusCode::CREATED, headers, body).into_response()
    }
}

/// As a proxy says that the connection broke before the answer came.
fn no_answer() -> Response {
    let mut response = StatusCode::BAD_GATEWAY.into_response();
    response.extensions_mut().insert(OutcomeUnknown);
    response
}

/// Status, `Idempotency-Status`, `X-From` and body.
async fn send(app: &Router, key: &str) -> (u16, Option<String>, Option<String>, String) {
    let request = Request::post("/").header("idempotency-key", key);
    let response = app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let header = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let (key_status, from) = (header("idempotency-status"), header("x-from"));
    let body = axum::body::to_bytes(body, 10_000).await.unwrap();
    let body = String::from_utf8(body.to_vec()).unwrap();
    (parts.status.as_u16(), key_status, from, body)
}

fn paid(key_status: &str, run: u32) -> (u16, Option<String>, Option<String>, String) {
    let from = Some("upstream".to_owned());
    (201, Some(key_status.to_owned()), from, format!("payment {run}"))
}

#[track_caller]
fn assert_nothing_happened(told: &(u16, Option<String>, Option<String>, String)) {
    assert_eq!(told.0, 503, "{told:?}");
    assert!(
        told.3.contains("TRANSIENT.handler_failed") && told.3.contains("nothing happened"),
        "{told:?}"
    );
}

#[tokio::test]
async fn an_upstream_that_joins_is_answered_for_by_what_it_stored() {
    let gateway = Gateway::open(joined().keep(Keep::For(Duration::from_mins(10)))).await;
    let app = gateway.route(Job::serve);
    assert_eq!(send(&app, "key").await, paid("stored", 1));
    assert_eq!(send(&app, "key").await, paid("replayed", 1));
    assert_eq!(gateway.payments().await, 1);
    let store = gateway.place.open().await;
    let calls = store.list(&exactly::store::Filter::default()).await.unwrap().calls;
    let kept = calls[0].until.unwrap().since(calls[0].created_at);
    assert!(
        kept > Duration::from_secs(590) && kept < Duration::from_secs(700),
        "{kept:?}"
    );
}

/// Dead before its commit, or its answer lost after it: the caller learns which.
#[tokio::test]
async fn when_no_answer_comes_the_record_tells_what_happened() {
    let gateway = Gateway::open(joined()).await;
    let dies_early = gateway.route(|mut job| async move {
        if job.run == 1 {
            job.pay().await;
            job.complete().await.unwrap();
            job.conn.close_hard().await.unwrap();
            return no_answer();
        }
        job.serve().await
    });
    assert_nothing_happened(&send(&dies_early, "early").await);
    assert_eq!(gateway.payments().await, 0);
    assert_eq!(send(&dies_early, "early").await, paid("stored", 2));

    let dies_late = gateway.route(|job| async move {
        job.serve().await;
        no_answer()
    });
    assert_eq!(send(&dies_late, "late").await, paid("stored", 1));
    assert_eq!(send(&dies_late, "late").await, paid("replayed", 1));
    let panics = gateway.route(|job| async move {
        job.serve().await;
        panic!("after the commit")
    });
    assert_eq!(send(&panics, "panic").await, paid("stored", 1));
    assert_eq!(gateway.payments().await, 3);
}

/// The gateway gives up on an upstream that takes too long, which then can no longer commit.
#[tokio::test]
async fn an_upstream_that_was_given_up_cannot_commit() {
    let gateway = Gateway::open(joined()).await;
    let (given_up, raised) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let app = gateway.route({
        let (given_up, raised) = (Arc::clone(&given_up), Arc::clone(&raised));
        move |mut job| {
            let (given_up, raised) = (Arc::clone(&given_up), Arc::clone(&raised));
            async move {
                if job.run > 1 {
                    return job.serve().await;
                }
                job.pay().await;
                tokio::spawn(async move {
                    given_up.notified().await;
                    let error = job.complete().await.unwrap_err();
                    assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("XO001"));
                    raised.notify_one();
                });
                no_answer()
            }
        }
    });
    assert_nothing_happened(&send(&app, "key").await);
    given_up.notify_one();
    raised.notified().await;
    assert_eq!(gateway.payments().await, 0);
    assert_eq!(send(&app, "key").await, paid("stored", 2));
    assert_eq!(gateway.payments().await, 1);
}

/// An upstream that has completed its call and not committed yet is waited for, and its last word is told.
#[tokio::test]
async fn an_upstream_about_to_commit_is_waited_for() {
    for (ends, happens) in [("commit", true), ("rollback", false)] {
        let gateway = Gateway::open(joined()).await;
        let app = gateway.route(move |mut job| async move {
            if job.run > 1 {
                return job.serve().await;
            }
            job.pay().await;
            job.complete().await.unwrap();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                job.sql(ends).await.unwrap();
            });
            no_answer()
        });
        let told = send(&app, "key").await;
        if happens {
            assert_eq!(told, paid("stored", 1));
        } else {
            assert_nothing_happened(&told);
        }
        assert_eq!(gateway.payments().await, i64::from(happens));
    }
}

#[tokio::test]
async fn a_5xx_frees_the_key_unless_the_upstream_has_committed() {
    let gateway = Gateway::open(joined()).await;
    for status in [500, 502, 503, 504, 429] {
        let app = gateway.route(move |mut job| async move {
            job.pay().await;
            job.complete().await.unwrap();
            job.sql("rollback").await.unwrap();
            (StatusCode::from_u16(status).unwrap(), "no").into_response()
        });
        for _ in 0..2 {
            let told = send(&app, &format!("fails {status}")).await;
            assert_eq!(told, (status, Some("freed".to_owned()), None, "no".to_owned()));
        }
        let app = gateway.route(move |job| async move {
            job.serve().await;
            (StatusCode::from_u16(status).unwrap(), "lost its head").into_response()
        });
        assert_eq!(send(&app, &format!("lies {status}")).await, paid("stored", 1));
        assert_eq!(send(&app, &format!("lies {status}")).await, paid("replayed", 1));
    }
    assert_eq!(gateway.payments().await, 5);
}

/// Where there is no effect there is nothing to join, and the answer is the gateway's to store.
#[tokio::test]
async fn an_answer_without_an_effect_needs_no_transaction() {
    let gateway = Gateway::open(joined()).await;
    let app = gateway.route(|job| async move {
        let body = format!("run {}", job.run);
        (StatusCode::UNPROCESSABLE_ENTITY, [("x-from", "live")], body).into_response()
    });
    let told = |key_status: &str| {
        (
            422,
            Some(key_status.to_owned()),
            Some("live".to_owned()),
            "run 1".to_owned(),
        )
    };
    assert_eq!(send(&app, "key").await, told("stored"));
    assert_eq!(send(&app, "key").await, told("replayed"));
}

/// The gateway dies: its lease ends, the next one runs the call, and the upstream of the first cannot commit.
#[tokio::test]
async fn after_a_crash_of_the_gateway_the_next_one_takes_over() {
    let gateway = Gateway::open(joined()).await;
    let left = Arc::new(tokio::sync::Mutex::new(None));
    let dying = gateway.route({
        let left = Arc::clone(&left);
        move |mut job| {
            let left = Arc::clone(&left);
            async move {
                job.pay().await;
                *left.lock().await = Some(job);
                std::future::pending().await
            }
        }
    });
    let request = tokio::spawn(async move { send(&dying, "key").await });
    while left.lock().await.is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    request.abort();
    gateway.place.shift('-', Duration::from_hours(1)).await;

    let next = IdempotencyLayer::builder(gateway.place.open().await)
        .global_keys()
        .policy(joined())
        .build()
        .unwrap();
    let next = Gateway {
        place: gateway.place.clone(),
        layer: next,
    };
    let app = next.route(Job::serve);
    assert_eq!(send(&app, "key").await, paid("stored", 1));
    let mut job = left.lock().await.take().unwrap();
    let error = job.complete().await.unwrap_err();
    let code = error.as_database_error().unwrap().code().unwrap().into_owned();
    assert_eq!(code, "XO001", "{error}");
    job.sql("commit").await.unwrap();
    assert_eq!(gateway.payments().await, 1);
}

/// An answer that is not to be stored reaches its first caller all the same.
#[tokio::test]
async fn an_answer_that_is_not_kept_is_told_once() {
    let gateway = Gateway::open(joined()).await;
    let app = gateway.route(|mut job| async move {
        job.pay().await;
        job.complete_with("'{}'", "null").await.unwrap();
        job.commit().await;
        (StatusCode::CREATED, "a secret").into_response()
    });
    let told = send(&app, "key").await;
    assert_eq!(told, (201, Some("stored".to_owned()), None, "a secret".to_owned()));
    let told = send(&app, "key").await;
    assert_eq!(told.0, 409);
    assert!(told.3.contains("OUTCOME.replay_unavailable"), "{told:?}");
    assert_eq!(gateway.payments().await, 1);
}

/// What the function stores is what the gateway would have stored, byte for byte.
#[tokio::test]
async fn the_function_and_the_gateway_store_the_same_bytes() {
    let gateway = Gateway::open(joined()).await;
    let headers = [
        ("content-type", "application/json"),
        ("etag", "\"7\""),
        ("link", "</a>"),
        ("link", "</b>"),
    ];
    let by_gateway = gateway.route(move |_| async move {
        let mut response = (StatusCode::CREATED, "{\"id\":7}").into_response();
        response.headers_mut().clear();
        for (name, value) in headers {
            response.headers_mut().append(name, HeaderValue::from_static(value));
        }
        response.headers_mut().append("date", HeaderValue::from_static("now"));
        response
    });
    assert_eq!(send(&by_gateway, "gateway").await.1.as_deref(), Some("stored"));
    let by_function = gateway.route(move |mut job| async move {
        let pairs = r#"'[["Content-Type", "application/json"], ["ETAG", "\"7\""], ["link", "</a>"], ["Link", "</b>"],
                         ["Date", "now"]]'"#;
        job.complete_with(pairs, "convert_to('{\"id\":7}', 'UTF8')")
            .await
            .unwrap();
        no_answer()
    });
    assert_eq!(send(&by_function, "function").await.0, 201);
    let sql = format!("select outcome from {}.calls order by key", gateway.place.schema);
    let outcomes: Vec<Vec<u8>> = sqlx::query_scalar(AssertSqlSafe(sql))
        .fetch_all(&gateway.place.pool)
        .await
        .unwrap();
    assert_eq!(outcomes.len(), 2);
    assert_eq!(outcomes[0], outcomes[1]);
}

/// A header that the route withholds is not told, whoever stored it.
#[tokio::test]
async fn a_withheld_header_is_withheld_from_what_an_upstream_stored() {
    let gateway = Gateway::open(joined().withheld_header("x-from".parse().unwrap())).await;
    let app = gateway.route(Job::serve);
    for _ in 0..2 {
        assert_eq!(send(&app, "key").await.2, None);
    }
}
