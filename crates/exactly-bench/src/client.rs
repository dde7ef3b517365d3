//! What the client costs when all goes well, against the HTTP client that it is made of.

use std::time::Duration;

use clap::Args;
use exactly::client::{Client, Outcome};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Result;
use crate::calls::bench_folder;
use crate::child::Server;
use crate::load::{Latencies, PAYMENT, ask};
use crate::machine::{self, Facts, Pid};
use crate::report::{self, Finding, Wanted};
use crate::serve::App;
use crate::versus::{Course, Turn};

/// Calls under way at the same time.
const CALLERS: usize = 32;

/// What to measure with.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How long one side's turn lasts.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// How many turns each side has.
    #[arg(long, default_value_t = 9)]
    rounds: u32,
    /// How long, before each round, to wait for other programs to leave the cores alone.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    patience: u64,
}

/// One of the two clients.
#[derive(Clone, Debug)]
enum Side {
    Plain(reqwest::Client),
    Ours(Client),
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let folder = bench_folder()?;
    let facts = Facts::gather(&folder)?;
    let server = Server::start(&App::Bare).await?;
    // reqwest's own client takes what the process has, and is made by nobody else here.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let sides = [
        ("reqwest", Side::Plain(reqwest::Client::new())),
        ("client", Side::Ours(Client::new())),
    ];
    let round = Duration::from_secs_f64(options.seconds);
    for (_, side) in &sides {
        turn(&server, side, round.min(Duration::from_secs(1))).await?;
    }
    let mut courses = sides.each_ref().map(|(name, _)| Course {
        name: (*name).to_owned(),
        turns: Vec::new(),
    });
    for number in 1..=options.rounds.max(1) {
        machine::calm(Duration::from_secs(options.patience)).await?;
        for ((name, side), course) in sides.iter().zip(&mut courses) {
            let turn = turn(&server, side, round).await?;
            turn.print(number, name);
            course.turns.push(turn);
        }
    }
    let cpu = courses[0].over(&courses[1], |turn| turn.client_cpu_us);
    let what = format!("a call that is answered at once, {CALLERS} at a time, on one thread");
    let mut finding = Finding::throughput("client", &what, Wanted::AtLeast(0.9), courses.into());
    finding.cpu_ratio = Some(cpu);
    report::print(&facts, &[finding]);
    Ok(())
}

async fn turn(server: &Server, side: &Side, duration: Duration) -> Result<Turn> {
    let runs = async || Ok::<u64, crate::Error>(ask(server.address, "/runs").await?.parse()?);
    let before = runs().await?;
    let (server_cpu, client_cpu, all) = (server.pid.cpu_with_children()?, Pid::this().cpu()?, machine::busy()?);
    let latencies = std::sync::Arc::new(Latencies::new());
    let started = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (side, latencies) = (side.clone(), std::sync::Arc::clone(&latencies));
        let url = format!("http://{}/payments", server.address);
        callers.spawn(async move {
            let mut calls = 0_u64;
            while started.elapsed() < duration {
                let began = Instant::now();
                side.call(&url).await?;
                latencies.add(began.elapsed());
                calls += 1;
            }
            Ok::<_, crate::Error>(calls)
        });
    }
    let mut calls = 0;
    while let Some(called) = callers.join_next().await {
        calls += called??;
    }
    let elapsed = started.elapsed();
    let server_cpu = server.pid.cpu_with_children()?.saturating_sub(server_cpu);
    let client_cpu = Pid::this().cpu()?.saturating_sub(client_cpu);
    let all = machine::busy()?.saturating_sub(all);
    let made = runs().await? - before;
    if made != calls {
        return Err(format!("{calls} calls ran the handler {made} times").into());
    }
    let cores = std::thread::available_parallelism()?.get() as f64;
    let per_call = |cpu: Duration| cpu.as_secs_f64() * 1e6 / calls.max(1) as f64;
    Ok(Turn {
        per_second: calls as f64 / elapsed.as_secs_f64(),
        cpu_us: per_call(server_cpu),
        database_cpu_us: 0.0,
        client_cpu_us: per_call(client_cpu),
        p50_ms: latencies.percentile(50.0).as_secs_f64() * 1000.0,
        p99_ms: latencies.percentile(99.0).as_secs_f64() * 1000.0,
        foreign: all.saturating_sub(server_cpu + client_cpu).as_secs_f64() / (elapsed.as_secs_f64() * cores),
    })
}

impl Side {
    /// One call, to the last byte of its answer.
    async fn call(&self, url: &str) -> Result<()> {
        let (status, bytes) = match self {
            Self::Plain(client) => {
                let request = client
                    .post(url)
                    .header("content-type", "application/json")
                    .body(PAYMENT);
                let response = request.send().await?;
                (response.status(), response.bytes().await?)
            }
            Self::Ours(client) => {
                let request = client
                    .post(url)
                    .header("content-type", "application/json")
                    .body(PAYMENT);
                match request.send().await {
                    Outcome::Applied(applied) => (applied.answer().status(), applied.answer().bytes().clone()),
                    outcome => return Err(format!("{outcome:?}").into()),
                }
            }
        };
        if status.as_u16() != 201 || bytes.is_empty() {
            return Err(format!("answered {status}").into());
        }
        Ok(())
    }
}
