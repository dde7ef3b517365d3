//! Tasks that a transaction elsewhere has locked, which holds up nobody else.

use std::time::Duration;

use exactly::Fenced;
use exactly::queue::{
    Ask, End, InspectQueue as _, Lease, Queue as _, Ruling, Settlement, TransactionalQueue, WorkerId,
};
use exactly_conformance::QueueHarness as _;
use exactly_sql::PgQueue;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::time::{Instant, sleep, timeout};

use super::super::url;
use super::{Yard, leased, task};

const LEASE: Duration = Duration::from_secs(30);

/// Less than a statement waits for a lock.
const AT_ONCE: Duration = Duration::from_millis(1500);

/// Longer than that.
const PATIENCE: Duration = Duration::from_secs(20);

fn done(lease: Lease) -> Settlement {
    Settlement::new(lease, End::Done("done".into()))
}

async fn idle_timeout(conn: &mut PgConnection) -> String {
    let show = sqlx::query_scalar("show idle_in_transaction_session_timeout");
    show.fetch_one(conn).await.unwrap()
}

/// Three tasks that run, and a connection whose transaction has the second of them locked.
async fn three_with_one_locked(yard: &Yard, queue: &PgQueue) -> (Vec<Lease>, PgConnection) {
    let _ = queue.enqueue(&["a", "b", "c"].map(task)).await.unwrap();
    let leases: Vec<_> = leased(queue, 3).await.iter().map(|leased| leased.lease).collect();
    let mut other = PgConnection::connect(&url()).await.unwrap();
    let lock = format!(
        "begin; select from {}.tasks where id = '{}' for update",
        yard.0.schema, leases[1].id
    );
    sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut other).await.unwrap();
    (leases, other)
}

#[tokio::test]
async fn a_renewal_waits_for_no_task_that_is_locked() {
    let yard = Yard::fresh().await;
    let queue = yard.open().await;
    let (leases, mut other) = three_with_one_locked(&yard, &queue).await;
    let renewed = timeout(AT_ONCE, queue.renew(&leases, LEASE)).await;
    let renewed = renewed.expect("the others wait for it").unwrap();
    assert_eq!(renewed, [Ruling::Applied, Ruling::Busy, Ruling::Applied]);
    sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
    assert_eq!(queue.renew(&leases, LEASE).await.unwrap(), [Fenced::Applied; 3]);
}

#[tokio::test]
async fn a_settlement_of_a_locked_task_fails_no_other() {
    let yard = Yard::fresh().await;
    let queue = yard.open().await;
    let (leases, mut other) = three_with_one_locked(&yard, &queue).await;
    let ends = [
        done(leases[0]),
        Settlement::new(leases[1], End::Release),
        Settlement::new(leases[2], End::Release),
    ];
    let settled = queue.settle(&ends).await.unwrap();
    assert_eq!(settled, [Ruling::Applied, Ruling::Busy, Ruling::Applied]);
    assert_eq!(leased(&queue, 3).await.len(), 1, "only what was released is due");
    sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
    let settled = queue.settle(&ends).await.unwrap();
    // What was released is somebody else's by now.
    assert_eq!(settled, [Ruling::Applied, Ruling::Applied, Ruling::Superseded]);
}

/// A process that is stopped between settling and committing keeps the row locked, and the server cannot tell.
#[tokio::test]
async fn a_transaction_that_stands_still_ends_with_its_lease() {
    let yard = Yard::fresh().await;
    let queue = yard.open().await;
    let two_seconds = Ask::new(WorkerId::random(), 2).for_time(Duration::from_secs(2));
    let _ = queue.enqueue(&["one", "two"].map(task)).await.unwrap();
    let leases: Vec<_> = queue
        .lease(&two_seconds)
        .await
        .unwrap()
        .iter()
        .map(|leased| leased.lease)
        .collect();
    let mut frozen = TransactionalQueue::open(&*queue).await.unwrap();
    assert_eq!(
        queue.settle_in(&mut frozen, &[done(leases[0])]).await.unwrap(),
        [Fenced::Applied]
    );
    // The same by the statement that settles anything.
    let mut own = PgConnection::connect(&url()).await.unwrap();
    let mut own = own.begin().await.unwrap();
    let release = [Settlement::new(leases[1], End::Release)];
    assert_eq!(
        queue.settle_within(&mut own, &release).await.unwrap(),
        [Fenced::Applied]
    );

    let started = Instant::now();
    let mut rescued = 0;
    while rescued < 2 {
        assert!(
            started.elapsed() < PATIENCE,
            "{rescued} rescued, the others stay locked"
        );
        rescued += queue.rescue(5, 10).await.unwrap().len();
        sleep(Duration::from_millis(50)).await;
    }
    assert!(started.elapsed() > Duration::from_secs(1), "a lease ended too early");
    TransactionalQueue::commit(&*queue, frozen).await.unwrap_err();
    own.commit().await.unwrap_err();
    assert_eq!(leased(&queue, 3).await.len(), 2);
}

/// The limit is for the one transaction, and loosens none that is there. It is the same whichever statement settles.
#[tokio::test]
async fn the_limit_of_a_transaction_is_its_own() {
    let yard = Yard::fresh().await;
    for (session, most) in [("0", "1h"), ("5s", "5s")] {
        let options: PgConnectOptions = url().parse().unwrap();
        let options = options.options([("idle_in_transaction_session_timeout", session)]);
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
        let queue = PgQueue::builder(pool.clone()).schema(&yard.0.schema).start();
        let queue = queue.await.unwrap();
        let tasks: Vec<_> = (0..5).map(|n| task(&format!("{session} {n}"))).collect();
        let _ = queue.enqueue(&tasks).await.unwrap();
        let ask = Ask::new(WorkerId::random(), 5).for_time(Duration::from_hours(1));
        let leased = queue.lease(&ask).await.unwrap();
        let [one, two, three, four, five] = leased.iter().map(|leased| leased.lease).collect::<Vec<_>>()[..] else {
            panic!("five are leased")
        };
        let release = Settlement::new(five, End::Release);
        for settlements in [vec![done(one)], vec![done(two), done(three)], vec![done(four), release]] {
            let mut tx = TransactionalQueue::open(&queue).await.unwrap();
            let settled = queue.settle_in(&mut tx, &settlements).await.unwrap();
            assert_eq!(settled, vec![Fenced::Applied; settlements.len()]);
            let limit = idle_timeout(&mut tx).await;
            // A few milliseconds of the hour are over.
            let is_lease = limit.starts_with("3599") && limit.ends_with("ms");
            assert!(limit == most || (session == "0" && is_lease), "{limit}");
            TransactionalQueue::commit(&queue, tx).await.unwrap();
            let mut conn = pool.acquire().await.unwrap();
            assert_eq!(idle_timeout(&mut conn).await, session);
        }
        assert_eq!(queue.show(one.id).await.unwrap().unwrap().outcome, Some("done".into()));
    }
}
