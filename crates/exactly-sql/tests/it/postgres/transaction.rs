//! Records in a transaction of the caller's own.

use std::time::Duration;

use bytes::Bytes;
use exactly::{Fenced, Keep, Store, TransactionalStore, Verdict};
use sqlx::{Connection as _, PgConnection};

use super::{Place, call, run, url};

static OUTCOME: Bytes = Bytes::from_static(b"refunded");
const SHORT: Duration = Duration::from_millis(50);

async fn lock_timeout(conn: &mut PgConnection) -> String {
    sqlx::query_scalar("show lock_timeout").fetch_one(conn).await.unwrap()
}

#[tokio::test]
async fn a_callers_own_transaction_carries_the_record() {
    let place = Place::fresh();
    let store = place.open().await;
    let mut conn = PgConnection::connect(&url()).await.unwrap();
    for commits in [false, true] {
        let mut tx = conn.begin().await.unwrap();
        let Verdict::Run(claim) = store.begin_within(&mut tx, &call("key"), SHORT).await.unwrap() else {
            panic!("the key is fresh");
        };
        let completed = store
            .complete_within(&mut tx, &claim, &OUTCOME, Keep::DAY)
            .await
            .unwrap();
        assert_eq!(completed, Fenced::Applied);
        if commits {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
    }
    assert!(matches!(store.begin(&call("key")).await.unwrap(), Verdict::Replay(replay) if replay.outcome == OUTCOME));
}

/// The lock timeout fails a statement, which would abort the whole transaction if it were not behind a savepoint.
#[tokio::test]
async fn a_held_key_does_not_poison_the_callers_transaction() {
    let place = Place::fresh();
    let store = place.open().await;
    let mut holder = store.open(SHORT).await.unwrap();
    assert!(matches!(
        store.begin_in(&mut holder, &call("held")).await.unwrap(),
        Verdict::Run(_)
    ));

    let mut conn = PgConnection::connect(&url()).await.unwrap();
    let mut tx = conn.begin().await.unwrap();
    sqlx::query("set local lock_timeout = '7s'")
        .execute(&mut *tx)
        .await
        .unwrap();
    sqlx::query("create temporary table effects (n integer) on commit drop")
        .execute(&mut *tx)
        .await
        .unwrap();
    let verdict = store.begin_within(&mut tx, &call("held"), SHORT).await.unwrap();
    assert!(matches!(verdict, Verdict::InFlight { .. }), "{verdict:?}");
    assert_eq!(lock_timeout(&mut tx).await, "7s");
    let verdict = store.begin_within(&mut tx, &call("free"), SHORT).await.unwrap();
    assert!(matches!(verdict, Verdict::Run(_)), "{verdict:?}");
    assert_eq!(lock_timeout(&mut tx).await, "7s");
    sqlx::query("insert into effects values (1)")
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    // No savepoint is left in the way of the next one.
    let mut tx = conn.begin().await.unwrap();
    assert!(matches!(
        store.begin_within(&mut tx, &call("next"), SHORT).await.unwrap(),
        Verdict::Run(_)
    ));
    tx.rollback().await.unwrap();
    store.rollback(holder).await.unwrap();
}

/// How long the effect waits for its own locks is none of the store's business.
#[tokio::test]
async fn the_wait_for_a_key_does_not_limit_the_effects_own_locks() {
    let place = Place::fresh();
    let store = place.open().await;
    let mut tx = store.open(SHORT).await.unwrap();
    assert!(matches!(
        store.begin_in(&mut tx, &call("fresh")).await.unwrap(),
        Verdict::Run(_)
    ));
    assert_eq!(lock_timeout(&mut tx).await, "0");
    store.rollback(tx).await.unwrap();
    // The same when a record has to be taken over.
    let claim = run(&store, &call("lost").with_on_lost(exactly::OnLost::Rerun)).await;
    assert_eq!(store.lose(&claim).await.unwrap(), Fenced::Applied);
    let mut tx = store.open(SHORT).await.unwrap();
    let Verdict::Run(claim) = store.begin_in(&mut tx, &call("lost")).await.unwrap() else {
        panic!("it may be rerun")
    };
    assert_eq!(claim.attempt.get(), 2);
    assert_eq!(lock_timeout(&mut tx).await, "0");
    store.rollback(tx).await.unwrap();
}

/// A session default that would break the wait for another transaction is overruled.
#[tokio::test]
async fn a_stricter_default_isolation_does_not_fail_those_who_wait() {
    let place = Place::fresh();
    let options: sqlx::postgres::PgConnectOptions = url().parse().unwrap();
    let pool = sqlx::PgPool::connect_lazy_with(options.options([("default_transaction_isolation", "serializable")]));
    let store = exactly_sql::PgStore::builder(pool)
        .schema(&place.schema)
        .start()
        .await
        .unwrap();
    let mut first = store.open(Duration::from_secs(5)).await.unwrap();
    let Verdict::Run(claim) = store.begin_in(&mut first, &call("key")).await.unwrap() else {
        panic!("fresh")
    };
    let second = tokio::spawn({
        let store = store.clone();
        async move {
            let mut tx = store.open(Duration::from_secs(5)).await.unwrap();
            let verdict = store.begin_in(&mut tx, &call("key")).await.unwrap();
            store.rollback(tx).await.unwrap();
            verdict
        }
    });
    assert_eq!(
        store
            .complete_in(&mut first, &claim, &OUTCOME, Keep::DAY)
            .await
            .unwrap(),
        Fenced::Applied
    );
    store.commit(first).await.unwrap();
    assert!(matches!(second.await.unwrap(), Verdict::Replay(_)));
}

/// A transaction that an error has aborted can only be rolled back, and completing in it says so.
#[tokio::test]
async fn a_poisoned_transaction_completes_nothing() {
    let place = Place::fresh();
    let store = place.open().await;
    let mut tx = store.open(SHORT).await.unwrap();
    let Verdict::Run(claim) = store.begin_in(&mut tx, &call("key")).await.unwrap() else {
        panic!("fresh")
    };
    sqlx::query("select 1 / 0").execute(&mut *tx).await.unwrap_err();
    store
        .complete_in(&mut tx, &claim, &OUTCOME, Keep::DAY)
        .await
        .unwrap_err();
    store.rollback(tx).await.unwrap();
    let _claim = run(&store, &call("key")).await;
}

/// PostgreSQL answers the commit of an aborted transaction with a rollback, and calls it a success.
#[tokio::test]
async fn a_poisoned_transaction_does_not_commit() {
    let place = Place::fresh();
    let store = place.open().await;
    for completes in [false, true] {
        let mut tx = store.open(SHORT).await.unwrap();
        if completes {
            let Verdict::Run(claim) = store.begin_in(&mut tx, &call("key")).await.unwrap() else {
                panic!("fresh")
            };
            let completed = store.complete_in(&mut tx, &claim, &OUTCOME, Keep::DAY).await.unwrap();
            assert_eq!(completed, Fenced::Applied);
        }
        sqlx::query("select 1 / 0").execute(&mut *tx).await.unwrap_err();
        store.commit(tx).await.unwrap_err();
    }
    let _claim = run(&store, &call("key")).await;
}

/// A transaction within ours that is still open would be all that a commit ends.
#[tokio::test]
async fn an_inner_transaction_that_is_left_open_does_not_commit() {
    let place = Place::fresh();
    let store = place.open().await;
    let mut tx = store.open(SHORT).await.unwrap();
    let mut inner = tx.begin().await.unwrap();
    sqlx::query("select").execute(&mut *inner).await.unwrap();
    inner.commit().await.unwrap();
    std::mem::forget(tx.begin().await.unwrap());
    store.commit(tx).await.unwrap_err();
}

/// Whoever hears of a completion tells its outcome. It must not be the one that a look between two statements promised.
#[tokio::test]
async fn a_call_begun_again_under_its_completion_is_completed() {
    let place = Place::fresh();
    let store = place.open().await;
    let again = call("key");
    let Verdict::Run(claim) = store.begin(&again).await.unwrap() else {
        panic!("the key is fresh");
    };
    place.run("create table {table}_begun as select * from {table}").await;
    assert_eq!(store.abandon(&claim).await.unwrap(), Fenced::Applied);
    // The same call, begun again after the last statement that tries to complete it: the second one makes up for a
    // session whose commits are not durable.
    place.run("create sequence {table}_tries").await;
    place
        .run(
            "create function {table}_again() returns trigger language plpgsql as $$ begin
                 if nextval('{table}_tries') = 2 then
                     insert into {table} select * from {table}_begun;
                 end if;
                 return null;
             end $$",
        )
        .await;
    place
        .run("create trigger again after update on {table} for each statement execute function {table}_again()")
        .await;

    let mut tx = store.open(SHORT).await.unwrap();
    let completed = store.complete_in(&mut tx, &claim, &OUTCOME, Keep::DAY).await.unwrap();
    store.commit(tx).await.unwrap();
    assert_eq!(completed, Fenced::Applied);
    let verdict = store.begin(&again).await.unwrap();
    assert!(
        matches!(&verdict, Verdict::Replay(replay) if replay.outcome == OUTCOME),
        "{verdict:?}"
    );
}
