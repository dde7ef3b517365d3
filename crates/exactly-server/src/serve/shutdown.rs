//! Stopping without losing what is under way.

use std::future::Future;
use std::io::{self, Write as _};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Whether the server was told to stop. Clones are told together.
#[derive(Clone, Debug)]
pub(super) struct Shutdown {
    asked: CancellationToken,
}

impl Shutdown {
    /// Listens for SIGINT and SIGTERM. The first one asks, a second one ends the process at once: whatever is lost by that
    /// is what a crash would lose, and recovered in the same way.
    pub(super) fn on_signals() -> io::Result<Self> {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let asked = CancellationToken::new();
        let ask = asked.clone();
        tokio::spawn(async move {
            for _ in 0..2 {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if ask.is_cancelled() {
                    say("stopped at once");
                    std::process::exit(130);
                }
                ask.cancel();
                say("stopping; once more to stop at once");
            }
        });
        Ok(Self { asked })
    }

    /// Nobody asks.
    #[cfg(test)]
    pub(super) fn never() -> Self {
        let asked = CancellationToken::new();
        Self { asked }
    }

    #[cfg(test)]
    pub(super) fn ask(&self) {
        self.asked.cancel();
    }

    pub(super) async fn asked(&self) {
        self.asked.cancelled().await;
    }

    /// Runs `work` to its end, but no longer than `patience` after being asked to stop.
    pub(super) async fn bounded(&self, patience: Duration, work: impl Future<Output = ()>) {
        let late = async {
            self.asked().await;
            tokio::time::sleep(patience).await;
        };
        tokio::select! {
            () = work => {}
            () = late => say(&format!("stopped with requests unfinished after {patience:?}")),
        }
    }
}

/// Says something to whoever reads the log. Nobody has to: a server that cannot speak stops all the same.
fn say(what: &str) {
    let _ = writeln!(io::stderr(), "exactly: {what}");
}
