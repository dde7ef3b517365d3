//! How soon the gateway is ready, and how much it takes to do nothing.

use std::time::Duration;

use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::Options;
use super::front::{Front, free_address};
use crate::Result;
use crate::child::Server;
use crate::load::ask;
use crate::report::{Finding, Wanted};
use crate::serve::App;
use crate::versus::Ratio;

const STARTS: u32 = 5;
const IDLE: Duration = Duration::from_secs(2);

pub(super) async fn measure(options: &Options, scratch: &TempDir) -> Result<Vec<Finding>> {
    let upstream = Server::start(&App::Bare).await?;
    let front = Front {
        options,
        scratch: scratch.path(),
        upstream: upstream.address,
    };
    let (mut ready_ms, mut resident_mb) = (Vec::new(), Vec::new());
    for number in 0..STARTS {
        let listen = free_address()?;
        let started = Instant::now();
        let gateway = Server::other(front.command(&format!("start-{number}"), listen)?, listen).await?;
        // Ready is when a request has gone through.
        ask(gateway.address, "/runs").await?;
        ready_ms.push(started.elapsed().as_secs_f64() * 1000.0);
        sleep(IDLE).await;
        resident_mb.push(gateway.pid.resident()? as f64 / 1e6);
    }
    let finding = |scenario, what, unit, values: Vec<f64>, most| {
        Finding::alone(
            scenario,
            what,
            unit,
            Ratio::of(values.into_iter()),
            Wanted::AtMost(most),
        )
    };
    Ok(vec![
        finding(
            "ready",
            "from start to the first answer, empty store",
            "ms",
            ready_ms,
            300.0,
        ),
        finding("idle", "resident size when nothing happens", "MB", resident_mb, 40.0),
    ])
}
