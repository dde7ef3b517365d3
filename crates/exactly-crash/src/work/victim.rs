//! A process of the crew: a scheduler, a worker, or both.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use exactly::clock::Timestamp;
use exactly::scheduler::{Plans, Scheduler};
use exactly::worker::Worker;
use fastrand::Rng;

use super::WorkSabotage;
use super::calendar::Hurried;
use super::desk::Desk;
use super::errand;
use super::plan::Role;
use crate::crew::{LEASE, POLL, SWEEP};
use crate::failure::{Failure, Result, failed};
use crate::place::{Place, StoreKind};
use crate::victim::{READY, exit_with_parent};

/// How often schedulers look at the calendar: some two hours of it.
const PASS: Duration = Duration::from_millis(200);

const CONCURRENCY: usize = 16;

/// The command line of a process. Nobody but the lab types it.
#[derive(Clone, Debug, Args)]
pub(crate) struct WorkVictimArguments {
    #[arg(long)]
    store: StoreKind,
    #[arg(long)]
    sabotage: WorkSabotage,
    #[arg(long)]
    role: Role,
    #[arg(long)]
    url: String,
    #[arg(long)]
    name: String,
    #[arg(long)]
    folder: PathBuf,
    #[arg(long)]
    since_ms: u64,
    #[arg(long)]
    seed: u64,
}

/// Works until it is killed, or until whoever started it goes away.
pub(crate) async fn serve(arguments: WorkVictimArguments) -> Result<()> {
    exit_with_parent();
    let place = Place {
        store: arguments.store,
        url: arguments.url.clone(),
        name: arguments.name.clone(),
        folder: arguments.folder.clone(),
    };
    match place.store {
        StoreKind::Sqlite => work(place.open_sqlite_queue().await?, &place, &arguments).await,
        StoreKind::Postgres => work(place.open_postgres_queue().await?, &place, &arguments).await,
        StoreKind::Redis => Err(Failure::new("Redis keeps no queue")),
    }
}

async fn work<D: Desk>(queue: D, place: &Place, arguments: &WorkVictimArguments) -> Result<()> {
    let (queue, role) = (Arc::new(queue), arguments.role);
    let plans: Arc<dyn Plans> = Arc::new(errand::plans()?);
    let jumps = role.jumps().then(|| Rng::with_seed(arguments.seed));
    let since = Timestamp::from_millis(arguments.since_ms);
    let scheduler = Scheduler::new(Arc::new(Hurried::new(Arc::clone(&queue), since, jumps)), plans);
    let mut running = None;
    if role.works() {
        let worker = Worker::builder(Arc::<D>::clone(&queue))
            .schedule(&scheduler)
            .concurrency(CONCURRENCY)
            .lease(LEASE)
            .sweep_every(SWEEP)
            .poll_every(POLL)
            // Killed as often as here, a task is not to blame.
            .rescues_max(u32::MAX);
        let worker = errand::register(worker, &queue, place, arguments.sabotage);
        running = Some(worker.start().map_err(failed("start worker"))?);
    }
    let worker = running.as_ref().map(|running| running.id().to_string());
    println!("{READY} {}", worker.unwrap_or_default());
    if role.schedules() {
        scheduler.run(PASS).await;
    }
    std::future::pending().await
}
