//! What outlives the sessions it was made on: settings, plans, and the store itself.

use std::time::Duration;

use bytes::Bytes;
use exactly::{Call, Fenced, Inspect, Keep, Store, StoreErrorKind, TransactionalStore, Verdict};
use exactly_sql::PgStore;
use futures_util::future::join_all;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};
use tokio::time::{Instant, timeout};

use super::server::Server;
use super::{Place, call, run, url};

static OUTCOME: Bytes = Bytes::from_static(b"refunded");

/// Longer than the store's own limits.
const PATIENCE: Duration = Duration::from_secs(30);

/// A pool whose sessions, and those of its store, are found by the name of the place's schema.
fn named_pool(place: &Place) -> PgPool {
    let options: PgConnectOptions = url().parse().unwrap();
    PgPoolOptions::new()
        .max_connections(2)
        .connect_lazy_with(options.application_name(&place.schema))
}

async fn sessions(place: &Place) -> i64 {
    let sql = "select count(*) from pg_stat_activity where application_name = $1";
    let count = sqlx::query_scalar(sql).bind(&place.schema);
    count.fetch_one(&place.pool).await.unwrap()
}

async fn kill_sessions(place: &Place) -> u64 {
    let sql =
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = $1 or usename = $1";
    let killed = sqlx::query(sql).bind(&place.schema).execute(&place.pool).await;
    killed.unwrap().rows_affected()
}

/// Begins and completes in a transaction, as the layer does.
async fn commit(store: &PgStore, call: &Call) -> Result<(), exactly::StoreError> {
    let mut tx = store.open(Duration::from_secs(1)).await?;
    let Verdict::Run(claim) = store.begin_in(&mut tx, call).await? else {
        panic!("the key is fresh")
    };
    let completed = store.complete_in(&mut tx, &claim, &OUTCOME, Keep::DAY).await?;
    assert_eq!(completed, Fenced::Applied);
    store.commit(tx).await
}

/// What was found at the start is what every later session commits by.
#[tokio::test]
async fn a_role_that_turns_asynchronous_does_not_make_records_so() {
    let place = Place::fresh();
    let role = &place.schema;
    let sql = format!("create role {role} login superuser");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&place.pool).await.unwrap();
    let options: PgConnectOptions = url().parse().unwrap();
    let pool = PgPoolOptions::new()
        .max_connections(2)
        .connect_lazy_with(options.username(role));
    let store = PgStore::builder(pool).schema(&place.schema).start().await.unwrap();
    // Looks at the moment of the commit.
    let sql = format!(
        "create function {role}.look() returns trigger language plpgsql as $$ begin
             if current_setting('synchronous_commit') = 'off' then raise 'asynchronous'; end if;
             return null;
         end $$;
         create constraint trigger look after insert or update on {role}.calls deferrable initially deferred
             for each row execute function {role}.look();
         alter role {role} set synchronous_commit = off"
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&place.pool).await.unwrap();
    assert!(kill_sessions(&place).await > 1);
    let claim = run(&store, &call("batch")).await;
    let completed = store.complete(&claim, &OUTCOME, Keep::DAY).await.unwrap();
    assert_eq!(completed, Fenced::Applied);
    commit(&store, &call("transaction")).await.unwrap();
    // The same when a record has to be taken over.
    let lost = call("lost").with_on_lost(exactly::OnLost::Rerun);
    assert_eq!(store.lose(&run(&store, &lost).await).await.unwrap(), Fenced::Applied);
    commit(&store, &call("lost")).await.unwrap();
}

#[tokio::test]
async fn a_server_that_comes_back_forgetful_is_refused() {
    let server = Server::start(&[]);
    let store = PgStore::builder(server.pool()).start().await.unwrap();
    let claim = run(&store, &call("before")).await;
    server.restart(&["fsync=off"], false);
    let error = store.begin(&call("key")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("fsync is off"), "{error}");
    server.restart(&[], false);
    let completed = store.complete(&claim, &OUTCOME, Keep::DAY).await.unwrap();
    assert_eq!(completed, Fenced::Applied);
}

/// A restart ends every session at once, and is noticed once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_is_not_met_once_per_session() {
    let place = Place::fresh();
    let store = PgStore::builder(named_pool(&place))
        .schema(&place.schema)
        .flushers(8)
        .start()
        .await
        .unwrap();
    let mut locker = PgConnection::connect(&url()).await.unwrap();
    for round in 0..100 {
        // While the table is locked, every batch under way needs a session of its own.
        let lock = format!("begin; lock table {}.calls in exclusive mode", place.schema);
        sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut locker).await.unwrap();
        let mut begins = Vec::new();
        for n in 0..8 {
            let store = store.clone();
            begins.push(tokio::spawn(async move {
                store.begin(&call(&format!("key {round} {n}"))).await.map(drop)
            }));
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        sqlx::raw_sql("rollback").execute(&mut locker).await.unwrap();
        join_all(begins).await;
        if sessions(&place).await >= 7 {
            break;
        }
    }
    assert!(kill_sessions(&place).await >= 7);
    let _claim = run(&store, &call("after")).await;
}

/// Whoever alters the table makes prepared statements fail, on every session that has them.
#[tokio::test]
async fn an_altered_table_makes_no_connection_fail_for_good() {
    let place = Place::fresh();
    let store = PgStore::builder(named_pool(&place))
        .schema(&place.schema)
        .start()
        .await
        .unwrap();
    let claim = run(&store, &call("key")).await;
    assert_eq!(
        store.complete(&claim, &OUTCOME, Keep::DAY).await.unwrap(),
        Fenced::Applied
    );
    let replayed = |verdict| matches!(verdict, Verdict::Replay(_));
    for (operation, time) in [("varchar", "timestamptz(3)"), ("text", "timestamptz")] {
        // Both connections of the pool know the statements.
        let mut txs = [
            store.open(Duration::from_secs(1)).await.unwrap(),
            store.open(Duration::from_secs(1)).await.unwrap(),
        ];
        for tx in &mut txs {
            assert!(replayed(store.begin_in(tx, &call("key")).await.unwrap()));
        }
        for tx in txs {
            store.rollback(tx).await.unwrap();
        }
        assert!(store.get(call("key").id()).await.unwrap().is_some());
        assert!(replayed(store.begin(&call("key")).await.unwrap()));
        let sql = format!(
            "alter table {{table}} alter column operation type {operation}, alter column lease_until type {time}"
        );
        place.run(&sql).await;
        assert!(replayed(store.begin(&call("key")).await.unwrap()));
        for _ in 0..3 {
            let mut tx = store.open(Duration::from_secs(1)).await.unwrap();
            assert!(replayed(store.begin_in(&mut tx, &call("key")).await.unwrap()));
            store.rollback(tx).await.unwrap();
        }
    }
}

/// Behind a pooler, or after `discard all`, the server may not know a statement that the client prepared.
#[tokio::test]
async fn a_forgotten_statement_is_prepared_again() {
    let place = Place::fresh();
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy(&url()).unwrap();
    let store = PgStore::builder(pool.clone())
        .schema(&place.schema)
        .start()
        .await
        .unwrap();
    commit(&store, &call("first")).await.unwrap();
    sqlx::raw_sql("deallocate all").execute(&pool).await.unwrap();
    commit(&store, &call("second")).await.unwrap();

    let mut tx = store.open(Duration::from_secs(1)).await.unwrap();
    let Verdict::Run(claim) = store.begin_in(&mut tx, &call("third")).await.unwrap() else {
        panic!("the key is fresh")
    };
    sqlx::raw_sql("deallocate all").execute(&mut *tx).await.unwrap();
    // The effect may have been made, so only the caller can begin again. But once is enough.
    store
        .complete_in(&mut tx, &claim, &OUTCOME, Keep::DAY)
        .await
        .unwrap_err();
    store.rollback(tx).await.unwrap();
    commit(&store, &call("third")).await.unwrap();
}

/// The wait for a key is the caller's choice; a server that does not answer is not waited for beyond it.
#[tokio::test]
async fn a_transaction_on_a_server_that_hangs_is_given_up() {
    let server = Server::start(&[]);
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .connect_lazy(&server.url())
        .unwrap();
    let store = PgStore::builder(pool.clone()).start().await.unwrap();
    let mut tx = store.open(Duration::from_secs(1)).await.unwrap();
    server.freeze();
    let asked = Instant::now();
    let begun = timeout(PATIENCE, store.begin_in(&mut tx, &call("key"))).await;
    let error = begun.expect("a hung server is waited for without end").unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
    let asked = Instant::now();
    store.rollback(tx).await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert_eq!(pool.size(), 0, "the connection went back to the pool");
    server.thaw();
    commit(&store, &call("key")).await.unwrap();
}
