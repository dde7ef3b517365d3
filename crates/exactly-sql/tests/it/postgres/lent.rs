//! Transactions that follow each other share a connection of the pool, and whoever gets it afterwards does not notice.

use std::sync::Arc;
use std::time::Duration;

use exactly::queue::{Task, TransactionalQueue as _};
use exactly_conformance::QueueHarness as _;
use exactly_sql::{PgQueue, PgTransaction};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};
use tokio::time::{sleep, timeout};

use super::queue::Yard;
use super::url;

const SOON: Duration = Duration::from_secs(5);

/// A queue on a pool of so many connections.
async fn queue_on(yard: &Yard, connections: u32) -> (Arc<PgQueue>, PgPool) {
    let pool = PgPoolOptions::new().max_connections(connections);
    let pool = pool.connect(&url()).await.unwrap();
    let queue = PgQueue::builder(pool.clone()).schema(&yard.0.schema).start();
    (Arc::new(queue.await.unwrap()), pool)
}

async fn note(conn: &mut PgConnection, yard: &Yard, name: &str) {
    let sql = format!("insert into {}.effects values ($1)", yard.0.schema);
    let insert = sqlx::query(AssertSqlSafe(sql)).bind(name).execute(conn);
    assert_eq!(insert.await.unwrap().rows_affected(), 1);
}

async fn noted(yard: &Yard) -> Vec<String> {
    let sql = format!("select name from {}.effects order by name", yard.0.schema);
    let names = sqlx::query_scalar(AssertSqlSafe(sql));
    names.fetch_all(&yard.0.pool).await.unwrap()
}

async fn backend(conn: &mut PgConnection) -> i32 {
    let pid = sqlx::query_scalar("select pg_backend_pid()");
    pid.fetch_one(conn).await.unwrap()
}

/// Waits until the pool has all its connections back.
async fn all_back(pool: &PgPool) {
    let back = async {
        while pool.num_idle() < usize::try_from(pool.size()).unwrap() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(SOON, back).await.expect("a connection stayed away");
}

/// Opens a transaction, does something in it, and commits it behind that.
async fn work(queue: &PgQueue, yard: &Yard, name: &str) -> i32 {
    let mut tx = queue.open().await.unwrap();
    let pid = backend(&mut tx).await;
    note(&mut tx, yard, name).await;
    queue.commit(tx).await.unwrap();
    pid
}

#[tokio::test]
async fn transactions_that_follow_each_other_share_a_connection_and_give_it_back() {
    let yard = Yard::fresh().await;
    let (queue, pool) = queue_on(&yard, 4).await;
    all_back(&pool).await;
    let first = work(&queue, &yard, "1").await;
    // Nobody has asked for it, and it is not there.
    assert_eq!(pool.num_idle(), usize::try_from(pool.size()).unwrap() - 1);
    assert_eq!(work(&queue, &yard, "2").await, first);
    all_back(&pool).await;
    assert_eq!(noted(&yard).await, ["1", "2"]);
    // Whatever sqlx was told of its transactions, those of others begin and end on it.
    for name in ["3", "4"] {
        all_back(&pool).await;
        let mut others = Vec::new();
        for _ in 0..pool.size() {
            others.push(pool.acquire().await.unwrap());
        }
        for conn in &mut others {
            let mut tx = conn.begin().await.unwrap();
            if backend(&mut tx).await == first {
                note(&mut tx, &yard, name).await;
            }
            tx.commit().await.unwrap();
        }
    }
    assert_eq!(noted(&yard).await, ["1", "2", "3", "4"]);
    let state = "select state || coalesce(backend_xid::text, '') from pg_stat_activity where pid = $1";
    let state: String = sqlx::query_scalar(state)
        .bind(first)
        .fetch_one(&yard.0.pool)
        .await
        .unwrap();
    assert_eq!(state, "idle");
}

/// The message that commits one begins the next, which holds nothing before its first statement and is as if it had been opened by itself.
#[tokio::test]
async fn a_commit_begins_the_next_transaction_and_it_inherits_nothing() {
    let yard = Yard::fresh().await;
    let (queue, _pool) = queue_on(&yard, 4).await;
    let mut tx = queue.open().await.unwrap();
    for statement in [
        "set transaction isolation level serializable",
        "set local work_mem = '1MB'",
    ] {
        sqlx::raw_sql(statement).execute(&mut *tx).await.unwrap();
    }
    let first = backend(&mut tx).await;
    note(&mut tx, &yard, "1").await;
    queue.commit(tx).await.unwrap();
    let mut tx = queue.open().await.unwrap();
    let seen = "select state || ', ' || query || coalesce(backend_xid, backend_xmin, '')::text
                from (select state, query, backend_xid::text, backend_xmin::text from pg_stat_activity where pid = $1) a";
    let seen = sqlx::query_scalar::<_, String>(seen).bind(first);
    let seen = seen.fetch_one(&yard.0.pool).await.unwrap();
    assert_eq!(seen, "idle in transaction, select; commit; begin");
    assert_eq!(backend(&mut tx).await, first);
    let settings = "select current_setting('transaction_isolation') || ' ' || current_setting('work_mem')";
    let settings: String = sqlx::query_scalar(settings).fetch_one(&mut *tx).await.unwrap();
    assert_eq!(settings, "read committed 4MB");
    note(&mut tx, &yard, "2").await;
    drop(tx);
    assert_eq!(noted(&yard).await, ["1"]);
}

/// What is nested in the second of two transactions on one connection is behind a savepoint, and not a transaction of its own.
#[tokio::test]
async fn what_is_nested_in_a_transaction_on_a_shared_connection_is_rolled_back_alone() {
    let yard = Yard::fresh().await;
    let (queue, _pool) = queue_on(&yard, 4).await;
    let first = work(&queue, &yard, "first").await;
    let mut tx: PgTransaction = queue.open().await.unwrap();
    assert_eq!(backend(&mut tx).await, first);
    note(&mut tx, &yard, "kept").await;
    let mut nested = tx.begin().await.unwrap();
    note(&mut nested, &yard, "nested").await;
    nested.rollback().await.unwrap();
    queue.commit(tx).await.unwrap();
    assert_eq!(noted(&yard).await, ["first", "kept"]);
    let mut tx = queue.open().await.unwrap();
    note(&mut tx, &yard, "dropped").await;
    drop(tx);
    let mut tx = queue.open().await.unwrap();
    note(&mut tx, &yard, "rolled back").await;
    queue.rollback(tx).await.unwrap();
    work(&queue, &yard, "last").await;
    assert_eq!(noted(&yard).await, ["first", "kept", "last"]);
}

/// With one connection there are no others for whoever waits, so it goes back after each transaction.
#[tokio::test]
async fn a_pool_of_one_connection_has_it_back_at_once() {
    let yard = Yard::fresh().await;
    let (queue, pool) = queue_on(&yard, 1).await;
    for n in 0..20 {
        work(&queue, &yard, &format!("{n:02}")).await;
        let mut tx = timeout(SOON, pool.begin()).await.unwrap().unwrap();
        note(&mut tx, &yard, &format!("{n:02} beside")).await;
        tx.commit().await.unwrap();
    }
    assert_eq!(noted(&yard).await.len(), 40);
}

/// The server calls the commit of an aborted transaction a success. It is not one, whichever way it is asked.
#[tokio::test]
async fn what_was_aborted_and_not_noticed_is_not_committed() {
    let yard = Yard::fresh().await;
    for connections in [1, 4] {
        let (queue, pool) = queue_on(&yard, connections).await;
        let mut tx = queue.open().await.unwrap();
        note(&mut tx, &yard, "lost").await;
        assert!(sqlx::query("select 1 / 0").execute(&mut *tx).await.is_err());
        assert!(queue.commit(tx).await.is_err(), "{connections}");
        let name = format!("after, of {connections}");
        work(&queue, &yard, &name).await;
        all_back(&pool).await;
        let mut tx = pool.begin().await.unwrap();
        note(&mut tx, &yard, &format!("{name}, of the pool")).await;
        tx.commit().await.unwrap();
    }
    let names = noted(&yard).await;
    let after = [
        "after, of 1",
        "after, of 1, of the pool",
        "after, of 4",
        "after, of 4, of the pool",
    ];
    assert_eq!(names, after);
}

/// A queue that ends takes nothing with it that its pool needs.
#[tokio::test]
async fn a_queue_that_ends_leaves_a_pool_that_works() {
    let yard = Yard::fresh().await;
    let (queue, pool) = queue_on(&yard, 2).await;
    work(&queue, &yard, "1").await;
    drop(queue);
    for n in 0..4 {
        let mut tx = timeout(SOON, pool.begin()).await.unwrap().unwrap();
        note(&mut tx, &yard, &format!("after {n}")).await;
        tx.commit().await.unwrap();
    }
    timeout(SOON, pool.close()).await.expect("a connection stayed away");
    assert_eq!(noted(&yard).await.len(), 5);
}

/// A runtime that ends takes with it whoever gives back what is kept. The pool has its places back all the same.
#[test]
fn what_is_kept_when_a_runtime_ends_is_given_back() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let first = runtime();
    let (queue, pool) = first.block_on(async {
        let yard = Yard::fresh().await;
        let (queue, pool) = queue_on(&yard, 4).await;
        work(&queue, &yard, "1").await;
        assert!(pool.num_idle() < usize::try_from(pool.size()).unwrap());
        (queue, pool)
    });
    drop(first);
    runtime().block_on(async { timeout(SOON, pool.close()).await.expect("a connection stayed away") });
    drop(queue);
}

/// What waits for the next transaction goes back to the pool, for which it needs the runtime that whoever drops the queue has left.
#[test]
fn a_queue_is_dropped_outside_of_its_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (yard, queue, pool) = runtime.block_on(async {
        let yard = Yard::fresh().await;
        let (queue, pool) = queue_on(&yard, 4).await;
        for key in ["a", "b"] {
            let mut tx = queue.open().await.unwrap();
            let task = Task::new("offer", key, "{}").unwrap();
            let _ = queue.enqueue_in(&mut tx, &[task]).await.unwrap();
            queue.commit(tx).await.unwrap();
        }
        (yard, queue, pool)
    });
    drop(queue);
    runtime.block_on(async {
        all_back(&pool).await;
        let tasks = format!("select count(*) from {}.tasks", yard.0.schema);
        let tasks: i64 = sqlx::query_scalar(AssertSqlSafe(tasks)).fetch_one(&pool).await.unwrap();
        assert_eq!(tasks, 2);
    });
}
