//! Underway, which claims tasks one by one.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use exactly_bench_peers::{Order, Peer, Result, handled};
use serde::Deserialize;
use sqlx08::postgres::PgPoolOptions;
use sqlx08::{PgPool, Postgres, Transaction};
use underway::{Queue, Task, Worker};

/// It starts one more loop at every look, up to its limit.
const POLL: Duration = Duration::from_millis(5);

#[derive(Debug, Deserialize)]
struct Settings {
    connections: u32,
    concurrency: usize,
}

struct Noop;

impl Task for Noop {
    type Input = u64;
    type Output = ();

    async fn execute(&self, _: Transaction<'_, Postgres>, _: u64) -> underway::task::Result<()> {
        handled();
        Ok(())
    }
}

struct Underway;

impl Peer for Underway {
    type Settings = Settings;
    type Worker = Worker<Noop>;

    async fn fill(order: Order<Settings>) -> Result<()> {
        let pool = pool(&order).await?;
        underway::run_migrations(&pool).await?;
        let inputs: Vec<u64> = (0..order.jobs).collect();
        queue(&pool).await?.enqueue_multi(&pool, &Noop, &inputs).await?;
        Ok(())
    }

    async fn connect(order: Order<Settings>) -> Result<Self::Worker> {
        let queue = queue(&pool(&order).await?).await?;
        let mut worker = Worker::new(Arc::new(queue), Noop);
        worker.set_concurrency_limit(order.settings.concurrency);
        Ok(worker)
    }

    async fn work(worker: Self::Worker) -> Result<()> {
        Ok(worker.run_every(POLL.try_into()?).await?)
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

async fn queue(pool: &PgPool) -> Result<Queue<Noop>> {
    Ok(Queue::builder().name("noop").pool(pool.clone()).build().await?)
}

fn main() -> ExitCode {
    exactly_bench_peers::main::<Underway>()
}
