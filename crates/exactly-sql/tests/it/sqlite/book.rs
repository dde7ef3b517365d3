//! Which clock schedules go by.

use std::sync::Arc;
use std::time::Duration;

use exactly::clock::Clock as _;
use exactly::queue::{Book as _, InspectQueue as _};
use exactly_sql::SqliteQueue;

use super::Place;

async fn open(place: &Place) -> SqliteQueue {
    let builder = SqliteQueue::at(place.path())
        .clock(Arc::clone(&place.steady))
        .wall_clock(Arc::clone(&place.wall));
    builder.start().await.unwrap()
}

#[tokio::test]
async fn after_an_outage_the_calendar_is_right_though_leases_were_given_time() {
    let place = Place::new();
    drop(open(&place).await);
    place.wall.advance(Duration::from_hours(8));
    let queue = open(&place).await;
    assert_eq!(queue.calendar().await.unwrap(), place.wall.now());
    let behind = queue.calendar().await.unwrap().since(queue.now().await.unwrap());
    assert_eq!(behind, Duration::from_hours(7), "an hour of it counts for leases");
}
