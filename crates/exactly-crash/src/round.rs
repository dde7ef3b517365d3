//! One round: fresh records, two victims, customers, kills, and the verdict.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::check::{Fault, Findings, check};
use crate::customer::{Customer, ask_for_last_words};
use crate::failure::{Failure, Result, failed};
use crate::history::Guarantee;
use crate::keeper::{Keeper, Kills, Watchhouse};
use crate::operator::Operator;
use crate::place::{Place, StoreKind};
use crate::plan::{Cell, KILLS_PER_ROUND, lives};
use crate::register::Register;
use crate::report::Row;
use crate::sabotaged::Sabotage;
use crate::trial::{Lot, Told, Trial};
use crate::victim::LEASE;

/// Two, so that one takes over what the other left behind, and both can be asked at once.
const VICTIMS: usize = 2;

const CUSTOMERS: usize = 16;

/// Everything must be over by then.
const ROUND_MAX: Duration = Duration::from_mins(3);

/// How long all keys together may take to get their last word.
const LAST_WORDS_MAX: Duration = Duration::from_mins(1);

/// Kills per round of a control.
const CONTROL_KILLS: u32 = 8;

/// How often the operator looks for doubts.
const OPERATOR_EVERY: Duration = Duration::from_millis(100);

/// Below the ports that systems give to outgoing connections: a victim's port must not be taken while it is dead.
const PORTS: std::ops::Range<u16> = 20_000..30_000;
const PORTS_TRIED: u32 = 200;

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) kills: Kills,
    pub(crate) findings: Findings,
}

/// A round of calls.
#[derive(Debug)]
struct Round {
    cell: Cell,
    lot: Lot,
}

impl Trial for Cell {
    type Outcome = Outcome;
    type Row = Row;

    fn store(self) -> StoreKind {
        self.store
    }

    fn is_control(self) -> bool {
        self.sabotage != Sabotage::None
    }

    fn kills(self, asked: u32) -> u32 {
        asked
    }

    fn kills_per_round(self) -> u32 {
        if self.is_control() {
            CONTROL_KILLS
        } else {
            KILLS_PER_ROUND
        }
    }

    fn flags(self) -> String {
        let (store, guarantee) = (self.store.name(), self.guarantee.name());
        format!("--only calls --store {store} --guarantee {guarantee}")
    }

    fn row(self) -> Row {
        Row::new(self)
    }

    async fn run(self, lot: Lot) -> Result<Outcome> {
        let round = Round { cell: self, lot };
        Place::fresh(self.store, &round.lot.url, ROUND_MAX, async |place| {
            round.run_at(place).await
        })
        .await
    }
}

impl Told for Outcome {
    fn summary(&self) -> String {
        let Self { kills, findings } = self;
        let counts = findings.counts;
        format!(
            "{} kills ({} at points), {} keys, {} requests, {} effects, {} duplicates, {} in doubt",
            kills.total(),
            kills.named,
            counts.keys,
            counts.requests,
            counts.effects,
            counts.duplicates,
            counts.in_doubt,
        )
    }

    fn violations(&self) -> Vec<String> {
        let mut violations: Vec<_> = self.findings.violations.iter().collect();
        // What happened twice or got lost tells more than its consequences.
        violations.sort_by_key(|violation| !matches!(violation.fault, Fault::Duplicate(_) | Fault::Lost));
        violations.iter().map(ToString::to_string).collect()
    }
}

impl Round {
    async fn run_at(&self, place: &Place) -> Result<Outcome> {
        let mut rng = self.cell.rng(self.lot.seed, self.lot.number);
        let ports = ports::<VICTIMS>()?;
        let lives = lives(self.cell.guarantee, self.lot.number, self.lot.kills, &mut rng);
        let house = Arc::new(Watchhouse::new(lives));
        let register = Arc::new(Register::default());

        // Dropped on every way out, and with it every task and every victim.
        let mut keepers = JoinSet::new();
        for port in &ports {
            let keeper = Keeper {
                cell: self.cell,
                place: place.clone(),
                port: *port,
                house: Arc::clone(&house),
            };
            keepers.spawn(keeper.keep());
        }
        let mut kills = Kills::default();
        let mut operator = Operator::new(place.clone(), Arc::clone(&register), &ports, rng.fork());
        tokio::select! {
            worked = self.work(&house, &register, &ports, &mut operator, &mut rng) => worked?,
            // While there is work, a keeper ends only because something went wrong.
            ended = keepers.join_next() => {
                keeper_ended(ended)?;
                return Err(Failure::new("a keeper left early"));
            }
        }
        house.close();
        while let Some(ended) = keepers.join_next().await {
            kills += keeper_ended(Some(ended))?;
        }
        let ledger = place.ledger(self.cell.guarantee).await?;
        let findings = check(self.cell.guarantee, &register.history(), &ledger);
        Ok(Outcome { kills, findings })
    }

    async fn work(
        &self,
        house: &Watchhouse,
        register: &Arc<Register>,
        ports: &[u16],
        operator: &mut Operator,
        rng: &mut Rng,
    ) -> Result<()> {
        let over = watch::Sender::new(false);
        let mut customers = JoinSet::new();
        for number in 0..CUSTOMERS {
            let name = format!("r{}-c{number:02}", self.lot.number);
            let customer = Customer::new(name, Arc::clone(register), ports, rng.fork());
            customers.spawn(customer.shop(over.subscribe()));
        }
        tokio::select! {
            () = house.quiet(VICTIMS) => {}
            failed = self.operate(operator) => return failed,
        }
        over.send_replace(true);
        while customers.join_next().await.is_some() {}

        // The leases of the dead end, and what the living have begun does too.
        sleep(LEASE).await;
        ask_for_last_words(register, ports, register.wishes(), CUSTOMERS, LAST_WORDS_MAX).await;
        if self.cell.guarantee == Guarantee::AtMostOnce {
            let doubts = register.doubts();
            operator.settle_everything().await?;
            let mut orders = register.wishes();
            orders.retain(|(key, _)| doubts.contains_key(key));
            ask_for_last_words(register, ports, orders, CUSTOMERS, LAST_WORDS_MAX).await;
        }
        Ok(())
    }

    /// Settles doubts while victims die and others lie frozen, whose late words must not change what was settled.
    async fn operate(&self, operator: &mut Operator) -> Result<()> {
        if self.cell.guarantee == Guarantee::Transactional {
            return std::future::pending().await;
        }
        loop {
            sleep(OPERATOR_EVERY).await;
            operator.settle_what_happened().await?;
        }
    }
}

fn keeper_ended(ended: Option<Result<Result<Kills>, tokio::task::JoinError>>) -> Result<Kills> {
    match ended {
        Some(Ok(kept)) => kept,
        Some(Err(error)) => Err(failed("keep a victim")(error)),
        None => Err(Failure::new("there is no keeper")),
    }
}

/// Ports that nobody listens on, and that no outgoing connection will take.
pub(crate) fn ports<const COUNT: usize>() -> Result<[u16; COUNT]> {
    let mut ports = [0; COUNT];
    let mut found = 0;
    for _ in 0..PORTS_TRIED {
        let port = fastrand::u16(PORTS);
        if ports.contains(&port) || TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err() {
            continue;
        }
        ports[found] = port;
        found += 1;
        if found == COUNT {
            return Ok(ports);
        }
    }
    Err(Failure::new(format!("find a free port: none in {PORTS_TRIED} tries")))
}
