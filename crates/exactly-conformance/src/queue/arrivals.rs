//! Workers are told when there may be something to lease.

use std::time::Duration;

use exactly::queue::{End, Queue as _, TaskState};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::QueueHarness;
use crate::answers::answered;
use crate::request::PATIENCE;
use crate::work::{added, in_state, lane, lost, must_apply, retry, running, task, the_one};

/// Long enough for word from elsewhere to come, which is then no longer taken for word of something later.
const A_WHILE: Duration = Duration::from_millis(300);

/// Whoever adds a task wakes who waits for one.
pub async fn enqueuing_wakes_watchers<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let (mut one, mut other) = (queue.arrivals(), queue.arrivals());
    added(&*queue, &[task("a")]).await;
    wakes(&mut one).await;
    wakes(&mut other).await;
    let _ = the_one(&*queue).await;
}

/// So does whoever revives one.
pub async fn reviving_wakes_watchers<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let id = in_state(&*queue, "a", TaskState::Dead).await;
    let mut arrivals = quiet(queue.arrivals()).await;
    let _ = answered(queue.revive(&[id]).await);
    wakes(&mut arrivals).await;
}

/// And whoever resumes a lane, or lifts its cap.
pub async fn opening_a_lane_wakes_watchers<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let offer = lane("offer");
    answered(queue.pause_lane(&offer).await);
    answered(queue.cap_lane(&offer, Some(0)).await);
    added(&*queue, &[task("a")]).await;
    let mut arrivals = quiet(queue.arrivals()).await;
    answered(queue.resume_lane(&offer).await);
    wakes(&mut arrivals).await;
    let mut arrivals = quiet(arrivals).await;
    answered(queue.cap_lane(&offer, None).await);
    wakes(&mut arrivals).await;
}

/// And whoever gives a task back.
pub async fn giving_back_wakes_watchers<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let lease = running(&*queue, "a").await.lease;
    let mut arrivals = quiet(queue.arrivals()).await;
    must_apply(&*queue, lease, retry("again")).await;
    wakes(&mut arrivals).await;
    let lease = the_one(&*queue).await.lease;
    let mut arrivals = quiet(arrivals).await;
    must_apply(&*queue, lease, End::Release).await;
    wakes(&mut arrivals).await;
}

/// And whoever rescues one.
pub async fn rescuing_wakes_watchers<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let _ = running(&*queue, "a").await;
    let mut arrivals = quiet(queue.arrivals()).await;
    lost(harness, &*queue).await;
    wakes(&mut arrivals).await;
}

/// What arrived between watching and looking is not missed.
pub async fn an_arrival_before_the_wait_is_not_missed<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let mut arrivals = queue.arrivals();
    arrivals.mark_unchanged();
    assert_eq!(crate::work::leased(&*queue, 1).await, []);
    added(&*queue, &[task("a")]).await;
    tokio::task::yield_now().await;
    wakes(&mut arrivals).await;
}

/// What arrives through one queue wakes who watches through another, where there is a way to send word.
pub async fn arrivals_wake_watchers_of_another_queue<H: QueueHarness>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    let mut arrivals = quiet(other.arrivals()).await;
    added(&*queue, &[task("a")]).await;
    if H::WAKES_OTHERS {
        wakes(&mut arrivals).await;
    }
    // Those who cannot be told find it by asking.
    let lease = the_one(&*other).await.lease;
    let mut arrivals = quiet(other.arrivals()).await;
    must_apply(&*queue, lease, retry("again")).await;
    if H::WAKES_OTHERS {
        wakes(&mut arrivals).await;
    }
    let _ = the_one(&*other).await;
}

/// A watcher that has heard everything so far.
async fn quiet(mut arrivals: watch::Receiver<u64>) -> watch::Receiver<u64> {
    arrivals.mark_unchanged();
    while timeout(A_WHILE, arrivals.changed()).await.is_ok() {}
    arrivals
}

async fn wakes(arrivals: &mut watch::Receiver<u64>) {
    let woken = timeout(PATIENCE, arrivals.changed()).await;
    woken.expect("nobody wakes").expect("the queue is there");
}
