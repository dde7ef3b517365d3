//! Transactional routes on real databases: the handler's effect and the record of its call.

use std::ops::DerefMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use bytes::Bytes;
use exactly::layer::{Guarantee, IdempotencyLayer, KeyRule, NothingHappened, Policy};
use exactly::store::{Reply, Watch};
use exactly::{Call, CallId, Claim, Fenced, Keep, Store, StoreError, StoreErrorKind, TransactionalStore, Verdict};
use exactly_sql::{PgStore, SqliteStore, Tx};
use sqlx::{AssertSqlSafe, PgConnection, PgPool, SqliteConnection, SqlitePool};
use tokio::sync::Notify;
use tower::ServiceExt;

use crate::postgres::Place;

/// A database with an effects table that would take duplicates.
pub(crate) trait Shop: Sized + Send + Sync + 'static {
    type Store: TransactionalStore<Tx: DerefMut<Target = Self::Connection> + Sync>;
    type Connection: Effects + 'static;

    async fn open() -> Self;
    /// A store as another process would have it.
    async fn store(&self) -> Arc<Self::Store>;
    async fn effects(&self) -> i64;
}

/// What handlers do.
pub(crate) trait Effects: Send {
    fn take_effect(&mut self) -> impl Future<Output = ()> + Send;
}

pub(crate) struct OnSqlite {
    pool: SqlitePool,
    dir: tempfile::TempDir,
}

pub(crate) struct OnPostgres(Place);

impl Effects for SqliteConnection {
    async fn take_effect(&mut self) {
        sqlx::query("insert into effects default values")
            .execute(self)
            .await
            .unwrap();
    }
}

impl Effects for PgConnection {
    async fn take_effect(&mut self) {
        // The schema is the first of the search path, so that one statement serves all tests.
        sqlx::query("insert into effects default values")
            .execute(self)
            .await
            .unwrap();
    }
}

impl Shop for OnSqlite {
    type Store = SqliteStore;
    type Connection = SqliteConnection;

    async fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path().join("shop.db")).await.unwrap();
        let pool = store.pool().clone();
        sqlx::query("create table effects (id integer primary key)")
            .execute(&pool)
            .await
            .unwrap();
        Self { pool, dir }
    }

    async fn store(&self) -> Arc<SqliteStore> {
        Arc::new(SqliteStore::open(self.dir.path().join("shop.db")).await.unwrap())
    }

    async fn effects(&self) -> i64 {
        sqlx::query_scalar("select count(*) from effects")
            .fetch_one(&self.pool)
            .await
            .unwrap()
    }
}

impl Shop for OnPostgres {
    type Store = PgStore;
    type Connection = PgConnection;

    async fn open() -> Self {
        let place = Place::fresh();
        place.open().await;
        let sql = format!(
            "create table {}.effects (id bigint generated always as identity)",
            place.schema
        );
        sqlx::query(AssertSqlSafe(sql)).execute(&place.pool).await.unwrap();
        Self(place)
    }

    async fn store(&self) -> Arc<PgStore> {
        let schema = self.0.schema.clone();
        // Two connections are enough for any number of duplicates, or waiters hold them.
        let options = sqlx::postgres::PgPoolOptions::new()
            .max_connections(2)
            .after_connect(move |connection, _| {
                let sql = format!("set search_path to {schema}");
                Box::pin(async move { sqlx::query(AssertSqlSafe(sql)).execute(connection).await.map(drop) })
            });
        let pool: PgPool = options.connect_lazy(&crate::postgres::url()).unwrap();
        Arc::new(PgStore::builder(pool).schema(&self.0.schema).start().await.unwrap())
    }

    async fn effects(&self) -> i64 {
        let sql = format!("select count(*) from {}.effects", self.0.schema);
        sqlx::query_scalar(AssertSqlSafe(sql))
            .fetch_one(&self.0.pool)
            .await
            .unwrap()
    }
}

fn policy() -> Policy {
    Policy::playbook()
        .key(KeyRule::Required)
        .guarantee(Guarantee::Transactional)
}

fn layer<S: TransactionalStore>(store: Arc<S>, policy: Policy) -> IdempotencyLayer {
    IdempotencyLayer::transactional(store)
        .global_keys()
        .policy(policy)
        .build()
        .unwrap()
}

/// A service whose handler takes its effect and then answers as `answer` says for each run, counted from one.
fn app<S: Shop>(
    layer: &IdempotencyLayer,
    answer: impl Fn(u32) -> axum::response::Response + Clone + Send + Sync + 'static,
) -> Router {
    let runs = Arc::new(AtomicU32::new(0));
    let handler = move |mut tx: Tx<<S::Store as TransactionalStore>::Tx>| {
        let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
        let answer = answer.clone();
        async move {
            tx.take_effect().await;
            answer(run)
        }
    };
    Router::new().route("/", post(handler)).layer(layer.clone())
}

fn says(status: u16) -> impl Fn(u32) -> axum::response::Response + Clone {
    move |run| (StatusCode::from_u16(status).unwrap(), format!("run {run}")).into_response()
}

/// Status, `Idempotency-Status` and body of the answer to a request with `key`.
async fn send(app: &Router, key: Option<&str>) -> (u16, Option<String>, String) {
    let mut request = Request::post("/");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let response = app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = response
        .headers()
        .get("idempotency-status")
        .map(|value| value.to_str().unwrap().to_owned());
    let code = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
    (code, status, String::from_utf8(body.to_vec()).unwrap())
}

fn told(status: u16, key_status: &str, body: &str) -> (u16, Option<String>, String) {
    (status, Some(key_status.to_owned()), body.to_owned())
}

async fn record_and_effect_commit_together<S: Shop>() {
    let shop = S::open().await;
    let app = app::<S>(&layer(shop.store().await, policy()), says(201));
    assert_eq!(send(&app, Some("k1")).await, told(201, "stored", "run 1"));
    assert_eq!(send(&app, Some("k1")).await, told(201, "replayed", "run 1"));
    assert_eq!(shop.effects().await, 1);
    // Another process sees it too.
    let other = app_of_other_process::<S>(&shop).await;
    assert_eq!(send(&other, Some("k1")).await, told(201, "replayed", "run 1"));
    assert_eq!(shop.effects().await, 1);
}

async fn app_of_other_process<S: Shop>(shop: &S) -> Router {
    app::<S>(&layer(shop.store().await, policy()), says(201))
}

async fn a_5xx_or_a_panic_rolls_back_and_frees_the_key<S: Shop>() {
    let shop = S::open().await;
    let layer = layer(shop.store().await, policy());
    for (key, status) in [("k1", 500), ("k2", 502), ("k3", 503), ("k4", 429)] {
        let failing = app::<S>(&layer, says(status));
        assert_eq!(send(&failing, Some(key)).await, told(status, "freed", "run 1"));
    }
    let panicking = app::<S>(&layer, |_| panic!("half way"));
    assert_eq!(send(&panicking, Some("k5")).await.0, 500);
    let nothing = app::<S>(&layer, |_| (NothingHappened, StatusCode::OK).into_response());
    assert_eq!(send(&nothing, Some("k6")).await.1.as_deref(), Some("freed"));
    assert_eq!(shop.effects().await, 0);
    let app = app::<S>(&layer, says(201));
    for (key, run) in ["k1", "k2", "k3", "k4", "k5", "k6"].iter().zip(1..) {
        assert_eq!(send(&app, Some(key)).await, told(201, "stored", &format!("run {run}")));
    }
    assert_eq!(shop.effects().await, 6);
}

async fn a_4xx_is_an_outcome<S: Shop>() {
    let shop = S::open().await;
    let app = app::<S>(&layer(shop.store().await, policy()), says(412));
    assert_eq!(send(&app, Some("k1")).await, told(412, "stored", "run 1"));
    assert_eq!(send(&app, Some("k1")).await, told(412, "replayed", "run 1"));
}

/// An app whose handler waits for leave after its effect.
fn gated<S: Shop>(layer: &IdempotencyLayer, started: &Arc<Notify>, leave: &Arc<Notify>) -> Router {
    let (started, leave) = (Arc::clone(started), Arc::clone(leave));
    let handler = move |mut tx: Tx<<S::Store as TransactionalStore>::Tx>| {
        let (started, leave) = (Arc::clone(&started), Arc::clone(&leave));
        async move {
            tx.take_effect().await;
            let leave = leave.notified();
            started.notify_one();
            leave.await;
            "done"
        }
    };
    Router::new().route("/", post(handler)).layer(layer.clone())
}

async fn ten_concurrent_requests_make_one_effect<S: Shop>() {
    let shop = S::open().await;
    let (started, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let app = gated::<S>(&layer(shop.store().await, policy()), &started, &leave);
    let requests: Vec<_> = (0..10)
        .map(|_| {
            let app = app.clone();
            tokio::spawn(async move { send(&app, Some("k1")).await })
        })
        .collect();
    started.notified().await;
    // All the others wait in memory: a request with another key still finds a connection, or is told in time.
    leave.notify_waiters();
    let mut statuses = Vec::new();
    for request in requests {
        let (code, status, body) = request.await.unwrap();
        assert_eq!((code, body.as_str()), (200, "done"));
        statuses.push(status.unwrap());
    }
    statuses.sort();
    assert_eq!(
        (
            statuses[..9].iter().all(|status| status == "replayed"),
            statuses[9].as_str()
        ),
        (true, "stored")
    );
    assert_eq!(shop.effects().await, 1);
}

async fn past_the_wait_limit_a_duplicate_is_told_so<S: Shop>() {
    let shop = S::open().await;
    let (started, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let app = gated::<S>(
        &layer(shop.store().await, policy().wait(Duration::ZERO)),
        &started,
        &leave,
    );
    let first = tokio::spawn({
        let app = app.clone();
        async move { send(&app, Some("k1")).await }
    });
    started.notified().await;
    let (code, _, body) = send(&app, Some("k1")).await;
    assert_eq!(code, 409, "{body}");
    assert!(body.contains("CONFLICT.idempotency.in_progress"), "{body}");
    leave.notify_waiters();
    assert_eq!(first.await.unwrap(), told(200, "stored", "done"));
}

async fn other_keys_do_not_fail_because_one_is_under_way<S: Shop>() {
    let shop = S::open().await;
    let (started, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    // No waiting for duplicates does not mean no waiting for the database.
    let layer = layer(shop.store().await, policy().wait(Duration::ZERO));
    let gated = gated::<S>(&layer, &started, &leave);
    let first = tokio::spawn(async move { send(&gated, Some("k1")).await });
    started.notified().await;
    let second = tokio::spawn({
        let app = app::<S>(&layer, says(201));
        async move { send(&app, Some("k2")).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    leave.notify_waiters();
    assert_eq!(first.await.unwrap(), told(200, "stored", "done"));
    assert_eq!(second.await.unwrap(), told(201, "stored", "run 1"));
}

async fn a_hang_up_does_not_roll_back<S: Shop>() {
    let shop = S::open().await;
    let (started, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let layer = layer(shop.store().await, policy());
    let app = gated::<S>(&layer, &started, &leave);
    let request = tokio::spawn({
        let app = app.clone();
        async move { send(&app, Some("k1")).await }
    });
    started.notified().await;
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    leave.notify_waiters();
    layer.drain().await;
    assert_eq!(send(&app, Some("k1")).await, told(200, "replayed", "done"));
    assert_eq!(shop.effects().await, 1);
}

async fn a_request_without_a_key_gets_a_transaction_too<S: Shop>() {
    let shop = S::open().await;
    let layer = layer(shop.store().await, policy().key(KeyRule::Optional));
    assert_eq!(
        send(&app::<S>(&layer, says(201)), None).await,
        (201, None, "run 1".to_owned())
    );
    assert_eq!(shop.effects().await, 1);
    assert_eq!(send(&app::<S>(&layer, says(500)), None).await.0, 500);
    assert_eq!(shop.effects().await, 1);
}

async fn a_handler_that_keeps_its_transaction_commits_nothing<S: Shop>() {
    let shop = S::open().await;
    let kept = Arc::new(std::sync::Mutex::new(None));
    let handler = {
        let kept = Arc::clone(&kept);
        move |mut tx: Tx<<S::Store as TransactionalStore>::Tx>| async move {
            tx.take_effect().await;
            *kept.lock().unwrap() = Some(tx);
        }
    };
    let layer = layer(shop.store().await, policy());
    let app = Router::new().route("/", post(handler)).layer(layer.clone());
    let (code, _, body) = send(&app, Some("k1")).await;
    assert_eq!(code, 500);
    assert!(body.contains("transaction_withheld"), "{body}");
    kept.lock().unwrap().take();
    assert_eq!(shop.effects().await, 0);
    assert_eq!(
        send(&self::app::<S>(&layer, says(201)), Some("k1")).await,
        told(201, "stored", "run 1")
    );
}

/// A store with something wrong in it.
#[derive(Debug)]
struct Rigged<S> {
    inner: Arc<S>,
    fault: Fault,
}

#[derive(Debug)]
enum Fault {
    /// Commits, and answers with an error.
    CommitUnanswered,
    /// Does not commit, and answers with an error.
    CommitUndone,
    /// The same, and lets others go first.
    CommitOvertaken(Arc<Overtaking>),
    /// No transaction is ever opened.
    OpenHangs,
    OpenFails,
}

#[derive(Debug, Default)]
struct Overtaking {
    undone: Notify,
    overtaken: Notify,
}

impl<S: TransactionalStore> Store for Rigged<S> {
    fn begin<'a>(&'a self, call: &'a Call) -> Reply<'a, Verdict> {
        self.inner.begin(call)
    }

    fn peek<'a>(&'a self, call: &'a Call) -> Reply<'a, Option<Verdict>> {
        self.inner.peek(call)
    }

    fn renew<'a>(&'a self, claim: &'a Claim, lease: Duration) -> Reply<'a, Fenced> {
        self.inner.renew(claim, lease)
    }

    fn complete<'a>(&'a self, claim: &'a Claim, outcome: &'a Bytes, keep: Keep) -> Reply<'a, Fenced> {
        self.inner.complete(claim, outcome, keep)
    }

    fn abandon<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        self.inner.abandon(claim)
    }

    fn lose<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        self.inner.lose(claim)
    }

    fn sweep(&self, limit: u32) -> Reply<'_, u32> {
        self.inner.sweep(limit)
    }

    fn watch(&self, id: &CallId) -> Watch {
        self.inner.watch(id)
    }
}

impl<S: TransactionalStore> TransactionalStore for Rigged<S> {
    type Tx = S::Tx;

    const LOCKS_BY_KEY: bool = S::LOCKS_BY_KEY;

    fn open(&self, lock_wait: Duration) -> Reply<'_, S::Tx> {
        match self.fault {
            Fault::OpenHangs => Box::pin(std::future::pending()),
            Fault::OpenFails => Box::pin(std::future::ready(Err(lost("open transaction")))),
            _ => self.inner.open(lock_wait),
        }
    }

    fn begin_in<'a>(&'a self, tx: &'a mut S::Tx, call: &'a Call) -> Reply<'a, Verdict> {
        self.inner.begin_in(tx, call)
    }

    fn complete_in<'a>(
        &'a self,
        tx: &'a mut S::Tx,
        claim: &'a Claim,
        outcome: &'a Bytes,
        keep: Keep,
    ) -> Reply<'a, Fenced> {
        self.inner.complete_in(tx, claim, outcome, keep)
    }

    fn commit(&self, tx: S::Tx) -> Reply<'_, ()> {
        Box::pin(async move {
            match &self.fault {
                Fault::CommitUnanswered => self.inner.commit(tx).await?,
                Fault::CommitUndone | Fault::OpenHangs | Fault::OpenFails => self.inner.rollback(tx).await?,
                Fault::CommitOvertaken(overtaking) => {
                    self.inner.rollback(tx).await?;
                    overtaking.undone.notify_one();
                    overtaking.overtaken.notified().await;
                }
            }
            Err(lost("commit"))
        })
    }

    fn rollback(&self, tx: S::Tx) -> Reply<'_, ()> {
        self.inner.rollback(tx)
    }
}

fn lost(attempted: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, format!("{attempted}: connection reset"))
}

async fn after_a_lost_commit_the_database_tells_what_happened<S: Shop>() {
    let shop = S::open().await;
    let store = shop.store().await;
    let happened = Rigged {
        inner: Arc::clone(&store),
        fault: Fault::CommitUnanswered,
    };
    let app_of = |store| app::<S>(&layer(Arc::new(store), policy()), says(201));
    assert_eq!(send(&app_of(happened), Some("k1")).await, told(201, "stored", "run 1"));
    assert_eq!(shop.effects().await, 1);
    let undone = Rigged {
        inner: store,
        fault: Fault::CommitUndone,
    };
    let (code, _, body) = send(&app_of(undone), Some("k2")).await;
    assert_eq!(code, 503, "{body}");
    assert_eq!(shop.effects().await, 1);
    let app = app::<S>(&layer(shop.store().await, policy()), says(201));
    assert_eq!(send(&app, Some("k1")).await, told(201, "replayed", "run 1"));
    assert_eq!(send(&app, Some("k2")).await, told(201, "stored", "run 1"));
    assert_eq!(shop.effects().await, 2);
}

async fn after_a_lost_commit_the_answer_that_stands_is_told<S: Shop>() {
    let shop = S::open().await;
    let overtaking = Arc::new(Overtaking::default());
    let overtaken = Rigged {
        inner: shop.store().await,
        fault: Fault::CommitOvertaken(Arc::clone(&overtaking)),
    };
    let overtaken = app::<S>(&layer(Arc::new(overtaken), policy()), says(201));
    let first = tokio::spawn(async move { send(&overtaken, Some("k1")).await });
    overtaking.undone.notified().await;
    let other = app::<S>(&layer(shop.store().await, policy()), |_| "another run".into_response());
    assert_eq!(send(&other, Some("k1")).await, told(200, "stored", "another run"));
    overtaking.overtaken.notify_one();
    assert_eq!(first.await.unwrap(), told(200, "replayed", "another run"));
    assert_eq!(shop.effects().await, 1);
}

async fn a_transaction_is_opened_for_who_takes_it_only<S: Shop>() {
    let shop = S::open().await;
    let stuck = Rigged {
        inner: shop.store().await,
        fault: Fault::OpenHangs,
    };
    let layer = layer(Arc::new(stuck), policy().key(KeyRule::Optional));
    // Neither does its answer wait for its end.
    let handler = || async { Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>()) };
    let app = Router::new().route("/", axum::routing::any(handler)).layer(layer);
    for method in ["GET", "OPTIONS", "POST", "DELETE"] {
        let request = Request::builder().method(method).uri("/").body(Body::empty()).unwrap();
        assert_eq!(app.clone().oneshot(request).await.unwrap().status(), 200, "{method}");
    }
}

async fn a_request_without_a_key_is_turned_away_if_it_needs_a_transaction_that_there_is_none<S: Shop>() {
    let shop = S::open().await;
    let down = Rigged {
        inner: shop.store().await,
        fault: Fault::OpenFails,
    };
    let layer = layer(Arc::new(down), policy().key(KeyRule::Optional));
    let (code, status, body) = send(&app::<S>(&layer, says(201)), None).await;
    assert_eq!((code, status), (503, None));
    assert!(body.contains("DEPENDENCY.unavailable"), "{body}");
    assert_eq!(shop.effects().await, 0);
}

async fn a_duplicate_learns_of_another_process_while_its_own_is_stuck<S: Shop>() {
    let shop = S::open().await;
    let stuck = Rigged {
        inner: shop.store().await,
        fault: Fault::OpenHangs,
    };
    let stuck = app::<S>(
        &layer(Arc::new(stuck), policy().wait(Duration::from_secs(3))),
        says(201),
    );
    let first = tokio::spawn({
        let stuck = stuck.clone();
        async move { send(&stuck, Some("k1")).await }
    });
    // Long enough for the first to be stuck, and not too long for the second, which then waits behind it.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let waiting = tokio::spawn({
        let stuck = stuck.clone();
        async move { send(&stuck, Some("k1")).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let other = app_of_other_process::<S>(&shop).await;
    assert_eq!(send(&other, Some("k1")).await, told(201, "stored", "run 1"));
    assert_eq!(waiting.await.unwrap(), told(201, "replayed", "run 1"));
    assert_eq!(send(&stuck, Some("k1")).await, told(201, "replayed", "run 1"));
    first.abort();
    assert_eq!(shop.effects().await, 1);
}

macro_rules! on_both {
    ($($promise:ident)*) => {
        mod sqlite {
            $(#[tokio::test] async fn $promise() { super::$promise::<super::OnSqlite>().await; })*
        }
        mod postgres {
            $(#[tokio::test] async fn $promise() { super::$promise::<super::OnPostgres>().await; })*
        }
    };
}

on_both! {
    record_and_effect_commit_together
    a_5xx_or_a_panic_rolls_back_and_frees_the_key
    a_4xx_is_an_outcome
    ten_concurrent_requests_make_one_effect
    past_the_wait_limit_a_duplicate_is_told_so
    other_keys_do_not_fail_because_one_is_under_way
    a_hang_up_does_not_roll_back
    a_request_without_a_key_gets_a_transaction_too
    a_handler_that_keeps_its_transaction_commits_nothing
    after_a_lost_commit_the_database_tells_what_happened
    after_a_lost_commit_the_answer_that_stands_is_told
    a_transaction_is_opened_for_who_takes_it_only
    a_request_without_a_key_is_turned_away_if_it_needs_a_transaction_that_there_is_none
    a_duplicate_learns_of_another_process_while_its_own_is_stuck
}

/// A full disk undoes the whole transaction under a handler that does not care, and the client must not hear of success.
#[tokio::test]
async fn an_effect_that_sqlite_undid_is_not_answered_as_done() {
    let shop = OnSqlite::open().await;
    sqlx::query("create table scans (scan blob)")
        .execute(&shop.pool)
        .await
        .unwrap();
    let options = shop.pool.connect_options().as_ref().clone();
    let small = SqlitePool::connect_lazy_with(options.pragma("max_page_count", "60"));
    let layer = layer(
        Arc::new(SqliteStore::builder(small).start().await.unwrap()),
        policy().key(KeyRule::Optional),
    );
    let handler = |mut tx: exactly_sql::SqliteTx| async move {
        tx.take_effect().await;
        sqlx::query("insert into scans values (zeroblob(1000000))")
            .execute(&mut *tx)
            .await
            .unwrap_err();
        StatusCode::CREATED
    };
    let careless = Router::new().route("/", post(handler)).layer(layer.clone());
    let (code, _, body) = send(&careless, Some("k1")).await;
    assert_eq!(code, 503, "{body}");
    // Without a key there is nothing to complete, and the commit is what fails.
    let (code, _, body) = send(&careless, None).await;
    assert!(code >= 400, "{code} {body}");
    assert_eq!(shop.effects().await, 0);
    let app = app::<OnSqlite>(&layer, says(201));
    assert_eq!(send(&app, Some("k1")).await, told(201, "stored", "run 1"));
    assert_eq!(shop.effects().await, 1);
}

/// A failed statement aborts the whole transaction, whose commit PostgreSQL answers with a rollback.
#[tokio::test]
async fn an_effect_that_postgres_undid_is_not_answered_as_done() {
    let shop = OnPostgres::open().await;
    let layer = layer(shop.store().await, policy().key(KeyRule::Optional));
    let handler = |mut tx: exactly_sql::PgTx| async move {
        tx.take_effect().await;
        sqlx::query("select 1 / 0").execute(&mut *tx).await.unwrap_err();
        StatusCode::CREATED
    };
    let careless = Router::new().route("/", post(handler)).layer(layer.clone());
    for key in [Some("k1"), None] {
        let (code, _, body) = send(&careless, key).await;
        assert!(code >= 400, "{code} {body}");
    }
    assert_eq!(shop.effects().await, 0);
    let app = app::<OnPostgres>(&layer, says(201));
    assert_eq!(send(&app, Some("k1")).await, told(201, "stored", "run 1"));
    assert_eq!(shop.effects().await, 1);
}

/// SQLite has one writer: a stranger's transaction must not hold up those who only want to know.
#[tokio::test]
async fn a_replay_waits_for_no_other_writer() {
    let shop = OnSqlite::open().await;
    let first = app_of_other_process(&shop).await;
    assert_eq!(send(&first, Some("k1")).await, told(201, "stored", "run 1"));
    let mut stranger = shop.pool.begin_with("begin immediate").await.unwrap();
    stranger.take_effect().await;
    let second = app_of_other_process(&shop).await;
    for app in [first, second] {
        assert_eq!(send(&app, Some("k1")).await, told(201, "replayed", "run 1"));
    }
    stranger.rollback().await.unwrap();
}

/// Two processes, ten duplicates each: of the second process at most one waits inside the database.
#[tokio::test]
async fn at_most_one_connection_per_process_waits_in_the_database_for_a_key() {
    let shop = OnPostgres::open().await;
    let (started, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let owner = gated::<OnPostgres>(&layer(shop.store().await, policy()), &started, &leave);
    let first = tokio::spawn(async move { send(&owner, Some("k1")).await });
    started.notified().await;
    let other = app_of_other_process(&shop).await;
    let duplicates: Vec<_> = (0..10)
        .map(|_| {
            let other = other.clone();
            tokio::spawn(async move { send(&other, Some("k1")).await })
        })
        .collect();
    let waiting = format!(
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%{}%'",
        shop.0.schema
    );
    let waiting = || async {
        let count: i64 = sqlx::query_scalar(AssertSqlSafe(waiting.clone()))
            .fetch_one(&shop.0.pool)
            .await
            .unwrap();
        count
    };
    while waiting().await == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..50 {
        assert_eq!(waiting().await, 1);
    }
    leave.notify_waiters();
    assert_eq!(first.await.unwrap(), told(200, "stored", "done"));
    for duplicate in duplicates {
        assert_eq!(duplicate.await.unwrap(), told(200, "replayed", "done"));
    }
    assert_eq!(shop.effects().await, 1);
}
