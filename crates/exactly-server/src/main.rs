//! The `exactly` server and its command line.

mod admin;
mod check_config;
mod cli;
mod config;
mod logs;
mod store;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
