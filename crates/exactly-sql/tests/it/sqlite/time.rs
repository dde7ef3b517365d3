//! The wall clock jumps; the store's time does not.

use std::time::Duration;

use exactly::clock::Timestamp;
use exactly::{Keep, OnLost, Store, Verdict};

use super::{DAY, Place, assert_replays, begun, call, done};

const HOUR: Duration = Duration::from_hours(1);

#[tokio::test]
async fn a_wall_clock_that_jumps_changes_nothing_in_a_running_process() {
    let place = Place::new();
    let store = place.open().await;
    done(&store, "done", Keep::DAY).await;
    let _claim = begun(&store, "in flight").await;
    for jump in [DAY * 400, Duration::ZERO] {
        place.wall.set(Timestamp::from_millis(0).after(jump));
        assert_replays(&store.begin(&call("done")).await.unwrap(), "done");
        assert!(matches!(
            store.begin(&call("in flight")).await.unwrap(),
            Verdict::InFlight { .. }
        ));
    }
}

#[tokio::test]
async fn a_restart_a_day_ahead_forgets_no_outcome() {
    let place = Place::new();
    done(&place.open().await, "done", Keep::For(HOUR * 2)).await;
    place.wall.advance(DAY);
    let store = place.open().await;
    assert_replays(&store.begin(&call("done")).await.unwrap(), "done");
    // Time that the process is there to see does count.
    place.steady.advance(HOUR + HOUR);
    assert!(matches!(store.begin(&call("done")).await.unwrap(), Verdict::Run(_)));
}

#[tokio::test]
async fn restarts_do_not_count_the_same_time_twice() {
    let place = Place::new();
    done(&place.open().await, "done", Keep::For(HOUR * 2)).await;
    place.wall.advance(DAY);
    for _ in 0..3 {
        let store = place.open().await;
        // A write, which moves the database's clock.
        let _ = store
            .begin(&call(
                &exactly::CallId::new(call("x").scope(), call("x").key()).to_string(),
            ))
            .await
            .unwrap();
        assert_replays(&store.begin(&call("done")).await.unwrap(), "done");
    }
}

#[tokio::test]
async fn a_restart_after_a_while_ends_the_lease_of_a_dead_owner() {
    let place = Place::new();
    let _claim = begun(&place.open().await, "lost").await;
    place.wall.advance(Duration::from_mins(1));
    let store = place.open().await;
    assert!(matches!(store.begin(&call("lost")).await.unwrap(), Verdict::InDoubt(_)));
}

#[tokio::test]
async fn a_restart_a_day_back_blocks_a_key_for_no_longer_than_its_lease() {
    let place = Place::new();
    let rerun = || {
        call("lost")
            .with_on_lost(OnLost::Rerun)
            .with_lease(Duration::from_secs(30))
    };
    assert!(matches!(
        place.open().await.begin(&rerun()).await.unwrap(),
        Verdict::Run(_)
    ));
    place.wall.set(Timestamp::from_millis(0));
    let store = place.open().await;
    assert!(matches!(store.begin(&rerun()).await.unwrap(), Verdict::InFlight { .. }));
    place.steady.advance(Duration::from_secs(31));
    assert!(matches!(store.begin(&rerun()).await.unwrap(), Verdict::Run(_)));
}

#[tokio::test]
async fn processes_with_clocks_a_day_apart_agree_on_leases() {
    let place = Place::new();
    let one = place.open().await;
    place.steady.set(Timestamp::from_millis(0));
    let other = place.open().await;
    for round in 0..50 {
        let (owner, stranger) = if round % 2 == 0 { (&one, &other) } else { (&other, &one) };
        let key = round.to_string();
        let _claim = begun(owner, &key).await;
        place.steady.advance(Duration::from_secs(20));
        assert!(matches!(
            stranger.begin(&call(&key)).await.unwrap(),
            Verdict::InFlight { .. }
        ));
        place.steady.advance(Duration::from_secs(20));
        assert!(matches!(
            stranger.begin(&call(&key)).await.unwrap(),
            Verdict::InDoubt(_)
        ));
    }
}
