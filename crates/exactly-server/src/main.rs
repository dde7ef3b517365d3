//! The `exactly` server and its command line.

mod check_config;
mod cli;
mod config;
mod logs;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
