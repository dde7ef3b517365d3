//! The gateway: what it costs to pass on, to protect and to replay.

mod duplicates;
mod front;
mod start;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tempfile::TempDir;

use self::front::Front;
use crate::Result;
use crate::calls::bench_folder;
use crate::child::Server;
use crate::load::{Clients, Keys};
use crate::machine::Facts;
use crate::report::{self, Finding, Wanted};
use crate::serve::App;
use crate::versus::{Expected, Pace, Side, alternate};

const SERIES: u32 = 1;
const KEYS: u64 = 10_000;
/// A header that means nothing to anyone, so that requests without a key have the size of those with one.
const NO_KEY: &str = "x-correlated-with";
const KEY: &str = "idempotency-key";

/// What to measure with.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How long one side's turn lasts.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// How many turns each side has.
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// How many connections the client has, with a request under way on each. First requests share commits, so what one
    /// costs depends on how many there are at once.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    clients: u16,
    /// How long, before each round, to wait for other programs to leave the cores alone.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    patience: u64,
    /// The `exactly` program.
    #[arg(long, env = "EXACTLY_BENCH_SERVER", value_name = "PATH")]
    server: PathBuf,
    /// The nginx to compare with.
    #[arg(long, env = "EXACTLY_BENCH_NGINX", value_name = "PATH", default_value = "nginx")]
    nginx: PathBuf,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let pace = Pace {
        rounds: options.rounds.max(1),
        round: Duration::from_secs_f64(options.seconds),
        warm_up: Duration::from_secs_f64(options.seconds.min(1.0)),
        patience: Duration::from_secs(options.patience),
    };
    let folder = bench_folder()?;
    let facts = Facts::gather(&folder)?;
    // Not in the system's folder for such things, which may be in memory.
    let scratch = TempDir::with_prefix_in("gateway-", &folder)?;
    let mut findings = throughput(options, pace, &scratch).await?;
    findings.push(duplicates::measure(options, &scratch).await?);
    findings.extend(start::measure(options, &scratch).await?);
    report::print(&facts, &findings);
    let json = folder.join("gateway.json");
    report::write_json(&json, &facts, &findings)?;
    println!("\nwritten to {}", json.display());
    Ok(())
}

async fn throughput(options: &Options, pace: Pace, scratch: &TempDir) -> Result<Vec<Finding>> {
    let upstream = Server::start(&App::Bare).await?;
    let front = Front {
        options,
        scratch: scratch.path(),
        upstream: upstream.address,
    };
    let side = async |name: &str, server: Server, header: &str, keys: Keys, expected: Expected| {
        let clients = Clients::connect_with(server.address, options.clients.into(), header).await?;
        Ok::<_, crate::Error>(Side {
            name: name.to_owned(),
            server,
            clients,
            keys,
            database: Some(upstream.pid),
            expected,
        })
    };
    let known = Keys::Known {
        series: SERIES,
        count: KEYS,
    };
    let executions = Expected::Executions;
    let mut sides = [
        side("nginx", front.nginx().await?, NO_KEY, Keys::Fresh, executions).await?,
        side(
            "passed on",
            front.exactly("pass").await?,
            NO_KEY,
            Keys::Fresh,
            executions,
        )
        .await?,
        side(
            "first, SQLite",
            front.exactly("first").await?,
            KEY,
            Keys::Fresh,
            executions,
        )
        .await?,
        side(
            "replayed, SQLite",
            front.exactly("replay").await?,
            KEY,
            known,
            Expected::Replays,
        )
        .await?,
    ];
    sides[3].clients.fill(SERIES, KEYS).await?;
    let courses = alternate(pace, &mut sides).await?;
    let [nginx, passed, first, replayed] = <[_; 4]>::try_from(courses).map_err(|_| "not every side was measured")?;
    let finding =
        |name, what, wanted, theirs, ours| Finding::throughput(name, what, Wanted::AtLeast(wanted), vec![theirs, ours]);
    Ok(vec![
        finding("pass", "a request without a key", 0.7, nginx, passed.clone()),
        finding(
            "first",
            "a first request with a key, SQLite",
            0.35,
            passed.clone(),
            first,
        ),
        finding("replay", "a replay, SQLite", 0.9, passed, replayed),
    ])
}
