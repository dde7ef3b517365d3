//! Other job queues, as programs that the benchmark starts.
//!
//! `PROGRAM fill ORDER` makes the tables and enqueues the jobs. `PROGRAM work ORDER` connects and then works as `said` has
//! it.

#[path = "../../src/jobs/said.rs"]
mod said;

use std::process::ExitCode;

use mimalloc::MiMalloc;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// As the one that they are measured against.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What to do it with.
#[derive(Clone, Debug, Deserialize)]
pub struct Order<S> {
    pub url: String,
    pub jobs: u64,
    pub settings: S,
}

/// A queue under measurement.
pub trait Peer {
    type Settings: DeserializeOwned;
    /// A worker that is connected, and has claimed nothing.
    type Worker: Send + 'static;

    fn fill(order: Order<Self::Settings>) -> impl Future<Output = Result<()>>;
    fn connect(order: Order<Self::Settings>) -> impl Future<Output = Result<Self::Worker>>;
    /// Works until it is dropped.
    fn work(worker: Self::Worker) -> impl Future<Output = Result<()>> + Send + 'static;
}

/// Counts a job whose handler has run.
pub fn handled() {
    said::handled(1);
}

/// The program of a peer.
pub fn main<P: Peer>() -> ExitCode {
    match run::<P>() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run<P: Peer>() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, order] = &*arguments else {
        return Err("usage: PROGRAM (fill | work) ORDER".into());
    };
    let order: Order<P::Settings> = serde_json::from_str(order)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match what.as_str() {
            "fill" => P::fill(order).await,
            "work" => said::work(P::work(P::connect(order).await?)).await,
            other => Err(format!("`{other}` is neither fill nor work").into()),
        }
    })
}
