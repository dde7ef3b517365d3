//! Schedules that are changed, deleted, or not known everywhere while their ticks are under way.

use exactly::queue::FailureKind;

use super::*;

const NINE: &str = "daily:Etc/UTC:2027-06-01T09:00:00Z";
const TEN: &str = "daily:Etc/UTC:2027-06-01T10:00:00Z";

fn daily(pattern: &str) -> Plan {
    plan("daily", pattern, people(&[("ada", "UTC")]))
}

/// What handles ticks in a process in which there are no plans.
fn elsewhere(town: &Town) -> Ticks<Almanac> {
    let none: Vec<Plan> = Vec::new();
    Scheduler::new(Arc::clone(&town.queue), Arc::new(none)).ticks_handler()
}

/// A tick that was made ahead does not fire if the schedule means another time since. The one that is meant does.
#[tokio::test]
async fn a_tick_that_did_not_fire_uses_up_no_date() {
    let town = Town::at("2027-06-01T08:59:30Z", vec![daily("daily 09:00")]);
    town.scheduler().pass().await.unwrap();
    town.change(vec![daily("daily 10:00")]);
    town.live(MINUTE, MINUTE).await;
    assert_eq!(town.rows().await[NINE], "withdrawn");
    assert_eq!(town.keys(OFFERS).await, keys(&[]));
    town.clock.advance(30 * Duration::from_secs(1));
    town.live(HOUR, MINUTE).await;
    assert_eq!(town.rows().await[TEN], "fired");
    assert_eq!(town.keys(OFFERS).await, keys(&["2027-06-01:ada"]));
}

/// The other way round there is no second one for the date.
#[tokio::test]
async fn a_schedule_that_is_put_off_after_it_fired_fires_for_nobody() {
    let town = Town::at("2027-06-01T08:50:00Z", vec![daily("daily 09:00")]);
    town.live(HOUR / 2, MINUTE).await;
    town.change(vec![daily("daily 10:00")]);
    town.live(HOUR, MINUTE).await;
    let rows = town.rows().await;
    assert_eq!((&*rows[NINE], &*rows[TEN]), ("fired", "deduplicated"));
    assert_eq!(town.keys(OFFERS).await, keys(&["2027-06-01:ada"]));
}

#[tokio::test]
async fn a_schedule_that_was_deleted_and_written_anew_has_its_date() {
    let town = Town::at("2027-06-01T08:59:30Z", vec![daily("daily 09:00")]);
    town.scheduler().pass().await.unwrap();
    town.change(Vec::new());
    assert!(town.queue.erase_schedule("daily").await.unwrap());
    town.live(MINUTE, MINUTE).await;
    assert_eq!(town.rows().await[NINE], "withdrawn");
    town.change(vec![daily("daily 10:00")]);
    town.live(2 * HOUR, MINUTE / 2).await;
    assert_eq!(town.rows().await[TEN], "fired");
    assert_eq!(town.keys(OFFERS).await, keys(&["2027-06-01:ada"]));
}

/// While a new release is rolled out, some processes do not know its plans yet. They leave the ticks to those that do.
#[tokio::test]
async fn who_does_not_know_a_plan_leaves_its_ticks_to_others() {
    let town = Town::at("2027-06-01T08:59:30Z", vec![daily("daily 09:00")]);
    town.scheduler().pass().await.unwrap();
    town.clock.advance(MINUTE / 2);
    for _ in 0..6 {
        town.work(&elsewhere(&town)).await;
        town.clock.advance(Duration::from_secs(5));
    }
    assert_eq!(town.rows().await[NINE], "waiting");
    town.clock.advance(MINUTE);
    town.work(&town.scheduler().ticks_handler()).await;
    assert_eq!(town.keys(OFFERS).await, keys(&["2027-06-01:ada"]));
}

/// The same for a chunk, without which the rest of a shard would be gone.
#[tokio::test]
async fn who_does_not_know_a_plan_leaves_its_chunks_to_others() {
    let everybody = (0..2500).map(|n| (format!("user-{n:05}"), "UTC".to_owned()));
    let everybody = Subjects::new(everybody.collect::<Vec<_>>(), offer).in_shards(2);
    let town = Town::at("2027-06-01T08:59:30Z", vec![plan("daily", "daily 09:00", everybody)]);
    town.scheduler().pass().await.unwrap();
    town.clock.advance(MINUTE);
    let mut turn = 0;
    for _ in 0..50 {
        for task in town.lease().await {
            turn += 1;
            let ticks = if turn % 2 == 0 {
                elsewhere(&town)
            } else {
                town.scheduler().ticks_handler()
            };
            town.settle(&task, run(&ticks, &task).await).await;
        }
        town.clock.advance(MINUTE);
    }
    assert_eq!(town.keys(OFFERS).await.len(), 2500, "the rest of a shard is gone");
    assert!(turn > 5, "{turn}");
}

/// What nobody knows for a day, nobody knows; and what is late already has that day too.
#[tokio::test]
async fn a_tick_of_a_plan_that_nobody_knows_is_buried_after_a_day() {
    let town = Town::at(
        "2027-06-01T08:59:30Z",
        vec![daily("daily 09:00").catching_up(7 * DAY).unwrap()],
    );
    town.scheduler().pass().await.unwrap();
    town.clock.advance(5 * DAY);
    let mut looked = Duration::ZERO;
    while town.rows().await[NINE] == "waiting" {
        town.work(&elsewhere(&town)).await;
        town.clock.advance(MINUTE);
        looked += MINUTE;
        assert!(looked < 2 * DAY, "it is never buried");
    }
    assert!(looked > 20 * HOUR, "{looked:?}");
    let ticks = town.tasks(TICK_KIND).await;
    let failure = ticks[0].failure.as_ref().unwrap();
    assert_eq!((ticks[0].state, failure.kind), (TaskState::Dead, FailureKind::Logic));
    assert!(failure.message.contains("\"daily\""), "{failure}");
}
