//! One schedule beside the other.

use exactly::queue::BATCH_MAX;
use exactly::worker::{Worker, from_fn};
use tokio::sync::Notify;

use super::*;

#[derive(Debug)]
struct Away;

impl Audience for Away {
    fn zones(&self) -> Reply<'_, Vec<String>> {
        Box::pin(async { Err(StoreError::new(StoreErrorKind::Unavailable, "find everybody")) })
    }

    fn page<'a>(&'a self, _: &'a [String], _: Shard, _: Option<&'a str>, _: u32) -> Reply<'a, Vec<String>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn task(&self, tick: &Tick, subject: &str) -> Result<Task, StoreError> {
        Ok(offer(tick, subject).unwrap())
    }
}

#[tokio::test]
async fn one_bad_schedule_stops_no_other() {
    let good = plan("other", "daily 09:00", people(&[("ada", "UTC")]));
    let town = Town::at("2027-06-01T08:59:30Z", vec![plan("bad", "daily 09:00", Away), good]);
    let pass = town.scheduler().pass().await.unwrap();
    assert_eq!((pass.ticks, pass.failed), (1, 1));
    town.clock.advance(MINUTE);
    town.work(&town.scheduler().ticks_handler()).await;
    assert_eq!(town.keys(OFFERS).await, keys(&["2027-06-01:ada"]));
}

/// Never says where there is somebody, or panics when it is asked.
#[derive(Debug)]
enum Broken {
    Hanging,
    Panicking,
}

impl Audience for Broken {
    fn zones(&self) -> Reply<'_, Vec<String>> {
        Box::pin(async {
            match self {
                Self::Hanging => std::future::pending().await,
                Self::Panicking => panic!("nobody knows"),
            }
        })
    }

    fn page<'a>(&'a self, _: &'a [String], _: Shard, _: Option<&'a str>, _: u32) -> Reply<'a, Vec<String>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn task(&self, tick: &Tick, subject: &str) -> Result<Task, StoreError> {
        Ok(offer(tick, subject).unwrap())
    }
}

/// The good one comes last, and still before its tick is due.
#[tokio::test(start_paused = true)]
async fn schedules_that_hang_or_panic_stop_no_other() {
    let mut plans = vec![plan("panicking", "daily 09:00", Broken::Panicking)];
    plans.extend((0..40).map(|n| plan(&format!("hanging-{n}"), "daily 09:00", Broken::Hanging)));
    plans.push(plan("other", "daily 09:00", people(&[("ada", "UTC")])));
    let town = Town::at("2027-06-01T08:59:30Z", plans);
    let started = tokio::time::Instant::now();
    let pass = town.scheduler().pass().await.unwrap();
    assert_eq!((pass.ticks, pass.failed), (1, 41));
    assert!(started.elapsed() <= Duration::from_secs(30), "{:?}", started.elapsed());
}

/// Takes its time to say where there is somebody.
#[derive(Debug)]
struct Slow(Arc<ManualClock>, Subjects);

impl Audience for Slow {
    fn zones(&self) -> Reply<'_, Vec<String>> {
        self.0.advance(Duration::from_secs(8));
        self.1.zones()
    }

    fn page<'a>(
        &'a self,
        zones: &'a [String],
        shard: Shard,
        after: Option<&'a str>,
        limit: u32,
    ) -> Reply<'a, Vec<String>> {
        self.1.page(zones, shard, after, limit)
    }

    fn task(&self, tick: &Tick, subject: &str) -> Result<Task, StoreError> {
        self.1.task(tick, subject)
    }
}

#[tokio::test]
async fn an_audience_that_takes_its_time_delays_no_tick() {
    let town = Town::at("2027-06-01T08:59:30Z", Vec::new());
    let slow = Slow(Arc::clone(&town.clock), people(&[("ada", "UTC")]));
    town.change(vec![plan("daily", "daily 09:00", slow)]);
    assert_eq!(town.scheduler().pass().await.unwrap().ticks, 1);
    let due = town.tasks(TICK_KIND).await[0].due_at.unwrap();
    let nine: jiff::Timestamp = "2027-06-01T09:00:00Z".parse().unwrap();
    assert_eq!(i64::try_from(due.as_millis()).unwrap(), nine.as_millisecond());
}

/// Ten hours of seconds, on a queue that takes three seconds for whatever it is brought.
#[tokio::test(start_paused = true)]
async fn a_long_outage_is_caught_up_over_passes_while_others_go_on() {
    const HOUR_S: usize = 60 * 60;
    let utc = "UTC".parse().unwrap();
    let often = plan("often", "every 1s", Only::new(&utc, offer));
    let other = plan("other", "daily 18:01", people(&[("ada", "UTC")]));
    let town = Town::at("2027-06-01T08:00:00Z", vec![often, other]);
    let scheduler = town.scheduler();
    scheduler.pass().await.unwrap();
    let ahead = town.tasks(TICK_KIND).await.len();
    town.clock.advance(10 * HOUR);
    town.queue.slow_down(Duration::from_secs(3));
    let mut passes = vec![scheduler.pass().await.unwrap().ticks];
    // Four windows take longer than a plan has, and the other one has its tick.
    assert_eq!(passes, [4 * HOUR_S - ahead + 1]);
    while passes.len() < 3 {
        passes.push(scheduler.pass().await.unwrap().ticks);
    }
    assert_eq!(passes.iter().sum::<usize>(), 10 * HOUR_S + 1, "{passes:?}");
    assert_eq!(scheduler.pass().await.unwrap().ticks, 0);
    let position = town.queue.read_schedule("often").await.unwrap().unwrap().position;
    assert_eq!(position, Some(town.queue.calendar().await.unwrap()));
}

/// However many ticks there are in a window, the queue is never brought more than it takes.
#[tokio::test]
async fn ticks_are_made_in_batches() {
    let zones = ["Etc/GMT-1", "Etc/GMT-2", "Etc/GMT-3", "Etc/GMT-4"];
    let subjects: Vec<_> = zones.iter().map(|zone| (*zone, *zone)).collect();
    let town = Town::at(
        "2027-06-01T08:00:00Z",
        vec![plan("often", "every 1s", people(&subjects))],
    );
    let scheduler = town.scheduler();
    scheduler.pass().await.unwrap();
    town.clock.advance(HOUR);
    assert_eq!(scheduler.pass().await.unwrap().ticks, 4 * 60 * 60);
    let batches = town.queue.batches.lock().unwrap().clone();
    assert_eq!(batches.iter().max(), Some(&BATCH_MAX), "{batches:?}");
}

#[tokio::test(start_paused = true)]
async fn a_nudge_makes_a_pass_at_once() {
    let town = Town::at("2027-06-01T08:59:30Z", Vec::new());
    let (scheduler, nudge) = (town.scheduler(), Notify::new());
    let nudged = async {
        tokio::time::sleep(MINUTE).await;
        assert!(town.tasks(TICK_KIND).await.is_empty());
        town.change(vec![plan("daily", "daily 09:00", people(&[("ada", "UTC")]))]);
        nudge.notify_one();
        tokio::time::sleep(MINUTE).await;
    };
    tokio::select! {
        () = scheduler.run_nudged(HOUR, &nudge) => {}
        () = nudged => {}
    }
    assert_eq!(town.tasks(TICK_KIND).await.len(), 1);
}

/// A worker and a scheduler as they are in a program, by the clock on the wall.
#[tokio::test]
async fn a_worker_fires_what_a_scheduler_makes() {
    let queue = Arc::new(MemoryQueue::new());
    let people = people(&[("ada", "UTC"), ("bob", "Asia/Kathmandu")]).in_shards(2);
    let plans = vec![plan("often", "every 1s", people)];
    let scheduler = Scheduler::new(Arc::clone(&queue), Arc::new(plans) as Arc<dyn Plans>);
    let (done, mut offers) = tokio::sync::mpsc::unbounded_channel();
    let running = Worker::builder(queue)
        .schedule(&scheduler)
        .handle(
            OFFERS,
            from_fn(move |task| {
                done.send(task.key.to_string()).unwrap();
                Box::pin(async { Ran::End(End::Done("".into())) })
            }),
        )
        .on_buried(|buried| panic!("{buried:?}"))
        .start()
        .unwrap();
    let both = async {
        let mut subjects = BTreeSet::new();
        while subjects.len() < 2 {
            let key = offers.recv().await.unwrap();
            subjects.extend(key.rsplit(':').next().map(str::to_owned));
        }
    };
    tokio::select! {
        () = scheduler.run(Duration::from_millis(100)) => {}
        both = tokio::time::timeout(MINUTE, both) => both.expect("both have an offer"),
    }
    running.drain().await;
}
