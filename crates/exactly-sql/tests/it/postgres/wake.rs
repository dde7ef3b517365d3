//! Waking those who wait in other processes.

use std::time::Duration;

use exactly::{Keep, Store, TransactionalStore, Verdict};
use sqlx::postgres::PgListener;
use sqlx::{AssertSqlSafe, PgPool};
use tokio::time::timeout;

use super::{Place, call, run, url};

const PATIENCE: Duration = Duration::from_secs(20);

/// Does something to the connection of each who listens for the table's notifications, and says how many there are.
async fn each_listener(place: &Place, what: &str) -> u64 {
    let sql = format!(
        "select {what} from pg_stat_activity
         where query ilike 'listen %' and query like '%' || to_regclass($1)::oid || '%'"
    );
    let table = format!("{}.calls", place.schema);
    sqlx::query(AssertSqlSafe(sql))
        .bind(table)
        .execute(&place.pool)
        .await
        .unwrap()
        .rows_affected()
}

#[tokio::test]
async fn a_listener_that_lost_its_connection_wakes_everyone_and_listens_again() {
    let place = Place::fresh();
    let (store, other) = (place.open().await, place.open().await);
    let call = call("key");
    let claim = run(&store, &call).await;
    // The listeners start by themselves, some time after the store.
    timeout(PATIENCE, async { while each_listener(&place, "pid").await < 2 {} })
        .await
        .expect("nobody listens");
    assert_eq!(each_listener(&place, "pg_terminate_backend(pid)").await, 2);
    let mut watch = other.watch(call.id());
    timeout(PATIENCE, watch.changed())
        .await
        .expect("what was missed is never made good");

    let mut watch = other.watch(call.id());
    assert!(matches!(
        other.begin(&super::call("key")).await.unwrap(),
        Verdict::InFlight { .. }
    ));
    let _ = store.complete(&claim, &"done".into(), Keep::DAY).await.unwrap();
    timeout(PATIENCE, watch.changed()).await.expect("nobody listens again");
}

/// A notification serialises the commits that send one, so none is sent while nobody waits.
#[tokio::test]
async fn only_calls_that_someone_waits_for_are_notified_about() {
    let place = Place::fresh();
    let store = place.open().await;
    let channel: String = sqlx::query_scalar("select 'exactly_' || to_regclass($1)::oid")
        .bind(format!("{}.calls", place.schema))
        .fetch_one(&place.pool)
        .await
        .unwrap();
    let mut listener = PgListener::connect(&url()).await.unwrap();
    listener.listen(&channel).await.unwrap();

    for key in ["alone", "waited for"] {
        let claim = run(&store, &call(key)).await;
        if key == "waited for" {
            let _ = store.peek(&call(key)).await.unwrap();
            assert!(matches!(
                store.begin(&call(key)).await.unwrap(),
                Verdict::InFlight { .. }
            ));
        }
        let _ = store.complete(&claim, &"done".into(), Keep::DAY).await.unwrap();
    }
    let hint: String = call("waited for").id().to_string()[..16].to_owned();
    let notification = timeout(PATIENCE, listener.recv())
        .await
        .expect("a waiter was not notified")
        .unwrap();
    assert_eq!(notification.payload(), format!("{hint},"));
}

/// A notification would serialise commits, so other processes poll; those of this one need none.
#[tokio::test]
async fn a_transaction_wakes_those_who_wait_in_its_process() {
    let place = Place::fresh();
    let store = place.open().await;
    let (call, outcome) = (call("key"), "done".into());
    // Whoever starts to listen wakes everyone.
    timeout(PATIENCE, store.watch(call.id()).changed())
        .await
        .expect("nobody listens");
    let mut watch = store.watch(call.id());
    let mut tx = store.open(PATIENCE).await.unwrap();
    let Verdict::Run(claim) = store.begin_in(&mut tx, &call).await.unwrap() else {
        panic!("fresh")
    };
    let _ = store.complete_in(&mut tx, &claim, &outcome, Keep::DAY).await.unwrap();
    store.commit(tx).await.unwrap();
    timeout(PATIENCE, watch.changed()).await.expect("a commit wakes nobody");

    let mut watch = store.watch(call.id());
    store.wake(call.id());
    timeout(PATIENCE, watch.changed()).await.expect("nobody is woken");
}

#[tokio::test]
async fn a_dropped_store_closes_its_connections() {
    let place = Place::fresh();
    let options: sqlx::postgres::PgConnectOptions = url().parse().unwrap();
    let pool = PgPool::connect_lazy_with(options.application_name(&place.schema));
    let store = exactly_sql::PgStore::builder(pool.clone())
        .schema(&place.schema)
        .start()
        .await
        .unwrap();
    let _claim = run(&store, &call("key")).await;
    drop(store);
    pool.close().await;
    let gone = async {
        loop {
            let sql = "select count(*) from pg_stat_activity where application_name = $1";
            let open: i64 = sqlx::query_scalar(sql)
                .bind(&place.schema)
                .fetch_one(&place.pool)
                .await
                .unwrap();
            if open == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("connections outlive their store");
}
