//! Tasks in the transaction that a call is recorded in, and in one of the caller's own.

use std::time::Duration;

use exactly::queue::{End, InspectQueue as _, Queue as _, Settlement, TaskState, TransactionalQueue};
use exactly::{Fenced, Keep, Store as _, TransactionalStore, Verdict};
use exactly_conformance::{QueueHarness as _, TransactionalQueueHarness as _};
use exactly_sql::{PgQueue, PgStore, PgTransaction};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::time::timeout;

use super::super::{Place, call, url};
use super::{Yard, leased, task};

const PATIENCE: Duration = Duration::from_secs(20);

async fn opened(store: &PgStore) -> PgTransaction {
    TransactionalStore::open(store, Duration::from_secs(5)).await.unwrap()
}

/// The call, its effect, the task and its wake-up: one transaction of the store's.
#[tokio::test]
async fn a_handler_enqueues_in_the_transaction_of_its_call() {
    let yard = Yard::fresh().await;
    let (store, queue, elsewhere) = (yard.0.open().await, yard.open().await, yard.open().await);
    for commits in [false, true] {
        let (mut here, mut there) = (queue.arrivals(), elsewhere.arrivals());
        let mut tx = opened(&store).await;
        let Verdict::Run(claim) = store.begin_in(&mut tx, &call("a")).await.unwrap() else {
            panic!("the key is fresh")
        };
        assert!(queue.enqueue_in(&mut tx, &[task("a")]).await.unwrap()[0].is_new());
        let completed = store.complete_in(&mut tx, &claim, &"a".into(), Keep::DAY).await;
        assert_eq!(completed.unwrap(), Fenced::Applied);
        here.mark_unchanged();
        there.mark_unchanged();
        if commits {
            TransactionalStore::commit(&*store, tx).await.unwrap();
            assert!(here.has_changed().unwrap(), "no worker of this process is woken");
            let woken = timeout(PATIENCE, there.changed()).await;
            woken.expect("no worker of another process is woken").unwrap();
        } else {
            drop(tx);
            assert!(!here.has_changed().unwrap());
        }
        assert_eq!(leased(&queue, 1).await.len(), usize::from(commits));
    }
    assert!(matches!(store.begin(&call("a")).await.unwrap(), Verdict::Replay(_)));
}

/// Whoever commits, those who wait for what was committed hear of it.
#[tokio::test]
async fn a_queues_commit_wakes_those_who_wait_for_a_call() {
    let yard = Yard::fresh().await;
    let (store, queue) = (yard.0.open().await, yard.open().await);
    let mut tx = TransactionalQueue::open(&*queue).await.unwrap();
    let Verdict::Run(claim) = store.begin_in(&mut tx, &call("a")).await.unwrap() else {
        panic!("the key is fresh")
    };
    let completed = store.complete_in(&mut tx, &claim, &"a".into(), Keep::DAY).await;
    assert_eq!(completed.unwrap(), Fenced::Applied);
    let mut watch = store.watch(call("a").id());
    assert!(timeout(Duration::from_millis(50), watch.changed()).await.is_err());
    TransactionalQueue::commit(&*queue, tx).await.unwrap();
    timeout(PATIENCE, watch.changed()).await.expect("nobody is woken");
}

/// One connection for all transactions, on which every statement is prepared.
async fn on_one_connection(place: &Place) -> (PgStore, PgQueue) {
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy(&url()).unwrap();
    let store = PgStore::builder(pool.clone()).schema(&place.schema).start().await;
    let queue = PgQueue::builder(pool).schema(&place.schema).start().await;
    let (store, queue) = (store.unwrap(), queue.unwrap());
    let mut tx = opened(&store).await;
    let _ = queue.enqueue_in(&mut tx, &[task("prepared")]).await.unwrap();
    let _ = store.begin_in(&mut tx, &call("prepared")).await.unwrap();
    TransactionalStore::rollback(&store, tx).await.unwrap();
    (store, queue)
}

/// A call that finds its statement gone from the server may open a transaction anew in which nothing has happened yet, and
/// no other: what was answered before would be lost, and the commit would call it done.
#[tokio::test]
async fn a_lost_statement_loses_no_task_and_no_effect() {
    let yard = Yard::fresh().await;
    for key in ["task", "effect"] {
        let (store, queue) = on_one_connection(&yard.0).await;
        let mut tx = opened(&store).await;
        if key == "task" {
            assert!(queue.enqueue_in(&mut tx, &[task(key)]).await.unwrap()[0].is_new());
        } else {
            yard.effect(&mut tx, key).await;
        }
        sqlx::query("deallocate all").execute(&mut *tx).await.unwrap();
        store.begin_in(&mut tx, &call(key)).await.unwrap_err();
        TransactionalStore::commit(&store, tx).await.unwrap_err();
        assert_eq!(queue.show(task(key).id()).await.unwrap(), None);
        assert_eq!(yard.effects(key).await, 0);
    }
    // A transaction in which nothing has happened yet is opened anew.
    let (store, queue) = on_one_connection(&yard.0).await;
    sqlx::query("deallocate all").execute(queue.pool()).await.unwrap();
    let mut tx = opened(&store).await;
    let begun = store.begin_in(&mut tx, &call("task")).await.unwrap();
    assert!(matches!(begun, Verdict::Run(_)), "{begun:?}");
    assert!(queue.enqueue_in(&mut tx, &[task("task")]).await.unwrap()[0].is_new());
    TransactionalStore::commit(&store, tx).await.unwrap();
    assert_eq!(leased(&queue, 1).await.len(), 1);
}

/// The same where nobody but the queue has used the connection: its own statement counts as one that went well.
#[tokio::test]
async fn a_task_of_a_transaction_is_not_lost_by_opening_it_anew() {
    let yard = Yard::fresh().await;
    let (store, queue) = on_one_connection(&yard.0).await;
    let schema = &yard.0.schema;
    let forgets = format!(
        "create function {schema}.forgets() returns trigger language plpgsql as $$ begin
             execute 'deallocate all';
             return null;
         end $$;
         create trigger forgets after insert on {schema}.tasks for each statement execute function {schema}.forgets()"
    );
    sqlx::raw_sql(AssertSqlSafe(forgets))
        .execute(&yard.0.pool)
        .await
        .unwrap();
    let mut tx = opened(&store).await;
    assert!(queue.enqueue_in(&mut tx, &[task("a")]).await.unwrap()[0].is_new());
    store.begin_in(&mut tx, &call("a")).await.unwrap_err();
    TransactionalStore::commit(&store, tx).await.unwrap_err();
    assert_eq!(queue.show(task("a").id()).await.unwrap(), None);
}

#[tokio::test]
async fn tasks_ride_in_a_transaction_of_your_own() {
    let yard = Yard::fresh().await;
    let queue = yard.open().await;
    let mut own = PgConnection::connect(&url()).await.unwrap();
    for commits in [false, true] {
        let mut tx = own.begin().await.unwrap();
        assert!(queue.enqueue_within(&mut tx, &[task("a")]).await.unwrap()[0].is_new());
        if commits {
            tx.commit().await.unwrap();
            queue.announce();
        } else {
            tx.rollback().await.unwrap();
            assert_eq!(leased(&queue, 1).await, []);
        }
    }
    let held = leased(&queue, 1).await.remove(0);
    let done = [Settlement::new(held.lease, End::Done("done".into()))];
    for (commits, state) in [(false, TaskState::Running), (true, TaskState::Done)] {
        let mut tx = own.begin().await.unwrap();
        assert_eq!(queue.settle_within(&mut tx, &done).await.unwrap(), [Fenced::Applied]);
        if commits {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!(queue.show(held.lease.id).await.unwrap().unwrap().state, state);
    }
}
