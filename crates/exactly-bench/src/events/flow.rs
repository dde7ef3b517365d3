//! How soon an event is where it is to be: alone, beside an endpoint that hangs, and beside one that is dead.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use exactly::webhook::Outbox;
use exactly_sql::PgQueue;
use sqlx::postgres::PgPoolOptions;
use tokio::time::{Instant, sleep};

use super::deliveries::{CONNECTIONS, SOURCE, add_endpoints, event, publish, serving};
use super::watch::{Silent, Watch, dead};
use crate::Result;
use crate::database::Database;
use crate::jobs::turn::Worker;
use crate::machine::{self, Pid};
use crate::report::{Finding, Wanted};
use crate::versus::{Pace, Ratio};

const DATABASE: &str = "bench_flow";

/// Events before anything counts.
const WARM_UP: u64 = 50;
const SAMPLES: u64 = 500;
const PAUSE_MS: std::ops::Range<u64> = 20..80;
const ARRIVES_WITHIN: Duration = Duration::from_mins(1);
const DELIVERED_P99_MS_MAX: f64 = 50.0;

const HEALTHY: u64 = 50;
/// An event for each of them so often: a thousand deliveries in a second.
const EVENT_EVERY: Duration = Duration::from_millis(50);
const EVENTS: u64 = 300;
const HANGING: u64 = 10_000;
const SLOWER_MAX: f64 = 2.0;

const DEAD: u64 = 1_000_000;
const IDLE: Duration = Duration::from_secs(30);
/// What is left of the work before is over by then.
const SETTLES: Duration = Duration::from_secs(5);
const IDLE_CPU_PERCENT_MAX: f64 = 2.0;

/// A dispatcher at work on a database of its own, and who publishes there.
struct Flow {
    database: Database,
    queue: Arc<PgQueue>,
    outbox: Outbox<PgQueue>,
    worker: Worker,
    watch: Watch,
}

impl Flow {
    /// With so many endpoints that are there before the dispatcher starts, and get a few events before anything counts: a lane
    /// that is new to a worker may take it a second to see.
    async fn start(server: &Database, name: &str, places: u64) -> Result<Self> {
        let database = server.fresh_database(DATABASE).await?;
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS);
        let queue = Arc::new(PgQueue::builder(pool.connect(&database.url).await?).start().await?);
        let watch = Watch::start().await?;
        add_endpoints(&queue, watch.address, name, places).await?;
        let mut worker = Worker::start(&serving(), &database.url, 0).await?;
        // It has nothing to say.
        let _ = worker.begin().await?;
        let mut flow = Self {
            database,
            outbox: Outbox::new(Arc::clone(&queue), SOURCE)?,
            queue,
            worker,
            watch,
        };
        flow.latencies(name, places, WARM_UP, || EVENT_EVERY).await?;
        Ok(flow)
    }

    async fn end(self, server: &Database) -> Result<()> {
        self.worker.stop().await?;
        drop((self.outbox, self.queue, self.database));
        server.drop_database(DATABASE).await
    }

    /// Publishes events with pauses in between, and says how long each delivery took, sorted.
    async fn latencies(
        &mut self,
        name: &str,
        places: u64,
        events: u64,
        mut pause: impl FnMut() -> Duration,
    ) -> Result<Vec<f64>> {
        let mut published = HashMap::new();
        for number in 0..events {
            sleep(pause()).await;
            let event = event(name, number)?;
            published.insert(event.id().as_str().to_owned(), Instant::now());
            let _ = self.outbox.publish(&event).await?;
        }
        let places = usize::try_from(places)?;
        let mut took = self.watch.latencies(&published, places, ARRIVES_WITHIN).await?;
        took.sort_by(f64::total_cmp);
        Ok(took)
    }

    /// Waits until so many deliveries have been made of what was published.
    async fn until_fanned_out(&self, deliveries: u64) -> Result<()> {
        let queued = "select count(*) from exactly.tasks where kind = 'exactly.delivery'";
        let since = Instant::now();
        while self.database.count(queued).await? < deliveries {
            if since.elapsed() > ARRIVES_WITHIN {
                return Err(format!("events were not fanned out within {ARRIVES_WITHIN:?}").into());
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    fn cpu(&self) -> Result<[Duration; 2]> {
        let postmaster = self.database.postmaster;
        let database = postmaster.map_or(Ok(Duration::ZERO), Pid::cpu_with_children)?;
        Ok([self.worker.pid.cpu()?, database])
    }
}

fn at(took: &[f64], percentile: usize) -> f64 {
    took[(took.len() - 1) * percentile / 100]
}

fn told(took: &[f64]) -> String {
    format!(
        "p50 {:.2} ms, p99 {:.2} ms, longest {:.2} ms of {}",
        at(took, 50),
        at(took, 99),
        at(took, 100),
        took.len()
    )
}

/// From before an event is published until it is received, when nothing else happens.
pub(super) async fn latency(server: &Database, share: u64) -> Result<Finding> {
    let mut flow = Flow::start(server, "alone", 1).await?;
    let pause = || Duration::from_millis(fastrand::u64(PAUSE_MS));
    let took = flow.latencies("alone", 1, SAMPLES / share, pause).await?;
    flow.end(server).await?;
    Ok(Finding {
        notes: vec![told(&took)],
        ..Finding::alone(
            "latency",
            "99th percentile from before an event is published until its endpoint has it, in another process, on an idle queue",
            "ms",
            Ratio::once(at(&took, 99)),
            Wanted::AtMost(DELIVERED_P99_MS_MAX),
        )
    })
}

/// Many healthy endpoints beside one that accepts and never answers, each round on a database of its own.
pub(super) async fn isolation(server: &Database, share: u64, pace: Pace) -> Result<Finding> {
    let (mut ratios, mut notes) = (Vec::new(), Vec::new());
    for round in 1..=pace.rounds {
        machine::calm(pace.patience).await?;
        let [without, with] = beside_a_silent_one(server, share).await?;
        notes.push(format!("round {round}, without: {}", told(&without)));
        notes.push(format!("round {round}, with: {}", told(&with)));
        ratios.push(at(&with, 99) / at(&without, 99));
    }
    Ok(Finding {
        notes,
        ..Finding::alone(
            "isolation",
            "99th percentile of deliveries to fifty healthy endpoints beside one that never answers and has 10 000 queued, \
             against the same without it",
            "×",
            Ratio::of(ratios.into_iter()),
            Wanted::AtMost(SLOWER_MAX),
        )
    })
}

/// How long deliveries to the healthy ones take without it and with it.
async fn beside_a_silent_one(server: &Database, share: u64) -> Result<[Vec<f64>; 2]> {
    let silent = Silent::start().await?;
    let mut flow = Flow::start(server, "healthy", HEALTHY).await?;
    let events = EVENTS / share;
    // Once for nothing: the first turn on a database has stalls that later ones lack, which would make the comparison easy.
    flow.latencies("healthy", HEALTHY, events, || EVENT_EVERY).await?;
    let without = flow.latencies("healthy", HEALTHY, events, || EVENT_EVERY).await?;
    let made = HEALTHY * (WARM_UP + 2 * events);
    add_endpoints(&flow.queue, silent.address, "hanging", 1).await?;
    publish(&flow.queue, "hanging", HANGING / share).await?;
    flow.until_fanned_out(made + HANGING / share).await?;
    let with = flow.latencies("healthy", HEALTHY, events, || EVENT_EVERY).await?;
    flow.end(server).await?;
    Ok([without, with])
}

/// A million deliveries that wait for an endpoint that nobody answers at.
pub(super) async fn dead_endpoint(server: &Database, share: u64) -> Result<Vec<Finding>> {
    let mut flow = Flow::start(server, "alone", 1).await?;
    let pause = || Duration::from_millis(fastrand::u64(PAUSE_MS));
    let without = flow.latencies("alone", 1, SAMPLES / share, pause).await?;
    add_endpoints(&flow.queue, dead().await?, "dead", 1).await?;
    publish(&flow.queue, "dead", 1).await?;
    flow.until_fanned_out(WARM_UP + SAMPLES / share + 1).await?;
    let copied = flow.database.execute(copies(DEAD / share)).await?;
    flow.database.execute("vacuum (analyze)".to_owned()).await?;
    flow.database.settle().await?;
    sleep(SETTLES).await;
    let with = flow.latencies("alone", 1, SAMPLES / share, pause).await?;
    sleep(SETTLES).await;
    let (before, since) = (flow.cpu()?, Instant::now());
    sleep(IDLE / u32::try_from(share)?).await;
    let (after, elapsed) = (flow.cpu()?, since.elapsed());
    flow.end(server).await?;
    let percent = |at: usize| after[at].saturating_sub(before[at]).as_secs_f64() / elapsed.as_secs_f64() * 100.0;
    let (own, theirs) = (percent(0), percent(1));
    Ok(vec![
        Finding {
            notes: vec![
                format!("{copied} wait"),
                format!("without: {}", told(&without)),
                format!("with: {}", told(&with)),
            ],
            ..Finding::alone(
                "dead",
                "99th percentile of deliveries to another endpoint beside a million that wait for a dead one",
                "ms",
                Ratio::once(at(&with, 99)),
                Wanted::AtMost(DELIVERED_P99_MS_MAX),
            )
        },
        Finding::alone(
            "dead beside",
            "99th percentile of deliveries to another endpoint beside a million that wait for a dead one, against the same without them",
            "×",
            Ratio::once(at(&with, 99) / at(&without, 99)),
            Wanted::AtMost(SLOWER_MAX),
        ),
        Finding {
            notes: vec![format!(
                "the dispatcher {own:.2} %, the database {theirs:.2} %, of one core in {elapsed:.0?}"
            )],
            ..Finding::alone(
                "dead idle",
                "CPU of a dispatcher and its database while a million wait for a dead endpoint, of one core",
                "%",
                Ratio::once(own + theirs),
                Wanted::AtMost(IDLE_CPU_PERCENT_MAX),
            )
        },
    ])
}

/// As many deliveries as these, like the one that is there.
fn copies(count: u64) -> String {
    format!(
        "insert into exactly.tasks (due_at, enqueued_at, fence, version, id, kind, key, lane, payload)
         select now(), one.enqueued_at, one.fence, one.version, gen_random_uuid(), one.kind, 'evt_' || n || ' dead-0', one.lane,
                one.payload
         from (select * from exactly.tasks where kind = 'exactly.delivery' and key like '% dead-0' limit 1) one,
              generate_series(1, {count}) n"
    )
}
