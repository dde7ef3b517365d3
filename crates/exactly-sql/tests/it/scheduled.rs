//! What schedulers make on a real database, by whatever calendar it has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use exactly::Fenced;
use exactly::clock::Timestamp;
use exactly::queue::{
    Ask, Book, InspectQueue, Lane, Lanes, Settlement, Task, TaskFilter, TaskPage, TaskView, WorkerId,
};
use exactly::schedule::Pattern;
use exactly::scheduler::{Plan, Plans, Scheduler, Subjects, TICK_KIND, Tick};
use exactly::worker::{Handler as _, Ran};

const OFFERS: &str = "offers";
const HOUR: Duration = Duration::from_hours(1);

/// A queue with one schedule.
pub(crate) struct Town<Q> {
    name: &'static str,
    pub(crate) queue: Arc<Q>,
    pub(crate) scheduler: Scheduler<Q>,
}

impl<Q: Book + InspectQueue> Town<Q> {
    /// For one subject in a zone and one nowhere. It fires at every half of an hour from now, so that what takes a while
    /// falls on no bound, and catches up twelve hours.
    pub(crate) async fn new(name: &'static str, queue: Arc<Q>) -> Self {
        let now = queue.calendar().await.unwrap().as_millis() / 1000;
        let from = jiff::Timestamp::from_second(i64::try_from(now).unwrap() - 30 * 60 - 1000 * 60 * 60).unwrap();
        let pattern = format!("every 1h from {from}").parse::<Pattern>().unwrap();
        let people = [("ada", "Asia/Kathmandu"), ("bob", "Mars/Olympus")];
        let people = people.map(|(id, zone)| (id.to_owned(), zone.to_owned()));
        let people = Subjects::new(people, |tick: &Tick, subject: &str| {
            Task::new(OFFERS, tick.key(subject), "")
        });
        let plan = Plan::new(name, pattern, people).unwrap();
        let plans: Arc<dyn Plans> = Arc::new(vec![plan.catching_up(12 * HOUR).unwrap()]);
        let scheduler = Scheduler::new(Arc::clone(&queue), plans);
        Self { name, queue, scheduler }
    }

    /// Nobody has been there for so long.
    pub(crate) async fn last_seen(&self, ago: Duration) {
        let now = self.queue.calendar().await.unwrap();
        let ago = Timestamp::from_millis(now.as_millis() - u64::try_from(ago.as_millis()).unwrap());
        self.pause(false).await;
        self.queue.advance_schedule(self.name, ago).await.unwrap();
    }

    async fn pause(&self, paused: bool) {
        self.queue
            .write_schedule(self.name, &"every hour".into(), Some(paused))
            .await
            .unwrap();
    }

    /// A pass, and everything that is due then. How many ticks were new.
    pub(crate) async fn live(&self) -> usize {
        let pass = self.scheduler.pass().await.unwrap();
        assert_eq!(pass.failed, 0);
        self.work().await;
        pass.ticks
    }

    pub(crate) async fn work(&self) {
        let lane = Lane::new(format!("exactly.schedule.{}", self.name)).unwrap();
        let ask = Ask::new(WorkerId::random(), 100).from_lanes(Lanes::Only(vec![lane]));
        loop {
            let leased = self.queue.lease(&ask).await.unwrap();
            if leased.is_empty() {
                return;
            }
            for task in leased {
                let Ran::End(end) = self.scheduler.ticks_handler().run(&task).await else {
                    panic!("a tick is settled by its worker")
                };
                let settled = self.queue.settle(&[Settlement::new(task.lease, end)]).await.unwrap();
                assert_eq!(settled, [Fenced::Applied]);
            }
        }
    }

    /// How often the rows of occurrences say what.
    pub(crate) async fn rows(&self) -> BTreeMap<String, usize> {
        let mut rows = BTreeMap::new();
        let ours = format!("{}:", self.name);
        for tick in self.tasks(TICK_KIND).await {
            if !tick.key.starts_with(&ours) {
                continue;
            }
            let said = match &tick.outcome {
                Some(outcome) => {
                    let outcome: serde_json::Value = serde_json::from_slice(outcome).unwrap();
                    outcome["ended"].as_str().unwrap().to_owned()
                }
                None => tick.state.to_string(),
            };
            assert!(said != "missed" || tick.key.ends_with(":missed"), "{}", tick.key);
            *rows.entry(said).or_default() += 1;
        }
        rows
    }

    pub(crate) async fn offers(&self) -> usize {
        self.tasks(OFFERS).await.len()
    }

    async fn tasks(&self, kind: &str) -> Vec<TaskView> {
        let filter = TaskFilter {
            kind: Some(kind.to_owned()),
            ..TaskFilter::default()
        };
        let page = TaskPage {
            after: None,
            limit: 1000,
        };
        self.queue.list(&filter, page).await.unwrap()
    }
}

/// Thirty hours are behind, of which twelve are made up for. Another schedule is paused before what was made has fired.
pub(crate) async fn rows_say_what_became_of_occurrences<Q: Book + InspectQueue>(queue: Arc<Q>) {
    let said = |words: &[(&str, usize)]| -> BTreeMap<String, usize> {
        words.iter().map(|(word, count)| ((*word).to_owned(), *count)).collect()
    };
    let town = Town::new("hourly", Arc::clone(&queue)).await;
    town.last_seen(30 * HOUR).await;
    assert_eq!(town.live().await, 18 + 12 + 1);
    let expected = said(&[("missed", 18), ("caught_up", 12), ("dead", 1)]);
    assert_eq!(town.rows().await, expected);
    assert_eq!(town.offers().await, 12);
    assert_eq!(town.live().await, 0);

    let other = Town::new("other", queue).await;
    other.last_seen(3 * HOUR).await;
    assert_eq!(other.scheduler.pass().await.unwrap().ticks, 3 + 1);
    other.pause(true).await;
    other.work().await;
    assert_eq!(other.rows().await, said(&[("withdrawn", 3), ("dead", 1)]));
    assert_eq!(other.offers().await, 12);
}
