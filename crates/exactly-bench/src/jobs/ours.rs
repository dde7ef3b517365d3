//! Our own queue and worker, in each scenario.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use exactly::job::{self, Job, JobError};
use exactly::queue::{End, InspectQueue as _, Lane, Queue as _, Task};
use exactly::worker::{Builder, Ran, Worker, from_fn};
use exactly_sql::{PgQueue, PgTransaction};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use tokio::time::sleep;

use super::contender::{Contender, Program, Tables};
use super::inserts::{KIND, LANES, PAYLOAD};
use super::{Order, said};
use crate::Result;

pub(super) const NAME: &str = "exactly";
const TWO: &str = "exactly x2";

/// Whether a contender is one of ours.
pub(super) fn is_ours(name: &str) -> bool {
    [NAME, TWO].contains(&name)
}

const NOOP: &str = "noop";

/// How many jobs with an effect share a transaction.
const SHARING: usize = 16;

const TABLES: Tables = Tables {
    // By way of the indexes, since counting all that is done takes both cores from what is not.
    left: "select count(*) from (
        (select from exactly.tasks where state = 0 order by lane, due_at limit 1)
        union all (select from exactly.tasks where state = 1 order by lane, due_at limit 1)
        union all (select from exactly.tasks where state = 2 or state = 4 order by id limit 1)
        union all (select from exactly.tasks_sheaves limit 1)
        union all (select from (select * from exactly.tasks_bundles order by number desc) b, unnest(b.ids, b.fences) as u (id, fence),
            lateral (select from exactly.tasks c where c.id = u.id and c.fence = u.fence and c.state = 5 and c.ended_at is null limit 1) c limit 1)
        ) as found",
    failed: "select count(*) from exactly.tasks where state = 4",
    done: Some("select count(*) from exactly.tasks where state = 3 or state = 5 and ended_at is not null"),
};

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum What {
    Burn,
    Enqueue,
    Effect,
    Start,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Settings {
    what: What,
    connections: u32,
    concurrency: usize,
    prefetch: usize,
    /// Tasks of one call that enqueues.
    batch: u64,
}

/// Jobs that do nothing, in one lane as the peers' are. In one process and in two, as theirs.
pub(super) fn burning() -> [Contender; 2] {
    let one = contender(
        Settings {
            what: What::Burn,
            connections: 2,
            concurrency: 64,
            prefetch: 4000,
            batch: 5000,
        },
        TABLES,
    );
    let two = Contender {
        name: TWO,
        processes: 2,
        ..one.clone()
    };
    [one, two]
}

pub(super) fn enqueuing() -> Contender {
    let tables = Tables {
        left: "select 0::int8",
        failed: "select 0::int8",
        done: Some("select count(*) from exactly.tasks where state = 0 or state = 5"),
    };
    contender(
        Settings {
            what: What::Enqueue,
            connections: 2,
            concurrency: 1,
            prefetch: 1,
            batch: 1000,
        },
        tables,
    )
}

/// As many connections for effects as the hand-written worker has.
pub(super) fn affecting() -> Contender {
    let tables = Tables {
        done: Some("select count(*) from effects"),
        ..TABLES
    };
    contender(
        Settings {
            what: What::Effect,
            connections: 8,
            concurrency: 8 * SHARING,
            prefetch: 400,
            batch: 5000,
        },
        tables,
    )
}

/// A worker that says of each task that it starts.
pub(super) fn starting() -> Contender {
    contender(
        Settings {
            what: What::Start,
            connections: 2,
            concurrency: 64,
            prefetch: 64,
            batch: 1,
        },
        TABLES,
    )
}

fn contender(settings: Settings, tables: Tables) -> Contender {
    Contender {
        name: NAME,
        program: Program::own(NAME),
        settings: serde_json::json!(settings),
        processes: 1,
        jobs_max: None,
        tables,
    }
}

pub(super) async fn run(step: &str, order: Order<Settings>) -> Result<()> {
    let settings = order.settings;
    let pool = PgPoolOptions::new().min_connections(settings.connections);
    let pool = pool.max_connections(settings.connections).connect(&order.url).await?;
    let queue = Arc::new(PgQueue::builder(pool.clone()).start().await?);
    match (step, settings.what) {
        ("fill", What::Enqueue | What::Start) => Ok(()),
        ("fill", What::Burn) => fill(&queue, 0..order.jobs, settings.batch, noop).await,
        ("fill", What::Effect) => {
            let table = "create table effects (
                 id bigint generated always as identity primary key, job bigint not null, amount bigint not null)";
            sqlx::raw_sql(table).execute(&pool).await?;
            fill(&queue, 0..order.jobs, settings.batch, effect).await
        }
        (_, What::Enqueue) => {
            let enqueuing = async move {
                fill(&queue, 0..order.jobs, settings.batch, keyed).await?;
                std::future::pending().await
            };
            said::work(enqueuing).await
        }
        (_, What::Burn) => said::work(work(burns(queue), settings)).await,
        (_, What::Start) => {
            let worker = Worker::builder(queue).handle(
                NOOP,
                from_fn(|task| {
                    Box::pin(async {
                        // Whoever waits for it would say so.
                        let _ = said::say(&task.key).await;
                        Ran::End(End::Done("".into()))
                    })
                }),
            );
            said::work_silently(work(worker, settings)).await
        }
        (_, What::Effect) => said::work(work(affects(queue), settings)).await,
    }
}

async fn work(worker: Builder, settings: Settings) -> Result<()> {
    let worker = worker.concurrency(settings.concurrency).prefetch(settings.prefetch);
    let _running = worker.start()?;
    std::future::pending().await
}

fn burns(queue: Arc<PgQueue>) -> Builder {
    Worker::builder(queue).handle(
        NOOP,
        from_fn(|_| {
            Box::pin(async {
                said::handled(1);
                Ran::End(End::Done("".into()))
            })
        }),
    )
}

/// Works off all that waits.
pub(super) async fn burn_all(queue: &PgQueue) -> Result<()> {
    let running = burns(Arc::new(queue.clone())).prefetch(4000).start()?;
    while queue.depths().await?.iter().any(|depth| depth.tasks > 0) {
        sleep(Duration::from_millis(200)).await;
    }
    running.drain().await;
    Ok(())
}

pub(super) async fn fill(queue: &PgQueue, jobs: Range<u64>, batch: u64, task: fn(u64) -> Result<Task>) -> Result<()> {
    let mut first = jobs.start;
    while first < jobs.end {
        let end = jobs.end.min(first + batch);
        let tasks = (first..end).map(task).collect::<Result<Vec<_>>>()?;
        let enqueued = queue.enqueue(&tasks).await?;
        let new = enqueued.iter().filter(|task| task.is_new()).count();
        said::handled(u64::try_from(new)?);
        first = end;
    }
    Ok(())
}

pub(super) fn noop(number: u64) -> Result<Task> {
    Ok(Task::new(NOOP, number.to_string(), "{}")?)
}

/// The same row as the plain inserts have.
fn keyed(number: u64) -> Result<Task> {
    let task = Task::new(KIND, format!("2027-03-14:in_{number:012}"), PAYLOAD)?;
    Ok(task
        .in_lane(Lane::new(format!("lane-{}", number % LANES))?)
        .with_version(1))
}

/// A job with an effect of one row.
#[derive(Serialize, Deserialize)]
struct Effect {
    number: i64,
}

impl Job for Effect {
    const KIND: &'static str = "effect";
    type Outcome = ();

    fn key(&self) -> String {
        self.number.to_string()
    }
}

fn effect(number: u64) -> Result<Task> {
    let job = Effect {
        number: i64::try_from(number)?,
    };
    Ok(Task::new(Effect::KIND, job.key(), serde_json::to_vec(&job)?)?)
}

fn affects(queue: Arc<PgQueue>) -> Builder {
    Worker::builder(Arc::<PgQueue>::clone(&queue)).job(
        job::transactional(queue, |job: Effect, tx: &mut PgTransaction, _| {
            Box::pin(async move {
                let insert = sqlx::query("insert into effects (job, amount) values ($1, $2)");
                let inserted = insert.bind(job.number).bind(job.number).execute(&mut **tx).await;
                inserted.map_err(JobError::transient)?;
                said::handled(1);
                Ok(())
            })
        })
        .sharing(SHARING, 8),
    )
}
