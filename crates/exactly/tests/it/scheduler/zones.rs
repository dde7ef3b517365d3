//! Subjects in the zones of the world.

use super::*;

/// An hourly poll would be late where clocks are half an hour or three quarters off.
#[tokio::test]
async fn nine_oclock_is_nine_oclock_to_the_minute_in_odd_zones() {
    let zones = [
        ("Asia/Kolkata", "03:30"),
        ("Asia/Kathmandu", "03:15"),
        ("Australia/Eucla", "00:15"),
        ("Pacific/Chatham", "20:15"),
        ("America/St_Johns", "11:30"),
        ("Asia/Tehran", "05:30"),
        ("Australia/Lord_Howe", "22:30"),
        ("Pacific/Marquesas", "18:30"),
    ];
    let subjects: Vec<_> = zones.iter().map(|(zone, _)| (*zone, *zone)).collect();
    for pattern in ["daily 09:00", "cron 0 9 * * *"] {
        let town = Town::at("2027-06-01T00:00:30Z", vec![plan("daily", pattern, people(&subjects))]);
        town.live(DAY, MINUTE / 2).await;
        let offers = town.tasks(OFFERS).await;
        for (zone, due) in zones {
            let offer = offers.iter().find(|offer| offer.key.ends_with(zone)).unwrap();
            let at = i64::try_from(offer.enqueued_at.as_millis()).unwrap();
            let at = jiff::Timestamp::from_millisecond(at).unwrap().to_string();
            assert_eq!(&at[11..], format!("{due}:00Z"), "{zone}");
        }
        assert_eq!(offers.len(), zones.len());
        let rows = town.rows().await;
        assert!(rows.values().all(|said| said == "fired"), "{rows:?}");
    }
}

/// A cron pattern means local times too: whoever flies west lives the same nine o'clock again, and gets one task for it.
#[tokio::test]
async fn a_subject_of_a_cron_schedule_that_moves_west_gets_no_second_task() {
    let living_in = |zone| vec![plan("daily", "cron 0 9,18 * * *", people(&[("ada", zone)]))];
    let town = Town::at("2027-06-01T23:00:00Z", living_in("Asia/Tokyo"));
    town.live(2 * HOUR, 10 * MINUTE).await;
    assert_eq!(town.keys(OFFERS).await, keys(&["2027-06-02T09:00:ada"]));
    town.change(living_in("America/New_York"));
    town.live(22 * HOUR, 10 * MINUTE).await;
    let expected = [
        // Still the day before in New York when she arrives, at nine in the evening.
        "2027-06-02T09:00:ada",
        "2027-06-02T18:00:ada",
    ];
    assert_eq!(town.keys(OFFERS).await, keys(&expected));
    assert_eq!(
        town.rows().await["daily:America/New_York:2027-06-02T13:00:00Z"],
        "deduplicated"
    );
}

/// A time that the clocks skip is known by what was meant.
#[tokio::test]
async fn a_skipped_time_of_a_cron_schedule_is_known_by_the_time_that_was_meant() {
    let town = Town::at(
        "2027-03-14T00:00:00Z",
        vec![plan("daily", "cron 30 2 * * *", people(&[("ada", "America/New_York")]))],
    );
    town.live(DAY, 10 * MINUTE).await;
    assert_eq!(town.keys(OFFERS).await, keys(&["2027-03-14T02:30:ada"]));
    assert_eq!(
        town.rows().await["daily:America/New_York:2027-03-14T07:00:00Z"],
        "shifted"
    );
}

/// Ticks that were made before the meant time was kept with them have the key that they had.
#[tokio::test]
async fn a_tick_of_an_earlier_release_is_read() {
    let tick = r#"{"schedule":"daily","zone":"Etc/UTC","instant":"2027-06-01T09:00:00Z","local_date":"2027-06-01",
        "kind":"regular","timing":"on_time","tzdb":"2026e","daily":DAILY}"#;
    for (is_daily, key) in [("true", "2027-06-01:ada"), ("false", "2027-06-01T09:00:00Z:ada")] {
        let tick: Tick = serde_json::from_str(&tick.replace("DAILY", is_daily)).unwrap();
        assert_eq!(tick.key("ada"), key);
    }
}
