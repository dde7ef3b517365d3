//! What it costs to let thousands of duplicates wait for one answer.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::Bench;
use crate::child::Server;
use crate::load::{Connection, ask};
use crate::report::{Finding, Wanted};
use crate::serve::{App, Records, Terms};
use crate::versus::Ratio;
use crate::{Result, machine};

pub(super) const NAME: &str = "waiters";

/// How much memory one waiter may take, its connection included.
const KIB_MAX: f64 = 32.0;

/// How long the waiting is watched for what it costs in CPU time.
const WATCHED: Duration = Duration::from_secs(3);
const SETTLE: Duration = Duration::from_millis(500);
const ANSWER_WITHIN: Duration = Duration::from_mins(2);

/// Files that a process has open besides its connections.
const OTHER_FILES: usize = 100;

/// Sizes in KiB per duplicate, and times.
struct Observed {
    idle_kib: f64,
    waiting_kib: f64,
    after_kib: f64,
    watched_cpu: f64,
    answered_in: Duration,
    refused: usize,
}

pub(super) async fn run(bench: &Bench) -> Result<Vec<Finding>> {
    let count = if bench.quick { 500 } else { 10_000 };
    let limit = machine::open_files_max()?;
    if limit < count + count / 100 + OTHER_FILES {
        return Err(format!("{count} connections need more than {limit} open files: raise `ulimit -n`").into());
    }
    let bare = observe(&App::Bare, count, 0).await?;
    let terms = Terms {
        wait_s: ANSWER_WITHIN.as_secs(),
        waiters_max: count,
        ..Terms::default()
    };
    let database = bench.postgres()?;
    let place = database.fresh("waiters").await?;
    let mut findings = Vec::new();
    for (name, records) in [
        ("memory", Records::Memory),
        ("PostgreSQL", Records::Postgres(place.clone())),
    ] {
        // Beyond the limit nobody waits.
        let ours = observe(&App::Leased { records, terms }, count, count / 100).await?;
        findings.push(finding(name, count, &bare, &ours));
    }
    database.drop(&place).await?;
    Ok(findings)
}

/// Sends one slow request and so many duplicates of it that `count` wait and `excess` find no place.
async fn observe(app: &App, count: usize, excess: usize) -> Result<Observed> {
    let server = Server::start(app).await?;
    let kib = |from: u64, to: u64| (to as f64 - from as f64) / 1024.0 / count as f64;
    let before = server.pid.resident()?;
    let mut connections = Vec::new();
    for _ in 0..=count + excess {
        connections.push(Connection::open_for(server.address, "/slow-payments").await?);
    }
    sleep(SETTLE).await;
    let idle = server.pid.resident()?;

    let mut answers = JoinSet::new();
    for mut connection in connections {
        answers.spawn(async move {
            let answer = connection.exchange().await?;
            Ok::<_, crate::Error>((answer.status, connection))
        });
    }
    let mut kept = Vec::new();
    for _ in 0..excess {
        let (status, connection) = next(&mut answers).await?;
        if status != 409 {
            return Err(format!("a duplicate beyond the limit was answered {status}, not 409").into());
        }
        kept.push(connection);
    }
    sleep(SETTLE).await;
    let waiting = server.pid.resident()?;
    let cpu = server.pid.cpu()?;
    sleep(WATCHED).await;
    let watched_cpu = server.pid.cpu()?.saturating_sub(cpu).as_secs_f64() / WATCHED.as_secs_f64();

    ask(server.address, "/release").await?;
    let released = Instant::now();
    let is_bare = matches!(app, App::Bare);
    let mut first: Option<Vec<u8>> = None;
    while !answers.is_empty() {
        let (status, connection) = next(&mut answers).await?;
        let body = connection
            .answered()
            .split(|byte| *byte == b'{')
            .nth(1)
            .unwrap_or_default()
            .to_vec();
        let same = is_bare || *first.get_or_insert_with(|| body.clone()) == body;
        if status != 201 || !same {
            return Err(format!("a waiter was answered {status} with another answer than the first").into());
        }
        kept.push(connection);
    }
    let answered_in = released.elapsed();
    let runs: usize = ask(server.address, "/runs").await?.parse()?;
    if !is_bare && runs != 1 {
        return Err(format!("the handler ran {runs} times for one key").into());
    }
    drop(kept);
    sleep(SETTLE).await;
    Ok(Observed {
        idle_kib: kib(before, idle),
        waiting_kib: kib(before, waiting),
        after_kib: kib(before, server.pid.resident()?),
        watched_cpu,
        answered_in,
        refused: excess,
    })
}

async fn next(answers: &mut JoinSet<Result<(u16, Connection)>>) -> Result<(u16, Connection)> {
    let answered = timeout(ANSWER_WITHIN, answers.join_next()).await;
    answered
        .map_err(|_| "a waiter got no answer in time")?
        .ok_or("nobody waits")??
}

fn finding(name: &str, count: usize, bare: &Observed, ours: &Observed) -> Finding {
    let describe = |who: &str, observed: &Observed| {
        format!(
            "{who}: {:.1} KiB per idle connection, {:.1} KiB per waiter, {:.1} KiB per waiter left after all hung up; \
             {:.0} % of a core while they wait; all answered {:.0} ms after the first",
            observed.idle_kib,
            observed.waiting_kib,
            observed.after_kib,
            observed.watched_cpu * 100.0,
            observed.answered_in.as_secs_f64() * 1000.0
        )
    };
    Finding {
        scenario: NAME,
        what: format!("resident KiB per waiter over sockets, {count} duplicates of one key in flight, {name}"),
        against: "handler that waits by itself".to_owned(),
        theirs: format!("{:.1} KiB", bare.waiting_kib),
        ours: format!("{:.1} KiB", ours.waiting_kib),
        ratio: Ratio::once(ours.waiting_kib),
        cpu_ratio: None,
        wanted: Wanted::AtMost(KIB_MAX),
        foreign_max: 0.0,
        notes: vec![
            describe("bare", bare),
            describe(name, ours),
            format!(
                "{} duplicates beyond the limit of {count} waiters were told 409 at once",
                ours.refused
            ),
        ],
        courses: Vec::new(),
    }
}
