//! What dashboards are told of schedules.

use std::time::Duration;

use exactly::clock::Clock as _;
use exactly::queue::{Queue as _, Task};
use exactly::telemetry;

use super::{DAY, MINUTE, OFFERS, Town, people, plan};
use crate::counts::Counts;

#[tokio::test]
async fn every_occurrence_and_every_conflict_is_counted_by_schedule() {
    let counts = Counts::default();
    let _here = metrics::set_default_local_recorder(&counts);
    let subjects = people(&[("ann", "America/New_York"), ("bob", "Asia/Kathmandu")]);
    // The clocks of New York go forward on the 14th.
    let town = Town::at("2027-03-12T00:00:00Z", vec![plan("daily", "daily 02:30", subjects)]);
    let occurrences = |ended: &str| counts.of(&format!("schedule_occurrences_total schedule=daily ended={ended}"));
    let conflicts = || counts.of("scheduler_job_conflict schedule=daily");
    telemetry::expect_schedule("daily");
    assert_eq!((occurrences("fired"), conflicts()), (0, 0));
    // Somebody else has made this one.
    let made = Task::new(OFFERS, "2027-03-14:bob", "Asia/Kathmandu").unwrap();
    let _ = town.queue.enqueue(&[made]).await.unwrap();
    town.live(4 * DAY, 10 * MINUTE).await;
    let ended = || ["fired", "shifted", "caught_up", "deduplicated"].map(occurrences);
    // Those of Kathmandu are at a quarter to, and this town looks every ten minutes.
    assert_eq!(ended(), [3, 1, 3, 1]);
    assert_eq!(conflicts(), 1);
    assert_eq!((occurrences("missed"), occurrences("withdrawn")), (0, 0));
    // A tick that was made a minute ahead, and is meant for another time by then.
    let next = "2027-03-16T02:29:30Z".parse::<jiff::Timestamp>().unwrap();
    let subjects = || people(&[("eve", "UTC")]);
    town.change(vec![plan("daily", "daily 02:30", subjects())]);
    let now = town.clock.now().as_millis();
    town.clock.advance(Duration::from_millis(
        u64::try_from(next.as_millisecond()).unwrap() - now,
    ));
    town.scheduler().pass().await.unwrap();
    town.change(vec![plan("daily", "daily 03:30", subjects())]);
    town.live(MINUTE, MINUTE).await;
    assert_eq!(occurrences("withdrawn"), 1);
}
