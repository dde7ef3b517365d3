//! Effect and record in one transaction.

use std::sync::Arc;
use std::time::Duration;

use exactly::{Fenced, Inspect, Keep, Store, StoreErrorKind, TransactionalStore, Verdict};
use exactly_sql::{SqliteStore, SqliteTransaction};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Connection, SqliteConnection, SqlitePool};

use super::{DAY, Place, assert_replays, call, run};

const LOCK_WAIT: Duration = Duration::from_secs(5);

async fn shop(place: &Place) -> Arc<SqliteStore> {
    let store = place.open().await;
    sqlx::query("create table orders (name text)")
        .execute(store.pool())
        .await
        .unwrap();
    Arc::new(store)
}

async fn order(tx: &mut SqliteTransaction, name: &str) {
    sqlx::query("insert into orders values (?)")
        .bind(name)
        .execute(&mut **tx)
        .await
        .unwrap();
}

async fn orders(store: &SqliteStore) -> i64 {
    sqlx::query_scalar("select count(*) from orders")
        .fetch_one(store.pool())
        .await
        .unwrap()
}

/// Begins, makes the effect and completes, all but the commit.
async fn ordered(store: &SqliteStore, name: &str) -> SqliteTransaction {
    let mut tx = store.open(LOCK_WAIT).await.unwrap();
    let Verdict::Run(claim) = store.begin_in(&mut tx, &call(name)).await.unwrap() else {
        panic!("{name} is fresh")
    };
    order(&mut tx, name).await;
    let completed = store
        .complete_in(&mut tx, &claim, &name.to_owned().into(), Keep::DAY)
        .await
        .unwrap();
    assert_eq!(completed, Fenced::Applied);
    tx
}

#[tokio::test]
async fn effect_and_record_commit_together() {
    let place = Place::new();
    let store = shop(&place).await;
    let mut watch = store.watch(call("a").id());
    let tx = ordered(&store, "a").await;
    assert!(
        store.peek(&call("a")).await.unwrap().is_none(),
        "nothing shows before the commit"
    );
    store.commit(tx).await.unwrap();
    watch.changed().await;
    assert_eq!(orders(&store).await, 1);
    assert_replays(&store.begin(&call("a")).await.unwrap(), "a");
    let mut tx = store.open(LOCK_WAIT).await.unwrap();
    assert_replays(&store.begin_in(&mut tx, &call("a")).await.unwrap(), "a");
}

#[tokio::test]
async fn effect_and_record_are_undone_together() {
    let place = Place::new();
    let store = shop(&place).await;
    let tx = ordered(&store, "a").await;
    store.rollback(tx).await.unwrap();
    drop(ordered(&store, "b").await);
    for key in ["a", "b"] {
        assert!(store.get(call(key).id()).await.unwrap().is_none());
    }
    assert_eq!(orders(&store).await, 0);
    let tx = ordered(&store, "a").await;
    store.commit(tx).await.unwrap();
    assert_eq!(orders(&store).await, 1);
}

#[tokio::test]
async fn transactions_wait_for_each_other_no_longer_than_asked() {
    let place = Place::new();
    let store = shop(&place).await;
    let tx = ordered(&store, "a").await;
    let error = store.open(Duration::from_millis(20)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(error.to_string().contains("held the write lock for 20 ms"), "{error}");
    let waiting = Arc::clone(&store);
    let waiting = tokio::spawn(async move {
        let mut tx = waiting.open(LOCK_WAIT).await.unwrap();
        waiting.begin_in(&mut tx, &call("a")).await.unwrap()
    });
    store.commit(tx).await.unwrap();
    assert_replays(&waiting.await.unwrap(), "a");
}

#[tokio::test]
async fn a_stranger_that_holds_the_lock_is_waited_for_no_longer_than_asked() {
    let place = Place::new();
    let store = shop(&place).await;
    let mut stranger = place.stranger().await;
    run(&mut stranger, "begin immediate").await;
    let error = store.open(Duration::from_millis(20)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    run(&mut stranger, "rollback").await;
    let tx = ordered(&store, "a").await;
    store.commit(tx).await.unwrap();
    assert_eq!(orders(&store).await, 1);
}

#[tokio::test]
async fn a_claim_made_outside_is_honoured_inside() {
    let place = Place::new();
    let store = shop(&place).await;
    let claim = super::begun(&store, "a").await;
    let mut tx = store.open(LOCK_WAIT).await.unwrap();
    assert!(matches!(
        store.begin_in(&mut tx, &call("a")).await.unwrap(),
        Verdict::InFlight { .. }
    ));
    let done = store
        .complete_in(&mut tx, &claim, &"late".into(), Keep::DAY)
        .await
        .unwrap();
    assert_eq!(done, Fenced::Applied);
    let again = store
        .complete_in(&mut tx, &claim, &"late".into(), Keep::DAY)
        .await
        .unwrap();
    assert_eq!(again, Fenced::Applied);
    let other = store
        .complete_in(&mut tx, &claim, &"other".into(), Keep::DAY)
        .await
        .unwrap();
    assert_eq!(other, Fenced::Superseded);
    store.commit(tx).await.unwrap();
    assert_replays(&store.begin(&call("a")).await.unwrap(), "late");
}

#[tokio::test]
async fn an_expired_outcome_gives_way_inside_a_transaction() {
    let place = Place::new();
    let store = shop(&place).await;
    let tx = ordered(&store, "a").await;
    store.commit(tx).await.unwrap();
    place.steady.advance(DAY);
    let tx = ordered(&store, "a").await;
    store.commit(tx).await.unwrap();
    assert_eq!(orders(&store).await, 2);
    assert_replays(&store.begin(&call("a")).await.unwrap(), "a");
}

#[tokio::test]
async fn a_transaction_of_ones_own_can_hold_record_and_effect() {
    let place = Place::new();
    let store = shop(&place).await;
    let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    let Verdict::Run(claim) = store.begin_within(&mut tx, &call("a")).await.unwrap() else {
        panic!("a is fresh")
    };
    let done = store
        .complete_within(&mut tx, &claim, &"a".into(), Keep::DAY)
        .await
        .unwrap();
    assert_eq!(done, Fenced::Applied);
    tx.commit().await.unwrap();
    assert_replays(&store.begin(&call("a")).await.unwrap(), "a");
}

#[tokio::test]
async fn an_effect_can_have_savepoints_of_its_own() {
    let place = Place::new();
    let store = shop(&place).await;
    let mut tx = ordered(&store, "a").await;
    let mut savepoint = tx.begin().await.unwrap();
    sqlx::query("insert into orders values ('undone')")
        .execute(&mut *savepoint)
        .await
        .unwrap();
    savepoint.rollback().await.unwrap();
    let mut savepoint = tx.begin().await.unwrap();
    sqlx::query("insert into orders values ('kept')")
        .execute(&mut *savepoint)
        .await
        .unwrap();
    savepoint.commit().await.unwrap();
    assert!(
        sqlx::query("insert into nowhere values (1)")
            .execute(&mut *tx)
            .await
            .is_err()
    );
    store.commit(tx).await.unwrap();
    assert_eq!(orders(&store).await, 2);
}

/// A shop whose file cannot grow much.
async fn small_shop(place: &Place) -> SqliteStore {
    drop(shop(place).await);
    let options = SqliteConnectOptions::new()
        .filename(place.path())
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .pragma("max_page_count", "60");
    let pool = SqlitePool::connect_lazy_with(options);
    SqliteStore::builder(pool).start().await.unwrap()
}

/// A full disk in the midst of a handler. SQLite undoes the whole transaction then, not only the statement, and commits
/// every later statement by itself.
async fn fill_up(connection: &mut SqliteConnection) {
    let error = sqlx::query("insert into orders values (zeroblob(1000000))")
        .execute(connection)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("full"), "{error}");
}

#[tokio::test]
async fn a_transaction_that_sqlite_ended_commits_nothing() {
    let place = Place::new();
    let store = small_shop(&place).await;
    let mut tx = store.open(LOCK_WAIT).await.unwrap();
    let Verdict::Run(claim) = store.begin_in(&mut tx, &call("a")).await.unwrap() else {
        panic!("a is fresh")
    };
    order(&mut tx, "undone").await;
    fill_up(&mut tx).await;
    let later = sqlx::query("insert into orders values ('alone')")
        .execute(&mut *tx)
        .await;
    assert!(later.is_err(), "a statement of a dead transaction committed by itself");
    let completed = store.complete_in(&mut tx, &claim, &"a".into(), Keep::DAY).await;
    assert_eq!(completed.unwrap_err().kind(), StoreErrorKind::Unavailable);
    store.commit(tx).await.unwrap_err();
    assert_eq!(orders(&store).await, 0);
    assert!(store.get(call("a").id()).await.unwrap().is_none());
    let tx = ordered(&store, "a").await;
    store.commit(tx).await.unwrap();
    assert_eq!(orders(&store).await, 1);
}

/// The failing statement may still be under way when the commit is asked for.
#[tokio::test]
async fn a_transaction_that_sqlite_ends_after_the_completion_commits_nothing() {
    let place = Place::new();
    let store = small_shop(&place).await;
    let mut tx = ordered(&store, "a").await;
    fill_up(&mut tx).await;
    store.commit(tx).await.unwrap_err();
    assert!(store.get(call("a").id()).await.unwrap().is_none());
    assert_eq!(orders(&store).await, 0);
}

#[tokio::test]
async fn only_the_layer_commits_a_handlers_transaction() {
    let place = Place::new();
    let store = shop(&place).await;
    for text in ["commit", "rollback"] {
        let mut tx = ordered(&store, "a").await;
        let ended = sqlx::query(text).execute(&mut *tx).await;
        assert_eq!(ended.is_err(), text == "commit");
        sqlx::query("begin").execute(&mut *tx).await.unwrap();
        store.commit(tx).await.unwrap_err();
        assert!(store.get(call("a").id()).await.unwrap().is_none());
        assert_eq!(orders(&store).await, 0);
    }
}

#[tokio::test]
async fn a_transaction_of_ones_own_that_sqlite_ended_gets_no_record() {
    let place = Place::new();
    let store = small_shop(&place).await;
    let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    let Verdict::Run(claim) = store.begin_within(&mut tx, &call("a")).await.unwrap() else {
        panic!("a is fresh")
    };
    fill_up(&mut tx).await;
    let completed = store.complete_within(&mut tx, &claim, &"a".into(), Keep::DAY).await;
    assert_eq!(completed.unwrap_err().kind(), StoreErrorKind::Other);
    let begun = store.begin_within(&mut tx, &call("b")).await;
    assert_eq!(begun.unwrap_err().kind(), StoreErrorKind::Other);
    drop(tx);
    for key in ["a", "b"] {
        assert!(store.get(call(key).id()).await.unwrap().is_none());
    }
}

/// What a commit that failed left at the end of the log would come back with the next process, so it is written over
/// before anybody is told that nothing happened.
#[tokio::test]
async fn after_a_failed_commit_the_log_is_written_over() {
    let place = Place::new();
    let store = shop(&place).await;
    sqlx::query("create table lines (of_order text references orders (name) deferrable initially deferred)")
        .execute(store.pool())
        .await
        .unwrap();
    sqlx::query("create unique index order_names on orders (name)")
        .execute(store.pool())
        .await
        .unwrap();
    let mut tx = ordered(&store, "a").await;
    sqlx::query("insert into lines values ('no such order')")
        .execute(&mut *tx)
        .await
        .unwrap();
    let mut stranger = store.pool().acquire().await.unwrap();
    let before = data_version(&mut stranger).await;
    store.commit(tx).await.unwrap_err();
    assert_eq!(data_version(&mut stranger).await, before);
    let tx = store.open(LOCK_WAIT).await.unwrap();
    assert_ne!(data_version(&mut stranger).await, before);
    store.rollback(tx).await.unwrap();
    let sealed = data_version(&mut stranger).await;
    let tx = store.open(LOCK_WAIT).await.unwrap();
    assert_eq!(data_version(&mut stranger).await, sealed, "once is enough");
    store.rollback(tx).await.unwrap();
    assert_eq!(orders(&store).await, 0);
}

/// Changes when another connection has committed.
async fn data_version(connection: &mut SqliteConnection) -> i64 {
    sqlx::query_scalar("pragma data_version")
        .fetch_one(connection)
        .await
        .unwrap()
}
