//! Measurements of exactly, side by side with what it replaces.
//!
//! `cargo xtask bench calls` runs them on private servers. Every figure is a ratio of two things measured in one run,
//! turn by turn, because a number taken on a shared machine says little by itself.
//!
//! Client and server are two processes, the way they are in life: what one side costs is then the CPU time of its own
//! process and of its database, and a noisy neighbour delays requests but adds nothing to that.
#![expect(
    clippy::cast_precision_loss,
    reason = "figures are printed with three digits, and nothing here counts beyond 2^52"
)]

mod calls;
mod child;
mod client;
mod database;
mod events;
mod gateway;
mod jobs;
mod load;
mod machine;
mod report;
mod serve;
mod versus;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mimalloc::MiMalloc;

/// The server's, for both sides of each comparison; the queues in `peers` have it too.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Parser)]
#[command(about = "Measurements of exactly, side by side with what it replaces")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Idempotent calls: the layer and its stores.
    Calls(calls::Options),
    /// The gateway: passing on, protecting and replaying.
    Gateway(gateway::Options),
    /// The client: what it costs when all goes well.
    Client(client::Options),
    /// Jobs: burning them down, enqueueing them, and their effects.
    Jobs(jobs::Options),
    /// Events: publishing, delivering and taking them in.
    Events(events::Options),
    /// One of the servers that are measured; started by the other commands.
    #[command(hide = true)]
    Serve { app: String },
    /// One of the workers that are measured; started by `jobs` and `events`.
    #[command(hide = true)]
    Work {
        program: String,
        step: String,
        order: String,
    },
}

fn main() -> ExitCode {
    let ended = match Cli::parse().command {
        Command::Calls(options) => client_runtime().and_then(|runtime| runtime.block_on(calls::run(&options))),
        Command::Gateway(options) => client_runtime().and_then(|runtime| runtime.block_on(gateway::run(&options))),
        Command::Client(options) => client_runtime().and_then(|runtime| runtime.block_on(client::run(&options))),
        Command::Jobs(options) => client_runtime().and_then(|runtime| runtime.block_on(jobs::run(&options))),
        Command::Events(options) => client_runtime().and_then(|runtime| runtime.block_on(events::run(&options))),
        Command::Work { program, step, order } => server_runtime().and_then(|runtime| {
            if events::is_ours(&program) {
                runtime.block_on(events::work(&program, &step, &order))
            } else {
                runtime.block_on(jobs::work(&program, &step, &order))
            }
        }),
        Command::Serve { app } => server_runtime().and_then(|runtime| runtime.block_on(serve::run(&app))),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("exactly-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One thread, so that the client takes no more than its share of the cores from the server.
fn client_runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn server_runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}
