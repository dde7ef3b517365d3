//! The queue on PostgreSQL: what every queue promises, and what only this one can.

mod bundled;
mod locked;
mod sheaved;
mod transaction;

use std::sync::Arc;
use std::time::Duration;

use exactly::Fenced;
use exactly::queue::{
    Ask, End, Failure, FailureKind, InspectQueue as _, Lane, Leased, Queue as _, Registry as _, Settlement, Task,
    TaskId, TaskState, TransactionalQueue as _, WorkerId,
};
use exactly_conformance::{QueueHarness, TransactionalQueueHarness};
use exactly_sql::{PgQueue, PgTransaction};
use futures_util::future::join_all;
use sqlx::AssertSqlSafe;
use tokio::time::{sleep, timeout};

use super::Place;

/// A schema with tasks and a table of effects.
pub(crate) struct Yard(pub(crate) Place);

impl QueueHarness for Yard {
    type Queue = PgQueue;

    async fn fresh() -> Self {
        let place = Place::fresh();
        queue(&place).await;
        place
            .run(&format!("create table {}.effects (name text not null)", place.schema))
            .await;
        Self(place)
    }

    async fn open(&self) -> Arc<PgQueue> {
        queue(&self.0).await
    }

    async fn elapse(&self, by: Duration) {
        let schema = &self.0.schema;
        let by = format!("{} * interval '1 microsecond'", by.as_micros());
        let moved = |columns: &[&str]| {
            let moves = columns.iter().map(|column| format!("{column} = {column} - {by}"));
            moves.collect::<Vec<_>>().join(", ")
        };
        let sql = format!(
            "begin; lock table {schema}.tasks in exclusive mode;
             update {schema}.tasks set {}; update {schema}.tasks_attempts set {}; update {schema}.tasks_marks set {};
             update {schema}.tasks_bundles set {}; update {schema}.tasks_sheaves set {}; commit",
            moved(&["due_at", "ready_at", "enqueued_at", "started_at", "ended_at"]),
            moved(&["started_at", "ended_at"]),
            moved(&["raised_at"]),
            moved(&["leased_at", "until"]),
            moved(&["due_at"])
        );
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&self.0.pool).await.unwrap();
    }
}

impl TransactionalQueueHarness for Yard {
    async fn effect(&self, tx: &mut PgTransaction, name: &str) {
        let sql = format!("insert into {}.effects values ($1)", self.0.schema);
        sqlx::query(AssertSqlSafe(sql))
            .bind(name)
            .execute(&mut **tx)
            .await
            .unwrap();
    }

    async fn effects(&self, name: &str) -> u64 {
        let sql = format!("select count(*) from {}.effects where name = $1", self.0.schema);
        let count: i64 = sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(name)
            .fetch_one(&self.0.pool)
            .await
            .unwrap();
        count.try_into().unwrap()
    }
}

/// The same, where so many tasks that are enqueued together wait as one row, and a lease of so many is one.
struct Tuned<const SHEAF_FROM: u32, const BUNDLE_FROM: u32>(Yard);

impl<const SHEAF_FROM: u32, const BUNDLE_FROM: u32> Tuned<SHEAF_FROM, BUNDLE_FROM> {
    async fn queue(&self, sheaf_from: u32, bundle_from: u32) -> Arc<PgQueue> {
        let queue = PgQueue::builder(self.0.0.pool.clone()).schema(&self.0.0.schema);
        let queue = queue.sheaf_from(sheaf_from).bundle_from(bundle_from);
        Arc::new(queue.start().await.unwrap())
    }

    async fn count(&self, from: &str) -> i64 {
        let sql = format!("select count(*) from {}.{from}", self.0.0.schema);
        let count = sqlx::query_scalar(AssertSqlSafe(sql));
        count.fetch_one(&self.0.0.pool).await.unwrap()
    }
}

impl<const SHEAF_FROM: u32, const BUNDLE_FROM: u32> QueueHarness for Tuned<SHEAF_FROM, BUNDLE_FROM> {
    type Queue = PgQueue;

    async fn fresh() -> Self {
        Self(Yard::fresh().await)
    }

    async fn open(&self) -> Arc<PgQueue> {
        self.queue(SHEAF_FROM, BUNDLE_FROM).await
    }

    async fn elapse(&self, by: Duration) {
        self.0.elapse(by).await;
    }
}

impl<const SHEAF_FROM: u32, const BUNDLE_FROM: u32> TransactionalQueueHarness for Tuned<SHEAF_FROM, BUNDLE_FROM> {
    async fn effect(&self, tx: &mut PgTransaction, name: &str) {
        self.0.effect(tx, name).await;
    }

    async fn effects(&self, name: &str) -> u64 {
        self.0.effects(name).await
    }
}

async fn depths(queue: &PgQueue) -> Vec<(TaskState, u64)> {
    let depths = queue.depths().await.unwrap();
    depths.iter().map(|depth| (depth.state, depth.tasks)).collect()
}

async fn queue(place: &Place) -> Arc<PgQueue> {
    let queue = PgQueue::builder(place.pool.clone()).schema(&place.schema);
    Arc::new(queue.start().await.unwrap())
}

fn task(key: &str) -> Task {
    Task::new("offer", key, "payload").unwrap()
}

async fn leased(queue: &PgQueue, most: u32) -> Vec<Leased> {
    queue.lease(&Ask::new(WorkerId::random(), most)).await.unwrap()
}

/// What these lease at the same time, so many at once each, until nothing waits.
async fn all_leased_by(workers: Vec<(Arc<PgQueue>, u32)>) -> Vec<TaskId> {
    let workers = workers.into_iter().map(|(queue, most)| {
        tokio::spawn(async move {
            let mut ids: Vec<TaskId> = Vec::new();
            loop {
                let leased = leased(&queue, most).await;
                if leased.is_empty() && depths(&queue).await[0].0 == TaskState::Running {
                    return ids;
                }
                ids.extend(leased.iter().map(|leased| leased.lease.id));
            }
        })
    });
    join_all(workers).await.into_iter().flat_map(Result::unwrap).collect()
}

/// Tasks of one call differ in when they are due, and not by being dated back: they would overtake what was there before.
#[tokio::test]
async fn nothing_is_due_before_it_came() {
    let yard = Yard::fresh().await;
    let queue = yard.open().await;
    let bulk: Vec<_> = (0..500).map(|n| task(&n.to_string())).collect();
    let _ = queue.enqueue(&bulk).await.unwrap();
    let early = format!(
        "select count(*), count(distinct due_at) from {}.tasks where due_at >= enqueued_at",
        yard.0.schema
    );
    let counts: (i64, i64) = sqlx::query_as(AssertSqlSafe(early))
        .fetch_one(&yard.0.pool)
        .await
        .unwrap();
    assert_eq!(counts, (500, 500));
    assert_eq!(leased(&queue, 500).await.len(), 500);
}

/// What waits for later costs those who look for work nothing, however much there is of it.
#[tokio::test]
async fn what_is_not_due_is_not_read() {
    let yard = Yard::fresh().await;
    let queue = yard.open().await;
    let later = |n: u32| task(&n.to_string()).after(Duration::from_hours(1));
    let _ = queue.enqueue(&(0..2000).map(later).collect::<Vec<_>>()).await.unwrap();
    let _ = queue.enqueue(&[task("now")]).await.unwrap();
    assert_eq!(leased(&queue, 10).await.len(), 1);
    assert_eq!(leased(&queue, 10).await.len(), 0);
    // A session tells what it read at its end.
    drop(queue);
    let read = format!(
        "select idx_tup_read from pg_stat_user_indexes
         where schemaname = '{}' and indexrelname = 'tasks_waiting' and idx_tup_read > 0",
        yard.0.schema
    );
    let read = async {
        loop {
            let read = sqlx::query_scalar(AssertSqlSafe(read.as_str()));
            let read: Option<i64> = read.fetch_optional(&yard.0.pool).await.unwrap();
            match read {
                Some(read) => break read,
                None => sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let read = timeout(Duration::from_secs(30), read).await.unwrap();
    assert!(read < 100, "{read} entries were read for one task");
}

/// The table as the first version made it, with tasks in it.
#[tokio::test]
async fn tasks_of_an_older_schema_stay_as_they_are() {
    let yard = Yard::fresh().await;
    let queue = yard.open().await;
    let _ = queue.enqueue(&["a", "b"].map(task)).await.unwrap();
    let running = leased(&queue, 1).await.remove(0);
    let schema = &yard.0.schema;
    let older = format!(
        "alter table {schema}.tasks drop column ready_at; drop table {schema}.tasks_marks, {schema}.tasks_cards, {schema}.tasks_bundles,
             {schema}.tasks_sheaves;
         update {schema}.exactly_versions set version = 1 where table_name = 'tasks'"
    );
    sqlx::raw_sql(AssertSqlSafe(older)).execute(&yard.0.pool).await.unwrap();
    let unmigrated = PgQueue::builder(yard.0.pool.clone())
        .schema(schema)
        .migrate(false)
        .start()
        .await;
    assert!(unmigrated.unwrap_err().to_string().contains("version 10"));
    let queue = yard.open().await;
    let back = Settlement::new(running.lease, End::Release);
    assert_eq!(queue.settle(&[back]).await.unwrap(), [Fenced::Applied]);
    let keys: Vec<_> = leased(&queue, 3).await.into_iter().map(|leased| leased.key).collect();
    // Since when the first was due had not been kept.
    assert_eq!(keys, ["b".into(), "a".into()]);
    let mut tx = queue.open().await.unwrap();
    assert!(queue.raise_in(&mut tx, "a", 1).await.unwrap());
    assert_eq!(queue.cards("", "", 1).await.unwrap(), []);
}

/// Lanes without a cap are let be for a moment if they had nothing, and no longer, whether somebody tells of what has come or not.
#[tokio::test]
async fn a_lane_without_a_cap_is_found_beside_one_with_a_cap() {
    let yard = Yard::fresh().await;
    let (queue, other) = (yard.open().await, yard.open().await);
    let in_lane = |key: &str, lane: &str| task(key).in_lane(Lane::new(lane).unwrap());
    queue.cap_lane(&Lane::new("capped").unwrap(), Some(5000)).await.unwrap();
    let capped: Vec<_> = (0..5000).map(|n| in_lane(&n.to_string(), "capped")).collect();
    let _ = queue.enqueue(&capped).await.unwrap();
    // Each time there is something of the other lane, and many times are longer than a moment.
    let next = async || {
        for _ in 0..500 {
            let next = leased(&queue, 2).await;
            if let Some(free) = next.into_iter().find(|leased| leased.lane.as_str() == "free") {
                return free.key;
            }
        }
        panic!("it is not found");
    };
    assert_eq!(leased(&queue, 2).await.len(), 2);
    let silently = [in_lane("silently", "free")];
    let mut conn = yard.0.pool.acquire().await.unwrap();
    let _ = other.enqueue_within(&mut conn, &silently).await.unwrap();
    assert_eq!(*next().await, *"silently");
    let _ = other.enqueue(&[in_lane("aloud", "free")]).await.unwrap();
    assert_eq!(*next().await, *"aloud");
}

/// As the version made them that did not know when they were raised: nobody does, so they are as young as the migration.
#[tokio::test]
async fn marks_of_an_older_schema_count_from_the_migration() {
    let yard = Yard::fresh().await;
    let queue = yard.open().await;
    let mut tx = queue.open().await.unwrap();
    assert!(queue.raise_in(&mut tx, "a", 5).await.unwrap());
    queue.commit(tx).await.unwrap();
    let schema = &yard.0.schema;
    let older = format!(
        "alter table {schema}.tasks_marks drop column raised_at;
         update {schema}.exactly_versions set version = 5 where table_name = 'tasks'"
    );
    sqlx::raw_sql(AssertSqlSafe(older)).execute(&yard.0.pool).await.unwrap();
    let queue = yard.open().await;
    let mut tx = queue.open().await.unwrap();
    assert!(!queue.raise_in(&mut tx, "a", 5).await.unwrap());
    queue.commit(tx).await.unwrap();
    let day = Duration::from_hours(24);
    assert_eq!(queue.prune_marks(day, 10).await.unwrap(), 0);
    yard.elapse(day * 2).await;
    assert_eq!(queue.prune_marks(day, 10).await.unwrap(), 1);
}

/// A notification costs every process a look, so there is none for what cannot be leased yet.
#[tokio::test]
async fn what_is_to_wait_wakes_nobody() {
    let yard = Yard::fresh().await;
    let queue = yard.open().await;
    let mut arrivals = queue.arrivals();
    for (key, after, wakes) in [("later", Duration::from_mins(5), false), ("now", Duration::ZERO, true)] {
        let _ = queue.enqueue(&[task(key)]).await.unwrap();
        let lease = leased(&queue, 1).await[0].lease;
        // What was said of it being enqueued is heard here too, by the connection that listens.
        while timeout(Duration::from_millis(200), arrivals.changed()).await.is_ok() {}
        let failure = Failure::new(FailureKind::Transient, "again");
        let retry = Settlement::new(lease, End::Retry { after, failure });
        let _ = queue.settle(&[retry]).await.unwrap();
        let woken = timeout(Duration::from_millis(200), arrivals.changed()).await;
        assert_eq!(woken.is_ok(), wakes, "{key}");
    }
}

mod suite {
    use super::Yard;

    exactly_conformance::queue_suite!(Yard);
    exactly_conformance::book_suite!(Yard);
    exactly_conformance::registry_suite!(Yard);
}

mod transactional {
    use super::Yard;

    exactly_conformance::transactional_queue_suite!(Yard);
}
