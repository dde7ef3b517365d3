//! Sending again what a real database holds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use exactly::queue::{Ask, End, Failure, FailureKind, InspectQueue, Registry, Settlement, Task, WorkerId};
use exactly::webhook::delivery::{Destinations, Sender};
use exactly::webhook::{
    DELIVERY_KIND, Dispatcher, Endpoint, EndpointId, Endpoints, Replay, ReplayId, ReplayState, ReplayView, Replays,
    Secret, Tally, Which,
};
use exactly::worker::{Running, Worker};
use exactly_conformance::QueueHarness;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// More than a page, and more than are set off in one part.
const EACH: usize = 150;

/// How often each event arrived.
type Arrived = Arc<Mutex<BTreeMap<String, usize>>>;

async fn receive(State(arrived): State<Arrived>, headers: HeaderMap) -> StatusCode {
    let id = headers["webhook-id"].to_str().unwrap().to_owned();
    *arrived.lock().unwrap().entry(id).or_default() += 1;
    StatusCode::OK
}

fn id(name: &str) -> EndpointId {
    EndpointId::new(name).unwrap()
}

fn work<Q: Registry + InspectQueue>(queue: &Arc<Q>) -> Running {
    let sender = Sender::builder().destinations(Destinations::default().allow_private());
    let dispatcher = Dispatcher::new(Arc::clone(queue), sender.build().unwrap());
    // Those of a worker that is stopped are soon another's.
    let worker = Worker::builder(Arc::<Q>::clone(queue))
        .lease(Duration::from_secs(2))
        .sweep_every(Duration::from_millis(100))
        .poll_every(Duration::from_millis(50));
    dispatcher.register(worker).start().unwrap()
}

/// Deliveries of so many events to an endpoint.
async fn waiting<Q: Registry>(queue: &Q, prefix: &str, endpoint: &str) {
    let tasks: Vec<_> = (0..EACH)
        .map(|n| {
            let body = format!(r#"{{"eventId":"{prefix}{n}","eventType":"invoice.paid","source":"shop","data":{n}}}"#);
            let task = Task::new(DELIVERY_KIND, format!("{prefix}{n} {endpoint}"), body).unwrap();
            task.in_lane(id(endpoint).lane())
        })
        .collect();
    let _ = queue.enqueue(&tasks).await.unwrap();
}

/// The same, which ended so.
async fn ended<Q: Registry>(queue: &Q, prefix: &str, endpoint: &str, end: End) {
    waiting(queue, prefix, endpoint).await;
    loop {
        let leased = queue.lease(&Ask::new(WorkerId::random(), 1000)).await.unwrap();
        if leased.is_empty() {
            break;
        }
        let ends: Vec<_> = leased.iter().map(|it| Settlement::new(it.lease, end.clone())).collect();
        let _ = queue.settle(&ends).await.unwrap();
    }
}

/// A while passes, also where it would stand still.
async fn passes<H: QueueHarness>(harness: &H) {
    const A_WHILE: Duration = Duration::from_millis(20);
    sleep(A_WHILE).await;
    // SQLite, whose clock here is the harness's.
    if !H::WAKES_OTHERS {
        harness.elapse(A_WHILE).await;
    }
}

async fn ends<H>(harness: &H, replays: &Replays<H::Queue>, replay: &Replay) -> ReplayView
where
    H: QueueHarness<Queue: Registry>,
{
    let ends = async {
        loop {
            let view = replays.get(&replay.id).await.unwrap().unwrap();
            if view.state == ReplayState::Done {
                break view;
            }
            passes(harness).await;
        }
    };
    timeout(Duration::from_mins(1), ends).await.unwrap()
}

fn told(tally: &Tally) -> [u64; 5] {
    [
        tally.seen,
        tally.revived,
        tally.sent_again,
        tally.left_alone,
        tally.skipped,
    ]
}

/// Two endpoints at one receiver.
async fn received<Q: Registry>(queue: &Arc<Q>) -> (Arrived, JoinSet<()>) {
    let (listener, arrived) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Arrived::default());
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let routes = Router::new()
        .route("/hook", post(receive))
        .with_state(Arc::clone(&arrived));
    let mut serving = JoinSet::new();
    serving.spawn(async move { axum::serve(listener, routes).await.unwrap() });
    for name in ["a", "b"] {
        let endpoint = Endpoint::new(id(name), &url, Secret::random().expose());
        Endpoints::new(Arc::clone(queue)).add(&endpoint).await.unwrap();
    }
    (arrived, serving)
}

/// Deliveries to them: to the first done and dead ones, to the second dead ones.
async fn seeded<Q: Registry>(queue: &Arc<Q>) -> (Arrived, JoinSet<()>) {
    ended(&**queue, "done_", "a", End::Done("".into())).await;
    let failure = Failure::new(FailureKind::Transient, "no attempt is left");
    ended(&**queue, "dead_", "a", End::Bury(failure.clone())).await;
    ended(&**queue, "dead_", "b", End::Bury(failure)).await;
    received(queue).await
}

/// Of the first endpoint.
fn replay(name: &str, which: Which) -> Replay {
    let mut replay = Replay::new(ReplayId::new(name).unwrap(), which);
    replay.endpoint = Some(id("a"));
    replay
}

/// Waits until so many have arrived, and nothing is on its way to the first endpoint.
async fn have_arrived<H: QueueHarness<Queue: Registry>>(harness: &H, arrived: &Arrived, count: usize) {
    let queue = harness.open().await;
    let all = async {
        while arrived.lock().unwrap().values().sum::<usize>() < count
            || queue
                .depths()
                .await
                .unwrap()
                .iter()
                .any(|depth| depth.lane == id("a").lane())
        {
            passes(harness).await;
        }
    };
    timeout(Duration::from_mins(1), all).await.unwrap();
}

/// A replay comes by every delivery once, over many parts and a worker that is stopped, and each arrives once for it.
async fn a_replay_comes_by_everything_once<H: QueueHarness<Queue: Registry>>() {
    let harness = H::fresh().await;
    let queue = harness.open().await;
    let (arrived, _serving) = seeded(&queue).await;
    let (replays, each) = (Replays::new(Arc::clone(&queue)), u64::try_from(EACH).unwrap());
    // So that nothing of it is from the very moment at which a replay is started.
    harness.elapse(Duration::from_secs(1)).await;

    let running = work(&queue);
    let mut dry = replay("dry", Which::All);
    dry.dry_run = true;
    replays.start(&dry).await.unwrap();
    let counted = ends(&harness, &replays, &dry).await;
    assert_eq!(told(&counted.tally), [2 * each, each, each, 0, 0]);
    assert_eq!(*arrived.lock().unwrap(), BTreeMap::new());

    let mut failed = replay("failed", Which::Failed);
    failed.per_second = Some(100);
    replays.start(&failed).await.unwrap();
    let half = loop {
        let view = replays.get(&failed.id).await.unwrap().unwrap();
        if view.tally.seen > 0 {
            break view;
        }
        sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(
        (half.state, told(&half.tally)),
        (ReplayState::Running, [100, 100, 0, 0, 0])
    );
    drop(running);
    let _running = work(&queue);
    let revived = ends(&harness, &replays, &failed).await;
    assert_eq!(told(&revived.tally), [each, each, 0, 0, 0]);
    have_arrived(&harness, &arrived, EACH).await;

    let all = replay("all", Which::All);
    replays.start(&all).await.unwrap();
    let sent_again = ends(&harness, &replays, &all).await;
    assert_eq!(told(&sent_again.tally), [2 * each, 0, 2 * each, 0, 0]);
    have_arrived(&harness, &arrived, 3 * EACH).await;
    let arrived = arrived.lock().unwrap().clone();
    let times = |prefix: &str| -> Vec<usize> {
        let of = arrived.iter().filter(|(id, _)| id.starts_with(prefix));
        of.map(|(_, times)| *times).collect()
    };
    assert_eq!(times("done_"), vec![1; EACH]);
    // Those that a worker had begun when it was stopped are the only ones that may come once more.
    assert!(times("dead_").iter().all(|times| *times >= 2), "{arrived:?}");
    let endpoints = Endpoints::new(Arc::clone(&queue));
    let (a, b) = (endpoints.health(&id("a")).await, endpoints.health(&id("b")).await);
    assert!(a.as_ref().unwrap().last_success_ms.is_some(), "{a:?}");
    assert_eq!(
        b.map(|b| (b.waiting, b.dead, b.last_success_ms)).unwrap(),
        (0, each, None)
    );
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_comes_by_everything_once_on_postgres() {
    a_replay_comes_by_everything_once::<crate::postgres::queue::Yard>().await;
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_comes_by_everything_once_on_sqlite() {
    a_replay_comes_by_everything_once::<crate::sqlite::queue::Shop>().await;
}

/// Somebody may have locked what is known of endpoints, and many of them may have to be noted at once.
#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_delivery_waits_until_it_is_noted() {
    use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

    let harness = crate::postgres::queue::Yard::fresh().await;
    let queue = harness.open().await;
    let (arrived, _serving) = received(&queue).await;
    waiting(&*queue, "new_", "a").await;
    let mut other = PgConnection::connect(&crate::postgres::url()).await.unwrap();
    let lock = format!("begin; lock table {}.tasks_cards in exclusive mode", harness.0.schema);
    sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut other).await.unwrap();
    let _running = work(&queue);
    have_arrived(&harness, &arrived, EACH).await;
    let endpoints = Endpoints::new(Arc::clone(&queue));
    let last_success = async || endpoints.health(&id("a")).await.unwrap().last_success_ms;
    assert_eq!(last_success().await, None);
    sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
    let noted = async {
        while last_success().await.is_none() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_mins(1), noted).await.unwrap();
}
