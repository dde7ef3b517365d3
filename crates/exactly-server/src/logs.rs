//! What the server says about itself while it runs.

use std::io::{self, IsTerminal as _};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for machines.
    Json,
}

/// Sends log lines to standard error. `RUST_LOG` says which; those of `level` and worse without it.
pub(crate) fn start(format: LogFormat, level: LevelFilter) {
    let filter = EnvFilter::builder()
        .with_default_directive(level.into())
        .from_env_lossy();
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // That a line could not be written would be written to the same place, which ends whoever tries.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr);
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).init(),
    }
}
