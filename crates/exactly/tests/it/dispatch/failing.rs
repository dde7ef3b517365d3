//! Endpoints that fail.

use std::sync::Arc;
use std::time::Duration;

use exactly::clock::{Clock as _, ManualClock, Timestamp, WallClock};
use exactly::queue::{FailureKind, InspectQueue as _, MemoryQueue, TaskState};
use exactly::webhook::delivery::Course;
use exactly::webhook::{EndpointHealth, Parking, Standing};
use tokio::time::sleep;

use super::{A_WHILE, NEVER_PARKED, Post, Receiver, course, endpoint, id};

/// The same event, byte for byte, with a signature of its own each time, and a row for each request.
#[tokio::test]
async fn what_fails_is_sent_again_and_each_attempt_is_noted() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    post.add("a", &receiver).await;
    receiver.answer([500, 302, 404]);
    post.publish("evt_1", "a.b").await;
    let arrived = receiver.has(4).await;
    assert!(arrived.iter().all(|it| it.body == arrived[0].body));
    assert!(arrived.iter().all(|it| it.headers["webhook-id"] == "evt_1"));
    let done = post.becomes("evt_1", "a", TaskState::Done).await;
    assert_eq!(done.failures, 3);
    let attempts = post.attempts("evt_1", "a").await;
    let told: Vec<_> = attempts.iter().map(|it| it.failure.message.as_str()).collect();
    for (told, status) in told.iter().zip(["500", "302", "404"]) {
        assert!(told.contains(status) && told.contains("received and noted"), "{told}");
    }
}

/// Ten attempts, and then somebody has to look.
#[tokio::test]
async fn what_always_fails_ends_dead_after_ten_attempts() {
    // So far apart that a machine which is busy is not late for the last ones.
    let course = course(Duration::from_millis(150));
    let post = Post::on_course(MemoryQueue::new(), NEVER_PARKED, course);
    let receiver = Receiver::start().await;
    post.add("a", &receiver).await;
    receiver.always(503);
    post.publish("evt_1", "a.b").await;
    let dead = post.becomes("evt_1", "a", TaskState::Dead).await;
    assert_eq!(receiver.arrived().len(), 10);
    assert_eq!(post.attempts("evt_1", "a").await.len(), 10);
    let failure = dead.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::Transient);
    assert!(failure.message.starts_with("no attempt is left"), "{failure}");
    sleep(A_WHILE).await;
    assert_eq!(receiver.arrived().len(), 10);
}

/// By the clock of the queue, which is an hour behind that of this process: an endpoint that always asks for time gets it until
/// the window ends, and nothing after that.
#[tokio::test]
async fn no_attempt_is_made_after_the_window_whatever_is_asked_for() {
    let an_hour_ago = Timestamp::from_millis(WallClock.now().as_millis() - 3_600_000);
    let clock = Arc::new(ManualClock::at(an_hour_ago));
    let queue = MemoryQueue::with_clock(Arc::clone(&clock));
    let post = Post::on_course(queue, NEVER_PARKED, Course::default());
    let receiver = Receiver::start().await;
    for (endpoint, seconds) in [("hours", 3600), ("half-days", 43_201)] {
        receiver.always(503);
        receiver.ask_for(seconds);
        post.add(endpoint, &receiver).await;
        let event = format!("evt_{endpoint}");
        post.publish(&event, "a.b").await;
        loop {
            let view = post.delivery(&event, endpoint).await;
            match (view.state, view.due_at) {
                (TaskState::Dead, _) => break,
                (TaskState::Waiting, Some(due)) if view.failures > 0 && due > clock.now() => clock.set(due),
                _ => sleep(Duration::from_millis(5)).await,
            }
        }
        let attempts = post.attempts(&event, endpoint).await;
        let enqueued_at = post.delivery(&event, endpoint).await.enqueued_at;
        let hours = attempts
            .iter()
            .map(|attempt| attempt.started_at.since(enqueued_at).as_secs() / 3600);
        let expected: &[u64] = match endpoint {
            "hours" => &[0, 1, 2, 3, 4, 5, 6, 11, 12, 24],
            _ => &[0, 12, 24],
        };
        assert_eq!(hours.collect::<Vec<_>>(), expected, "{endpoint}");
        post.endpoints.remove(&id(endpoint)).await.unwrap();
    }
}

/// An endpoint that says that it is gone gets nothing more, and nothing that it has not got is lost.
#[tokio::test]
async fn an_endpoint_that_is_gone_is_disabled_and_keeps_what_waits() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    post.add("a", &receiver).await;
    receiver.answer([410]);
    post.publish("evt_1", "a.b").await;
    receiver.has(1).await;
    let disabled = async {
        loop {
            let endpoint = post.endpoints.get(&id("a")).await.unwrap().unwrap();
            if let Standing::Disabled { reason } = endpoint.standing {
                break reason;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    let reason = tokio::time::timeout(super::SOON, disabled).await.unwrap();
    assert!(reason.contains("410"), "{reason}");
    let noted = async {
        loop {
            let health = post.endpoints.health(&id("a")).await.unwrap();
            if let [failure] = &health.last_failures[..] {
                break (failure.event.to_string(), failure.status);
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    let noted = tokio::time::timeout(super::SOON, noted).await.unwrap();
    assert_eq!(noted, ("evt_1".to_owned(), Some(410)));
    post.publish("evt_2", "a.b").await;
    post.delivery("evt_2", "a").await;
    sleep(A_WHILE).await;
    assert_eq!(receiver.arrived().len(), 1);
    post.endpoints.resume(&id("a")).await.unwrap();
    receiver.has(3).await;
    post.becomes("evt_1", "a", TaskState::Done).await;
    post.becomes("evt_2", "a", TaskState::Done).await;
}

/// An endpoint that fails all the time is left alone, its deliveries wait, others go on, and it is tried again.
#[tokio::test]
async fn an_endpoint_that_fails_all_the_time_is_parked_and_tried_again() {
    let post = Post::with_parking(Parking {
        failures: 3,
        first: Duration::from_millis(700),
        most: Duration::from_secs(1),
    });
    let (failing, healthy) = (Receiver::start().await, Receiver::start().await);
    post.add("failing", &failing).await;
    failing.always(500);
    post.publish("evt_1", "a.b").await;
    failing.has(3).await;
    let parked = async {
        while !post.queue.lanes().await.unwrap().iter().any(|lane| lane.paused) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(super::SOON, parked).await.unwrap();
    post.add("healthy", &healthy).await;
    post.publish("evt_2", "a.b").await;
    healthy.has(1).await;
    sleep(A_WHILE).await;
    let sent = failing.arrived().len();
    assert!((3..=4).contains(&sent), "{sent}");
    failing.always(200);
    post.becomes("evt_2", "failing", TaskState::Done).await;
    // Resting is not for good, and what waited is done.
    post.becomes("evt_1", "failing", TaskState::Done).await;
}

/// What was held for longer than its course takes has its attempts all the same.
#[tokio::test]
async fn what_was_held_past_the_last_attempt_is_tried_again() {
    let (post, receiver) = (Post::start(), Receiver::start().await);
    post.add("a", &receiver).await;
    post.endpoints.pause(&id("a")).await.unwrap();
    post.publish("evt_1", "a.b").await;
    post.delivery("evt_1", "a").await;
    // The course is over after 180 ms.
    sleep(A_WHILE).await;
    receiver.answer([503, 503]);
    post.endpoints.resume(&id("a")).await.unwrap();
    let done = post.becomes("evt_1", "a", TaskState::Done).await;
    assert_eq!(done.failures, 2);
}

/// An endpoint that was mended while something was on its way to where it was is not disabled by that.
#[tokio::test]
async fn a_late_gone_disables_no_other_address() {
    let (post, old, new) = (Post::start(), Receiver::start().await, Receiver::start().await);
    post.add("a", &old).await;
    old.always(410);
    old.hold();
    post.publish("evt_1", "a.b").await;
    old.has(1).await;
    let moved = new.url();
    post.endpoints
        .change(&id("a"), |endpoint| endpoint.url = moved.clone())
        .await
        .unwrap();
    old.let_go();
    post.becomes("evt_1", "a", TaskState::Done).await;
    assert_eq!(
        post.endpoints.get(&id("a")).await.unwrap().unwrap().standing,
        Standing::Active
    );
    assert_eq!(new.arrived().len(), 1);
}

/// What cannot be dialled is a failure like any other.
#[tokio::test]
async fn an_endpoint_that_nobody_listens_at_is_tried_again() {
    let post = Post::start();
    let closed = Receiver::start().await.url();
    post.endpoints.add(&endpoint("a", &closed)).await.unwrap();
    post.publish("evt_1", "a.b").await;
    let dead = post.becomes("evt_1", "a", TaskState::Dead).await;
    assert!(dead.failures >= 2, "{dead:?}");
}

/// What people see of an endpoint: what waits for it, since when it does well or does not, and until when it is left alone.
#[tokio::test]
async fn an_endpoints_health_tells_how_it_is_doing() {
    let post = Post::with_parking(Parking {
        failures: 3,
        first: Duration::from_mins(1),
        most: Duration::from_mins(1),
    });
    let receiver = Receiver::start().await;
    post.add("a", &receiver).await;
    assert_eq!(
        post.endpoints.health(&id("a")).await.unwrap(),
        EndpointHealth::default()
    );
    let before = WallClock.now().as_millis();
    post.publish("evt_1", "a.b").await;
    post.becomes("evt_1", "a", TaskState::Done).await;
    let well = post.endpoints.health(&id("a")).await.unwrap();
    assert!(well.last_success_ms.is_some_and(|at| at >= before), "{well:?}");
    assert_eq!((well.waiting, well.dead, &well.last_failures[..]), (0, 0, &[][..]));

    receiver.always(503);
    post.publish("evt_2", "a.b").await;
    let parked = async {
        loop {
            let health = post.endpoints.health(&id("a")).await.unwrap();
            if health.parked_until_ms.is_some() && health.running == 0 {
                break health;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    let ill = tokio::time::timeout(super::SOON, parked).await.unwrap();
    assert!(ill.parked_until_ms.unwrap() > before + 30_000, "{ill:?}");
    assert_eq!((ill.waiting, ill.dead, ill.last_failures.len()), (1, 0, 3), "{ill:?}");
    for failure in &ill.last_failures {
        assert_eq!((failure.event.as_str(), failure.status), ("evt_2", Some(503)));
        assert!(failure.why.contains("received and noted"), "{failure:?}");
    }
    assert!(ill.last_failures.is_sorted_by(|one, next| one.at_ms >= next.at_ms));

    // Whoever resumes it ends its rest, and a success is told at once.
    receiver.always(200);
    post.endpoints.resume(&id("a")).await.unwrap();
    assert_eq!(post.endpoints.health(&id("a")).await.unwrap().parked_until_ms, None);
    post.becomes("evt_2", "a", TaskState::Done).await;
    let again = post.endpoints.health(&id("a")).await.unwrap();
    assert!(again.last_success_ms > well.last_success_ms, "{again:?}");
    assert_eq!((again.waiting, again.last_failures.len()), (0, 3));
    post.endpoints.remove(&id("a")).await.unwrap();
    assert_eq!(
        post.endpoints.health(&id("a")).await.unwrap(),
        EndpointHealth::default()
    );
}
