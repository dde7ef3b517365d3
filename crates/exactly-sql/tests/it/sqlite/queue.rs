//! The queue: the promises of every queue, and SQLite's own.

use std::sync::Arc;
use std::time::Duration;

use exactly::queue::{
    Ask, End, Enqueued, Failure, FailureKind, Fence, InspectQueue, Lane, Leased, Queue, Registry as _, Settlement,
    Task, TaskFilter, TaskPage, TaskState, TransactionalQueue, WorkerId,
};
use exactly::{Fenced, Keep, Store, StoreErrorKind, TransactionalStore, Verdict};
use exactly_conformance::{QueueHarness, TransactionalQueueHarness};
use exactly_sql::{Name, SqliteQueue, SqliteQueueBuilder, SqliteTransaction};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use tokio::task::JoinSet;

use super::{Place, assert_replays, call, run};

/// A file with tasks and a table of effects.
pub(crate) struct Shop(Place);

impl Shop {
    fn builder(&self) -> SqliteQueueBuilder {
        let builder = SqliteQueue::at(self.0.path());
        builder
            .clock(Arc::clone(&self.0.steady))
            .wall_clock(Arc::clone(&self.0.wall))
    }

    async fn queue(&self) -> SqliteQueue {
        self.builder().start().await.unwrap()
    }

    /// A queue on a pool with these settings. The file has to be there.
    async fn with(&self, change: impl FnOnce(SqliteConnectOptions) -> SqliteConnectOptions) -> SqliteQueue {
        let options = SqliteConnectOptions::new()
            .filename(self.0.path())
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full);
        let pool = SqlitePool::connect_lazy_with(change(options));
        SqliteQueue::builder(pool).start().await.unwrap()
    }
}

impl QueueHarness for Shop {
    type Queue = SqliteQueue;

    // There is no way to send word to another process; its workers poll.
    const WAKES_OTHERS: bool = false;

    async fn fresh() -> Self {
        let shop = Self(Place::new());
        // The first queue makes the file.
        shop.queue().await;
        run(
            &mut shop.0.stranger().await,
            "create table effects (name text not null)",
        )
        .await;
        shop
    }

    async fn open(&self) -> Arc<SqliteQueue> {
        Arc::new(self.queue().await)
    }

    async fn elapse(&self, by: Duration) {
        // For queues that are open, and for those that will be: they reckon from the row.
        self.0.steady.advance(by);
        let moved = format!("update exactly_clock set store_ms = store_ms + {}", by.as_millis());
        run(&mut self.0.stranger().await, &moved).await;
    }
}

impl TransactionalQueueHarness for Shop {
    const WRITES_IN_PARALLEL: bool = false;

    async fn effect(&self, tx: &mut SqliteTransaction, name: &str) {
        let effect = sqlx::query("insert into effects values (?)").bind(name);
        effect.execute(&mut **tx).await.unwrap();
    }

    async fn effects(&self, name: &str) -> u64 {
        let count = sqlx::query_scalar("select count(*) from effects where name = ?").bind(name);
        let count: i64 = count.fetch_one(&mut self.0.stranger().await).await.unwrap();
        count.try_into().unwrap()
    }
}

exactly_conformance::queue_suite!(Shop);
exactly_conformance::book_suite!(Shop);
exactly_conformance::registry_suite!(Shop);
exactly_conformance::transactional_queue_suite!(Shop);

fn task(key: &str) -> Task {
    Task::new("offer", key, "payload").unwrap()
}

async fn leased(queue: &SqliteQueue, most: u32) -> Vec<Leased> {
    queue.lease(&Ask::new(WorkerId::random(), most)).await.unwrap()
}

async fn must_add(queue: &SqliteQueue, key: &str) {
    assert!(queue.enqueue(&[task(key)]).await.unwrap()[0].is_new());
}

/// As two processes would, without anything in common but the file.
#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_one_file_and_lose_nothing() {
    let shop = Shop::fresh().await;
    let queues = [Arc::new(shop.queue().await), Arc::new(shop.queue().await)];
    let mut workers = JoinSet::new();
    for worker in 0..8 {
        let queue = Arc::clone(&queues[worker % 2]);
        workers.spawn(async move {
            let mut done = 0;
            for n in 0..20 {
                // Every key is wanted by two workers of each process.
                let key = format!("{}-{n}", worker / 4);
                let _ = queue.enqueue(&[task(&key)]).await.unwrap();
                for leased in leased(&queue, 3).await {
                    let end = End::Done(leased.key.as_bytes().to_vec().into());
                    let fenced = queue.settle(&[Settlement::new(leased.lease, end)]).await.unwrap();
                    assert_eq!(fenced, [Fenced::Applied]);
                    done += 1;
                }
            }
            done
        });
    }
    let done: usize = workers.join_all().await.into_iter().sum();
    assert_eq!(done, 2 * 20);
    for n in 0..20 {
        let found = queues[0].enqueue(&[task(&format!("1-{n}"))]).await.unwrap();
        let Enqueued::Found(found) = &found[0] else {
            panic!("it is done, but: {found:?}")
        };
        assert_eq!(found.outcome.as_deref(), Some(format!("1-{n}").as_bytes()));
    }
}

#[tokio::test]
async fn a_queue_that_starts_later_judges_leases_by_the_same_clock() {
    let shop = Shop::fresh().await;
    let queue = shop.queue().await;
    must_add(&queue, "a").await;
    let held = leased(&queue, 1).await.remove(0);
    // A wall clock that jumps ends no lease.
    shop.0.wall.advance(Duration::from_secs(10));
    let later = shop.queue().await;
    assert_eq!(later.rescue(5, 10).await.unwrap(), []);
    shop.0.steady.advance(Duration::from_secs(40));
    assert_eq!(later.rescue(5, 10).await.unwrap().len(), 1);
    let end = Settlement::new(held.lease, End::Done("late".into()));
    assert_eq!(queue.settle(&[end]).await.unwrap(), [Fenced::Superseded]);
}

#[tokio::test]
async fn a_stranger_that_holds_the_lock_makes_an_error_and_loses_nothing() {
    let shop = Shop::fresh().await;
    let queue = shop
        .with(|options| options.busy_timeout(Duration::from_millis(50)))
        .await;
    must_add(&queue, "before").await;
    let held = leased(&queue, 1).await.remove(0);
    let done = [Settlement::new(held.lease, End::Done("done".into()))];

    let mut stranger = shop.0.stranger().await;
    run(&mut stranger, "begin immediate").await;
    let ask = Ask::new(WorkerId::random(), 1);
    let errors = [
        queue.enqueue(&[task("b")]).await.unwrap_err(),
        queue.lease(&ask).await.unwrap_err(),
        queue.settle(&done).await.unwrap_err(),
        queue.rescue(5, 10).await.unwrap_err(),
        queue.prune(TaskState::Done, Duration::ZERO, 10).await.unwrap_err(),
        queue.pause_lane(&Lane::new("offer").unwrap()).await.unwrap_err(),
    ];
    let told = [
        "enqueue tasks",
        "lease tasks",
        "settle tasks",
        "rescue tasks",
        "prune tasks",
        "pause lane",
    ];
    for (error, told) in errors.iter().zip(told) {
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        assert!(error.to_string().starts_with(told), "{error}");
        assert!(error.to_string().contains("locked"), "{error}");
    }
    // Looking needs no lock.
    assert_eq!(
        queue.show(held.lease.id).await.unwrap().unwrap().state,
        TaskState::Running
    );
    run(&mut stranger, "rollback").await;

    assert_eq!(queue.settle(&done).await.unwrap(), [Fenced::Applied]);
    must_add(&queue, "b").await;
}

#[tokio::test]
async fn a_full_database_takes_nothing_more_and_keeps_what_it_has() {
    let shop = Shop::fresh().await;
    let queue = shop.with(|options| options.pragma("max_page_count", "60")).await;
    let mut added = 0;
    let full = loop {
        let bulk: Vec<_> = (0..10).map(|n| task(&format!("{added}-{n}"))).collect();
        match queue.enqueue(&bulk).await {
            Ok(_) => added += 1,
            Err(error) => break error,
        }
        assert!(added < 10_000, "it is never full");
    };
    assert_eq!(full.kind(), StoreErrorKind::Full, "{full}");
    assert!(full.to_string().starts_with("enqueue tasks"), "{full}");
    // The last bulk was added as a whole or not at all.
    let refused = task(&format!("{added}-0"));
    assert_eq!(queue.show(refused.id()).await.unwrap(), None);
    assert_eq!(queue.depths().await.unwrap()[0].tasks, added * 10);
    // Room again, and the same queue goes on.
    run(
        &mut shop.0.stranger().await,
        "delete from exactly_tasks where number % 2 = 0",
    )
    .await;
    must_add(&queue, "room").await;
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let shop = Shop::fresh().await;
    let newer = "update exactly_versions set version = 99 where table_name = 'exactly_tasks'";
    assert_eq!(run(&mut shop.0.stranger().await, newer).await, 1);
    for migrate in [true, false] {
        let error = shop.builder().migrate(migrate).start().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refused);
        assert!(error.to_string().contains("version 99"), "{error}");
    }
    // The store's tables have a version of their own.
    let store = shop.0.open().await;
    let error = SqliteQueue::beside(&store).start().await.unwrap_err();
    assert!(error.to_string().contains("version 99"), "{error}");
    let _ = super::begun(&store, "still works").await;
}

#[tokio::test]
async fn the_exported_text_makes_what_a_migration_makes() {
    let (by_hand, by_itself) = (Place::new(), Shop(Place::new()));
    let refused = SqliteQueue::at(by_hand.path())
        .migrate(false)
        .start()
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Refused);
    assert!(refused.to_string().contains("SqliteQueue::migrations_sql"), "{refused}");
    let text = SqliteQueue::migrations_sql(&Name::new("league").unwrap()).unwrap();
    for _ in 0..2 {
        let script = sqlx::raw_sql(sqlx::AssertSqlSafe(text.clone()));
        script.execute(&mut by_hand.stranger().await).await.unwrap();
    }
    drop(by_itself.builder().prefix("league").start().await.unwrap());
    let mut made = Vec::new();
    for place in [&by_hand, &by_itself.0] {
        let schema = "select name, sql from sqlite_master where sql is not null order by name";
        let schema: Vec<(String, String)> = sqlx::query_as(schema)
            .fetch_all(&mut place.stranger().await)
            .await
            .unwrap();
        made.push(schema);
    }
    assert_eq!(made[0], made[1]);
    let queue = SqliteQueue::at(by_hand.path()).prefix("league").migrate(false);
    must_add(&queue.start().await.unwrap(), "a").await;
}

/// The table as the first version made it, with tasks in it.
#[tokio::test]
async fn tasks_of_an_older_schema_stay_as_they_are() {
    let shop = Shop::fresh().await;
    let queue = shop.queue().await;
    for key in ["a", "b", "c"] {
        must_add(&queue, key).await;
    }
    let held = leased(&queue, 2).await;
    let buried = Settlement::new(held[1].lease, End::Bury(Failure::new(FailureKind::Logic, "never")));
    assert_eq!(queue.settle(&[buried]).await.unwrap(), [Fenced::Applied]);
    let page = TaskPage { after: None, limit: 10 };
    let before = queue.list(&TaskFilter::default(), page).await.unwrap();
    drop(queue);
    let mut stranger = shop.0.stranger().await;
    run(&mut stranger, "alter table exactly_tasks drop column ready_at").await;
    for table in ["exactly_marks", "exactly_cards"] {
        run(&mut stranger, &format!("drop table {table}")).await;
    }
    run(
        &mut stranger,
        "update exactly_versions set version = 1 where table_name = 'exactly_tasks'",
    )
    .await;
    let unmigrated = shop.builder().migrate(false).start().await.unwrap_err();
    assert!(unmigrated.to_string().contains("needs 4"), "{unmigrated}");
    let queue = shop.queue().await;
    assert_eq!(queue.list(&TaskFilter::default(), page).await.unwrap(), before);
    assert_eq!(queue.attempts(held[1].lease.id).await.unwrap().len(), 1);
    let back = Settlement::new(held[0].lease, End::Release);
    assert_eq!(queue.settle(&[back]).await.unwrap(), [Fenced::Applied]);
    assert_eq!(leased(&queue, 3).await.len(), 2);
    assert_eq!(queue.cards("", "", 1).await.unwrap(), []);
    let mut tx = queue.open().await.unwrap();
    assert!(queue.raise_in(&mut tx, "a", 1).await.unwrap());
}

/// As the version made them that did not know when they were raised: nobody does, so they are as young as the migration.
#[tokio::test]
async fn marks_of_an_older_schema_count_from_the_migration() {
    let shop = Shop::fresh().await;
    let queue = shop.queue().await;
    let mut tx = queue.open().await.unwrap();
    assert!(queue.raise_in(&mut tx, "a", 5).await.unwrap());
    queue.commit(tx).await.unwrap();
    drop(queue);
    let mut stranger = shop.0.stranger().await;
    for older in [
        "drop index exactly_marks_raised",
        "alter table exactly_marks drop column raised_at",
        "update exactly_versions set version = 3 where table_name = 'exactly_tasks'",
    ] {
        run(&mut stranger, older).await;
    }
    let queue = shop.queue().await;
    let mut tx = queue.open().await.unwrap();
    assert!(!queue.raise_in(&mut tx, "a", 5).await.unwrap());
    queue.commit(tx).await.unwrap();
    let day = Duration::from_hours(24);
    assert_eq!(queue.prune_marks(day, 10).await.unwrap(), 0);
    shop.elapse(day * 2).await;
    assert_eq!(queue.prune_marks(day, 10).await.unwrap(), 1);
}

#[tokio::test]
async fn queues_with_other_prefixes_know_nothing_of_each_other() {
    let shop = Shop::fresh().await;
    let (one, other) = (
        shop.queue().await,
        shop.builder().prefix("league").start().await.unwrap(),
    );
    must_add(&one, "a").await;
    must_add(&other, "a").await;
    one.pause_lane(&Lane::new("offer").unwrap()).await.unwrap();
    assert_eq!(leased(&one, 1).await, []);
    assert_eq!(leased(&other, 1).await.len(), 1);
    let error = shop.builder().prefix("a;b").start().await.unwrap_err();
    assert!(error.to_string().contains("prefix"), "{error}");
}

#[tokio::test]
async fn settings_that_lose_commits_are_refused() {
    let shop = Shop::fresh().await;
    let options = SqliteConnectOptions::new()
        .filename(shop.0.path())
        .synchronous(SqliteSynchronous::Normal);
    let unsynced = || SqliteQueue::builder(SqlitePool::connect_lazy_with(options.clone()));
    let error = unsynced().start().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(error.to_string().contains("synchronous=normal"), "{error}");
    must_add(&unsynced().accept_unsynced().start().await.unwrap(), "a").await;
    let memory = || SqliteQueue::at("sqlite:file:tasks?mode=memory&cache=shared");
    assert_eq!(memory().start().await.unwrap_err().kind(), StoreErrorKind::Refused);
}

/// The call, its effect, the task and its wake-up: one transaction of the store's.
#[tokio::test]
async fn a_handler_enqueues_in_the_transaction_of_its_call() {
    let shop = Shop::fresh().await;
    let store = shop.0.open().await;
    let queue = SqliteQueue::beside(&store).start().await.unwrap();
    for commits in [false, true] {
        let mut arrivals = queue.arrivals();
        let mut tx = TransactionalStore::open(&store, Duration::from_secs(5)).await.unwrap();
        let Verdict::Run(claim) = store.begin_in(&mut tx, &call("a")).await.unwrap() else {
            panic!("the key is fresh")
        };
        assert!(queue.enqueue_in(&mut tx, &[task("a")]).await.unwrap()[0].is_new());
        let completed = store.complete_in(&mut tx, &claim, &"a".into(), Keep::DAY).await;
        assert_eq!(completed.unwrap(), Fenced::Applied);
        if commits {
            TransactionalStore::commit(&store, tx).await.unwrap();
        } else {
            drop(tx);
        }
        assert_eq!(leased(&queue, 1).await.len(), usize::from(commits));
        assert_eq!(arrivals.has_changed().unwrap(), commits);
        arrivals.mark_unchanged();
    }
    assert_replays(&store.begin(&call("a")).await.unwrap(), "a");
}

#[tokio::test]
async fn a_queue_does_not_commit_the_calls_of_a_store() {
    let shop = Shop::fresh().await;
    let store = shop.0.open().await;
    let queue = SqliteQueue::beside(&store).start().await.unwrap();
    let mut tx = TransactionalQueue::open(&queue).await.unwrap();
    let _ = store.begin_in(&mut tx, &call("a")).await.unwrap();
    let _ = queue.enqueue_in(&mut tx, &[task("a")]).await.unwrap();
    let error = TransactionalQueue::commit(&queue, tx).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(error.to_string().contains("by the store"), "{error}");
    must_add(&queue, "a").await;
}

#[tokio::test]
async fn tasks_ride_in_a_transaction_of_your_own() {
    let shop = Shop::fresh().await;
    let queue = shop.queue().await;
    let mut own = shop.0.stranger().await;
    let error = queue.enqueue_within(&mut own, &[task("a")]).await.unwrap_err();
    assert!(error.to_string().contains("no transaction is open"), "{error}");
    run(&mut own, "begin immediate").await;
    assert!(queue.enqueue_within(&mut own, &[task("a")]).await.unwrap()[0].is_new());
    run(&mut own, "commit").await;
    queue.announce();
    let held = leased(&queue, 1).await.remove(0);
    let done = [Settlement::new(held.lease, End::Done("done".into()))];
    run(&mut own, "begin immediate").await;
    assert_eq!(queue.settle_within(&mut own, &done).await.unwrap(), [Fenced::Applied]);
    run(&mut own, "rollback").await;
    assert_eq!(
        queue.show(held.lease.id).await.unwrap().unwrap().state,
        TaskState::Running
    );
}

/// SQLite rolls back under a statement when the disk is full; the task must not be committed without its effect.
#[tokio::test]
async fn nothing_commits_after_the_transaction_ended_under_a_statement() {
    let shop = Shop::fresh().await;
    let queue = shop.queue().await;
    let mut tx = TransactionalQueue::open(&queue).await.unwrap();
    shop.effect(&mut tx, "a").await;
    run(&mut tx, "rollback").await;
    let error = queue.enqueue_in(&mut tx, &[task("a")]).await.unwrap_err();
    assert!(error.to_string().contains("rolled back"), "{error}");
    let error = TransactionalQueue::commit(&queue, tx).await.unwrap_err();
    assert!(error.to_string().contains("rolled back"), "{error}");
    must_add(&queue, "a").await;
}

/// Looking for work in vain writes nothing, so an idle worker costs no sync.
#[tokio::test]
async fn an_idle_worker_writes_nothing() {
    let shop = Shop::fresh().await;
    let queue = shop.queue().await;
    must_add(&queue, "later").await;
    queue.pause_lane(&Lane::new("offer").unwrap()).await.unwrap();
    let version = "select data_version from pragma_data_version";
    let mut stranger = shop.0.stranger().await;
    let before: i64 = sqlx::query_scalar(version).fetch_one(&mut stranger).await.unwrap();
    for _ in 0..5 {
        shop.0.steady.advance(Duration::from_secs(5));
        assert_eq!(leased(&queue, 10).await, []);
        assert_eq!(queue.rescue(5, 10).await.unwrap(), []);
        assert_eq!(queue.prune(TaskState::Done, Duration::ZERO, 10).await.unwrap(), 0);
    }
    let after: i64 = sqlx::query_scalar(version).fetch_one(&mut stranger).await.unwrap();
    assert_eq!(before, after);
}

/// What leasing and pruning look for is found in an index, in these shapes, which their statements are made of.
#[tokio::test]
async fn the_indexes_serve_what_is_looked_for() {
    let shop = Shop::fresh().await;
    let plans = [
        "select min(lane) from exactly_tasks where state = 0 and lane > 'a' and lane <= x'00'",
        "select 1 from exactly_tasks where state = 0 and lane = 'a' and due_at <= 5 order by due_at, number limit 1",
        "select count(*) from exactly_tasks where state = 1 and lane = 'a'",
        "select number from exactly_tasks where state = 3 and ended_at <= 5 order by ended_at, number limit 5",
    ];
    for plan in plans {
        let explain = sqlx::AssertSqlSafe(format!("explain query plan {plan}"));
        let steps: Vec<(i64, i64, i64, String)> = sqlx::query_as(explain)
            .fetch_all(&mut shop.0.stranger().await)
            .await
            .unwrap();
        for (.., step) in &steps {
            assert!(
                step.starts_with("SEARCH") && step.contains("INDEX"),
                "{plan}: {steps:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_told_as_corrupt() {
    let shop = Shop::fresh().await;
    let queue = shop.queue().await;
    must_add(&queue, "a").await;
    let mut stranger = shop.0.stranger().await;
    run(&mut stranger, "update exactly_tasks set fence = -1").await;
    let ask = Ask::new(WorkerId::random(), 1);
    let error = queue.lease(&ask).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
    run(&mut stranger, "update exactly_tasks set fence = 0").await;
    assert_eq!(leased(&queue, 1).await[0].lease.fence, Fence::new(1));
}

#[tokio::test]
async fn a_database_in_memory_works_where_it_is_accepted() {
    let queue = SqliteQueue::at("sqlite:file:queue_in_memory?mode=memory&cache=shared");
    let queue = queue.accept_in_memory().start().await.unwrap();
    must_add(&queue, "a").await;
    let held = leased(&queue, 1).await.remove(0);
    let done = Settlement::new(held.lease, End::Done("done".into()));
    assert_eq!(queue.settle(&[done]).await.unwrap(), [Fenced::Applied]);
    assert_eq!(queue.show(held.lease.id).await.unwrap().unwrap().state, TaskState::Done);
}

/// A caller that gives up in the midst of a step leaves no lock behind, and no half of it.
#[tokio::test(flavor = "multi_thread")]
async fn cancelled_steps_are_whole_or_nothing() {
    let shop = Shop::fresh().await;
    let queue = shop.queue().await;
    for round in 0..20_u64 {
        let bulk: Vec<_> = (0..300).map(|n| task(&format!("{round}-{n}"))).collect();
        let _ = tokio::time::timeout(Duration::from_micros(round * 400), queue.enqueue(&bulk)).await;
        let depths = queue.depths().await.unwrap();
        let tasks = depths.first().map_or(0, |depth| depth.tasks);
        assert_eq!(tasks % 300, 0, "a part of a bulk was added");
    }
    must_add(&queue, "last").await;
}
