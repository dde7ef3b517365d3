//! The command line.

use std::error::Error;
use std::fmt::Write as _;
use std::future::Future;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use tracing_subscriber::filter::LevelFilter;

use crate::logs::{self, LogFormat};
use crate::{
    call, calls, check_config, conformance, deliveries, doctor, endpoints, events, inbox, jobs, listen, migrate,
    replays, schedules, serve,
};

/// Exactly-once effects in an at-least-once world.
///
/// A gateway that makes any service safe to retry, and the operators' tools around it.
#[derive(Debug, Parser)]
#[command(name = "exactly", version, max_term_width = 100)]
struct Cli {
    /// How log lines look, on standard error.
    #[arg(long, global = true, value_enum, default_value_t, env = "EXACTLY_LOG_FORMAT")]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway, the API and the background work.
    Serve(Box<serve::Args>),
    /// Send one request with a key, and repeat it safely.
    Call(Box<call::Args>),
    /// List, show, settle, free and purge calls.
    Calls(Box<calls::Args>),
    /// List, write, pause and delete schedules; say when a pattern fires.
    Schedules(schedules::Args),
    /// List, show, enqueue and requeue jobs; pause and cap lanes.
    Jobs(Box<jobs::Args>),
    /// Publish, list and show events.
    Events(Box<events::Args>),
    /// List, create, change, pause, rotate, test and delete endpoints.
    Endpoints(Box<endpoints::Args>),
    /// List, show and retry deliveries of events.
    Deliveries(Box<deliveries::Args>),
    /// Start, list, show, pause, resume and cancel replays of deliveries.
    Replays(Box<replays::Args>),
    /// List and show events of others that came in.
    Inbox(Box<inbox::Args>),
    /// Receive events on this machine: verify and print them.
    Listen(listen::Args),
    /// Look for what is wrong with a store, a server or a configuration.
    Doctor(doctor::Args),
    /// Bring a store's schema up to date, or print the SQL that does.
    Migrate(migrate::Args),
    /// Say what is wrong with a configuration, all at once.
    CheckConfig(check_config::Args),
    /// Check from outside whether a server keeps the contract.
    Conformance(Box<conformance::Args>),
    /// Print a completion script for a shell.
    Completions {
        /// Which shell.
        shell: Shell,
    },
}

/// What a command ends with.
pub(crate) type Ended = Result<ExitCode, Box<dyn Error + Send + Sync>>;

pub(crate) fn run() -> ExitCode {
    let cli = Cli::parse();
    logs::start(cli.log_format, cli.command.log_level());
    match cli.command.run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("exactly: {}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}

impl Command {
    /// What is worth a line if nobody said so. The storm of a demonstration is bad weather on purpose.
    fn log_level(&self) -> LevelFilter {
        match self {
            Self::Serve(args) if args.demo => LevelFilter::ERROR,
            _ => LevelFilter::WARN,
        }
    }

    fn run(self) -> Ended {
        match self {
            Self::Serve(args) => block_on(args.run()),
            Self::Call(args) => block_on(args.run()),
            Self::Calls(args) => block_on(args.run()),
            Self::Schedules(args) => block_on(args.run()),
            Self::Jobs(args) => block_on(args.run()),
            Self::Events(args) => block_on(args.run()),
            Self::Endpoints(args) => block_on(args.run()),
            Self::Deliveries(args) => block_on(args.run()),
            Self::Replays(args) => block_on(args.run()),
            Self::Inbox(args) => block_on(args.run()),
            Self::Listen(args) => block_on(args.run()),
            Self::Doctor(args) => block_on(args.run()),
            Self::Migrate(args) => block_on(args.run()),
            Self::CheckConfig(args) => args.run(),
            Self::Conformance(args) => block_on(args.run()),
            Self::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Cli::command(), "exactly", &mut script);
                say(&script)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Runs a command that does more than one thing at a time.
fn block_on(command: impl Future<Output = Ended>) -> Ended {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(command)
}

/// Prints what was asked for. Whoever has read enough of it and closes the pipe, as `head` does, is no reason to fail.
pub(crate) fn say(text: impl AsRef<[u8]>) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        said => said,
    }
}

/// An error with everything that led to it.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
