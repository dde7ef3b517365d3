//! The command line.

use clap::{Parser, Subcommand, ValueEnum};

use crate::events::{EventCell, EventVictimArguments};
use crate::failure::{Failure, Result};
use crate::history::Guarantee;
use crate::place::StoreKind;
use crate::plan::Cell;
use crate::victim::VictimArguments;
use crate::work::{WorkCell, WorkVictimArguments};

/// Kills per store and guarantee, and per queue. With five of the former, the gate's 200 and some to spare.
const KILLS_DEFAULT: u32 = 45;

/// Kills real servers, workers, producers and consumers under load and checks that no effect is lost and none happens twice.
///
/// Without arguments: every durable store under every guarantee that it gives, every queue, events from one service to
/// another, then the controls, in which the protection is taken away and which must turn red.
#[derive(Debug, Parser)]
#[command(
    name = "exactly-crash",
    after_help = "Exit code: 0 green, 1 red, 2 the lab itself failed."
)]
pub struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// Only this part
    #[arg(long, value_enum)]
    pub(crate) only: Option<Part>,

    /// Only this store
    #[arg(long, value_enum)]
    pub(crate) store: Option<StoreKind>,

    /// Only this guarantee
    #[arg(long, value_enum)]
    pub(crate) guarantee: Option<Guarantee>,

    /// Kills per store and guarantee, and per queue
    #[arg(long, default_value_t = KILLS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) kills: u32,

    /// Draws who is killed when, and what customers do; random unless given
    #[arg(long)]
    pub(crate) seed: Option<u64>,

    /// Only the controls
    #[arg(long)]
    pub(crate) control: bool,

    /// The result as JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,

    /// The PostgreSQL server to put records on
    #[arg(long, env = "EXACTLY_TEST_POSTGRES_URL", hide_env_values = true)]
    postgres_url: Option<String>,

    /// The Redis server to put records on
    #[arg(long, env = "EXACTLY_TEST_REDIS_URL", hide_env_values = true)]
    redis_url: Option<String>,
}

/// What the lab is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Requests with keys, and the servers that answer them.
    Calls,
    /// Schedules and jobs, and the processes that run them.
    Work,
    /// Events, and the processes that publish, send and apply them.
    Events,
}

/// What is to be put through rounds.
#[derive(Debug)]
pub(crate) struct Cells {
    pub(crate) calls: Vec<Cell>,
    pub(crate) work: Vec<WorkCell>,
    pub(crate) events: Vec<EventCell>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The server that is killed
    #[command(hide = true)]
    Victim(VictimArguments),

    /// The scheduler or worker that is killed
    #[command(hide = true)]
    WorkVictim(WorkVictimArguments),

    /// The producer, dispatcher or consumer that is killed
    #[command(hide = true)]
    EventVictim(EventVictimArguments),
}

impl Arguments {
    /// What was asked for, or why there is no such thing.
    pub(crate) fn cells(&self) -> Result<Cells> {
        let is_asked_for = |part| self.only.is_none_or(|only| only == part);
        let is_on = |store| self.store.is_none_or(|only| only == store);
        // A guarantee is what calls have.
        let whatever = self.guarantee.is_none();
        let calls = Cell::all()
            .filter(|cell| is_asked_for(Part::Calls) && is_on(cell.store))
            .filter(|cell| self.guarantee.is_none_or(|guarantee| guarantee == cell.guarantee));
        let work = WorkCell::all().filter(|cell| is_asked_for(Part::Work) && whatever && is_on(cell.store));
        let events = EventCell::all().filter(|cell| is_asked_for(Part::Events) && whatever && is_on(cell.store));
        let asked = Cells {
            calls: calls.collect(),
            work: work.collect(),
            events: events.collect(),
        };
        let stores = asked.calls.iter().map(|cell| cell.store);
        let stores = stores.chain(asked.work.iter().map(|cell| cell.store));
        let stores: Vec<_> = stores.chain(asked.events.iter().map(|cell| cell.store)).collect();
        if stores.is_empty() {
            return Err(Failure::new(
                "there is no such thing: redis has no transactions and keeps no queue, a guarantee is for calls, and \
                 events are on postgres; --store redis goes with --guarantee at-most-once",
            ));
        }
        // Asked for here, so that a missing server is not noticed minutes later.
        for store in stores {
            self.url(store)?;
        }
        Ok(asked)
    }

    /// The address of a store's server; empty for a file.
    pub(crate) fn url(&self, store: StoreKind) -> Result<String> {
        let (url, name) = match store {
            StoreKind::Sqlite => return Ok(String::new()),
            StoreKind::Postgres => (&self.postgres_url, "EXACTLY_TEST_POSTGRES_URL"),
            StoreKind::Redis => (&self.redis_url, "EXACTLY_TEST_REDIS_URL"),
        };
        url.clone().filter(|url| !url.is_empty()).ok_or_else(|| {
            let store = store.name();
            Failure::new(format!(
                "{name} is not set: run `cargo xtask crash`, which starts a {store} server, or choose another --store"
            ))
        })
    }
}
