//! Two or more servers under the same load, turn by turn.

use std::time::Duration;

use serde::Serialize;

use crate::Result;
use crate::child::Server;
use crate::load::{Clients, Keys, ask};
use crate::machine::{self, Pid};
use crate::serve::App;

/// How long, and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) rounds: u32,
    pub(crate) round: Duration,
    pub(crate) warm_up: Duration,
    /// How long to wait, before each round, for other programs to leave the cores alone.
    pub(crate) patience: Duration,
}

/// One server with its clients and the keys that they send.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) name: String,
    pub(crate) server: Server,
    pub(crate) clients: Clients,
    pub(crate) keys: Keys,
    /// The database server whose work is done for this side while it runs.
    pub(crate) database: Option<Pid>,
    /// Whether the handler runs, or stored answers are sent.
    pub(crate) expected: Expected,
}

/// What has to become of the requests of a turn. A figure of the wrong thing is worse than none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Executions,
    Replays,
    /// Some of each.
    Either,
}

impl Side {
    pub(crate) async fn start(
        name: &str,
        app: &App,
        clients: usize,
        keys: Keys,
        expected: Expected,
        database: Option<Pid>,
    ) -> Result<Self> {
        let server = Server::start(app).await?;
        let clients = Clients::connect(server.address, clients).await?;
        Ok(Self {
            name: name.to_owned(),
            server,
            clients,
            keys,
            database,
            expected,
        })
    }

    async fn runs(&self) -> Result<u64> {
        Ok(ask(self.server.address, "/runs").await?.parse()?)
    }

    fn check(&self, requests: u64, runs: u64) -> Result<()> {
        let wanted = match self.expected {
            Expected::Executions => requests,
            Expected::Replays => 0,
            Expected::Either => return Ok(()),
        };
        if runs == wanted {
            return Ok(());
        }
        Err(format!(
            "{}: {requests} requests ran the handler {runs} times, not {wanted}",
            self.name
        )
        .into())
    }
}

/// One side's turn.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Turn {
    pub(crate) per_second: f64,
    /// CPU time of server and database per request.
    pub(crate) cpu_us: f64,
    /// The database's part of it.
    pub(crate) database_cpu_us: f64,
    pub(crate) client_cpu_us: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// The share of all cores' time that went to processes which are not measured.
    pub(crate) foreign: f64,
}

/// One side's turns.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Course {
    pub(crate) name: String,
    pub(crate) turns: Vec<Turn>,
}

/// The middle of several ratios, and how far they went.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// Lets every side run in turn, `rounds` times.
pub(crate) async fn alternate(pace: Pace, sides: &mut [Side]) -> Result<Vec<Course>> {
    for side in &mut *sides {
        turn(side, pace.warm_up).await?;
    }
    let mut courses: Vec<Course> = sides
        .iter()
        .map(|side| Course {
            name: side.name.clone(),
            turns: Vec::new(),
        })
        .collect();
    for round in 1..=pace.rounds {
        machine::calm(pace.patience).await?;
        for (side, course) in sides.iter_mut().zip(&mut courses) {
            let turn = turn(side, pace.round).await?;
            turn.print(round, &side.name);
            course.turns.push(turn);
        }
    }
    Ok(courses)
}

/// One turn of one side.
pub(crate) async fn turn(side: &mut Side, duration: Duration) -> Result<Turn> {
    let runs = side.runs().await?;
    let before = Meter::read(side)?;
    let tally = side.clients.run(&side.keys, duration).await?;
    let spent = Meter::read(side)?.since(before);
    side.check(tally.requests, side.runs().await? - runs)?;
    let per_request = |cpu: Duration| cpu.as_secs_f64() * 1e6 / tally.requests.max(1) as f64;
    let cores = std::thread::available_parallelism()?.get() as f64;
    let measured = spent.server + spent.database + spent.client;
    Ok(Turn {
        per_second: tally.per_second(),
        cpu_us: per_request(spent.server + spent.database),
        database_cpu_us: per_request(spent.database),
        client_cpu_us: per_request(spent.client),
        p50_ms: tally.latencies.percentile(50.0).as_secs_f64() * 1000.0,
        p99_ms: tally.latencies.percentile(99.0).as_secs_f64() * 1000.0,
        foreign: spent.all.saturating_sub(measured).as_secs_f64() / (tally.elapsed.as_secs_f64() * cores),
    })
}

/// CPU time read off at one moment.
#[derive(Clone, Copy)]
struct Meter {
    server: Duration,
    database: Duration,
    client: Duration,
    all: Duration,
}

impl Meter {
    fn read(side: &Side) -> Result<Self> {
        Ok(Self {
            server: side.server.pid.cpu_with_children()?,
            database: side.database.map_or(Ok(Duration::ZERO), Pid::cpu_with_children)?,
            client: Pid::this().cpu()?,
            all: machine::busy()?,
        })
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            server: self.server.saturating_sub(earlier.server),
            database: self.database.saturating_sub(earlier.database),
            client: self.client.saturating_sub(earlier.client),
            all: self.all.saturating_sub(earlier.all),
        }
    }
}

impl Turn {
    /// Progress, for who waits.
    pub(crate) fn print(&self, round: u32, name: &str) {
        eprintln!(
            "  {round}  {name:<34} {:>9.0} /s  {:>7.1} µs cpu  p99 {:>7.2} ms  foreign {:>3.0} %",
            self.per_second,
            self.cpu_us,
            self.p99_ms,
            self.foreign * 100.0
        );
    }
}

impl Course {
    /// In one line.
    pub(crate) fn describe(&self) -> String {
        format!(
            "{}: {:.0} requests/s; CPU per request: server {:.1} µs, database {:.1} µs, client {:.1} µs; p50 {:.2} ms, \
             p99 {:.2} ms",
            self.name,
            self.median(|turn| turn.per_second),
            self.median(|turn| turn.cpu_us - turn.database_cpu_us),
            self.median(|turn| turn.database_cpu_us),
            self.median(|turn| turn.client_cpu_us),
            self.median(|turn| turn.p50_ms),
            self.median(|turn| turn.p99_ms),
        )
    }

    /// The middle of one figure over all turns.
    pub(crate) fn median(&self, figure: impl Fn(&Turn) -> f64) -> f64 {
        Ratio::of(self.turns.iter().map(figure)).median
    }

    /// Turn by turn, this course's figure over the other's.
    pub(crate) fn over(&self, other: &Self, figure: impl Fn(&Turn) -> f64) -> Ratio {
        let pairs = self.turns.iter().zip(&other.turns);
        Ratio::of(pairs.map(|(ours, theirs)| figure(ours) / figure(theirs)))
    }

    pub(crate) fn foreign_max(&self) -> f64 {
        self.turns.iter().map(|turn| turn.foreign).fold(0.0, f64::max)
    }
}

impl Ratio {
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let last = values.len().saturating_sub(1);
        Self {
            median: f64::midpoint(at(last / 2), at(last.div_ceil(2))),
            min: at(0),
            max: at(last),
        }
    }

    /// A figure that was taken once.
    pub(crate) fn once(value: f64) -> Self {
        Self::of([value].into_iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_round_does_not_decide() {
        let ratio = Ratio::of([5.1, 0.2, 5.3, 5.2, 5.0].into_iter());
        assert_eq!(
            [ratio.min, ratio.median, ratio.max].map(|value| format!("{value:.1}")),
            ["0.2", "5.1", "5.3"]
        );
    }
}
