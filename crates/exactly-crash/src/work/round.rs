//! One round: a fresh queue, a crew, a calendar of days, kills and freezes, and the verdict.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use exactly::StoreError;
use exactly::queue::{Book, InspectQueue, TaskFilter, TaskPage, TaskState, TaskView};
use exactly::scheduler::{Plan, TICK_KIND};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::attendance::Attendance;
use super::calendar;
use super::check::{Books, Violation, check};
use super::errand::{self, KINDS};
use super::keeper::{Blows, WorkKeeper};
use super::plan::fates;
use super::victim::{LEASE, SWEEP};
use super::{WorkCell, WorkRow, WorkSabotage};
use crate::failure::{Failure, Result, failed};
use crate::place::{Place, StoreKind};
use crate::trial::{Lot, Told, Trial};

/// Everything must be over by then.
const ROUND_MAX: Duration = Duration::from_mins(10);

/// How long nothing may come to its end once the calendar has ended and nobody is killed any more.
const STANDSTILL_MAX: Duration = Duration::from_mins(1);

/// How often somebody looks for what is stuck.
const LOOK: Duration = Duration::from_millis(100);

/// What a sweep may be late on a machine with more processes than cores: its time is drawn up to a fifth longer, and its
/// statement has to run.
const GRACE: Duration = Duration::from_secs(3);

const KILLS_PER_ROUND: u32 = 45;

const PAGE: u32 = 1000;

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

/// What lies with the dead: the longest of it, and what lay too long.
#[derive(Debug, Default)]
struct Left {
    overdue: Duration,
    stuck: BTreeMap<String, Duration>,
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
            let keeper = WorkKeeper {
                cell: self.cell,
                place: place.clone(),
                role: *role,
                number,
                fates,
                attendance: Arc::clone(&attendance),
                since_ms: since.as_millis(),
                seed: rng.u64(..),
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
    let mut last = (Vec::new(), u64::MAX);
    let mut deadline = Instant::now() + STANDSTILL_MAX;
    loop {
        let schedules = queue.schedules().await.map_err(failed("read schedules"))?;
        let at_end = schedules.iter().all(|entry| entry.position == Some(calendar::end()));
        let depths = queue.depths().await.map_err(failed("count tasks"))?;
        let open = depths.iter().filter(|depth| depth.state != TaskState::Dead);
        let open: u64 = open.map(|depth| depth.tasks).sum();
        if at_end && open == 0 {
            return Ok(());
        }
        let seen = (schedules, open);
        if seen != last {
            (last, deadline) = (seen, Instant::now() + STANDSTILL_MAX);
        }
        if Instant::now() > deadline {
            return Err(Failure::new(format!(
                "{open} tasks are not done, and none was within {STANDSTILL_MAX:?} of the last kill or the last one done"
            )));
        }
        sleep(LOOK).await;
    }
}

/// Looks for what the dead still hold. Ends only if it cannot look.
async fn watch_over<Q: InspectQueue>(queue: &Q, attendance: &Attendance, left: &Mutex<Left>) -> Failure {
    loop {
        let running = match all(queue, None, Some(TaskState::Running)).await {
            Ok(running) => running,
            Err(failure) => return failure,
        };
        for task in running {
            let Some(worker) = task.worker else { continue };
            let overdue = attendance.overdue(&worker.to_string(), LEASE);
            let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
            left.overdue = left.overdue.max(overdue);
            if overdue > SWEEP + GRACE {
                left.stuck.insert(format!("{}:{}", task.kind, task.key), overdue);
            }
        }
        sleep(LOOK).await;
    }
}

/// All tasks of a kind, in a state.
async fn all<Q: InspectQueue>(queue: &Q, kind: Option<&str>, state: Option<TaskState>) -> Result<Vec<TaskView>> {
    let filter = TaskFilter {
        state,
        kind: kind.map(str::to_owned),
        ..TaskFilter::default()
    };
    let mut tasks: Vec<TaskView> = Vec::new();
    loop {
        let after = tasks.last().map(|task| task.id);
        let page = queue.list(&filter, TaskPage { after, limit: PAGE }).await;
        let mut page = page.map_err(failed("list tasks"))?;
        let last = page.len() < usize::try_from(PAGE).unwrap_or(usize::MAX);
        tasks.append(&mut page);
        if last {
            return Ok(tasks);
        }
    }
}

fn kept(ended: Result<Result<Blows>, tokio::task::JoinError>) -> Result<Blows> {
    ended.map_err(failed("keep a process"))?
}
