//! Schedules become tasks, once each.

mod almanac;
mod beside;
mod calendars;
mod changes;
mod counted;
mod fan_outs;
mod zones;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use exactly::clock::{ManualClock, Timestamp};
use exactly::queue::{
    Ask, Book as _, End, Enqueued, InspectQueue as _, Leased, MemoryQueue, Queue as _, Settlement, Task, TaskFilter,
    TaskPage, TaskState, TaskView, WorkerId,
};
use exactly::schedule::{Pattern, Zone};
use exactly::scheduler::{
    Audience, FAN_OUT_KIND, Only, Plan, Plans, Scheduler, Shard, Subjects, TICK_KIND, Tick, Ticks,
};
use exactly::store::Reply;
use exactly::worker::{Handler as _, Ran};
use exactly::{StoreError, StoreErrorKind};

use self::almanac::Almanac;

const OFFERS: &str = "offers";
const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

struct Town {
    clock: Arc<ManualClock>,
    queue: Arc<Almanac>,
    plans: Arc<Changing>,
}

/// Plans that a test changes.
#[derive(Debug, Default)]
struct Changing(Mutex<Vec<Plan>>);

impl Plans for Changing {
    fn plans(&self) -> Reply<'_, Vec<Plan>> {
        Box::pin(async { Ok(self.0.lock().unwrap().clone()) })
    }
}

impl Town {
    fn at(instant: &str, plans: Vec<Plan>) -> Self {
        let at: jiff::Timestamp = instant.parse().unwrap();
        let now = Timestamp::from_millis(at.as_millisecond().try_into().unwrap());
        let clock = Arc::new(ManualClock::at(now));
        Self {
            queue: Arc::new(Almanac::new(MemoryQueue::with_clock(Arc::clone(&clock)))),
            clock,
            plans: Arc::new(Changing(Mutex::new(plans))),
        }
    }

    fn scheduler(&self) -> Scheduler<Almanac> {
        Scheduler::new(Arc::clone(&self.queue), Arc::clone(&self.plans) as Arc<dyn Plans>)
    }

    fn change(&self, plans: Vec<Plan>) {
        *self.plans.0.lock().unwrap() = plans;
    }

    /// Time passes in small steps, as it does while a scheduler and a worker are there.
    async fn live(&self, time: Duration, step: Duration) {
        let scheduler = self.scheduler();
        let mut lived = Duration::ZERO;
        while lived < time {
            self.clock.advance(step);
            lived += step;
            assert_eq!(scheduler.pass().await.unwrap().failed, 0);
            self.work(&scheduler.ticks_handler()).await;
        }
    }

    /// Does what is due of a scheduler's own tasks.
    async fn work(&self, ticks: &Ticks<Almanac>) {
        loop {
            let leased = self.lease().await;
            if leased.is_empty() {
                return;
            }
            for task in leased {
                self.settle(&task, run(ticks, &task).await).await;
            }
        }
    }

    /// Ticks and chunks that are due.
    async fn lease(&self) -> Vec<Leased> {
        let lanes = exactly::queue::Lanes::Only(
            ["daily", "other", "bad", "often"]
                .map(|name| exactly::queue::Lane::new(format!("exactly.schedule.{name}")).unwrap())
                .to_vec(),
        );
        let ask = Ask::new(WorkerId::random(), 100).from_lanes(lanes);
        self.queue.lease(&ask).await.unwrap()
    }

    async fn settle(&self, task: &Leased, end: End) {
        let settled = self.queue.settle(&[Settlement::new(task.lease, end)]).await.unwrap();
        assert_eq!(settled, [exactly::Fenced::Applied]);
    }

    async fn tasks(&self, kind: &str) -> Vec<TaskView> {
        let filter = TaskFilter {
            kind: Some(kind.to_owned()),
            ..TaskFilter::default()
        };
        let page = TaskPage {
            after: None,
            limit: u32::MAX,
        };
        self.queue.queue.list(&filter, page).await.unwrap()
    }

    async fn keys(&self, kind: &str) -> BTreeSet<String> {
        self.tasks(kind).await.into_iter().map(|task| task.key.into()).collect()
    }

    /// What the rows of all occurrences say, by key.
    async fn rows(&self) -> BTreeMap<String, String> {
        let rows = self.tasks(TICK_KIND).await.into_iter().map(|tick| {
            let said = match tick.outcome {
                Some(outcome) => {
                    let outcome: serde_json::Value = serde_json::from_slice(&outcome).unwrap();
                    outcome["ended"].as_str().unwrap().to_owned()
                }
                None => tick.state.to_string(),
            };
            (tick.key.into(), said)
        });
        rows.collect()
    }
}

async fn run(ticks: &Ticks<Almanac>, task: &Leased) -> End {
    match ticks.run(task).await {
        Ran::End(end) => end,
        other => panic!("{other:?} is no end"),
    }
}

fn offer(tick: &Tick, subject: &str) -> Result<Task, exactly::queue::InvalidTask> {
    Task::new(OFFERS, tick.key(subject), tick.zone.clone())
}

fn people(people: &[(&str, &str)]) -> Subjects {
    let people = people.iter().map(|(id, zone)| ((*id).to_owned(), (*zone).to_owned()));
    Subjects::new(people.collect::<Vec<_>>(), offer)
}

fn plan(name: &str, pattern: &str, audience: impl Audience) -> Plan {
    Plan::new(name, pattern.parse::<Pattern>().unwrap(), audience).unwrap()
}

fn keys(keys: &[&str]) -> BTreeSet<String> {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

/// Everybody's nine o'clock, around the world and around the clocks' changes.
#[tokio::test]
async fn every_subject_has_one_task_per_local_date() {
    let zones = [
        "Asia/Kathmandu",
        "America/New_York",
        "Pacific/Apia",
        "Europe/London",
        "Australia/Lord_Howe",
    ];
    let subjects: Vec<_> = zones.iter().map(|zone| (*zone, *zone)).collect();
    // The clocks of New York go forward on the 14th.
    let town = Town::at(
        "2027-03-12T00:00:00Z",
        vec![plan("daily", "daily 02:30", people(&subjects))],
    );
    town.live(4 * DAY, 10 * MINUTE).await;
    let made = town.keys(OFFERS).await;
    for zone in zones {
        let zone: Zone = zone.parse().unwrap();
        let from = "2027-03-12T00:00:00Z".parse().unwrap();
        let until: jiff::Timestamp = "2027-03-16T00:01:00Z".parse().unwrap();
        let pattern: Pattern = "daily 02:30".parse().unwrap();
        let due = pattern
            .after(&zone, from)
            .take_while(|occurrence| occurrence.instant <= until);
        let due: Vec<String> = due.map(|due| format!("{}:{}", due.local_date, zone.name())).collect();
        assert_eq!(due.len(), 4, "{due:?}");
        for key in &due {
            assert!(made.contains(key), "{key} is not among {made:?}");
        }
    }
    assert_eq!(made.len(), 4 * zones.len());
    let rows = town.rows().await;
    assert_eq!(rows["daily:America/New_York:2027-03-14T07:00:00Z"], "shifted");
    assert_eq!(rows["daily:America/New_York:2027-03-15T06:30:00Z"], "fired");
}

/// Pitfall: two schedulers fire the same tick, and a restart fires it again.
#[tokio::test]
async fn two_schedulers_make_a_tick_once() {
    let town = Town::at(
        "2027-06-01T08:59:30Z",
        vec![plan("daily", "daily 09:00", people(&[("ada", "UTC")]))],
    );
    let (one, other) = (town.scheduler(), town.scheduler());
    let made = one.pass().await.unwrap().ticks + other.pass().await.unwrap().ticks + one.pass().await.unwrap().ticks;
    assert_eq!(made, 1);
    town.clock.advance(MINUTE);
    let made = town.scheduler().pass().await.unwrap().ticks;
    assert_eq!(made, 0);
    town.work(&other.ticks_handler()).await;
    assert_eq!(town.keys(OFFERS).await, keys(&["2027-06-01:ada"]));
}

/// A tick is made ahead of its time, and nothing happens before it.
#[tokio::test]
async fn nothing_fires_before_its_time() {
    let town = Town::at(
        "2027-06-01T08:59:30Z",
        vec![plan("daily", "daily 09:00", people(&[("ada", "UTC")]))],
    );
    let scheduler = town.scheduler();
    assert_eq!(scheduler.pass().await.unwrap().ticks, 1);
    town.clock.advance(Duration::from_millis(29_999));
    town.work(&scheduler.ticks_handler()).await;
    assert_eq!(town.keys(OFFERS).await, keys(&[]));
    town.clock.advance(Duration::from_millis(1));
    town.work(&scheduler.ticks_handler()).await;
    assert_eq!(town.keys(OFFERS).await, keys(&["2027-06-01:ada"]));
}

/// Pitfall: a deploy at the minute skips it. Within the bound it is made up for, beyond it its row says that it was missed.
#[tokio::test]
async fn what_passed_unseen_is_caught_up_within_the_bound() {
    let daily = plan("daily", "daily 09:00", people(&[("ada", "UTC")]));
    let town = Town::at("2027-06-01T08:00:00Z", vec![daily.catching_up(36 * HOUR).unwrap()]);
    town.live(MINUTE, MINUTE).await;
    // Nobody is there for three days.
    town.clock.advance(3 * DAY + 2 * HOUR);
    town.live(MINUTE, MINUTE).await;
    let rows = town.rows().await;
    assert_eq!(rows["daily:Etc/UTC:2027-06-01T09:00:00Z:missed"], "missed");
    assert_eq!(rows["daily:Etc/UTC:2027-06-02T09:00:00Z:missed"], "missed");
    assert_eq!(rows["daily:Etc/UTC:2027-06-03T09:00:00Z"], "caught_up");
    assert_eq!(rows["daily:Etc/UTC:2027-06-04T09:00:00Z"], "caught_up");
    assert_eq!(town.keys(OFFERS).await, keys(&["2027-06-03:ada", "2027-06-04:ada"]));
    town.live(2 * HOUR, 10 * MINUTE).await;
    assert_eq!(town.rows().await.len(), 4);
}

/// What was due before a schedule was there is not made up for.
#[tokio::test]
async fn a_new_schedule_starts_now() {
    let town = Town::at(
        "2027-06-01T09:30:00Z",
        vec![plan("daily", "daily 09:00", people(&[("ada", "UTC")]))],
    );
    town.live(HOUR, 10 * MINUTE).await;
    assert_eq!(town.rows().await, BTreeMap::new());
}

/// Pitfall: the subject changes its zone and gets two offers on one date.
#[tokio::test]
async fn a_subject_that_moves_west_gets_no_second_task() {
    let before = plan("daily", "daily 09:00", people(&[("ada", "Asia/Tokyo")]));
    let town = Town::at("2027-06-01T00:00:00Z", vec![before]);
    town.live(HOUR, 10 * MINUTE).await;
    assert_eq!(
        town.keys(OFFERS).await,
        keys(&[]),
        "tokyo's nine o'clock is midnight, and was before"
    );
    town.live(DAY, 10 * MINUTE).await;
    assert_eq!(town.keys(OFFERS).await, keys(&["2027-06-02:ada"]));
    town.change(vec![plan(
        "daily",
        "daily 09:00",
        people(&[("ada", "America/New_York")]),
    )]);
    town.live(12 * HOUR, 10 * MINUTE).await;
    assert_eq!(
        town.rows().await["daily:America/New_York:2027-06-02T13:00:00Z"],
        "deduplicated"
    );
    assert_eq!(town.keys(OFFERS).await, keys(&["2027-06-02:ada"]));
}

/// … or none: where it has moved to, the hour has passed.
#[tokio::test]
async fn a_subject_that_moves_east_is_admitted() {
    let before = plan("daily", "daily 09:00", people(&[("ada", "America/New_York")]));
    let after = plan("daily", "daily 09:00", people(&[("ada", "Asia/Tokyo")]));
    let town = Town::at("2027-06-02T02:00:00Z", vec![before]);
    town.live(HOUR, 10 * MINUTE).await;
    town.change(vec![after.clone()]);
    let tokyo = "Asia/Tokyo".parse().unwrap();
    let admitted = town.scheduler().admit(&after, "ada", &tokyo).await.unwrap();
    assert!(admitted.is_some_and(|admitted| admitted.is_new()));
    town.live(20 * HOUR, 10 * MINUTE).await;
    assert_eq!(town.keys(OFFERS).await, keys(&["2027-06-02:ada"]));
    let again = town.scheduler().admit(&after, "ada", &tokyo).await.unwrap();
    assert!(matches!(again, Some(Enqueued::Found(_))), "{again:?}");
}

/// A zone that nobody knows is buried by itself, and names of one zone are one zone.
#[tokio::test]
async fn an_unknown_zone_is_buried_alone() {
    let subjects = people(&[
        ("ada", "US/Eastern"),
        ("bob", "Mars/Olympus"),
        ("cy", "America/New_York"),
    ]);
    let town = Town::at("2027-06-01T12:00:00Z", vec![plan("daily", "daily 09:00", subjects)]);
    town.live(2 * HOUR, 10 * MINUTE).await;
    assert_eq!(town.keys(OFFERS).await, keys(&["2027-06-01:ada", "2027-06-01:cy"]));
    let rows = town.rows().await;
    assert_eq!(rows["daily:America/New_York:2027-06-01T13:00:00Z"], "fired");
    assert_eq!(rows["daily:unknown-zone:Mars/Olympus"], "dead");
    assert_eq!(rows.len(), 2);
    let ticks = town.tasks(TICK_KIND).await;
    let buried = ticks.iter().find(|tick| tick.state == TaskState::Dead).unwrap();
    assert!(buried.failure.as_ref().unwrap().message.contains("Mars/Olympus"));
}

/// What falls into a pause is left out.
#[tokio::test]
async fn a_paused_schedule_makes_nothing() {
    let town = Town::at(
        "2027-06-01T08:00:00Z",
        vec![plan("daily", "daily 09:00", people(&[("ada", "UTC")]))],
    );
    town.live(MINUTE, MINUTE).await;
    assert!(town.queue.pause_schedule("daily", true).await.unwrap());
    town.live(4 * HOUR, 10 * MINUTE).await;
    assert!(town.queue.pause_schedule("daily", false).await.unwrap());
    town.live(DAY, 10 * MINUTE).await;
    assert_eq!(town.keys(OFFERS).await, keys(&["2027-06-02:ada"]));
}

/// Schedules that fire more than once a day are known by their instant.
#[tokio::test]
async fn an_interval_makes_one_task_per_instant() {
    let utc = "UTC".parse().unwrap();
    let often = plan("often", "every 20m", Only::new(&utc, offer));
    let town = Town::at("2027-06-01T08:10:00Z", vec![often]);
    town.live(HOUR, 5 * MINUTE).await;
    let expected = keys(&[
        "2027-06-01T08:20:00Z:all",
        "2027-06-01T08:40:00Z:all",
        "2027-06-01T09:00:00Z:all",
    ]);
    assert_eq!(town.keys(OFFERS).await, expected);
}
