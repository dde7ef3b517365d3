//! The port of graphile-worker to Rust.

use std::process::ExitCode;
use std::time::Duration;

use exactly_bench_peers::{Order, Peer, Result, handled};
use graphile_worker::{
    Database, IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, Worker, WorkerContext,
    WorkerOptions, WorkerUtils,
};
use serde::{Deserialize, Serialize};

const SCHEMA: &str = "graphile_worker";
const CHUNK: u64 = 10_000;

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Driver {
    Sqlx,
    TokioPostgres,
}

#[derive(Debug, Deserialize)]
struct Settings {
    driver: Driver,
    connections: u32,
    concurrency: usize,
    /// Jobs that one local queue fetches at once.
    local_queue: usize,
    local_queues: usize,
    complete_delay_ms: u64,
}

#[derive(Deserialize, Serialize)]
struct Noop {
    id: u64,
}

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        handled();
        Ok::<(), String>(())
    }
}

struct GraphileWorker;

impl Peer for GraphileWorker {
    type Settings = Settings;
    type Worker = Worker;

    async fn fill(order: Order<Settings>) -> Result<()> {
        let utils = WorkerUtils::new(database(&order).await?, SCHEMA);
        utils.migrate().await?;
        for first in (0..order.jobs).step_by(usize::try_from(CHUNK)?) {
            let ids = first..order.jobs.min(first + CHUNK);
            let jobs: Vec<RawJobSpec> = ids
                .map(|id| RawJobSpec {
                    identifier: Noop::IDENTIFIER.to_owned(),
                    payload: serde_json::json!({ "id": id }),
                    spec: JobSpec::default(),
                })
                .collect();
            utils.add_raw_jobs(&jobs).await?;
        }
        Ok(())
    }

    async fn connect(order: Order<Settings>) -> Result<Worker> {
        let settings = &order.settings;
        let queue = LocalQueueConfig::default()
            .with_size(settings.local_queue)
            .with_queue_count(settings.local_queues);
        let delay = Duration::from_millis(settings.complete_delay_ms);
        let options = WorkerOptions::default()
            .database(database(&order).await?)
            .schema(SCHEMA)
            .concurrency(settings.concurrency)
            .local_queue(queue)
            .complete_job_batch_delay(delay)
            .fail_job_batch_delay(delay)
            .listen_os_shutdown_signals(false)
            .define_job::<Noop>();
        Ok(options.init().await?)
    }

    async fn work(worker: Worker) -> Result<()> {
        Ok(worker.run().await?)
    }
}

async fn database(order: &Order<Settings>) -> Result<Database> {
    let connections = order.settings.connections;
    Ok(match order.settings.driver {
        Driver::Sqlx => {
            let pool = sqlx::postgres::PgPoolOptions::new()
                .max_connections(connections)
                .min_connections(connections)
                .test_before_acquire(false);
            pool.connect(&order.url).await?.into()
        }
        Driver::TokioPostgres => {
            let connections = usize::try_from(connections)?;
            graphile_worker::tokio_postgres::TokioPostgresDatabase::from_url(&order.url, connections)?.into()
        }
    })
}

fn main() -> ExitCode {
    exactly_bench_peers::main::<GraphileWorker>()
}
