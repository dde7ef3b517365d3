//! Locked, full and broken databases.

use std::sync::Arc;

use exactly::{Fenced, Inspect, Keep, Store, StoreErrorKind, Verdict};
use exactly_sql::SqliteStore;
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use tokio::task::JoinSet;

use super::{Place, assert_replays, begun, call, done, run};

#[tokio::test]
async fn a_stranger_that_holds_the_lock_makes_an_error_and_loses_nothing() {
    let place = Place::new();
    drop(place.open().await);
    let options = SqliteConnectOptions::new()
        .filename(place.path())
        .journal_mode(SqliteJournalMode::Wal);
    let options = options.busy_timeout(std::time::Duration::from_millis(50));
    let store = Arc::new(
        SqliteStore::builder(SqlitePool::connect_lazy_with(options))
            .start()
            .await
            .unwrap(),
    );
    let claim = begun(&store, "before").await;

    let mut stranger = place.stranger().await;
    run(&mut stranger, "begin immediate").await;
    let mut begins = JoinSet::new();
    for key in 0..20 {
        let store = Arc::clone(&store);
        begins.spawn(async move { store.begin(&call(&key.to_string())).await });
    }
    for begin in begins.join_all().await {
        assert_eq!(begin.unwrap_err().kind(), StoreErrorKind::Unavailable);
    }
    let error = store.complete(&claim, &"before".into(), Keep::DAY).await.unwrap_err();
    assert!(error.to_string().contains("locked"), "{error}");
    run(&mut stranger, "rollback").await;

    assert_eq!(
        store.complete(&claim, &"before".into(), Keep::DAY).await.unwrap(),
        Fenced::Applied
    );
    assert_replays(&store.begin(&call("before")).await.unwrap(), "before");
    for key in 0..20 {
        let _ = begun(&store, &key.to_string()).await;
    }
}

#[tokio::test]
async fn two_stores_that_write_to_one_file_lose_nothing() {
    let place = Place::new();
    let stores = [Arc::new(place.open().await), Arc::new(place.open().await)];
    let mut calls = JoinSet::new();
    for client in 0..16 {
        let store = Arc::clone(&stores[client % 2]);
        calls.spawn(async move {
            let mut ran = 0;
            for key in 0..25 {
                // Every key is wanted by four clients, two of each store.
                let key = format!("{}-{key}", client / 4);
                if let Verdict::Run(claim) = store.begin(&call(&key)).await.unwrap() {
                    assert_eq!(
                        store.complete(&claim, &key.into(), Keep::DAY).await.unwrap(),
                        Fenced::Applied
                    );
                    ran += 1;
                }
            }
            ran
        });
    }
    assert_eq!(calls.join_all().await.into_iter().sum::<usize>(), 4 * 25);
}

#[tokio::test]
async fn a_full_database_claims_nothing_more_and_keeps_what_it_has() {
    let place = Place::new();
    drop(place.open().await);
    let options = SqliteConnectOptions::new()
        .filename(place.path())
        .journal_mode(SqliteJournalMode::Wal);
    let options = options
        .synchronous(SqliteSynchronous::Full)
        .pragma("max_page_count", "40");
    let store = SqliteStore::builder(SqlitePool::connect_lazy_with(options))
        .start()
        .await
        .unwrap();
    let mut stored = 0;
    let full = loop {
        let key = stored.to_string();
        match store.begin(&call(&key)).await {
            Ok(Verdict::Run(claim)) => match store.complete(&claim, &key.into(), Keep::Forever).await {
                Ok(_) => stored += 1,
                Err(error) => break error,
            },
            Ok(verdict) => panic!("{verdict:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), StoreErrorKind::Full, "{full}");
    for key in 0..stored {
        assert_replays(&store.begin(&call(&key.to_string())).await.unwrap(), &key.to_string());
    }
    // Room again, and the same store goes on.
    run(
        &mut place.stranger().await,
        "delete from exactly_calls where rowid % 2 = 0",
    )
    .await;
    let _ = begun(&store, "room").await;
}

#[tokio::test]
async fn a_record_that_cannot_be_read_fails_alone() {
    let place = Place::new();
    let store = place.open().await;
    done(&store, "good", Keep::DAY).await;
    done(&store, "bad", Keep::DAY).await;
    let bad = format!(
        "update exactly_calls set created_at = -1 where id = x'{}'",
        call("bad").id()
    );
    assert_eq!(run(&mut place.stranger().await, &bad).await, 1);
    let (good_call, bad_call) = (call("good"), call("bad"));
    let (good, bad) = tokio::join!(store.begin(&good_call), store.begin(&bad_call));
    assert_replays(&good.unwrap(), "good");
    assert_eq!(bad.unwrap_err().kind(), StoreErrorKind::Corrupt);
    assert_eq!(
        store.get(bad_call.id()).await.unwrap_err().kind(),
        StoreErrorKind::Corrupt
    );
}

#[tokio::test]
async fn a_file_that_is_no_database_is_told_as_such() {
    let place = Place::new();
    std::fs::write(place.path(), vec![b'x'; 8192]).unwrap();
    let error = SqliteStore::open(place.path()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
}

#[tokio::test]
async fn a_sweep_lets_others_write_in_between() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    let mut stranger = place.stranger().await;
    let expired = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000) \
         insert into exactly_calls select randomblob(32), null, 'o', 'k', zeroblob(32), 1, 1, randomblob(16), \
         null, null, null, 0, 0, 1, x'' from n";
    assert_eq!(run(&mut stranger, expired).await, 5000);
    let sweeping = Arc::clone(&store);
    let sweep = tokio::spawn(async move { sweeping.sweep(10_000).await.unwrap() });
    let mut begun_meanwhile = 0;
    while !sweep.is_finished() {
        let _ = begun(&store, &begun_meanwhile.to_string()).await;
        begun_meanwhile += 1;
    }
    assert_eq!(sweep.await.unwrap(), 5000);
    assert!(
        begun_meanwhile > 5,
        "only {begun_meanwhile} calls began during the sweep"
    );
}
