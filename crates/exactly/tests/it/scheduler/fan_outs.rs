//! From a tick to everybody's tasks.

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
