//! The `exactly` server and its command line.

mod admin;
mod call;
mod calls;
mod check_config;
mod cli;
mod config;
mod conformance;
mod deliveries;
mod demo;
mod doctor;
mod door;
mod endpoints;
mod events;
mod gateway;
mod inbox;
mod jobs;
mod listen;
mod logs;
mod migrate;
mod replays;
mod schedules;
mod serve;
mod store;
mod work;

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// A request makes and frees some dozens of small things on whichever thread it is at the moment.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    cli::run()
}
