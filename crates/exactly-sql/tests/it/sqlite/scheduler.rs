//! Schedules on SQLite, by the computer's clock, which jumps while the one that judges leases does not.

use std::sync::Arc;
use std::time::Duration;

use exactly_sql::SqliteQueue;

use super::{DAY, Place};
use crate::scheduled::{self, Town};

async fn open(place: &Place) -> Arc<SqliteQueue> {
    let builder = SqliteQueue::at(place.path())
        .clock(Arc::clone(&place.steady))
        .wall_clock(Arc::clone(&place.wall));
    Arc::new(builder.start().await.unwrap())
}

#[tokio::test]
async fn rows_say_what_became_of_occurrences_on_sqlite() {
    let place = Place::new();
    scheduled::rows_say_what_became_of_occurrences(open(&place).await).await;
}

/// For one pass the computer's clock was ten days ahead.
#[tokio::test]
async fn a_clock_that_jumps_ahead_for_once_stops_no_schedule_on_sqlite() {
    let place = Place::new();
    let town = Town::new("hourly", open(&place).await).await;
    town.scheduler.pass().await.unwrap();
    let right = exactly::clock::Clock::now(&*place.wall);
    place.wall.advance(10 * DAY);
    town.scheduler.pass().await.unwrap();
    place.wall.set(right);
    town.work().await;
    assert_eq!(town.offers().await, 0, "nothing is due");
    for _ in 0..4 * 3 {
        let step = Duration::from_mins(15);
        place.wall.advance(step);
        place.steady.advance(step);
        town.live().await;
    }
    assert_eq!(town.offers().await, 3);
    assert_eq!(town.rows().await.get("caught_up"), None);
}
