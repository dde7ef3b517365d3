//! One schedule beside the other.

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
