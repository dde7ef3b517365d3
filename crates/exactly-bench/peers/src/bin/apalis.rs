//! apalis, with its tasks in PostgreSQL.

use std::process::ExitCode;
use std::time::Duration;

use apalis::prelude::*;
use apalis_postgres::{Config, PostgresStorage};
use exactly_bench_peers::{Order, Peer, Result, handled};
use serde::Deserialize;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

const QUEUE: &str = "noop";
const CHUNK: u64 = 10_000;
/// What is left when a fetch found nothing is looked for this often.
const POLL: Duration = Duration::from_millis(5);

#[derive(Clone, Debug, Deserialize)]
struct Settings {
    connections: u32,
    /// Workers in one process, each with a buffer of its own.
    workers: usize,
    /// Tasks that one worker fetches at once.
    batch: usize,
    /// Whether a task that a worker has fetched is marked as running too.
    lock_tasks: bool,
}

struct Apalis;

async fn noop(_: u64) -> Result<(), BoxDynError> {
    handled();
    Ok(())
}

impl Peer for Apalis {
    type Settings = Settings;
    type Worker = (PgPool, Settings);

    async fn fill(order: Order<Settings>) -> Result<()> {
        let pool = pool(&order).await?;
        PostgresStorage::setup(&pool).await?;
        let mut storage = storage(&pool, &order.settings);
        for first in (0..order.jobs).step_by(usize::try_from(CHUNK)?) {
            let tasks = (first..order.jobs.min(first + CHUNK)).collect();
            storage.push_bulk(tasks).await?;
        }
        Ok(())
    }

    async fn connect(order: Order<Settings>) -> Result<Self::Worker> {
        Ok((pool(&order).await?, order.settings))
    }

    async fn work((pool, settings): Self::Worker) -> Result<()> {
        let mut working = tokio::task::JoinSet::new();
        for number in 0..settings.workers {
            let storage = storage(&pool, &settings).poll_with_interval(POLL);
            let worker = WorkerBuilder::new(format!("worker-{number}"))
                .backend(storage)
                .build(noop);
            working.spawn(worker.run());
        }
        while let Some(ended) = working.join_next().await {
            ended??;
        }
        Ok(())
    }
}

async fn pool(order: &Order<Settings>) -> Result<PgPool> {
    let connections = order.settings.connections;
    let pool = PgPoolOptions::new()
        .max_connections(connections)
        .min_connections(connections)
        .test_before_acquire(false);
    Ok(pool.connect(&order.url).await?)
}

fn storage(pool: &PgPool, settings: &Settings) -> PostgresStorage<u64> {
    let config = Config::default()
        .queue(QUEUE)
        .batch_size(settings.batch)
        .lock_tasks(settings.lock_tasks);
    PostgresStorage::new(pool).with_config(config)
}

fn main() -> ExitCode {
    exactly_bench_peers::main::<Apalis>()
}
