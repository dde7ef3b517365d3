//! Calendars that jump, workers that are late, and hours that come twice.

use super::*;

const SECONDS_A_DAY: i64 = 24 * 60 * 60;

fn daily() -> Vec<Plan> {
    vec![plan("daily", "daily 09:00", people(&[("ada", "UTC")]))]
}

/// For one pass the calendar was ten days ahead. Then every day has its tick, at its time.
#[tokio::test]
async fn a_calendar_that_jumps_ahead_for_once_stops_no_schedule() {
    let town = Town::at("2027-06-01T08:00:00Z", daily());
    town.live(MINUTE, MINUTE).await;
    town.queue.jump(10 * SECONDS_A_DAY);
    town.scheduler().pass().await.unwrap();
    town.queue.jump(0);
    town.live(3 * DAY, MINUTE).await;
    let expected = ["2027-06-01:ada", "2027-06-02:ada", "2027-06-03:ada"];
    assert_eq!(town.keys(OFFERS).await, keys(&expected));
    let rows = town.rows().await;
    for day in 1..=3 {
        assert_eq!(rows[&format!("daily:Etc/UTC:2027-06-0{day}T09:00:00Z")], "fired");
    }
    // What was taken for missed was not there yet.
    assert_eq!(rows["daily:Etc/UTC:2027-06-05T09:00:00Z:missed"], "withdrawn");
    // That of the day that was taken for yesterday was made up for, and comes on that day within a quarter of an hour.
    town.live(8 * DAY, 10 * MINUTE).await;
    let offers = town.tasks(OFFERS).await;
    let last = offers.iter().find(|offer| &*offer.key == "2027-06-10:ada").unwrap();
    let nine: jiff::Timestamp = "2027-06-10T09:00:00Z".parse().unwrap();
    let late = i64::try_from(last.enqueued_at.as_millis()).unwrap() - nine.as_millisecond();
    assert!((0..15 * 60 * 1000).contains(&late), "{late} ms");
    assert_eq!(offers.len(), 11);
}

/// A calendar that is behind for a while, as that of a computer that has just been switched on, delays ticks by about as
/// long as it is.
#[tokio::test]
async fn a_calendar_that_falls_behind_for_once_delays_ticks_no_longer() {
    let town = Town::at("2027-06-01T08:59:00Z", daily());
    town.live(MINUTE / 2, MINUTE / 2).await;
    town.queue.jump(-50 * 365 * SECONDS_A_DAY - 5 * 60 * 60);
    town.live(MINUTE, MINUTE / 4).await;
    assert_eq!(town.keys(OFFERS).await, keys(&[]));
    town.queue.jump(0);
    town.live(2 * MINUTE, MINUTE / 4).await;
    assert_eq!(town.keys(OFFERS).await, keys(&["2027-06-01:ada"]));
    town.live(DAY, MINUTE).await;
    assert_eq!(town.keys(OFFERS).await.len(), 2);
}

/// A tick that waited for a worker is late too, whenever it was made.
#[tokio::test]
async fn the_bound_holds_for_ticks_that_were_made_in_time() {
    for (late, said, tasks) in [
        (Duration::from_secs(59), "fired", 1),
        (30 * MINUTE, "caught_up", 1),
        (HOUR, "caught_up", 1),
        (61 * MINUTE, "missed", 0),
    ] {
        let plan = plan("daily", "daily 09:00", people(&[("ada", "UTC")]));
        let town = Town::at("2027-06-01T08:59:30Z", vec![plan.catching_up(HOUR).unwrap()]);
        assert_eq!(town.scheduler().pass().await.unwrap().ticks, 1);
        town.clock.advance(MINUTE / 2 + late);
        town.work(&town.scheduler().ticks_handler()).await;
        assert_eq!(
            town.rows().await["daily:Etc/UTC:2027-06-01T09:00:00Z"],
            said,
            "{late:?}"
        );
        assert_eq!(town.keys(OFFERS).await.len(), tasks, "{late:?}");
    }
}

/// 01:30 comes twice in New York on 7 November 2027. Whoever is started anew in between fires it once, the first time.
#[tokio::test]
async fn an_hour_that_comes_twice_fires_once_across_restarts() {
    for (pattern, key) in [
        ("daily 01:30", "2027-11-07:ada"),
        ("cron 30 1 * * *", "2027-11-07T01:30:ada"),
    ] {
        let town = Town::at(
            "2027-11-07T04:00:00Z",
            vec![plan("daily", pattern, people(&[("ada", "America/New_York")]))],
        );
        for _ in 0..50 {
            // Each time with a scheduler of its own.
            town.live(5 * MINUTE, 5 * MINUTE).await;
        }
        assert_eq!(town.keys(OFFERS).await, keys(&[key]));
        let rows = town.rows().await;
        assert_eq!(
            rows.into_iter().collect::<Vec<_>>(),
            [(
                "daily:America/New_York:2027-11-07T05:30:00Z".to_owned(),
                "fired".to_owned()
            )]
        );
    }
}
