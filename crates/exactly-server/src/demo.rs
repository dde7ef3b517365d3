//! `exactly serve --demo`: payments that are asked for far too often, and made once.
//!
//! A small payments service runs inside the process. It is slow, it fails, and it pays again for every request that reaches
//! it: whatever is paid twice is the gateway's fault. The gateway stands in front, and a storm of double clicks, retries and
//! hang-ups comes over it.

mod storm;
mod upstream;

use std::error::Error;
use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::interval;

use self::storm::Storm;
use self::upstream::Payments;
use crate::config::Config;
use crate::serve::say;
use crate::store::StoreUrl;

/// What the orders of one run have in their names, which are their keys: a store remembers those of the runs before.
#[derive(Clone, Copy, Debug)]
struct Run(u32);

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// What the demonstration needs beside the gateway.
const CONFIG: &str = r#"
reconcile_every = "1s"

[timeouts]
response = "1s"

[[routes]]
method = "POST"
path = "/payments"
key = "required"
lease = "2s"
reconcile = "/payments/by-call/{call}"
"#;

/// How often a line that changes in place does.
const SHOW_EVERY: Duration = Duration::from_millis(200);
/// How often a line is written where every line stays, as in a log.
const WRITE_EVERY: Duration = Duration::from_secs(3);

/// A payments service under a storm.
pub(crate) struct Demo {
    payments: Payments,
    /// Where the records are, for as long as the demonstration lasts.
    _folder: TempDir,
}

impl Demo {
    /// Starts the payments service, and says how the gateway in front of it is to be set up. Addresses and a store that
    /// were asked for stay.
    pub(crate) async fn start(asked: &Config, has_store: bool) -> Result<(Self, Config), Box<dyn Error + Send + Sync>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let folder = TempDir::with_prefix("exactly-demo-")?;
        let mut config = Config::parse(CONFIG).expect("the demonstration's own configuration is good");
        config.listen = asked.listen;
        config.admin = asked.admin;
        config.upstream = Some(format!("http://{}", listener.local_addr()?).parse()?);
        config.store = if has_store {
            asked.store.clone()
        } else {
            StoreUrl::new(format!("sqlite:{}", folder.path().join("exactly.db").display()))
        };
        config.store_options = asked.store_options.clone();
        let payments = Payments::serve(listener);
        let demo = Self {
            payments,
            _folder: folder,
        };
        Ok((demo, config))
    }

    /// Lets the storm come over the gateway at `gateway`, and says what is left after it.
    pub(crate) async fn run(&self, gateway: SocketAddr, admin: SocketAddr) {
        let run = Run(fastrand::u32(..));
        let storm = Storm::new(gateway, run);
        let is_seen = io::stderr().is_terminal();
        let mut ticks = interval(if is_seen { SHOW_EVERY } else { WRITE_EVERY });
        let running = storm.run();
        tokio::pin!(running);
        loop {
            tokio::select! {
                () = &mut running => break,
                _ = ticks.tick() => {
                    let line = format!("{}, {} payments made", storm.progress(), self.payments.count());
                    show(&line, is_seen);
                }
            }
        }
        if is_seen {
            eprintln!();
        }
        say(&storm.report(&self.payments));
        say(&invitation(gateway, admin, run));
    }
}

/// A line that changes in place where somebody looks, and one more where lines are kept.
fn show(line: &str, is_seen: bool) {
    let mut out = io::stderr();
    // Nobody has to listen.
    let _ = if is_seen {
        write!(out, "\r\x1b[K  {line}").and_then(|()| out.flush())
    } else {
        writeln!(out, "{line}")
    };
}

fn invitation(gateway: SocketAddr, admin: SocketAddr, run: Run) -> String {
    let program = std::env::args().next().unwrap_or_else(|| "exactly".to_owned());
    format!(
        "still serving; send this twice, and see one payment:

  curl -i http://{gateway}/payments -H 'idempotency-key: order-{run}' -H 'content-type: application/json' \\
    -d '{{\"order\":\"order-{run}\",\"amount\":1000}}'
  curl 'http://{gateway}/ledger?order=order-{run}'

the operators' side, with the token from above:

  export EXACTLY_ADMIN_TOKEN=…
  curl 'http://{admin}/v1/calls?limit=3' -H \"authorization: Bearer $EXACTLY_ADMIN_TOKEN\"
  {program} calls list --admin http://{admin}

stop with Ctrl-C"
    )
}
