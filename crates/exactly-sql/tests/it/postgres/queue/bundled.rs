//! Leases of many tasks that are one row: every promise of a queue again, and what is special about them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use exactly::Fenced;
use exactly::queue::{
    Ask, End, Failure, FailureKind, Fence, InspectQueue as _, Lane, Lease, Queue as _, Ruling, Settlement, TaskFilter,
    TaskPage, TaskState, TransactionalQueue as _, WorkerId,
};
use exactly_conformance::QueueHarness as _;
use exactly_sql::PgQueue;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::time::sleep;

use super::super::url;
use super::{Tuned, all_leased_by, depths, leased, task};

/// Longer than the leases here, and not twice as long.
const LEASE_AND_A_BIT: Duration = Duration::from_secs(31);

/// How often a task may be rescued.
const RESCUES: u32 = 5;

/// Where every lease becomes a bundle, and every task waits by itself.
type Bundled = Tuned<{ u32::MAX }, 1>;

/// So many tasks, leased as one bundle.
async fn bundled(yard: &Bundled, queue: &PgQueue, tasks: u32) -> Vec<Lease> {
    let tasks: Vec<_> = (0..tasks).map(|n| task(&format!("{n:05}"))).collect();
    let _ = queue.enqueue(&tasks).await.unwrap();
    let leased = leased(queue, u32::try_from(tasks.len()).unwrap()).await;
    assert_eq!(leased.len(), tasks.len());
    assert_eq!(yard.count("tasks_bundles").await, 1);
    leased.iter().map(|leased| leased.lease).collect()
}

fn done(lease: Lease) -> Settlement {
    Settlement::new(lease, End::Done("done".into()))
}

fn retry(lease: Lease) -> Settlement {
    let failure = Failure::new(FailureKind::Transient, "again");
    let after = Duration::ZERO;
    Settlement::new(lease, End::Retry { after, failure })
}

/// A lease of many is written as one row, and shows as the lease of each.
#[tokio::test]
async fn a_lease_of_many_is_one_row() {
    let yard = Bundled::fresh().await;
    let queue = yard.queue(u32::MAX, 100).await;
    let tasks: Vec<_> = (0..100).map(|n| task(&n.to_string())).collect();
    let _ = queue.enqueue(&tasks).await.unwrap();
    let worker = WorkerId::random();
    let of_many = queue.lease(&Ask::new(worker, 100)).await.unwrap();
    assert_eq!(of_many.len(), 100);
    assert_eq!(yard.count("tasks_bundles").await, 1);
    assert_eq!(yard.count("tasks where state = 0").await, 100);
    assert_eq!(depths(&queue).await, [(TaskState::Running, 100)]);
    let one = &of_many[7];
    let view = queue.show(one.lease.id).await.unwrap().unwrap();
    assert_eq!(
        (view.state, view.worker, view.fence),
        (TaskState::Running, Some(worker), one.lease.fence)
    );
    assert!(view.due_at > view.started_at, "{view:?}");
    for (state, tasks) in [(TaskState::Running, 100), (TaskState::Waiting, 0)] {
        let filter = TaskFilter {
            state: Some(state),
            ..TaskFilter::default()
        };
        let page = TaskPage {
            after: None,
            limit: 1000,
        };
        assert_eq!(queue.list(&filter, page).await.unwrap().len(), tasks, "{state:?}");
    }
    assert_eq!(leased(&queue, 100).await, []);
    let settlements: Vec<_> = of_many.iter().map(|leased| done(leased.lease)).collect();
    assert_eq!(queue.settle(&settlements).await.unwrap(), vec![Fenced::Applied; 100]);
    let view = queue.show(one.lease.id).await.unwrap().unwrap();
    assert_eq!(
        (view.state, view.worker, view.fence),
        (TaskState::Done, Some(worker), one.lease.fence)
    );
    assert!(view.started_at.is_some_and(|at| view.ended_at >= Some(at)), "{view:?}");
    // Whoever leases next forgets what nothing is left of.
    assert_eq!(leased(&queue, 1).await, []);
    assert_eq!(yard.count("tasks_bundles").await, 0);
}

/// A lease of few is in the rows of its tasks, also if it could have been of many.
#[tokio::test]
async fn a_lease_of_few_is_a_row_each() {
    let yard = Bundled::fresh().await;
    let queue = yard.queue(u32::MAX, 3).await;
    let _ = queue.enqueue(&["a", "b"].map(task)).await.unwrap();
    assert_eq!(leased(&queue, 1000).await.len(), 2);
    assert_eq!(yard.count("tasks_bundles").await, 0);
    assert_eq!(yard.count("tasks where state = 1").await, 2);
}

/// Whoever leases at the same time, and however that is written down, no task is leased twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_of_both_kinds_share_nothing() {
    const TASKS: u32 = 4000;
    let yard = Bundled::fresh().await;
    let tasks: Vec<_> = (0..TASKS).map(|n| task(&n.to_string())).collect();
    let _ = yard.queue(u32::MAX, 1).await.enqueue(&tasks).await.unwrap();
    let mut workers = Vec::new();
    for (from, most) in [(1, 40), (u32::MAX, 30), (1, 50), (u32::MAX, 3), (1, 20), (1, 40)] {
        let queue = yard.queue(u32::MAX, from).await;
        workers.push((queue, most));
    }
    let ids = all_leased_by(workers).await;
    assert_eq!((ids.len(), ids.iter().collect::<BTreeSet<_>>().len()), (4000, 4000));
    assert!(yard.count("tasks_bundles").await > 1);
    assert!(yard.count("tasks where state = 1").await > 0);
}

/// Of two who want a task, the second has waited for its row when the first commits its bundle, which changes nothing in the row.
#[tokio::test]
async fn a_bundle_that_came_meanwhile_is_seen() {
    let yard = Bundled::fresh().await;
    let queue = yard.open().await;
    let _ = queue.enqueue(&[task("a")]).await.unwrap();
    let lane = task("a").lane().clone();
    // In a lane that is in order, rows are waited for.
    queue.cap_lane(&lane, Some(1)).await.unwrap();
    let schema = &yard.0.0.schema;
    let bundle = format!(
        "begin;
         select from {schema}.tasks for update;
         insert into {schema}.tasks_bundles (worker, leased_at, until, tasks, lanes, ids, fences)
         select gen_random_uuid(), now(), now() + interval '1 minute', 1, array[lane], array[id], array[fence]
         from {schema}.tasks"
    );
    let mut first = PgConnection::connect(&url()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(bundle)).execute(&mut first).await.unwrap();
    let second = tokio::spawn(async move { leased(&queue, 10).await });
    sleep(Duration::from_millis(500)).await;
    assert!(!second.is_finished(), "it does not wait for the row");
    sqlx::raw_sql("commit").execute(&mut first).await.unwrap();
    assert_eq!(second.await.unwrap(), []);
}

/// A lease whose transaction fails has leased nothing, and what is leased afterwards is leased once.
#[tokio::test]
async fn a_bundle_that_was_rolled_back_is_none() {
    let yard = Bundled::fresh().await;
    let queue = yard.open().await;
    let capped = Lane::new("capped").unwrap();
    queue.cap_lane(&capped, Some(1)).await.unwrap();
    let tasks = ["a", "b", "c"].map(task).into_iter().chain([task("d").in_lane(capped)]);
    let _ = queue.enqueue(&tasks.collect::<Vec<_>>()).await.unwrap();
    let lock = format!(
        "begin; select from {}.tasks where lane = 'capped' for update",
        yard.0.0.schema
    );
    let mut other = PgConnection::connect(&url()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut other).await.unwrap();
    queue.lease(&Ask::new(WorkerId::random(), 10)).await.unwrap_err();
    sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
    let all = leased(&queue, 10).await;
    assert_eq!(all.len(), 4);
    assert_eq!(yard.count("tasks_bundles").await, 1);
    assert_eq!(leased(&queue, 10).await, []);
    let ends: Vec<_> = all.iter().map(|leased| done(leased.lease)).collect();
    assert_eq!(queue.settle(&ends).await.unwrap(), [Fenced::Applied; 4]);
}

/// What is in large bundles is settled, renewed and released in less time than a statement has, however it ends, and what is done
/// among it is written once.
#[tokio::test]
async fn large_bundles_are_settled_in_time() {
    const TASKS: u32 = 9000;
    let yard = Bundled::fresh().await;
    let queue = yard.open().await;
    let leases = bundled(&yard, &queue, TASKS).await;
    let superseded = Lease {
        fence: Fence::new(leases[1].fence.get() - 1),
        ..leases[1]
    };
    let mut ends: Vec<_> = leases[2..4000].iter().copied().map(done).collect();
    ends.extend([retry(leases[0]), done(superseded)]);
    let rulings = queue.settle(&ends).await.unwrap();
    assert_eq!(
        rulings.iter().filter(|ruling| **ruling == Fenced::Applied).count(),
        3999
    );
    assert_eq!(rulings.last(), Some(&Ruling::Superseded));
    let half = &leases[4000..6500];
    let renewed = queue.renew(half, Duration::from_mins(1)).await.unwrap();
    assert_eq!(renewed, vec![Fenced::Applied; half.len()]);
    // Only these were written before they ended.
    assert_eq!(yard.count("tasks where ready_at is not null").await, 2501);
    let back: Vec<_> = leases[6500..]
        .iter()
        .map(|lease| Settlement::new(*lease, End::Release))
        .collect();
    assert_eq!(queue.settle(&back).await.unwrap(), vec![Fenced::Applied; back.len()]);
    let depths: BTreeMap<_, _> = depths(&queue).await.into_iter().collect();
    assert_eq!(
        depths,
        BTreeMap::from([(TaskState::Waiting, 2501), (TaskState::Running, 2501)])
    );
}

/// What a bundle that has ended still leases is taken from its worker one by one, and what was settled is let be.
#[tokio::test]
async fn what_is_left_of_a_bundle_is_rescued() {
    let yard = Bundled::fresh().await;
    let queue = yard.open().await;
    let leases = bundled(&yard, &queue, 6).await;
    let ends = [done(leases[0]), retry(leases[1])];
    assert_eq!(queue.settle(&ends).await.unwrap(), [Fenced::Applied; 2]);
    assert_eq!(queue.rescue(RESCUES, 100).await.unwrap(), []);
    yard.elapse(LEASE_AND_A_BIT).await;
    // As long as nobody has rescued it, a worker that is late is not too late.
    assert_eq!(queue.settle(&[done(leases[2])]).await.unwrap(), [Fenced::Applied]);
    let rescued = queue.rescue(RESCUES, 100).await.unwrap();
    let rescued: BTreeSet<_> = rescued.iter().map(|rescued| rescued.id).collect();
    assert_eq!(rescued, leases[3..].iter().map(|lease| lease.id).collect());
    assert_eq!(yard.count("tasks_bundles").await, 0);
    assert_eq!(queue.settle(&[done(leases[3])]).await.unwrap(), [Ruling::Superseded]);
    let attempt = &queue.attempts(leases[3].id).await.unwrap()[0];
    assert_eq!(
        (attempt.fence, attempt.failure.kind),
        (leases[3].fence, FailureKind::Lost)
    );
    let again = leased(&queue, 10).await;
    assert_eq!(again.len(), 4);
    for leased in again {
        let before = leases.iter().find(|lease| lease.id == leased.lease.id).unwrap();
        assert!(leased.lease.fence > before.fence, "{leased:?}");
    }
}

/// While a transaction has settled a task and has not ended, its bundle stays: otherwise the task would wait again with a fence
/// that is lower than what was handed out.
#[tokio::test]
async fn a_bundle_stays_while_one_of_its_tasks_is_locked() {
    let yard = Bundled::fresh().await;
    let queue = yard.open().await;
    let leases = bundled(&yard, &queue, 3).await;
    let mut tx = queue.open().await.unwrap();
    let _ = queue.settle_in(&mut tx, &[done(leases[1])]).await.unwrap();
    let ended = format!(
        "update {}.tasks_bundles set until = now() - interval '1 second'",
        yard.0.0.schema
    );
    sqlx::raw_sql(AssertSqlSafe(ended))
        .execute(&yard.0.0.pool)
        .await
        .unwrap();
    assert_eq!(queue.rescue(RESCUES, 100).await.unwrap().len(), 2);
    assert_eq!(yard.count("tasks_bundles").await, 1);
    queue.rollback(tx).await.unwrap();
    let rescued = queue.rescue(RESCUES, 100).await.unwrap();
    assert_eq!(
        rescued.iter().map(|rescued| rescued.id).collect::<Vec<_>>(),
        [leases[1].id]
    );
    assert_eq!(yard.count("tasks_bundles").await, 0);
    let fences = leased(&queue, 3).await;
    assert!(
        fences.iter().all(|leased| leased.lease.fence > leases[1].fence),
        "{fences:?}"
    );
}

/// A renewal is of tasks and not of bundles: what its worker has lost sight of is not kept from others for ever.
#[tokio::test]
async fn what_is_renewed_leaves_its_bundle() {
    let yard = Bundled::fresh().await;
    let queue = yard.open().await;
    let leases = bundled(&yard, &queue, 3).await;
    yard.elapse(Duration::from_secs(20)).await;
    let renewed = queue.renew(&leases[..2], Duration::from_secs(30)).await.unwrap();
    assert_eq!(renewed, [Fenced::Applied; 2]);
    assert_eq!(yard.count("tasks where state = 1").await, 2);
    yard.elapse(Duration::from_secs(20)).await;
    let rescued = queue.rescue(RESCUES, 100).await.unwrap();
    assert_eq!(
        rescued.iter().map(|rescued| rescued.id).collect::<Vec<_>>(),
        [leases[2].id]
    );
    assert_eq!(queue.settle(&[done(leases[0])]).await.unwrap(), [Fenced::Applied]);
    assert_eq!(queue.settle(&[retry(leases[1])]).await.unwrap(), [Fenced::Applied]);
}

/// Another process may settle what it did not lease, in any way.
#[tokio::test]
async fn a_bundle_of_another_process_is_settled() {
    let yard = Bundled::fresh().await;
    let (queue, other) = (yard.open().await, yard.open().await);
    let leases = bundled(&yard, &queue, 5).await;
    assert_eq!(
        other.settle(&[done(leases[0]), done(leases[1])]).await.unwrap(),
        [Fenced::Applied; 2]
    );
    assert_eq!(other.settle(&[retry(leases[2])]).await.unwrap(), [Fenced::Applied]);
    let mut tx = other.open().await.unwrap();
    assert_eq!(
        other.settle_in(&mut tx, &[done(leases[3])]).await.unwrap(),
        [Fenced::Applied]
    );
    other.commit(tx).await.unwrap();
    let mut tx = other.open().await.unwrap();
    assert_eq!(
        other.settle_in(&mut tx, &[retry(leases[4])]).await.unwrap(),
        [Fenced::Applied]
    );
    other.commit(tx).await.unwrap();
    for lease in leases {
        assert_eq!(
            queue.settle(&[Settlement::new(lease, End::Release)]).await.unwrap(),
            [Ruling::Superseded]
        );
    }
    assert_eq!(depths(&queue).await, [(TaskState::Waiting, 2)]);
}

/// A cap counts what was leased before there was one.
#[tokio::test]
async fn a_new_cap_counts_what_is_in_bundles() {
    let yard = Bundled::fresh().await;
    let queue = yard.open().await;
    let leases = bundled(&yard, &queue, 5).await;
    let _ = queue.enqueue(&["x", "y", "z"].map(task)).await.unwrap();
    let lane = queue.show(leases[0].id).await.unwrap().unwrap().lane;
    queue.cap_lane(&lane, Some(6)).await.unwrap();
    assert_eq!(leased(&queue, 10).await.len(), 1);
    assert_eq!(leased(&queue, 10).await, []);
    queue.cap_lane(&lane, Some(3)).await.unwrap();
    assert_eq!(leased(&queue, 10).await, []);
    let ends: Vec<_> = leases.into_iter().map(done).collect();
    let _ = queue.settle(&ends).await.unwrap();
    assert_eq!(leased(&queue, 10).await.len(), 2);
}

/// A task that is given back goes to its place, before those that came after it.
#[tokio::test]
async fn what_is_given_back_of_a_bundle_keeps_its_place() {
    let yard = Bundled::fresh().await;
    let queue = yard.open().await;
    let leases = bundled(&yard, &queue, 3).await;
    let _ = queue.enqueue(&[task("later")]).await.unwrap();
    let back: Vec<_> = leases
        .iter()
        .map(|lease| Settlement::new(*lease, End::Release))
        .collect();
    assert_eq!(queue.settle(&back).await.unwrap(), [Fenced::Applied; 3]);
    let keys: Vec<_> = leased(&queue, 4).await.into_iter().map(|leased| leased.key).collect();
    assert_eq!(keys, ["00000", "00001", "00002", "later"].map(Into::into));
}

mod suite {
    use super::Bundled;

    exactly_conformance::queue_suite!(Bundled);
}

mod transactional_suite {
    use super::Bundled;

    exactly_conformance::transactional_queue_suite!(Bundled);
}
