//! What a queue remembers of schedules, and which clock they go by.

use std::sync::Arc;
use std::time::Duration;

use exactly::clock::{Clock as _, Timestamp};
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
async fn schedules_are_remembered_and_their_position_never_goes_back() {
    let place = Place::new();
    let queue = open(&place).await;
    assert_eq!(queue.schedules().await.unwrap(), []);
    queue.advance_schedule("b", Timestamp::from_millis(5)).await.unwrap();
    assert_eq!(queue.read_schedule("b").await.unwrap(), None, "it is not there");

    queue.write_schedule("b", &"one".into(), false).await.unwrap();
    queue.write_schedule("a", &"\0two".into(), true).await.unwrap();
    let names: Vec<_> = queue
        .schedules()
        .await
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    assert_eq!(names, ["a".into(), "b".into()]);
    let entry = queue.read_schedule("b").await.unwrap().unwrap();
    assert_eq!(
        (&entry.definition[..], entry.paused, entry.position),
        (&b"one"[..], false, None)
    );

    for (to, position) in [(7, 7), (3, 7), (9, 9)] {
        queue.advance_schedule("b", Timestamp::from_millis(to)).await.unwrap();
        let entry = queue.read_schedule("b").await.unwrap().unwrap();
        assert_eq!(entry.position, Some(Timestamp::from_millis(position)));
    }
    queue.write_schedule("b", &"three".into(), true).await.unwrap();
    drop(queue);
    let queue = open(&place).await;
    let entry = queue.read_schedule("b").await.unwrap().unwrap();
    assert_eq!(
        (&entry.definition[..], entry.paused, entry.position),
        (&b"three"[..], true, Some(Timestamp::from_millis(9))),
        "written anew, where it was"
    );
    assert!(queue.erase_schedule("b").await.unwrap());
    assert!(!queue.erase_schedule("b").await.unwrap());
    assert_eq!(queue.read_schedule("b").await.unwrap(), None);
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
