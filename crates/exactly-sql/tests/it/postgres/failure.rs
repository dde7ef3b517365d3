//! Connections that die, servers that hang, keys that others hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use exactly::{Fenced, Inspect, Keep, Store, StoreErrorKind, TransactionalStore, Verdict};
use exactly_sql::PgStore;
use futures_util::future::join_all;
use sqlx::postgres::PgPoolOptions;
use tokio::time::{Instant, timeout};

use super::server::Server;
use super::{Place, call, run, url};

static OUTCOME: Bytes = Bytes::from_static(b"refunded");

/// Longer than the store's own limits.
const PATIENCE: Duration = Duration::from_secs(30);

/// Backends are killed all the time; every step is answered, and what was answered is there afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_lose_nothing() {
    let place = Place::fresh();
    let name = place.schema.clone();
    let options: sqlx::postgres::PgConnectOptions = url().parse().unwrap();
    let pool = PgPoolOptions::new()
        .max_connections(2)
        .connect_lazy_with(options.application_name(&name));
    let store = Arc::new(PgStore::builder(pool).schema(&place.schema).start().await.unwrap());
    let over = Arc::new(AtomicBool::new(false));
    let killer = tokio::spawn({
        let (place, over) = (place.clone(), Arc::clone(&over));
        async move {
            let mut killed = 0;
            while !over.load(Ordering::SeqCst) {
                killed +=
                    sqlx::query("select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1")
                        .bind(&name)
                        .execute(&place.pool)
                        .await
                        .unwrap()
                        .rows_affected();
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
            killed
        }
    });
    let effects: Arc<Vec<AtomicU32>> = Arc::new((0..400).map(|_| AtomicU32::new(0)).collect());
    let callers = (0..16).map(|caller| {
        let (store, effects) = (Arc::clone(&store), Arc::clone(&effects));
        tokio::spawn(async move {
            for (n, effect) in effects.iter().enumerate().skip(caller).step_by(16) {
                serve(&store, &format!("key {n}"), effect).await;
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        timeout(2 * PATIENCE, caller)
            .await
            .expect("a step was never answered")
            .unwrap();
    }
    over.store(true, Ordering::SeqCst);
    assert!(killer.await.unwrap() > 4, "no connection was killed");
    assert!(effects.iter().all(|effect| effect.load(Ordering::SeqCst) == 1));
    let store = place.open().await;
    for n in 0..400 {
        assert!(
            matches!(
                store.begin(&call(&format!("key {n}"))).await.unwrap(),
                Verdict::Replay(_)
            ),
            "key {n}"
        );
    }
}

/// One call as a caller makes it that repeats every question until it is answered.
async fn serve(store: &PgStore, key: &str, effect: &AtomicU32) {
    let call = call(key);
    let verdict = loop {
        match store.begin(&call).await {
            Ok(verdict) => break verdict,
            Err(error) => assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}"),
        }
    };
    let Verdict::Run(claim) = verdict else {
        panic!("{key} is told {verdict:?}")
    };
    effect.fetch_add(1, Ordering::SeqCst);
    loop {
        match store.complete(&claim, &OUTCOME, Keep::DAY).await {
            Ok(fenced) => return assert_eq!(fenced, Fenced::Applied),
            Err(error) => assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}"),
        }
    }
}

#[tokio::test]
async fn a_server_that_hangs_gives_an_error_and_recovers() {
    let server = Server::start(&[]);
    let store = PgStore::builder(server.pool()).start().await.unwrap();
    let claim = run(&store, &call("before")).await;
    server.freeze();
    let (during, completed) = (call("during"), Instant::now());
    let (begun, completion) = timeout(PATIENCE, async {
        tokio::join!(store.begin(&during), store.complete(&claim, &OUTCOME, Keep::DAY))
    })
    .await
    .expect("a hung server is waited for without end");
    assert!(completed.elapsed() > Duration::from_secs(1), "the server did not hang");
    assert_eq!(begun.unwrap_err().kind(), StoreErrorKind::Unavailable);
    assert_eq!(completion.unwrap_err().kind(), StoreErrorKind::Unavailable);
    server.thaw();
    assert_eq!(
        store.complete(&claim, &OUTCOME, Keep::DAY).await.unwrap(),
        Fenced::Applied
    );
    let _claim = run(&store, &during).await;
}

#[tokio::test]
async fn a_server_that_is_gone_gives_an_error_at_once() {
    let server = Server::start(&[]);
    let store = PgStore::builder(server.pool()).start().await.unwrap();
    drop(server);
    let asked = Instant::now();
    let error = timeout(PATIENCE, store.begin(&call("key"))).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(asked.elapsed() < Duration::from_secs(4));
}

#[tokio::test]
async fn a_server_that_turns_read_only_says_so() {
    let server = Server::start(&[]);
    let store = PgStore::builder(server.pool()).start().await.unwrap();
    let claim = run(&store, &call("before")).await;
    let mut admin = server.connection().await;
    for sql in [
        "alter system set default_transaction_read_only = on",
        "select pg_reload_conf()",
    ] {
        sqlx::raw_sql(sql).execute(&mut admin).await.unwrap();
    }
    let refused = async {
        loop {
            let key = format!("{:?}", exactly::Token::random().as_bytes());
            if let Err(error) = store.begin(&call(&key)).await {
                return error;
            }
        }
    };
    let error = timeout(PATIENCE, refused)
        .await
        .expect("the setting never came into force");
    assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
    let error = store.complete(&claim, &OUTCOME, Keep::DAY).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
}

/// Outcomes can be written while every connection of the pool is taken, whoever holds them and for whatever.
#[tokio::test]
async fn an_exhausted_pool_does_not_stop_batches() {
    let place = Place::fresh();
    let pool = PgPoolOptions::new()
        .max_connections(2)
        .acquire_timeout(Duration::from_millis(300));
    let pool = pool.connect_lazy(&url()).unwrap();
    let store = PgStore::builder(pool.clone())
        .schema(&place.schema)
        .start()
        .await
        .unwrap();
    let claim = run(&store, &call("key")).await;
    let _held = [pool.acquire().await.unwrap(), pool.acquire().await.unwrap()];
    let error = timeout(PATIENCE, store.open(Duration::from_secs(1)))
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert_eq!(
        store.complete(&claim, &OUTCOME, Keep::DAY).await.unwrap(),
        Fenced::Applied
    );
    assert!(matches!(store.begin(&call("key")).await.unwrap(), Verdict::Replay(_)));
    assert_eq!(store.sweep(10).await.unwrap(), 0);
}

/// The pool's own patience may be without end; the store's is not.
#[tokio::test]
async fn an_exhausted_pool_is_not_waited_for_without_end() {
    let place = Place::fresh();
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(Duration::from_hours(1));
    let pool = pool.connect_lazy(&url()).unwrap();
    let store = PgStore::builder(pool.clone())
        .schema(&place.schema)
        .start()
        .await
        .unwrap();
    let _held = pool.acquire().await.unwrap();
    let id = *call("key").id();
    let (opened, looked) = timeout(PATIENCE, async {
        tokio::join!(store.open(Duration::from_secs(1)), store.get(&id))
    })
    .await
    .expect("an exhausted pool is waited for without end");
    assert_eq!(opened.unwrap_err().kind(), StoreErrorKind::Unavailable);
    assert_eq!(looked.unwrap_err().kind(), StoreErrorKind::Unavailable);
}

/// An open transaction holds its key for as long as it likes. Other keys are not held up, and the caller of the held
/// one hears the outcome, or that the store cannot answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_held_by_a_transaction_holds_up_no_other() {
    let place = Place::fresh();
    let store = place.builder().flushers(1).start().await.unwrap();
    let held = call("held");
    let mut tx = store.open(Duration::from_secs(1)).await.unwrap();
    let Verdict::Run(claim) = store.begin_in(&mut tx, &held).await.unwrap() else {
        panic!("the key is fresh")
    };
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.begin(&call("held")).await }
    });
    let others: Vec<_> = (0..50).map(|n| call(&format!("key {n}"))).collect();
    let begun = timeout(
        Duration::from_secs(2),
        join_all(others.iter().map(|call| store.begin(call))),
    )
    .await;
    for verdict in begun.expect("other keys wait for the held one") {
        assert!(matches!(verdict.unwrap(), Verdict::Run(_)));
    }
    assert_eq!(
        store.complete_in(&mut tx, &claim, &OUTCOME, Keep::DAY).await.unwrap(),
        Fenced::Applied
    );
    store.commit(tx).await.unwrap();
    match waiting.await.unwrap() {
        Ok(Verdict::Replay(replay)) => assert_eq!(replay.outcome, OUTCOME),
        other => panic!("the caller of the held key is told {other:?}"),
    }
    let mut tx = store.open(Duration::from_secs(1)).await.unwrap();
    assert!(matches!(
        store.begin_in(&mut tx, &call("kept")).await.unwrap(),
        Verdict::Run(_)
    ));
    let error = timeout(PATIENCE, store.begin(&call("kept")))
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    store.rollback(tx).await.unwrap();
    let _claim = run(&store, &call("kept")).await;
}

/// A begin that the server carries out after everybody has given up on it: the caller, and the batch.
#[tokio::test]
async fn a_claim_that_comes_true_after_its_caller_has_gone_is_given_back() {
    let place = Place::fresh();
    let store = place.open().await;
    let schema = &place.schema;
    // A commit that takes longer than a batch may.
    let sql = format!(
        "create table {schema}.naps ();
         create function {schema}.nap() returns trigger language plpgsql as $$ begin
             perform pg_sleep(6.5);
             insert into {schema}.naps default values;
             return null;
         end $$;
         create constraint trigger nap after insert on {schema}.calls deferrable initially deferred
             for each row execute function {schema}.nap()"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .execute(&place.pool)
        .await
        .unwrap();
    let slow = call("slow");
    assert!(timeout(Duration::from_millis(500), store.begin(&slow)).await.is_err());
    let came_true = async {
        while place.run(&format!("select from {schema}.naps")).await == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, came_true).await.expect("the claim never came true");
    let given_back = async {
        while store.get(slow.id()).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // Well before its lease ends.
    timeout(Duration::from_secs(10), given_back)
        .await
        .expect("the claim is never given back");
    place.run("drop trigger nap on {table}").await;
    let _claim = run(&store, &call("slow")).await;
}
