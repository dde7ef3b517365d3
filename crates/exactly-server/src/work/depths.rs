//! How many tasks wait, run, are held or dead, counted from time to time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use exactly::queue::{Depth, TaskState};
use metrics::{describe_gauge, gauge};
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use crate::store::Ledger;

/// Tasks in the whole queue by lane and state, as of the last count.
const QUEUE_DEPTH: &str = "queue_depth";
/// Whether the last count came to an end.
const QUEUE_READABLE: &str = "queue_readable";

/// How often they are counted.
const EVERY: Duration = Duration::from_secs(5);
/// A long queue takes longer to count, so counting gets no more than one part in so many of the time…
const SHARE: u32 = 50;
/// …but is not put off for longer than this.
const PAUSE_MAX: Duration = Duration::from_mins(5);
/// Whoever can enqueue can make up lanes, so only so many have a label of their own, ever.
const LANES_MAX: usize = 100;
/// What the others are counted under.
const OTHERS: &str = "(others)";

/// All states that are counted: what is done is too much to count.
const STATES: [TaskState; 4] = [TaskState::Waiting, TaskState::Running, TaskState::Held, TaskState::Dead];

/// Counts until it is dropped. With many instances on one database each of them counts all.
pub(crate) fn start(queue: Arc<dyn Ledger>) -> AbortOnDropHandle<()> {
    describe_gauge!(QUEUE_DEPTH, "Tasks in the queue by lane and state, done ones left out.");
    describe_gauge!(QUEUE_READABLE, "1 if the queue could be counted the last time, else 0.");
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut shown = BTreeSet::new();
        loop {
            let begun = Instant::now();
            match queue.depths().await {
                Ok(depths) => {
                    for ((lane, state), tasks) in labelled(&depths, &mut shown) {
                        gauge!(QUEUE_DEPTH, "lane" => lane, "state" => state.as_str()).set(tasks);
                    }
                    gauge!(QUEUE_READABLE).set(1.0);
                }
                Err(error) => {
                    gauge!(QUEUE_READABLE).set(0.0);
                    tracing::warn!(%error, "could not count the tasks in the queue");
                }
            }
            sleep(begun.elapsed().saturating_mul(SHARE).clamp(EVERY, PAUSE_MAX)).await;
        }
    }))
}

/// What to show: every lane that was ever shown, so that one that is empty is not stuck at what it last was.
fn labelled(depths: &[Depth], shown: &mut BTreeSet<String>) -> BTreeMap<(String, TaskState), f64> {
    let mut by_lane: BTreeMap<&str, u64> = BTreeMap::new();
    for depth in depths {
        *by_lane.entry(depth.lane.as_str()).or_default() += depth.tasks;
    }
    let mut deepest: Vec<_> = by_lane.into_iter().filter(|(lane, _)| !shown.contains(*lane)).collect();
    deepest.sort_by_key(|(_, tasks)| std::cmp::Reverse(*tasks));
    let room = LANES_MAX.saturating_sub(shown.len());
    let new: Vec<_> = deepest.iter().take(room).map(|(lane, _)| (*lane).to_owned()).collect();
    shown.extend(new);
    let lanes = shown.iter().map(String::as_str).chain([OTHERS]);
    let empty = lanes.flat_map(|lane| STATES.map(|state| ((lane.to_owned(), state), 0.0)));
    let mut labelled: BTreeMap<_, f64> = empty.collect();
    for depth in depths {
        let lane = depth.lane.as_str();
        let lane = if shown.contains(lane) { lane } else { OTHERS };
        let tasks = f64::from(u32::try_from(depth.tasks).unwrap_or(u32::MAX));
        *labelled.entry((lane.to_owned(), depth.state)).or_default() += tasks;
    }
    labelled
}

#[cfg(test)]
mod tests {
    use exactly::queue::Lane;

    use super::*;

    fn depth(lane: &str, tasks: u64) -> Depth {
        Depth {
            lane: Lane::new(lane).unwrap(),
            state: TaskState::Waiting,
            tasks,
        }
    }

    fn waiting(labelled: &BTreeMap<(String, TaskState), f64>, lane: &str) -> Option<f64> {
        labelled.get(&(lane.to_owned(), TaskState::Waiting)).copied()
    }

    #[test]
    fn a_lane_that_is_empty_is_shown_as_such() {
        let mut shown = BTreeSet::new();
        assert_eq!(waiting(&labelled(&[depth("a", 3)], &mut shown), "a"), Some(3.0));
        let next = labelled(&[depth("b", 1)], &mut shown);
        assert_eq!((waiting(&next, "a"), waiting(&next, "b")), (Some(0.0), Some(1.0)));
    }

    #[test]
    fn nobody_can_make_up_more_labels_than_there_are() {
        let mut shown = BTreeSet::new();
        let many: Vec<_> = (0..1000)
            .map(|number| depth(&format!("lane-{number}"), number + 1))
            .collect();
        let first = labelled(&many, &mut shown);
        assert_eq!(first.len(), (LANES_MAX + 1) * STATES.len());
        assert_eq!(waiting(&first, "lane-999"), Some(1000.0), "the deepest have a label");
        let total: f64 = first.values().sum();
        assert!((total - 500_500.0).abs() < 0.5, "nothing is left out: {total}");
        let next = labelled(&[depth("late", 7)], &mut shown);
        assert_eq!((waiting(&next, "late"), waiting(&next, OTHERS)), (None, Some(7.0)));
    }
}
