//! Sending again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use exactly::clock::{Clock as _, ManualClock, WallClock};
use exactly::queue::{
    Ask, End, Failure, FailureKind, InspectQueue as _, MemoryQueue, Queue as _, Settlement, Task, TaskState, WorkerId,
};
use exactly::webhook::{
    DELIVERY_KIND, DeliveryName, REPLAY_KIND, Replay, ReplayError, ReplayId, ReplayState, ReplayView, Replays, Which,
};
use tokio::time::{sleep, timeout};

use super::{A_WHILE, NEVER_PARKED, Post, Receiver, SOON, id, work};

/// What makes one replay of another.
type Change = fn(&mut Replay);

fn replay(name: &str, which: Which) -> Replay {
    Replay::new(ReplayId::new(name).unwrap(), which)
}

fn replays(post: &Post) -> Replays<MemoryQueue> {
    Replays::new(Arc::clone(&post.queue))
}

/// Waits until a replay has come to its end.
async fn ends(post: &Post, replay: &Replay) -> ReplayView {
    timeout(SOON, async {
        loop {
            let view = replays(post).get(&replay.id).await.unwrap().unwrap();
            if view.state == ReplayState::Done {
                break view;
            }
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap()
}

async fn done(post: &Post, replay: &Replay) -> ReplayView {
    replays(post).start(replay).await.unwrap();
    ends(post, replay).await
}

/// How many were seen, revived, sent again, left alone and skipped.
fn told(view: &ReplayView) -> [u64; 5] {
    let tally = &view.tally;
    [
        tally.seen,
        tally.revived,
        tally.sent_again,
        tally.left_alone,
        tally.skipped,
    ]
}

/// Publishes events that fail for good at this endpoint, and lets it be well afterwards.
async fn failed(post: &Post, receiver: &Receiver, endpoint: &str, events: &[&str]) {
    receiver.always(500);
    for event in events {
        post.publish(event, "invoice.paid").await;
    }
    for event in events {
        post.becomes(event, endpoint, TaskState::Dead).await;
    }
    receiver.always(200);
}

/// Dead ones are sent, with a history that goes on; what waits is left to its own time.
#[tokio::test]
async fn what_has_failed_is_revived_and_what_waits_is_left_alone() {
    let (post, a, b) = (Post::start(), Receiver::start().await, Receiver::start().await);
    post.add("a", &a).await;
    post.add("b", &b).await;
    post.endpoints.pause(&id("b")).await.unwrap();
    failed(&post, &a, "a", &["evt_1", "evt_2"]).await;
    post.publish("evt_3", "a.b").await;
    post.becomes("evt_3", "a", TaskState::Done).await;
    let before = post.attempts("evt_1", "a").await.len();
    let sent = a.arrived().len();

    let view = done(&post, &replay("rp_1", Which::Failed)).await;
    assert_eq!(told(&view), [2, 2, 0, 0, 0]);
    for event in ["evt_1", "evt_2"] {
        post.becomes(event, "a", TaskState::Done).await;
    }
    assert_eq!(a.arrived().len(), sent + 2);
    assert_eq!(post.attempts("evt_1", "a").await.len(), before);

    let mut of_b = replay("rp_2", Which::All);
    of_b.endpoint = Some(id("b"));
    assert_eq!(told(&done(&post, &of_b).await), [3, 0, 0, 3, 0]);
    post.endpoints.resume(&id("b")).await.unwrap();
    b.has(3).await;
    sleep(A_WHILE).await;
    assert_eq!(b.arrived().len(), 3);
}

/// The same event, byte for byte and under the same id, and once for each replay, however often that is started.
#[tokio::test]
async fn what_was_delivered_is_sent_once_more_for_each_replay() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    post.add("a", &receiver).await;
    for event in ["evt_1", "evt_2"] {
        post.publish(event, "a.b").await;
        post.becomes(event, "a", TaskState::Done).await;
    }
    let all = replay("rp_1", Which::All);
    assert_eq!(told(&done(&post, &all).await), [2, 0, 2, 0, 0]);
    receiver.has(4).await;
    assert_eq!(told(&done(&post, &all).await), [2, 0, 2, 0, 0]);
    let mut other = all.clone();
    other.dry_run = true;
    assert!(matches!(replays(&post).start(&other).await, Err(ReplayError::Taken(_))));
    // The copies are found too, and what they are copies of stands for them.
    assert_eq!(told(&done(&post, &replay("rp_2", Which::All)).await), [4, 0, 2, 0, 2]);
    receiver.has(6).await;
    sleep(A_WHILE).await;
    let mut by_id: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for it in receiver.arrived() {
        by_id.entry(it.headers["webhook-id"].clone()).or_default().push(it.body);
    }
    assert_eq!(by_id.len(), 2);
    for bodies in by_id.values() {
        assert_eq!(bodies.len(), 3);
        assert!(bodies.iter().all(|body| *body == bodies[0]));
    }
}

/// Only what is asked for, and nothing at all by a dry run.
#[tokio::test]
async fn a_replay_is_about_what_it_says_and_a_dry_run_only_counts() {
    let (post, a, b) = (Post::start(), Receiver::start().await, Receiver::start().await);
    post.add("a", &a).await;
    post.add("b", &b).await;
    for (event, event_type) in [
        ("evt_1", "invoice.paid"),
        ("evt_2", "user.left"),
        ("evt_3", "invoice.void"),
    ] {
        post.publish(event, event_type).await;
        post.becomes(event, "a", TaskState::Done).await;
        post.becomes(event, "b", TaskState::Done).await;
        sleep(Duration::from_millis(5)).await;
    }
    let since = post.delivery("evt_2", "a").await.enqueued_at.as_millis();
    let until = post.delivery("evt_3", "a").await.enqueued_at.as_millis();
    let cases: [(Change, u64); 6] = [
        (|_| {}, 6),
        (|replay| replay.endpoint = Some(id("a")), 3),
        (|replay| replay.types = vec!["invoice.*".parse().unwrap()], 4),
        (|replay| replay.event = Some("evt_2".parse().unwrap()), 2),
        (
            |replay| {
                replay.event = Some("evt_2".parse().unwrap());
                replay.endpoint = Some(id("b"));
            },
            1,
        ),
        (|replay| replay.event = Some("evt_9".parse().unwrap()), 0),
    ];
    for (n, (change, sent_again)) in cases.into_iter().enumerate() {
        let mut replay = replay(&format!("dry_{n}"), Which::All);
        replay.dry_run = true;
        change(&mut replay);
        let view = done(&post, &replay).await;
        assert_eq!(told(&view), [sent_again, 0, sent_again, 0, 0], "{replay:?}");
    }
    let mut timed = replay("dry_since", Which::All);
    (timed.dry_run, timed.since_ms, timed.until_ms) = (true, Some(since), Some(until));
    assert_eq!(told(&done(&post, &timed).await), [2, 0, 2, 0, 0]);
    assert_eq!((a.arrived().len(), b.arrived().len()), (3, 3));
    let mut one = replay("one", Which::All);
    (one.event, one.endpoint) = (Some("evt_2".parse().unwrap()), Some(id("b")));
    assert_eq!(told(&done(&post, &one).await), [1, 0, 1, 0, 0]);
    b.has(4).await;
    sleep(A_WHILE).await;
    assert_eq!((a.arrived().len(), b.arrived().len()), (3, 4));
}

/// What one replay has set off and is still on its way is not sent by another beside it.
#[tokio::test]
async fn no_delivery_is_under_way_for_two_replays() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    post.add("a", &receiver).await;
    post.publish("evt_1", "a.b").await;
    post.becomes("evt_1", "a", TaskState::Done).await;
    post.endpoints.pause(&id("a")).await.unwrap();
    assert_eq!(told(&done(&post, &replay("rp_1", Which::All)).await), [1, 0, 1, 0, 0]);
    assert_eq!(told(&done(&post, &replay("rp_2", Which::All)).await), [2, 0, 0, 2, 0]);
    let mut of_event = replay("rp_3", Which::All);
    of_event.event = Some("evt_1".parse().unwrap());
    assert_eq!(told(&done(&post, &of_event).await), [2, 0, 0, 2, 0]);
    post.endpoints.resume(&id("a")).await.unwrap();
    receiver.has(2).await;
    sleep(A_WHILE).await;
    assert_eq!(receiver.arrived().len(), 2);
}

/// What cannot arrive is not set off.
#[tokio::test]
async fn deliveries_to_a_deleted_endpoint_are_skipped() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    post.add("a", &receiver).await;
    failed(&post, &receiver, "a", &["evt_1"]).await;
    post.endpoints.remove(&id("a")).await.unwrap();
    assert_eq!(
        told(&done(&post, &replay("rp_1", Which::Failed)).await),
        [1, 0, 0, 0, 1]
    );
    assert_eq!(post.delivery("evt_1", "a").await.state, TaskState::Dead);
}

/// It rests, goes on where it was, and is given up, as somebody says; and sets off no more in a second than it may.
#[tokio::test]
async fn a_replay_rests_goes_on_and_is_given_up() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    post.add("a", &receiver).await;
    let events: Vec<_> = (0..6).map(|n| format!("evt_{n}")).collect();
    let events: Vec<_> = events.iter().map(String::as_str).collect();
    failed(&post, &receiver, "a", &events).await;
    let sent = receiver.arrived().len();
    let mut slow = replay("rp_1", Which::Failed);
    slow.per_second = Some(2);
    replays(&post).start(&slow).await.unwrap();
    receiver.has(sent + 2).await;
    let paused = replays(&post).pause(&slow.id).await.unwrap();
    assert_eq!((paused.state, told(&paused)[1]), (ReplayState::Paused, 2));
    // The next part would have come by now.
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(receiver.arrived().len(), sent + 2);
    let resumed = replays(&post).resume(&slow.id).await.unwrap();
    assert_eq!(resumed.state, ReplayState::Running);
    receiver.has(sent + 4).await;
    let given_up = replays(&post).cancel(&slow.id).await.unwrap();
    assert_eq!((given_up.state, told(&given_up)[1]), (ReplayState::Canceled, 4));
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(receiver.arrived().len(), sent + 4);
    let listed = replays(&post).list().await.unwrap();
    assert_eq!(listed, [given_up]);
    // What is given up stays so.
    assert_eq!(replays(&post).resume(&slow.id).await.unwrap(), listed[0]);
}

/// Wherever a process ends, another one goes on there.
#[tokio::test]
async fn a_replay_outlives_its_workers() {
    let (mut post, receiver) = (Post::start(), Receiver::start().await);
    post.add("a", &receiver).await;
    let events: Vec<_> = (0..6).map(|n| format!("evt_{n}")).collect();
    let events: Vec<_> = events.iter().map(String::as_str).collect();
    failed(&post, &receiver, "a", &events).await;
    let sent = receiver.arrived().len();
    drop(post.running.take());
    // The one who starts it is stopped before it is written down, and the first worker before it has begun.
    let mut slow = replay("rp_1", Which::Failed);
    slow.per_second = Some(3);
    let first = Task::new(REPLAY_KIND, "rp_1 0", serde_json::to_vec(&slow).unwrap()).unwrap();
    let _ = post.queue.enqueue(&[first]).await.unwrap();
    post.running = Some(work(&post.queue, NEVER_PARKED));
    receiver.has(sent + 3).await;
    drop(post.running.take());
    post.running = Some(work(&post.queue, NEVER_PARKED));
    let view = ends(&post, &slow).await;
    assert_eq!(told(&view), [6, 6, 0, 0, 0]);
    for event in events {
        post.becomes(event, "a", TaskState::Done).await;
    }
    assert_eq!(receiver.arrived().len(), sent + 6);
}

/// A part that was done and could not say so is done again without effect, and the next one follows.
#[tokio::test]
async fn a_part_that_is_done_twice_counts_once() {
    let (mut post, receiver) = (Post::start(), Receiver::start().await);
    post.add("a", &receiver).await;
    for event in ["evt_1", "evt_2"] {
        post.publish(event, "a.b").await;
        post.becomes(event, "a", TaskState::Done).await;
    }
    // As it would be after the copies were made, and before that was noted.
    let name = DeliveryName::of_key("evt_1 a rp_1").unwrap();
    let body = post.delivery("evt_1", "a").await.payload;
    let copy = Task::new(DELIVERY_KIND, name.to_string(), body).unwrap();
    let _ = post.queue.enqueue(&[copy.in_lane(id("a").lane())]).await.unwrap();
    receiver.has(3).await;
    let all = replay("rp_1", Which::All);
    assert_eq!(told(&done(&post, &all).await), [2, 0, 2, 0, 0]);
    receiver.has(4).await;
    sleep(A_WHILE).await;
    assert_eq!(receiver.arrived().len(), 4);
    drop(post.running.take());
}

/// A replay whose next part has come to a bad end says that it runs. Whoever starts it again brings it to life.
#[tokio::test]
async fn starting_a_replay_again_revives_its_dead_part() {
    let mut post = Post::start();
    drop(post.running.take());
    let all = replay("rp_1", Which::All);
    assert_eq!(replays(&post).start(&all).await.unwrap().state, ReplayState::Running);
    let leased = post.queue.lease(&Ask::new(WorkerId::random(), 10)).await.unwrap();
    let part = leased.iter().find(|task| &*task.kind == REPLAY_KIND).unwrap();
    let failure = Failure::new(FailureKind::Panicked, "it fell over");
    let dead = Settlement::new(part.lease, End::Bury(failure));
    let _ = post.queue.settle(&[dead]).await.unwrap();
    assert_eq!(replays(&post).start(&all).await.unwrap().state, ReplayState::Running);
    post.running = Some(work(&post.queue, NEVER_PARKED));
    ends(&post, &all).await;
}

/// Whoever asks for what receivers may have forgotten is told so, before and after.
#[tokio::test]
async fn a_replay_of_old_events_comes_with_a_warning() {
    let clock = Arc::new(ManualClock::at(WallClock.now()));
    let post = Post::on(MemoryQueue::with_clock(Arc::clone(&clock)), NEVER_PARKED);
    let receiver = Receiver::start().await;
    post.add("a", &receiver).await;
    post.publish("evt_1", "a.b").await;
    post.becomes("evt_1", "a", TaskState::Done).await;
    clock.advance(Replay::REMEMBERED_FOR + Duration::from_secs(1));
    post.publish("evt_2", "a.b").await;
    post.becomes("evt_2", "a", TaskState::Done).await;
    clock.advance(Duration::from_secs(1));
    let mut recent = replay("recent", Which::All);
    recent.since_ms = Some(clock.now().as_millis() - 2000);
    assert_eq!(replays(&post).start(&recent).await.unwrap().warning(), None);
    let recent = ends(&post, &recent).await;
    assert_eq!((told(&recent)[2], recent.tally.older, recent.warning()), (1, 0, None));
    clock.advance(Duration::from_secs(1));
    let all = replay("all", Which::All);
    let started = replays(&post).start(&all).await.unwrap();
    assert!(started.warning().unwrap().contains("7 days"));
    let all = ends(&post, &all).await;
    assert_eq!(all.tally.older, 1, "{all:?}");
    assert!(all.warning().unwrap().starts_with("1 of these"));
}

/// What cannot be a replay is refused.
#[tokio::test]
async fn a_replay_that_cannot_be_one_is_refused() {
    let post = Post::start();
    let mut wrong = replay("rp_1", Which::All);
    (wrong.per_second, wrong.since_ms, wrong.until_ms) = (Some(0), Some(2), Some(2));
    let error = replays(&post).start(&wrong).await.unwrap_err().to_string();
    assert!(error.contains("per_second") && error.contains("ends at 2"), "{error}");
    for name in ["", "a b", "ä", &"x".repeat(65)] {
        assert!(ReplayId::new(name).is_err(), "{name:?}");
    }
    let none = ReplayId::new("none").unwrap();
    assert!(matches!(replays(&post).cancel(&none).await, Err(ReplayError::Gone(_))));
    assert_eq!(replays(&post).get(&none).await.unwrap(), None);
    assert!(post.queue.depths().await.unwrap().is_empty());
    for key in ["evt_1", "evt_1 a b c", "evt.1 a", "evt_1 a/b", "evt_1 a b/c"] {
        assert_eq!(DeliveryName::of_key(key), None, "{key:?}");
    }
}
