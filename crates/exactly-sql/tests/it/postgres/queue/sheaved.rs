//! Tasks that were enqueued together and are named in one row: every promise of a queue again, and what is special about them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use exactly::Fenced;
use exactly::queue::{
    Ask, End, Enqueued, InspectQueue as _, Lane, Lanes, Leased, Queue as _, Settlement, Task, TaskFilter, TaskPage,
    TaskState, TransactionalQueue as _, WorkerId,
};
use exactly_conformance::QueueHarness as _;
use exactly_sql::PgQueue;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::time::Instant;

use super::super::url;
use super::{Tuned, all_leased_by, depths, leased, task};

/// Where all that is enqueued by calls of more than one is in sheaves, and leases are written in both ways.
type Sheaved = Tuned<1, 3>;

impl Sheaved {
    async fn run(&self, sql: &str) {
        self.0.0.run(&sql.replace("{schema}", &self.0.0.schema)).await;
    }

    /// How many different ones there are of this in all tasks.
    async fn different(&self, what: &str) -> i64 {
        let sql = format!("select count(distinct {what}) from {}.tasks", self.0.0.schema);
        let count = sqlx::query_scalar(AssertSqlSafe(sql));
        count.fetch_one(&self.0.0.pool).await.unwrap()
    }

    /// A connection that has done this and holds what it has locked.
    async fn holding(&self, sql: &str) -> PgConnection {
        let mut conn = PgConnection::connect(&url()).await.unwrap();
        let sql = format!("begin; {}", sql.replace("{schema}", &self.0.0.schema));
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.unwrap();
        conn
    }
}

fn tasks(count: usize) -> Vec<Task> {
    (0..count).map(|n| task(&format!("{n:05}"))).collect()
}

fn keys(leased: &[Leased]) -> Vec<&str> {
    leased.iter().map(|leased| &*leased.key).collect()
}

/// `from`, as [`tasks`] names them.
fn numbered(from: std::ops::Range<usize>) -> Vec<String> {
    from.map(|n| format!("{n:05}")).collect()
}

async fn listed(queue: &PgQueue, state: TaskState) -> usize {
    let state = Some(state);
    let filter = TaskFilter {
        state,
        ..TaskFilter::default()
    };
    let page = TaskPage {
        after: None,
        limit: 1000,
    };
    queue.list(&filter, page).await.unwrap().len()
}

/// They wait as any others, and are leased in the order in which they came.
#[tokio::test]
async fn tasks_that_come_together_are_one_row() {
    let yard = Sheaved::fresh().await;
    for bundle_from in [1, u32::MAX] {
        let queue = yard.queue(100, bundle_from).await;
        let tasks: Vec<_> = numbered(0..100)
            .iter()
            .map(|key| task(&format!("{bundle_from} {key}")))
            .collect();
        assert!(queue.enqueue(&tasks).await.unwrap().iter().all(Enqueued::is_new));
        assert_eq!(yard.count("tasks_sheaves").await, 1);
        assert_eq!(yard.count("tasks where state = 0").await, 0);
        assert_eq!(depths(&queue).await, [(TaskState::Waiting, 100)]);
        assert_eq!(listed(&queue, TaskState::Waiting).await, 100);
        let view = queue.show(tasks[3].id()).await.unwrap().unwrap();
        assert_eq!((view.state, view.worker), (TaskState::Waiting, None));
        let again = queue.enqueue(&tasks).await.unwrap();
        assert!(again.iter().all(|answer| match answer {
            Enqueued::Found(found) => found.state == TaskState::Waiting && !found.differs,
            Enqueued::New(_) => false,
        }));
        assert_eq!(yard.count("tasks_sheaves").await, 1);
        let first = leased(&queue, 30).await;
        assert_eq!(keys(&first), tasks[..30].iter().map(Task::key).collect::<Vec<_>>());
        assert_eq!(
            depths(&queue).await,
            [(TaskState::Waiting, 70), (TaskState::Running, 30)]
        );
        assert_eq!(listed(&queue, TaskState::Waiting).await, 70);
        assert_eq!(listed(&queue, TaskState::Running).await, 30);
        let rest = leased(&queue, 1000).await;
        assert_eq!(keys(&rest), tasks[30..].iter().map(Task::key).collect::<Vec<_>>());
        assert_eq!(yard.count("tasks_sheaves").await, 0);
        assert_eq!(leased(&queue, 1000).await, []);
        let ends = first.iter().chain(&rest);
        let ends: Vec<_> = ends
            .map(|leased| Settlement::new(leased.lease, End::Done("".into())))
            .collect();
        for _ in 0..2 {
            assert_eq!(queue.settle(&ends).await.unwrap(), vec![Fenced::Applied; 100]);
            assert_eq!(depths(&queue).await, []);
        }
        let view = queue.show(tasks[3].id()).await.unwrap().unwrap();
        assert_eq!((view.state, view.fence), (TaskState::Done, first[3].lease.fence));
        assert_eq!((view.due_at, view.outcome), (None, Some("".into())));
        assert!(view.worker.is_some() && view.started_at.is_some_and(|at| view.ended_at >= Some(at)));
        let again = queue.enqueue(&tasks).await.unwrap();
        assert!(again.iter().all(|answer| match answer {
            Enqueued::Found(found) => found.state == TaskState::Done && found.outcome.is_some(),
            Enqueued::New(_) => false,
        }));
        let seen = first[3].lease;
        assert_eq!(queue.conclude(seen, &"".into()).await.unwrap(), Fenced::Applied);
        let view = queue.show(seen.id).await.unwrap().unwrap();
        assert_eq!((view.state, view.due_at), (TaskState::Done, None));
    }
}

/// Of lanes whose tasks wait in sheaves and of those whose tasks wait by themselves, each has its turn, however few are asked for.
#[tokio::test]
async fn lanes_of_both_kinds_take_turns() {
    let yard = Sheaved::fresh().await;
    let queue = yard.open().await;
    let alone = yard.queue(u32::MAX, 3).await;
    for (queue, lane) in [(&queue, "a"), (&alone, "b"), (&alone, "c"), (&queue, "d")] {
        let lane = Lane::new(lane).unwrap();
        let own = numbered(0..20).into_iter().map(|key| task(&format!("{lane} {key}")));
        let own: Vec<_> = own.map(|own| own.in_lane(lane.clone())).collect();
        let _ = queue.enqueue(&own).await.unwrap();
    }
    assert_eq!(yard.count("tasks_sheaves").await, 2);
    let mut seen = Vec::new();
    for most in [1, 1, 1, 1, 3, 3, 3, 3] {
        seen.extend(leased(&queue, most).await);
    }
    assert_eq!(seen.len(), 16);
    for lane in ["a", "b", "c", "d"] {
        let own = seen.iter().filter(|leased| leased.lane.as_str() == lane);
        let own: Vec<_> = own.map(|leased| leased.key[2..].to_owned()).collect();
        assert_eq!(own, numbered(0..4), "{lane}");
    }
}

/// Many small sheaves fill an ask as one large one does, and a task between them has its place.
#[tokio::test]
async fn an_ask_is_filled_from_small_sheaves() {
    let yard = Sheaved::fresh().await;
    let queue = yard.open().await;
    for (n, some) in tasks(300).chunks(3).enumerate() {
        let _ = queue.enqueue(some).await.unwrap();
        if n == 50 {
            let _ = queue.enqueue(&[task("between")]).await.unwrap();
        }
    }
    assert_eq!(yard.count("tasks_sheaves").await, 100);
    let between = || vec!["between".to_owned()];
    assert_eq!(keys(&leased(&queue, 10).await), numbered(0..10));
    assert_eq!(
        keys(&leased(&queue, 144).await),
        [numbered(10..153), between()].concat()
    );
    assert_eq!(keys(&leased(&queue, 5000).await), numbered(153..300));
}

/// What waits by itself between sheaves is leased with them, each in its place.
#[tokio::test]
async fn one_lease_goes_past_what_waits_by_itself() {
    let yard = Sheaved::fresh().await;
    let queue = yard.open().await;
    for some in tasks(16).chunks(4) {
        let (alone, together) = some.split_last().unwrap();
        let _ = queue.enqueue(together).await.unwrap();
        let _ = queue.enqueue(std::slice::from_ref(alone)).await.unwrap();
    }
    assert_eq!(yard.count("tasks_sheaves").await, 4);
    for (asked, got) in [(6, 0..6), (2, 6..8), (5, 8..13)] {
        assert_eq!(keys(&leased(&queue, asked).await), numbered(got));
    }
    let bundles = yard.count("tasks_bundles").await;
    assert_eq!(keys(&leased(&queue, 100).await), numbered(13..16));
    assert_eq!(yard.count("tasks_bundles").await, bundles + 1, "in one statement");
}

/// Whoever asks for one task holds up nobody who asks for another.
#[tokio::test]
async fn a_lease_locks_no_more_than_it_takes() {
    // A row that was locked says by whom, until it is written again.
    let locked = "xmax::text <> '0'";
    for per_lane in [1, 2] {
        let yard = Sheaved::fresh().await;
        let queue = yard.open().await;
        for lane in ["a", "b", "c"] {
            let lane = Lane::new(lane).unwrap();
            let own = tasks(per_lane).into_iter();
            let own = own.map(|own| task(&format!("{lane} {}", own.key())).in_lane(lane.clone()));
            let _ = queue.enqueue(&own.collect::<Vec<_>>()).await.unwrap();
        }
        assert_eq!(leased(&queue, 1).await.len(), 1);
        let alone = yard.count(&format!("tasks where state = 0 and {locked}")).await;
        let sheaves = yard.count(&format!("tasks_sheaves where taken = 0 and {locked}")).await;
        assert_eq!((alone, sheaves), (0, 0), "{per_lane} in each lane");
    }
}

/// However many there are, what waits in sheaves is listed.
#[tokio::test]
async fn many_that_wait_are_listed() {
    let yard = Sheaved::fresh().await;
    let queue = yard.open().await;
    for some in tasks(10_001).chunks(5000) {
        let _ = queue.enqueue(some).await.unwrap();
    }
    assert_eq!(listed(&queue, TaskState::Waiting).await, 1000);
    let done = leased(&queue, 9901).await;
    let ends: Vec<_> = done
        .iter()
        .map(|leased| Settlement::new(leased.lease, End::Done("".into())))
        .collect();
    let _ = queue.settle(&ends[..5000]).await.unwrap();
    let _ = queue.settle(&ends[5000..]).await.unwrap();
    assert_eq!(listed(&queue, TaskState::Waiting).await, 100);
    assert_eq!(listed(&queue, TaskState::Running).await, 0);
}

/// What is delayed, is one of few in its lane, or comes alone waits by itself.
#[tokio::test]
async fn what_is_not_alike_waits_by_itself() {
    let yard = Sheaved::fresh().await;
    let queue = yard.queue(3, 1).await;
    let lane = Lane::new("few").unwrap();
    let mut tasks = tasks(2);
    tasks.extend(["a", "b"].map(|key| task(key).in_lane(lane.clone())));
    tasks.push(task("later").after(Duration::from_hours(1)));
    let _ = queue.enqueue(&tasks).await.unwrap();
    let _ = queue.enqueue(&[task("alone")]).await.unwrap();
    assert_eq!(yard.count("tasks_sheaves").await, 0);
    assert_eq!(yard.count("tasks where state = 0").await, 6);
}

/// Many are several rows, so that whoever holds one of them does not hold all.
#[tokio::test]
async fn a_sheaf_that_is_locked_holds_up_itself_alone() {
    let yard = Sheaved::fresh().await;
    let queue = yard.open().await;
    let _ = queue.enqueue(&tasks(2500)).await.unwrap();
    assert_eq!(yard.count("tasks_sheaves").await, 3);
    let mut other = yard
        .holding("select from {schema}.tasks_sheaves order by due_at limit 1 for update")
        .await;
    assert_eq!(keys(&leased(&queue, 5).await), numbered(1000..1005));
    assert_eq!(leased(&queue, 5000).await.len(), 1495);
    assert_eq!(leased(&queue, 5000).await, []);
    sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
    assert_eq!(keys(&leased(&queue, 5000).await), numbered(0..1000));
}

/// Whoever leases at the same time, and however that is written down, no task is leased twice and none is left out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_out_of_one_sheaf_share_nothing() {
    let yard = Sheaved::fresh().await;
    let first = yard.queue(1, 1).await;
    let all = tasks(4000);
    // Some by themselves, between sheaves.
    for (n, some) in all.chunks(600).enumerate() {
        let queue = if n % 3 == 1 {
            yard.queue(u32::MAX, 1).await
        } else {
            Arc::clone(&first)
        };
        let _ = queue.enqueue(some).await.unwrap();
    }
    let mut workers = Vec::new();
    for (from, most) in [(1, 40), (u32::MAX, 30), (1, 500), (u32::MAX, 3), (20, 20), (1, 40)] {
        let queue = yard.queue(1, from).await;
        workers.push((queue, most));
    }
    let ids = all_leased_by(workers).await;
    assert_eq!((ids.len(), ids.iter().collect::<BTreeSet<_>>().len()), (4000, 4000));
    assert_eq!(yard.count("tasks_sheaves").await, 0);
}

/// What came before goes before, what came after goes after, and what is given back goes to its place.
#[tokio::test]
async fn what_is_in_sheaves_keeps_its_place_in_its_lane() {
    let yard = Sheaved::fresh().await;
    let queue = yard.open().await;
    let _ = queue.enqueue(&[task("before")]).await.unwrap();
    // Two lanes in turn, so that those of one are not next to each other.
    let lane = Lane::new("other").unwrap();
    let both = tasks(5)
        .into_iter()
        .flat_map(|own| [task(&format!("other {}", own.key())).in_lane(lane.clone()), own]);
    let _ = queue.enqueue(&both.collect::<Vec<_>>()).await.unwrap();
    let _ = queue.enqueue(&[task("after")]).await.unwrap();
    assert_eq!(yard.count("tasks_sheaves").await, 2);
    let own = task("any").lane().clone();
    let ask = |most| Ask::new(WorkerId::random(), most).from_lanes(Lanes::Only(vec![own.clone()]));
    let first = queue.lease(&ask(4)).await.unwrap();
    assert_eq!(keys(&first), ["before", "00000", "00001", "00002"]);
    let back = [&first[1], &first[3]].map(|leased| Settlement::new(leased.lease, End::Release));
    assert_eq!(queue.settle(&back).await.unwrap(), [Fenced::Applied; 2]);
    let rest = queue.lease(&ask(10)).await.unwrap();
    assert_eq!(keys(&rest), ["00000", "00002", "00003", "00004", "after"]);
}

/// A lane that has nothing but a sheaf has its turn, and gets no more than its part.
#[tokio::test]
async fn lanes_with_sheaves_get_their_part() {
    let yard = Sheaved::fresh().await;
    let queue = yard.open().await;
    let in_lane = |lane: &str, count: usize| -> Vec<Task> {
        let lane = Lane::new(lane).unwrap();
        let own = tasks(count).into_iter();
        own.map(|own| task(&format!("{lane} {}", own.key())).in_lane(lane.clone()))
            .collect()
    };
    for lane in ["a", "c", "d"] {
        let _ = queue.enqueue(&in_lane(lane, 1200)).await.unwrap();
    }
    for own in in_lane("b", 4) {
        let _ = queue.enqueue(&[own]).await.unwrap();
    }
    let paused = Lane::new("d").unwrap();
    queue.pause_lane(&paused).await.unwrap();
    let some = leased(&queue, 30).await;
    let of = |lane: &str, some: &[Leased]| some.iter().filter(|leased| leased.lane.as_str() == lane).count();
    assert_eq!(["a", "b", "c", "d"].map(|lane| of(lane, &some)), [13, 4, 13, 0]);
    let rest = leased(&queue, 5000).await;
    assert_eq!(["a", "b", "c", "d"].map(|lane| of(lane, &rest)), [1187, 0, 1187, 0]);
    queue.resume_lane(&paused).await.unwrap();
    assert_eq!(leased(&queue, 5000).await.len(), 1200);
}

/// A cap is kept, and the order with it.
#[tokio::test]
async fn a_lane_with_a_cap_takes_from_its_sheaves_in_order() {
    let yard = Sheaved::fresh().await;
    let queue = yard.open().await;
    let _ = queue.enqueue(&[task("before")]).await.unwrap();
    let _ = queue.enqueue(&tasks(8)).await.unwrap();
    let _ = queue.enqueue(&[task("after")]).await.unwrap();
    queue.cap_lane(task("any").lane(), Some(3)).await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..4 {
        let some = leased(&queue, 2).await;
        assert!(!some.is_empty());
        let more = leased(&queue, 5).await;
        assert!(some.len() + more.len() <= 3, "{some:?} {more:?}");
        assert_eq!(leased(&queue, 5).await, []);
        let all = some.iter().chain(&more);
        let ends: Vec<_> = all
            .map(|leased| Settlement::new(leased.lease, End::Done("".into())))
            .collect();
        let _ = queue.settle(&ends).await.unwrap();
        seen.extend(some.into_iter().chain(more));
    }
    let mut expected = vec!["before".to_owned()];
    expected.extend(numbered(0..8));
    expected.push("after".to_owned());
    assert_eq!(keys(&seen), expected);
    assert_eq!(yard.count("tasks_sheaves").await, 0);
}

/// While somebody else has the first sheaf, nothing of a lane that is in order goes before it.
#[tokio::test]
async fn a_lane_in_order_waits_for_its_first_sheaf() {
    let yard = Sheaved::fresh().await;
    let queue = yard.open().await;
    let _ = queue.enqueue(&[task("before")]).await.unwrap();
    let _ = queue.enqueue(&tasks(2)).await.unwrap();
    let _ = queue.enqueue(&[task("after")]).await.unwrap();
    queue.cap_lane(task("any").lane(), Some(1)).await.unwrap();
    let mut other = yard.holding("select from {schema}.tasks_sheaves for update").await;
    let next = async || {
        let next = leased(&queue, 9).await;
        let ends: Vec<_> = next
            .iter()
            .map(|leased| Settlement::new(leased.lease, End::Done("".into())))
            .collect();
        let _ = queue.settle(&ends).await.unwrap();
        keys(&next).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(next().await, ["before"]);
    assert_eq!(next().await, [""; 0]);
    sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
    for expected in ["00000", "00001", "after"] {
        assert_eq!(next().await, [expected]);
    }
}

/// Whoever finds all sheaves locked looks again for a while: others are leasing, and leave the rest.
#[tokio::test]
async fn whoever_comes_while_others_lease_looks_again() {
    let yard = Sheaved::fresh().await;
    let queue = yard.open().await;
    let _ = queue.enqueue(&tasks(5)).await.unwrap();
    let mut other = yard.holding("select from {schema}.tasks_sheaves for update").await;
    let asked = Instant::now();
    assert_eq!(leased(&queue, 9).await, []);
    assert!(asked.elapsed() >= Duration::from_millis(31));
    sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
    assert_eq!(keys(&leased(&queue, 9).await), numbered(0..5));
}

/// Where the rows are is remembered, and looked up where they are no longer.
#[tokio::test]
async fn tasks_whose_rows_have_moved_are_found() {
    let yard = Sheaved::fresh().await;
    // Written by their ids, which are digests, and then by their keys.
    yard.run("create index by_key on {schema}.tasks (key)").await;
    for bundle_from in [1, u32::MAX] {
        let queue = yard.queue(1, bundle_from).await;
        let _ = queue.enqueue(&tasks(50)).await.unwrap();
        assert_eq!(keys(&leased(&queue, 10).await), numbered(0..10));
        yard.run("cluster {schema}.tasks using by_key").await;
        let rest = [leased(&queue, 5).await, leased(&queue, 100).await].concat();
        assert_eq!(keys(&rest), numbered(10..50));
        yard.run("delete from {schema}.tasks").await;
        yard.run("delete from {schema}.tasks_bundles").await;
    }
}

/// Where the row of what is leased was is remembered as well. Another one may be there by now, which is not taken for it.
#[tokio::test]
async fn tasks_whose_rows_moved_while_they_were_leased_are_settled() {
    let yard = Sheaved::fresh().await;
    yard.run("create index by_key on {schema}.tasks (key)").await;
    let queue = yard.queue(1, 1).await;
    let _ = queue.enqueue(&tasks(50)).await.unwrap();
    let first = leased(&queue, 30).await;
    assert_eq!(yard.count("tasks_bundles").await, 1);
    yard.run("cluster {schema}.tasks using by_key").await;
    let done = |leased: &Leased| Settlement::new(leased.lease, End::Done(leased.key.as_bytes().to_vec().into()));
    let settlements: Vec<_> = first.iter().map(done).collect();
    for _ in 0..2 {
        assert_eq!(queue.settle(&settlements).await.unwrap(), vec![Fenced::Applied; 30]);
    }
    assert_eq!(yard.count("tasks where outcome = convert_to(key, 'UTF8')").await, 30);
    assert_eq!(depths(&queue).await, [(TaskState::Waiting, 20)]);
}

/// What is leased and settled together is in few pages.
#[tokio::test]
async fn tasks_of_a_lane_that_come_together_lie_together() {
    let yard = Sheaved::fresh().await;
    let queue = yard.queue(1, 1).await;
    let lanes = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|name| Lane::new(name).unwrap());
    let in_turn = |n: usize| {
        let payload = vec![b'x'; 400];
        let task = Task::new("work", n.to_string(), payload).unwrap();
        task.in_lane(lanes[n % lanes.len()].clone())
    };
    let tasks: Vec<Task> = (0..800).map(in_turn).collect();
    let _ = queue.enqueue(&tasks).await.unwrap();
    let pages = yard.different("(ctid::text::point)[0]").await;
    let of_lanes = yard.different("(lane, (ctid::text::point)[0])").await;
    // Those in which one lane ends and the next one begins are of both.
    assert!(of_lanes < pages + 8, "{pages} pages, {of_lanes} of lanes");
}

/// A lease whose transaction fails has taken nothing.
#[tokio::test]
async fn a_sheaf_is_whole_again_after_a_rollback() {
    let yard = Sheaved::fresh().await;
    let queue = yard.open().await;
    let capped = Lane::new("capped").unwrap();
    queue.cap_lane(&capped, Some(1)).await.unwrap();
    let _ = queue.enqueue(&[task("a").in_lane(capped)]).await.unwrap();
    let _ = queue.enqueue(&tasks(6)).await.unwrap();
    let mut other = yard
        .holding("select from {schema}.tasks where lane = 'capped' for update")
        .await;
    // Half of it is for the other lane.
    queue.lease(&Ask::new(WorkerId::random(), 8)).await.unwrap_err();
    sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
    assert_eq!(depths(&queue).await.iter().map(|(_, tasks)| tasks).sum::<u64>(), 7);
    let all = leased(&queue, 10).await;
    assert_eq!(all.len(), 7);
    let ends: Vec<_> = all
        .iter()
        .map(|leased| Settlement::new(leased.lease, End::Done("".into())))
        .collect();
    assert_eq!(queue.settle(&ends).await.unwrap(), [Fenced::Applied; 7]);
}

/// A sheaf is there when its transaction has committed, and not otherwise.
#[tokio::test]
async fn a_sheaf_commits_with_the_effect() {
    let yard = Sheaved::fresh().await;
    let queue = yard.open().await;
    let mut tx = queue.open().await.unwrap();
    let _ = queue.enqueue_in(&mut tx, &tasks(5)).await.unwrap();
    assert_eq!(leased(&queue, 10).await, []);
    queue.rollback(tx).await.unwrap();
    assert_eq!(leased(&queue, 10).await, []);
    assert_eq!(yard.count("tasks_sheaves").await, 0);
    let mut tx = queue.open().await.unwrap();
    let _ = queue.enqueue_in(&mut tx, &tasks(5)).await.unwrap();
    queue.commit(tx).await.unwrap();
    assert_eq!(keys(&leased(&queue, 10).await), numbered(0..5));
}

mod suite {
    use super::Sheaved;

    exactly_conformance::queue_suite!(Sheaved);
}

mod transactional_suite {
    use super::Sheaved;

    exactly_conformance::transactional_queue_suite!(Sheaved);
}
