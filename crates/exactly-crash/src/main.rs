//! The `exactly-crash` program; the lab itself is the library.

use std::process::ExitCode;

use clap::Parser as _;
use exactly_crash::{Arguments, Verdict};

const EXIT_RED: u8 = 1;
const EXIT_FAILED: u8 = 2;
/// As shells report a program that SIGINT ended.
const EXIT_INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("exactly-crash: start runtime: {error}");
            return ExitCode::from(EXIT_FAILED);
        }
    };
    // Not exited from within: what the lab started ends when its handles are dropped.
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = exactly_crash::run(arguments) => Some(ended),
            () = interrupted() => None,
        }
    });
    match ended {
        Some(Ok(Verdict::Green)) => ExitCode::SUCCESS,
        Some(Ok(Verdict::Red)) => ExitCode::from(EXIT_RED),
        Some(Err(failure)) => {
            eprintln!("exactly-crash: {failure}");
            ExitCode::from(EXIT_FAILED)
        }
        None => {
            eprintln!("exactly-crash: interrupted");
            ExitCode::from(EXIT_INTERRUPTED)
        }
    }
}

/// Until someone wants the lab to stop.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};

    let signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
    let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = signals else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}
