//! The queue on PostgreSQL.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use exactly::Fenced;
use exactly::queue::{Ask, End, Enqueued, InspectQueue, Lane, Queue, Settlement, Task, WorkerId};
use exactly_sql::PgQueue;
use sqlx::AssertSqlSafe;

use super::Place;

async fn queue(place: &Place) -> Arc<PgQueue> {
    Arc::new(
        PgQueue::builder(place.pool.clone())
            .schema(&place.schema)
            .start()
            .await
            .unwrap(),
    )
}

#[tokio::test]
async fn smoke() {
    let place = Place::fresh();
    let queue = queue(&place).await;
    let tasks: Vec<Task> = (0..5000)
        .map(|n| {
            Task::new("k", format!("{n}"), "{}")
                .unwrap()
                .in_lane(Lane::new(format!("lane{}", n % 100)).unwrap())
        })
        .collect();
    let enqueued = queue.enqueue(&tasks).await.unwrap();
    assert!(enqueued.iter().all(Enqueued::is_new));
    let enqueued = queue.enqueue(&tasks).await.unwrap();
    assert!(!enqueued.iter().any(Enqueued::is_new));
    let worker = WorkerId::random();
    let mut seen = HashSet::new();
    let mut rounds = 0;
    loop {
        let leased = queue.lease(&Ask::new(worker, 300)).await.unwrap();
        if leased.is_empty() {
            break;
        }
        rounds += 1;
        let ends: Vec<_> = leased
            .iter()
            .map(|task| Settlement::new(task.lease, End::Done("x".into())))
            .collect();
        for task in &leased {
            assert!(seen.insert(task.key.clone()));
        }
        let settled = queue.settle(&ends).await.unwrap();
        assert!(settled.iter().all(|fenced| *fenced == Fenced::Applied));
    }
    assert_eq!(seen.len(), 5000);
    println!("{rounds} rounds");
    let view = queue.show(tasks[3].id()).await.unwrap();
    println!("{view:?} {:?}", queue.depths().await.unwrap());
    assert_eq!(
        queue
            .prune(exactly::queue::TaskState::Done, Duration::ZERO, 100_000)
            .await
            .unwrap(),
        5000
    );
    let _ = AssertSqlSafe("");
}
