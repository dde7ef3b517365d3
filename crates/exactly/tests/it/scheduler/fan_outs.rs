//! From a tick to everybody's tasks.

use exactly::queue::{FailureKind, InvalidTask};

use super::*;

/// Whatever is lost between the steps of a fan-out is made again and found.
#[tokio::test]
async fn a_fan_out_that_is_lost_at_any_step_goes_on() {
    const PEOPLE: usize = 2500;
    let everybody = (0..PEOPLE).map(|n| (format!("user-{n:05}"), "UTC".to_owned()));
    let everybody = Subjects::new(everybody.collect::<Vec<_>>(), offer).in_shards(2);
    let town = Town::at("2027-06-01T08:59:30Z", vec![plan("daily", "daily 09:00", everybody)]);
    let scheduler = town.scheduler();
    scheduler.pass().await.unwrap();
    town.clock.advance(MINUTE);
    let mut lost = 0;
    loop {
        let leased = town.lease().await;
        if leased.is_empty() {
            // What was not settled is rescued, once each.
            town.clock.advance(MINUTE);
            if town.queue.rescue(5, 1000).await.unwrap().is_empty() {
                break;
            }
        }
        for task in leased {
            let end = run(&scheduler.ticks_handler(), &task).await;
            if task.rescues == 0 {
                lost += 1;
            } else {
                town.settle(&task, end).await;
            }
        }
    }
    assert_eq!(town.keys(OFFERS).await.len(), PEOPLE);
    assert!(
        town.tasks(FAN_OUT_KIND)
            .await
            .iter()
            .all(|chunk| chunk.state == TaskState::Done)
    );
    assert!(lost >= 5, "a tick and at least two chunks of each shard, not {lost}");
}

/// One subject belongs to one shard, whoever asks.
#[test]
fn shards_share_everybody() {
    for of in [1, 2, 7] {
        for n in 0..1000 {
            let id = format!("user-{n}");
            let takers = (0..of).filter(|index| Shard { index: *index, of }.takes(&id)).count();
            assert_eq!(takers, 1);
        }
    }
    let first = (0..1000)
        .filter(|n| Shard { index: 0, of: 4 }.takes(&format!("user-{n}")))
        .count();
    assert!((200..300).contains(&first), "{first} of 1000 are in one of four shards");
}

/// An audience that names few subjects at a time, or what it likes.
#[derive(Debug)]
struct Terse {
    people: usize,
    at_once: usize,
    heeds_after: bool,
}

impl Audience for Terse {
    fn zones(&self) -> Reply<'_, Vec<String>> {
        Box::pin(async { Ok(vec!["UTC".to_owned()]) })
    }

    fn page<'a>(&'a self, _: &'a [String], _: Shard, after: Option<&'a str>, limit: u32) -> Reply<'a, Vec<String>> {
        let everybody = (0..self.people).map(|n| format!("user-{n:05}"));
        let after = after.filter(|_| self.heeds_after).map(str::to_owned);
        let rest = everybody.filter(move |id| after.as_ref().is_none_or(|after| id > after));
        let at_once = self.at_once.min(limit.try_into().unwrap());
        Box::pin(async move { Ok(rest.take(at_once).collect()) })
    }

    fn task(&self, tick: &Tick, subject: &str) -> Result<Task, StoreError> {
        Ok(offer(tick, subject).unwrap())
    }
}

async fn fired_for(audience: Terse) -> Town {
    let town = Town::at("2027-06-01T08:59:30Z", vec![plan("daily", "daily 09:00", audience)]);
    town.scheduler().pass().await.unwrap();
    town.clock.advance(MINUTE);
    town.work(&town.scheduler().ticks_handler()).await;
    town
}

/// Only an empty page is the last one.
#[tokio::test]
async fn a_short_page_is_not_the_end() {
    for at_once in [1, 7, 999] {
        let town = fired_for(Terse {
            people: 2500,
            at_once,
            heeds_after: true,
        })
        .await;
        assert_eq!(town.keys(OFFERS).await.len(), 2500, "{at_once} at once");
    }
}

/// It names everybody whatever it is asked for, so it has named everybody.
#[tokio::test]
async fn an_audience_that_repeats_itself_ends() {
    let town = fired_for(Terse {
        people: 3,
        at_once: 3,
        heeds_after: false,
    })
    .await;
    assert_eq!(town.keys(OFFERS).await.len(), 3);
    assert_eq!(town.rows().await["daily:Etc/UTC:2027-06-01T09:00:00Z"], "fired");
}

/// Whoever is on its later pages is never named, and somebody has to be told.
#[tokio::test]
async fn an_audience_that_never_comes_to_its_second_page_is_buried() {
    let town = fired_for(Terse {
        people: 1001,
        at_once: 1000,
        heeds_after: false,
    })
    .await;
    assert_eq!(town.keys(OFFERS).await.len(), 1000);
    let chunks = town.tasks(FAN_OUT_KIND).await;
    assert_eq!((chunks.len(), chunks[0].state), (1, TaskState::Dead));
    assert!(
        chunks[0].failure.as_ref().unwrap().message.contains("user-00999"),
        "{chunks:?}"
    );
}

/// Makes no task for bob, whose name is too long for a key, and panics at eve.
fn offer_to_most(tick: &Tick, subject: &str) -> Result<Task, InvalidTask> {
    match subject {
        "bob" => Task::new(OFFERS, "b".repeat(Task::KEY_BYTES_MAX + 1), ""),
        "eve" => panic!("nobody is called eve"),
        _ => offer(tick, subject),
    }
}

/// One subject whose task cannot be made stops nobody, and gets it when that is mended.
#[tokio::test]
async fn a_subject_whose_task_cannot_be_made_is_buried_alone() {
    let names = ["ada", "bob", "cy", "dan", "eve", "fay"];
    let everybody = || names.map(|name| (name.to_owned(), "UTC".to_owned()));
    let most = Subjects::new(everybody(), offer_to_most);
    let town = Town::at("2027-06-01T08:59:30Z", vec![plan("daily", "daily 09:00", most)]);
    town.scheduler().pass().await.unwrap();
    town.clock.advance(MINUTE);
    town.work(&town.scheduler().ticks_handler()).await;
    assert_eq!(town.rows().await["daily:Etc/UTC:2027-06-01T09:00:00Z"], "fired");
    let served = ["2027-06-01:ada", "2027-06-01:cy", "2027-06-01:dan", "2027-06-01:fay"];
    assert_eq!(town.keys(OFFERS).await, keys(&served));
    let refused = town.tasks(FAN_OUT_KIND).await;
    let mut told: Vec<_> = refused.iter().map(|task| task.failure.clone().unwrap()).collect();
    told.sort_by(|one, other| one.message.cmp(&other.message));
    assert!(refused.iter().all(|task| task.state == TaskState::Dead));
    assert!(told.iter().all(|failure| failure.kind == FailureKind::Logic));
    assert!(
        told[0].message.contains("\"bob\"") && told[0].message.contains("512"),
        "{told:?}"
    );
    assert!(
        told[1].message.contains("\"eve\"") && told[1].message.contains("nobody is called"),
        "{told:?}"
    );
    assert_eq!(told.len(), 2);

    town.change(vec![plan("daily", "daily 09:00", Subjects::new(everybody(), offer))]);
    let ids: Vec<_> = refused.iter().map(|task| task.id).collect();
    town.queue.revive(&ids).await.unwrap();
    town.work(&town.scheduler().ticks_handler()).await;
    assert_eq!(town.keys(OFFERS).await.len(), names.len());
    assert!(
        town.tasks(FAN_OUT_KIND)
            .await
            .iter()
            .all(|task| task.state == TaskState::Done)
    );
}

/// Fails to name anybody, in one way.
#[derive(Debug)]
struct Failing(StoreErrorKind);

impl Audience for Failing {
    fn zones(&self) -> Reply<'_, Vec<String>> {
        Box::pin(async { Ok(vec!["UTC".to_owned()]) })
    }

    fn page<'a>(&'a self, _: &'a [String], _: Shard, _: Option<&'a str>, _: u32) -> Reply<'a, Vec<String>> {
        Box::pin(async { Err(StoreError::new(self.0, "find everybody")) })
    }

    fn task(&self, tick: &Tick, subject: &str) -> Result<Task, StoreError> {
        Ok(offer(tick, subject).unwrap())
    }
}

#[tokio::test]
async fn what_would_fail_again_is_buried_and_what_may_work_later_is_tried_for_a_day() {
    for (kind, attempts, failed) in [
        (StoreErrorKind::Refused, 1, FailureKind::Logic),
        (StoreErrorKind::Corrupt, 1, FailureKind::Logic),
        (StoreErrorKind::Unavailable, 100, FailureKind::Transient),
    ] {
        let town = Town::at(
            "2027-06-01T08:59:30Z",
            vec![
                plan("daily", "daily 09:00", Failing(kind))
                    .catching_up(3 * DAY)
                    .unwrap(),
            ],
        );
        town.scheduler().pass().await.unwrap();
        town.clock.advance(MINUTE / 2);
        let ticks = town.scheduler().ticks_handler();
        let mut waits = Vec::new();
        loop {
            for task in town.lease().await {
                let end = run(&ticks, &task).await;
                waits.extend(match &end {
                    End::Retry { after, .. } => Some(after.as_secs_f32()),
                    _ => None,
                });
                town.settle(&task, end).await;
            }
            let tick = town.tasks(TICK_KIND).await.remove(0);
            if tick.state == TaskState::Dead {
                assert_eq!(tick.failure.unwrap().kind, failed, "{kind:?}");
                break;
            }
            town.clock.advance(10 * MINUTE);
        }
        assert_eq!(waits.len() + 1, attempts, "{kind:?}");
        for (wait, table) in waits.iter().zip([30.0, 120.0, 300.0]) {
            assert!((wait - table).abs() <= table / 10.0, "{waits:?}");
        }
        assert!(waits.iter().all(|wait| *wait <= 900.0), "{waits:?}");
    }
}

/// Never names anybody.
#[derive(Debug)]
struct Silent;

impl Audience for Silent {
    fn zones(&self) -> Reply<'_, Vec<String>> {
        Box::pin(async { Ok(vec!["UTC".to_owned()]) })
    }

    fn page<'a>(&'a self, _: &'a [String], _: Shard, _: Option<&'a str>, _: u32) -> Reply<'a, Vec<String>> {
        Box::pin(std::future::pending())
    }

    fn task(&self, tick: &Tick, subject: &str) -> Result<Task, StoreError> {
        Ok(offer(tick, subject).unwrap())
    }
}

/// A worker runs so many handlers at once, and these would be all of them.
#[tokio::test(start_paused = true)]
async fn an_audience_that_does_not_answer_is_asked_again() {
    let town = Town::at("2027-06-01T08:59:30Z", vec![plan("daily", "daily 09:00", Silent)]);
    town.scheduler().pass().await.unwrap();
    town.clock.advance(MINUTE);
    town.work(&town.scheduler().ticks_handler()).await;
    let tick = town.tasks(TICK_KIND).await.remove(0);
    assert_eq!((tick.state, tick.failures), (TaskState::Waiting, 1));
    assert!(tick.failure.unwrap().message.contains("no answer within"));
}
