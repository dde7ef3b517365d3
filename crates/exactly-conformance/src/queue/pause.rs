//! A paused lane keeps its tasks, and what is set up about lanes can be seen.

use exactly::queue::{End, InspectQueue as _, LaneView, Queue as _};

use crate::QueueHarness;
use crate::answers::answered;
use crate::work::{added, keys, lane, leased, must_apply, retry, task, tasks, the_one};

/// Nothing of a paused lane starts, through any queue, until it is resumed; other lanes go on.
pub async fn a_paused_lane_keeps_its_tasks<H: QueueHarness>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    for name in ["north", "south"] {
        added(&*queue, &tasks(name, 2)).await;
    }
    answered(queue.pause_lane(&lane("north")).await);
    answered(other.pause_lane(&lane("north")).await);
    assert_eq!(keys(&leased(&*other, 10).await), ["south-00000", "south-00001"]);
    assert_eq!(leased(&*queue, 10).await, []);
    answered(other.resume_lane(&lane("north")).await);
    assert_eq!(keys(&leased(&*queue, 10).await), ["north-00000", "north-00001"]);
}

/// Tasks can be added to a lane that is paused, also to one that never had any.
pub async fn a_paused_lane_takes_tasks<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    answered(queue.pause_lane(&lane("north")).await);
    added(&*queue, &tasks("north", 2)).await;
    assert_eq!(leased(&*queue, 10).await, []);
    answered(queue.resume_lane(&lane("north")).await);
    assert_eq!(leased(&*queue, 10).await.len(), 2);
}

/// What runs when its lane is paused runs on, is renewed and settled.
pub async fn a_running_task_settles_in_a_paused_lane<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    added(&*queue, &tasks("north", 2)).await;
    let running = leased(&*queue, 10).await;
    answered(queue.pause_lane(&lane("north")).await);
    must_apply(&*queue, running[0].lease, End::Done("done".into())).await;
    must_apply(&*queue, running[1].lease, retry("later")).await;
    assert_eq!(leased(&*queue, 10).await, []);
    answered(queue.resume_lane(&lane("north")).await);
    assert_eq!(&*the_one(&*queue).await.key, "north-00001");
}

/// A resumed lane is served in the order in which its tasks came.
pub async fn a_pause_keeps_the_order<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let all = tasks("north", 20);
    added(&*queue, &all[..10]).await;
    answered(queue.pause_lane(&lane("north")).await);
    added(&*queue, &all[10..]).await;
    answered(queue.resume_lane(&lane("north")).await);
    let leased = leased(&*queue, 20).await;
    assert!(leased.len() == 20 && keys(&leased).is_sorted(), "{:?}", keys(&leased));
}

/// Resuming what is not paused does nothing.
pub async fn an_open_lane_can_be_resumed<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    answered(queue.resume_lane(&lane("offer")).await);
    added(&*queue, &[task("a")]).await;
    assert_eq!(&*the_one(&*queue).await.key, "a");
    assert_eq!(answered(queue.lanes().await), []);
}

/// Lanes that are paused or capped are listed by name; those that are neither any more are not.
pub async fn lanes_show_what_was_set_up<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let [north, south, west] = ["north", "south", "west"].map(lane);
    let view = |lane: &exactly::queue::Lane, paused, cap| LaneView {
        lane: lane.clone(),
        paused,
        cap,
    };
    answered(queue.pause_lane(&west).await);
    answered(queue.cap_lane(&south, Some(3)).await);
    answered(queue.pause_lane(&north).await);
    answered(queue.cap_lane(&north, Some(u32::MAX)).await);
    let expected = [
        view(&north, true, Some(u32::MAX)),
        view(&south, false, Some(3)),
        view(&west, true, None),
    ];
    assert_eq!(answered(harness.open().await.lanes().await), expected);
    answered(queue.resume_lane(&north).await);
    answered(queue.resume_lane(&west).await);
    answered(queue.cap_lane(&south, None).await);
    assert_eq!(answered(queue.lanes().await), [view(&north, false, Some(u32::MAX))]);
    answered(queue.cap_lane(&north, None).await);
    assert_eq!(answered(queue.lanes().await), []);
}
