//! One round: a fresh queue, a crew, a calendar of days, kills and freezes, and the verdict.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use exactly::StoreError;
use exactly::clock::Timestamp;
use exactly::queue::{Book, InspectQueue, TaskState};
use exactly::scheduler::{Plan, TICK_KIND};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::calendar;
use super::check::{Books, Violation, check};
use super::errand::{self, KINDS};
use super::plan::Role;
use super::{WorkCell, WorkRow, WorkSabotage};
use crate::crew::{Attendance, Blows, CommandLine, CrewKeeper, LOOK, Left, Standstill, all, fates, kept, watch_over};
use crate::failure::{Failure, Result, failed};
use crate::place::{Place, StoreKind};
use crate::process::value_name;
use crate::trial::{Lot, Told, Trial};

/// Everything must be over by then.
const ROUND_MAX: Duration = Duration::from_mins(10);

const KILLS_PER_ROUND: u32 = 45;

/// What came of it.
#[derive(Debug)]
pub(crate) struct WorkOutcome {
    pub(crate) blows: Blows,
    pub(crate) tasks: usize,
    pub(crate) rescues: u64,
    /// The longest that something lay with a dead worker after its lease.
    pub(crate) overdue: Duration,
    pub(crate) violations: Vec<Violation>,
}

/// A round of work.
#[derive(Debug)]
struct WorkRound {
    cell: WorkCell,
    lot: Lot,
}

impl Trial for WorkCell {
    type Outcome = WorkOutcome;
    type Row = WorkRow;

    fn store(self) -> StoreKind {
        self.store
    }

    fn is_control(self) -> bool {
        self.sabotage != WorkSabotage::None
    }

    /// A process alone is killed as often as one of a crew.
    fn kills(self, asked: u32) -> u32 {
        match self.store {
            StoreKind::Postgres => asked,
            StoreKind::Sqlite | StoreKind::Redis => asked.div_ceil(4),
        }
    }

    /// As many as fit into the days of a round.
    fn kills_per_round(self) -> u32 {
        self.kills(KILLS_PER_ROUND)
    }

    fn flags(self) -> String {
        format!("--only work --store {}", self.store.name())
    }

    fn row(self) -> WorkRow {
        WorkRow::new(self)
    }

    async fn run(self, lot: Lot) -> Result<WorkOutcome> {
        let round = WorkRound { cell: self, lot };
        Place::fresh(self.store, &round.lot.url, ROUND_MAX, async |place| {
            round.run_at(place).await
        })
        .await
    }
}

impl Told for WorkOutcome {
    fn summary(&self) -> String {
        let Self {
            blows, tasks, rescues, ..
        } = self;
        let Blows { kills, freezes } = blows;
        format!("{kills} kills, {freezes} freezes, {tasks} tasks, {rescues} rescues")
    }

    fn violations(&self) -> Vec<String> {
        self.violations.iter().map(ToString::to_string).collect()
    }
}

impl WorkRound {
    async fn run_at(&self, place: &Place) -> Result<WorkOutcome> {
        match self.cell.store {
            StoreKind::Sqlite => self.run_on(&place.open_sqlite_queue().await?, place).await,
            StoreKind::Postgres => self.run_on(&place.open_postgres_queue().await?, place).await,
            StoreKind::Redis => Err(Failure::new("Redis keeps no queue")),
        }
    }

    async fn run_on<Q: Book + InspectQueue>(&self, queue: &Q, place: &Place) -> Result<WorkOutcome> {
        let since = queue.calendar().await.map_err(failed("read calendar"))?;
        for plan in errand::plans()? {
            begin(queue, &plan).await.map_err(failed("write schedule"))?;
        }
        let attendance = Arc::new(Attendance::default());
        let left = Mutex::new(Left::default());
        let over = watch::Sender::new(false);
        let resting = watch::Sender::new(0);

        // Dropped on every way out, and with it every process.
        let mut keepers = JoinSet::new();
        let mut rng = self.cell.rng(self.lot.seed, self.lot.number);
        let crew = self.cell.crew();
        for (number, (role, fates)) in crew.iter().zip(fates(crew.len(), self.lot.kills, &mut rng)).enumerate() {
            let keeper = CrewKeeper {
                fates,
                attendance: Arc::clone(&attendance),
                log: place.folder.join(format!("victim-{number}.log")),
                arguments: self.arguments(place, *role, since, rng.u64(..)),
            };
            keepers.spawn(keeper.keep(resting.clone(), over.subscribe()));
        }
        let mut rested = resting.subscribe();
        let ended = async {
            let rested = rested.wait_for(|resting| *resting == crew.len());
            let _ = tokio::join!(sleep(calendar::LASTS), rested);
            done(queue).await
        };
        tokio::select! {
            ended = ended => ended?,
            failed = watch_over(queue, &attendance, &left) => return Err(failed),
            // While there is work, a keeper ends only because something went wrong.
            ended = keepers.join_next() => {
                ended.map(kept).transpose()?;
                return Err(Failure::new("a keeper left early"));
            }
        }
        over.send_replace(true);
        let mut blows = Blows::default();
        while let Some(ended) = keepers.join_next().await {
            blows += kept(ended)?;
        }
        let left = left.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.verdict(queue, place, blows, left).await
    }

    /// The command line of each life of a process.
    fn arguments(&self, place: &Place, role: Role, since: Timestamp, seed: u64) -> CommandLine {
        let (cell, place) = (self.cell, place.clone());
        Box::new(move |life| {
            let mut arguments: Vec<OsString> = vec!["work-victim".into()];
            let mut say = |name: &str, value: &str| arguments.extend([name.into(), value.into()]);
            say("--store", cell.store.name());
            say("--sabotage", &value_name(&cell.sabotage));
            say("--role", &value_name(&role));
            say("--url", &place.url);
            say("--name", &place.name);
            say("--since-ms", &since.as_millis().to_string());
            say("--seed", &seed.wrapping_add(life).to_string());
            arguments.extend(["--folder".into(), place.folder.clone().into()]);
            arguments
        })
    }

    async fn verdict<Q: InspectQueue>(
        &self,
        queue: &Q,
        place: &Place,
        blows: Blows,
        left: Left,
    ) -> Result<WorkOutcome> {
        let mut books = Books {
            expected: errand::expected()?,
            effects: place.effects().await?,
            letters: place.letters().await?.into_iter().collect(),
            occurrences_expected: errand::occurrences()?,
            dead_expected: errand::occurrences_nowhere(),
            stuck: left.stuck,
            ..Books::default()
        };
        let mut rescues = 0;
        for kind in KINDS {
            for task in all(queue, Some(kind), None).await? {
                rescues += u64::from(task.rescues);
                let outcome = task.outcome.as_deref().map(serde_json::from_slice::<String>);
                let outcome = outcome.transpose().map_err(failed("read outcome"))?;
                let outcome = outcome.filter(|_| task.state == TaskState::Done);
                books.outcomes.insert(format!("{kind}:{}", task.key), outcome);
            }
        }
        for tick in all(queue, Some(TICK_KIND), None).await? {
            books.occurrences += 1;
            books.dead += usize::from(tick.state == TaskState::Dead);
        }
        Ok(WorkOutcome {
            blows,
            tasks: books.outcomes.len(),
            rescues,
            overdue: left.overdue,
            violations: check(&books),
        })
    }
}

/// The schedule starts where the calendar does, whoever sees it first.
async fn begin<Q: Book>(queue: &Q, plan: &Plan) -> Result<(), StoreError> {
    let definition = Bytes::from(plan.to_string());
    queue.write_schedule(plan.name(), &definition, None).await?;
    queue.advance_schedule(plan.name(), calendar::begin()).await
}

/// Until every schedule has come to the end of the calendar and nothing waits or runs any more. How long that takes is up to
/// the machine, but something has to be done all the time.
async fn done<Q: Book + InspectQueue>(queue: &Q) -> Result<()> {
    let mut standstill = Standstill::new();
    loop {
        let schedules = queue.schedules().await.map_err(failed("read schedules"))?;
        let at_end = schedules.iter().all(|entry| entry.position == Some(calendar::end()));
        let depths = queue.depths().await.map_err(failed("count tasks"))?;
        let open = depths.iter().filter(|depth| depth.state != TaskState::Dead);
        let open: u64 = open.map(|depth| depth.tasks).sum();
        if at_end && open == 0 {
            return Ok(());
        }
        standstill.look((schedules, open), open)?;
        sleep(LOOK).await;
    }
}
