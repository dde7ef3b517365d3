//! One round: a shop and its partners, the network between them, kills and freezes, and the verdict.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use exactly::queue::{InspectQueue as _, TaskState};
use exactly::webhook::{Endpoint, EndpointId, Endpoints, Secret};
use exactly_sql::PgQueue;
use fastrand::Rng;
use sqlx::AssertSqlSafe;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::check::Violation;
use super::finished::Finished;
use super::network::Network;
use super::plan::{CREW, ENDPOINTS, Role};
use super::report::EventCounts;
use super::verdict::verdict;
use super::{EventCell, EventRow, EventSabotage};
use crate::crew::{Attendance, Blows, CommandLine, CrewKeeper, LOOK, Left, Standstill, fates, kept, watch_over};
use crate::failure::{Failure, Result, failed};
use crate::place::{Place, StoreKind};
use crate::process::value_name;
use crate::round::ports;
use crate::trial::{Lot, Told, Trial};

/// Everything must be over by then.
const ROUND_MAX: Duration = Duration::from_mins(10);

const KILLS_PER_ROUND: u32 = 30;

/// Kills per round of a control.
const CONTROL_KILLS: u32 = 4;

/// What came of it.
#[derive(Debug)]
pub(crate) struct EventOutcome {
    pub(crate) blows: Blows,
    pub(crate) counts: EventCounts,
    pub(crate) violations: Vec<Violation>,
}

/// A round of events.
#[derive(Debug)]
struct EventRound {
    cell: EventCell,
    lot: Lot,
    secret: String,
}

/// Both sides, as the lab sees them.
pub(super) struct Sides<'a> {
    pub(super) shop: &'a Place,
    pub(super) partners: &'a Place,
    /// The queues of both.
    pub(super) outgoing: Arc<PgQueue>,
    incoming: PgQueue,
}

/// All keepers of some processes, and what ends them.
struct Shift {
    keepers: JoinSet<Result<Blows>>,
    over: watch::Sender<bool>,
}

impl Trial for EventCell {
    type Outcome = EventOutcome;
    type Row = EventRow;

    fn store(self) -> StoreKind {
        self.store
    }

    fn is_control(self) -> bool {
        self.sabotage != EventSabotage::None
    }

    /// Two thirds of what a queue gets: a third of the crew only publishes.
    fn kills(self, asked: u32) -> u32 {
        (asked.saturating_mul(2)).div_ceil(3)
    }

    fn kills_per_round(self) -> u32 {
        match self.sabotage {
            EventSabotage::None => KILLS_PER_ROUND,
            // Somebody who sends has to be frozen.
            EventSabotage::NoFence => 3 * CONTROL_KILLS,
            EventSabotage::NoNote | EventSabotage::LooseEvent | EventSabotage::NoHistory => CONTROL_KILLS,
        }
    }

    fn flags(self) -> String {
        "--only events".to_owned()
    }

    fn row(self) -> EventRow {
        EventRow::new(self)
    }

    async fn run(self, lot: Lot) -> Result<EventOutcome> {
        let secret = Secret::random().expose();
        let round = EventRound {
            cell: self,
            lot,
            secret,
        };
        let url = round.lot.url.as_str();
        Place::fresh(self.store, url, ROUND_MAX, async |shop| {
            Place::fresh(self.store, url, ROUND_MAX, async |partners| {
                round.run_at(shop, partners).await
            })
            .await
        })
        .await
    }
}

impl Told for EventOutcome {
    fn summary(&self) -> String {
        let Self { blows, counts, .. } = self;
        let Blows { kills, freezes } = blows;
        let EventCounts {
            committed,
            undone,
            posts,
            harmed,
            rescues,
            ..
        } = counts;
        format!(
            "{kills} kills, {freezes} freezes, {committed} events, {undone} undone, {posts} requests, {harmed} harmed, \
             {rescues} rescues"
        )
    }

    fn violations(&self) -> Vec<String> {
        self.violations.iter().map(ToString::to_string).collect()
    }
}

impl EventRound {
    async fn run_at(&self, shop: &Place, partners: &Place) -> Result<EventOutcome> {
        let sides = Sides {
            shop,
            partners,
            outgoing: Arc::new(shop.open_postgres_queue().await?),
            incoming: partners.open_postgres_queue().await?,
        };
        let mut rng = self.cell.rng(self.lot.seed, self.lot.number);
        let ports = ports::<{ CREW.len() }>()?;
        let consumers = ports.iter().zip(CREW).filter(|(_, role)| *role == Role::Consumer);
        let consumers = consumers.map(|(port, _)| *port).collect();
        let network = Network::start(consumers, rng.fork()).await?;
        self.sabotage(&sides).await?;
        self.sign_up(&sides, network.port).await?;

        let attendance = Arc::new(Attendance::default());
        let resting = watch::Sender::new(0);
        // Dropped on every way out, and with them every process.
        let (mut producers, mut others) = self.start(&sides, ports, &attendance, &resting, &mut rng);
        let (left, finished) = (Mutex::new(Left::default()), Finished::default());
        let looking = async {
            tokio::select! {
                failure = watch_over(&*sides.outgoing, &attendance, &left) => failure,
                failure = finished.watch(&sides.outgoing) => failure,
            }
        };
        let mut rested = resting.subscribe();
        let working = async {
            tokio::select! {
                _ = rested.wait_for(|resting| *resting == CREW.len()) => {}
                failure = producers.lost_one() => return Err(failure),
                failure = others.lost_one() => return Err(failure),
            }
            network.calm_down();
            let mut blows = producers.end().await?;
            tokio::select! {
                delivered = delivered(&sides) => delivered?,
                failure = others.lost_one() => return Err(failure),
            }
            blows += others.end().await?;
            Ok(blows)
        };
        let blows = tokio::select! {
            worked = working => worked?,
            failure = looking => return Err(failure),
        };
        finished.look(&sides.outgoing).await?;
        let left = left.into_inner().unwrap_or_else(PoisonError::into_inner);
        verdict(&sides, blows, &network, left, finished).await
    }

    /// Starts everybody: those that publish, and those that deliver.
    fn start(
        &self,
        sides: &Sides<'_>,
        ports: [u16; CREW.len()],
        attendance: &Arc<Attendance>,
        resting: &watch::Sender<usize>,
        rng: &mut Rng,
    ) -> (Shift, Shift) {
        let (mut producers, mut others) = (Shift::new(), Shift::new());
        let fates = fates(CREW.len(), self.lot.kills, rng);
        for ((role, fates), port) in CREW.into_iter().zip(fates).zip(ports) {
            let keeper = CrewKeeper {
                fates,
                attendance: Arc::clone(attendance),
                log: sides.shop.folder.join(format!("victim-{port}.log")),
                arguments: self.arguments(sides, role, port),
            };
            let shift = match role {
                Role::Producer => &mut producers,
                Role::Dispatcher | Role::Consumer => &mut others,
            };
            let over = shift.over.subscribe();
            shift.keepers.spawn(keeper.keep(resting.clone(), over));
        }
        (producers, others)
    }

    async fn sign_up(&self, sides: &Sides<'_>, port: u16) -> Result<()> {
        let endpoints = Endpoints::new(Arc::clone(&sides.outgoing));
        for name in ENDPOINTS {
            let id = EndpointId::new(name).map_err(failed("name endpoint"))?;
            let url = format!("http://partner.test:{port}/{name}");
            let endpoint = Endpoint::new(id, url, self.secret.as_str());
            endpoints.add(&endpoint).await.map_err(failed("add endpoint"))?;
        }
        Ok(())
    }

    /// Takes away what the lab itself can.
    async fn sabotage(&self, sides: &Sides<'_>) -> Result<()> {
        if self.cell.sabotage != EventSabotage::NoHistory {
            return Ok(());
        }
        let schema = &sides.shop.name;
        let forget = format!(
            "create function {schema}.forget() returns trigger language plpgsql as 'begin return null; end';
             create trigger forget before insert on {schema}.tasks_attempts
             for each row when (new.fence % 3 = 1) execute function {schema}.forget()"
        );
        let forget = sqlx::raw_sql(AssertSqlSafe(forget));
        let forgotten = forget.execute(sides.outgoing.pool()).await;
        forgotten.map(drop).map_err(failed("sabotage history"))
    }

    /// The command line of each life of a process.
    fn arguments(&self, sides: &Sides<'_>, role: Role, port: u16) -> CommandLine {
        let place = if role == Role::Consumer {
            sides.partners
        } else {
            sides.shop
        };
        let (sabotage, place, secret) = (self.cell.sabotage, place.clone(), self.secret.clone());
        Box::new(move |_| {
            let mut arguments: Vec<OsString> = vec!["event-victim".into()];
            let mut say = |name: &str, value: &str| arguments.extend([name.into(), value.into()]);
            say("--sabotage", &value_name(&sabotage));
            say("--role", &value_name(&role));
            say("--url", &place.url);
            say("--name", &place.name);
            say("--port", &port.to_string());
            say("--secret", &secret);
            arguments.extend(["--folder".into(), place.folder.clone().into()]);
            arguments
        })
    }
}

impl Shift {
    fn new() -> Self {
        Self {
            keepers: JoinSet::new(),
            over: watch::Sender::new(false),
        }
    }

    /// While there is work, a keeper ends only because something went wrong.
    async fn lost_one(&mut self) -> Failure {
        match self.keepers.join_next().await.map(kept).transpose() {
            Ok(_) => Failure::new("a keeper left early"),
            Err(failure) => failure,
        }
    }

    async fn end(&mut self) -> Result<Blows> {
        self.over.send_replace(true);
        let mut blows = Blows::default();
        while let Some(ended) = self.keepers.join_next().await {
            blows += kept(ended)?;
        }
        Ok(blows)
    }
}

/// Until nothing waits or runs on either side.
async fn delivered(sides: &Sides<'_>) -> Result<()> {
    let mut standstill = Standstill::new();
    loop {
        let mut depths = sides.outgoing.depths().await.map_err(failed("count tasks"))?;
        depths.extend(sides.incoming.depths().await.map_err(failed("count tasks"))?);
        let open = depths.iter().filter(|depth| depth.state != TaskState::Dead);
        let open: u64 = open.map(|depth| depth.tasks).sum();
        if open == 0 {
            return Ok(());
        }
        standstill.look(open, open)?;
        sleep(LOOK).await;
    }
}
