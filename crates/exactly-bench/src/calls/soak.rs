//! Whether a server under load for long stays as small as it was.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::Bench;
use crate::Result;
use crate::load::{Keys, Tally, ask};
use crate::machine::Pid;
use crate::report::{Finding, Wanted};
use crate::serve::{App, Records, Terms};
use crate::versus::{Expected, Ratio, Side};

pub(super) const NAME: &str = "soak";

const CLIENTS: usize = 16;
const KEYS: Keys = Keys::Mixed { series: 4, count: 1000 };
const MINUTES: u32 = 10;
const EVERY: Duration = Duration::from_secs(1);

/// How much larger the last tenth of the time may be than the second: the first is for caches and pools to fill.
const GROWTH_MAX: f64 = 1.10;

/// A server that forgets soon, so that what it holds is bounded by time and not by the length of the soak.
const KEEP_S: u64 = 5;

pub(super) async fn run(bench: &Bench) -> Result<Vec<Finding>> {
    let duration = if bench.quick {
        Duration::from_secs(20)
    } else {
        Duration::from_mins(MINUTES.into())
    };
    let database = bench.postgres()?;
    let place = database.fresh("soak").await?;
    let folder = tempfile::tempdir_in(&bench.folder)?;
    let sqlite = Records::Sqlite {
        path: folder.path().join("soak.db"),
        group_commit: true,
    };
    let mut memory = start("memory", Records::Memory, KEEP_S).await?;
    let mut sqlite = start("SQLite", sqlite, Terms::default().keep_s).await?;
    let mut postgres = start("PostgreSQL", Records::Postgres(place.clone()), Terms::default().keep_s).await?;
    let pids = [&memory, &sqlite, &postgres].map(|side| side.server.pid);
    let forgetful = memory.server.address;
    let watched = tokio::select! {
        watched = watch(pids, duration) => watched?,
        ended = sweep_forever(forgetful) => return Err(ended),
        ended = async { tokio::join!(drive(&mut memory, duration), drive(&mut sqlite, duration), drive(&mut postgres, duration)) } => {
            let failed = [ended.0.err(), ended.1.err(), ended.2.err()].into_iter().flatten().next();
            return Err(failed.unwrap_or_else(|| "the load ended before the watch".into()));
        }
    };
    drop([memory, sqlite, postgres]);
    database.drop(&place).await?;
    let names = ["memory", "SQLite", "PostgreSQL"];
    Ok(names
        .into_iter()
        .zip(watched)
        .map(|(name, sizes)| finding(name, &sizes, duration))
        .collect())
}

async fn start(name: &str, records: Records, keep_s: u64) -> Result<Side> {
    let terms = Terms {
        keep_s,
        ..Terms::default()
    };
    Side::start(
        name,
        &App::Leased { records, terms },
        CLIENTS,
        KEYS,
        Expected::Either,
        None,
    )
    .await
}

async fn drive(side: &mut Side, duration: Duration) -> Result<Tally> {
    // Longer than it is watched, so that the load never ends first.
    side.clients.run(&side.keys, duration * 2).await
}

async fn sweep_forever(server: std::net::SocketAddr) -> crate::Error {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = ask(server, "/sweep/1000000").await {
            return error;
        }
    }
}

/// The resident size of each process, every second.
async fn watch(pids: [Pid; 3], duration: Duration) -> Result<[Vec<u64>; 3]> {
    let mut sizes: [Vec<u64>; 3] = Default::default();
    let started = Instant::now();
    let mut ticks = interval(EVERY);
    while started.elapsed() < duration {
        ticks.tick().await;
        for (pid, sizes) in pids.iter().zip(&mut sizes) {
            sizes.push(pid.resident()?);
        }
        if sizes[0].len().is_multiple_of(30) {
            let now = sizes
                .each_ref()
                .map(|sizes| format!("{:.1}", mib(*sizes.last().unwrap_or(&0))));
            eprintln!("  {:>4} s  {} MiB", started.elapsed().as_secs(), now.join(" / "));
        }
    }
    Ok(sizes)
}

fn finding(name: &str, sizes: &[u64], duration: Duration) -> Finding {
    let tenth = (sizes.len() / 10).max(1);
    let median = |part: &[u64]| Ratio::of(part.iter().map(|size| mib(*size))).median;
    let early = median(&sizes[tenth..(2 * tenth).min(sizes.len())]);
    let late = median(&sizes[sizes.len() - tenth..]);
    let largest = sizes.iter().copied().max().map_or(0.0, mib);
    Finding {
        scenario: NAME,
        what: format!("resident size under load for {} s, {name}", duration.as_secs()),
        against: "its second tenth".to_owned(),
        theirs: format!("{early:.1} MiB"),
        ours: format!("{late:.1} MiB"),
        ratio: Ratio::once(late / early),
        cpu_ratio: None,
        wanted: Wanted::AtMost(GROWTH_MAX),
        foreign_max: 0.0,
        notes: vec![format!("{name}: at most {largest:.1} MiB")],
        courses: Vec::new(),
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0 / 1024.0
}
