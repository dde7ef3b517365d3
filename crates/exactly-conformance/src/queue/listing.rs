//! Tasks as operators see them: one by one, in pages, and counted.

use std::collections::BTreeMap;
use std::time::Duration;

use exactly::queue::{Depth, End, InspectQueue, TaskFilter, TaskId, TaskPage, TaskState, TaskView, Walk};

use crate::QueueHarness;
use crate::answers::answered;
use crate::work::{added, in_state, lane, leased, must_apply, shown, task, tasks};

/// Nothing is shown of what is not there.
pub async fn an_empty_place_shows_nothing<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    assert_eq!(answered(queue.show(TaskId::of("offer", "a")).await), None);
    assert_eq!(all(&*queue, &TaskFilter::default()).await, []);
    assert_eq!(answered(queue.depths().await), []);
    assert_eq!(answered(queue.lanes().await), []);
}

/// Pages follow each other by id, and show every task once, as it is shown alone.
pub async fn pages_show_every_task_once<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let mut expected = added(&*queue, &tasks("bulk", 25)).await;
    expected.sort_unstable();
    let views = all(&*queue, &TaskFilter::default()).await;
    assert_eq!(views.iter().map(|view| view.id).collect::<Vec<_>>(), expected);
    for view in &views {
        assert_eq!(shown(&*queue, view.id).await, *view);
    }
}

/// A page is never longer than asked for, and the next one begins after its last, also if that is gone.
pub async fn a_page_is_never_longer_than_asked_for<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let mut ids = added(&*queue, &tasks("bulk", 5)).await;
    ids.sort_unstable();
    let page = async |after, limit| {
        let page = TaskPage { after, limit };
        let views = answered(queue.list(&TaskFilter::default(), page).await);
        views.iter().map(|view| view.id).collect::<Vec<_>>()
    };
    assert_eq!(page(None, 2).await, ids[..2]);
    assert_eq!(page(Some(ids[1]), 2).await, ids[2..4]);
    assert_eq!(page(Some(ids[3]), 10).await, ids[4..]);
    assert_eq!(page(Some(ids[4]), 10).await, []);
    assert_eq!(page(None, 0).await, []);
    let never = TaskId::of("offer", "never enqueued");
    let later: Vec<_> = ids.iter().copied().filter(|id| *id > never).collect();
    assert_eq!(page(Some(never), 10).await, later);
}

/// A walk comes by each wanted task once, however rare they are, and each part of it ends after so many tasks.
pub async fn a_walk_comes_by_every_task_once_and_looks_at_no_more_than_asked_for<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let early = task("early").in_lane(lane("rare")).after(Duration::from_hours(1));
    added(&*queue, &[early]).await;
    harness.elapse(Duration::from_secs(10)).await;
    let between = answered(queue.now().await);
    let dead = in_state(&*queue, "dead", TaskState::Dead).await;
    added(&*queue, &tasks("bulk", 40)).await;
    let mut rare = added(&*queue, &tasks("rare", 5)).await;
    rare.sort_unstable();
    let filter = |lane_name: Option<&str>, state| TaskFilter {
        state,
        lane: lane_name.map(lane),
        ..TaskFilter::default()
    };
    let cases = [
        (filter(Some("rare"), None), rare.clone()),
        (filter(None, Some(TaskState::Dead)), vec![dead]),
        (filter(Some("rare"), Some(TaskState::Dead)), Vec::new()),
    ];
    for (filter, wanted) in cases {
        for (steps, limit) in [(1, 10), (7, 10), (7, 1), (1000, 2), (1000, 100)] {
            let mut walk = Walk {
                filter: filter.clone(),
                since: Some(between),
                steps,
                limit,
                ..Walk::default()
            };
            let mut found = Vec::new();
            loop {
                let part = answered(queue.walk(&walk).await);
                assert!(
                    u32::try_from(part.tasks.len()).is_ok_and(|count| count <= limit.min(steps)),
                    "{walk:?}"
                );
                found.extend(part.tasks.iter().map(|view| view.id));
                let Some(next) = part.next else { break };
                assert!(walk.after.is_none_or(|after| next > after), "{walk:?}");
                walk.after = Some(next);
            }
            assert_eq!(found, wanted, "{walk:?}");
        }
    }
    let before = Walk {
        filter: filter(Some("rare"), None),
        before: Some(between),
        steps: 1000,
        limit: 100,
        ..Walk::default()
    };
    let found = answered(queue.walk(&before).await);
    assert_eq!(found.tasks.len(), 1);
    assert_eq!(
        (found.tasks[0].id, found.next),
        (TaskId::of(&found.tasks[0].kind, "early"), None)
    );
}

/// Each condition leaves out what does not meet it, and all have to hold.
pub async fn filters_combine<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let mut given = Vec::new();
    for kind in ["offer", "reminder"] {
        for name in ["north", "south"] {
            for version in [1, 2] {
                for n in 0..3 {
                    let key = format!("{name}-{version}-{n}");
                    let task = exactly::queue::Task::new(kind, key, "payload").expect("the task is valid");
                    given.push(task.in_lane(lane(name)).with_version(version));
                }
            }
        }
    }
    added(&*queue, &given).await;
    for leased in leased(&*queue, 12).await {
        must_apply(&*queue, leased.lease, End::Done("done".into())).await;
    }
    let everything = all(&*queue, &TaskFilter::default()).await;
    assert_eq!(everything.len(), 24);
    for state in [
        None,
        Some(TaskState::Waiting),
        Some(TaskState::Done),
        Some(TaskState::Dead),
    ] {
        for kind in [None, Some("offer"), Some("off")] {
            for name in [None, Some("south"), Some("%")] {
                for version in [None, Some(2), Some(3)] {
                    let filter = TaskFilter {
                        state,
                        kind: kind.map(str::to_owned),
                        lane: name.map(lane),
                        version,
                    };
                    let expected = everything.iter().filter(|view| takes(&filter, view)).cloned();
                    assert_eq!(all(&*queue, &filter).await, expected.collect::<Vec<_>>(), "{filter:?}");
                }
            }
        }
    }
}

/// A filter by state finds tasks in each state, page by page.
pub async fn every_state_is_listed<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let mut ids: BTreeMap<TaskState, Vec<TaskId>> = BTreeMap::new();
    for state in TaskState::ALL {
        for n in 0..7 {
            let id = in_state(&*queue, &format!("{state}-{n}"), state).await;
            ids.entry(state).or_default().push(id);
        }
    }
    for (state, mut expected) in ids {
        expected.sort_unstable();
        let filter = TaskFilter {
            state: Some(state),
            ..TaskFilter::default()
        };
        let views = all(&*queue, &filter).await;
        assert_eq!(views.iter().map(|view| view.id).collect::<Vec<_>>(), expected);
        assert!(views.iter().all(|view| view.state == state));
    }
}

/// Depths count by lane and state, in that order, and leave out what is done.
pub async fn depths_count_by_lane_and_state<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    for state in TaskState::ALL {
        for n in 0..=state.code() {
            let _ = in_state(&*queue, &format!("{state}-{n}"), state).await;
        }
    }
    added(&*queue, &tasks("another", 3)).await;
    let depth = |name, state, tasks| Depth {
        lane: lane(name),
        state,
        tasks,
    };
    let expected = [
        depth("another", TaskState::Waiting, 3),
        depth("offer", TaskState::Waiting, 1),
        depth("offer", TaskState::Running, 2),
        depth("offer", TaskState::Held, 3),
        depth("offer", TaskState::Dead, 5),
    ];
    assert_eq!(answered(queue.depths().await), expected);
}

/// Looking changes nothing.
pub async fn looking_changes_nothing<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let mut before = Vec::new();
    for state in TaskState::ALL {
        let id = in_state(&*queue, state.as_str(), state).await;
        before.push(shown(&*queue, id).await);
    }
    for view in &before {
        let _ = answered(queue.attempts(view.id).await);
        let _ = all(&*queue, &TaskFilter::default()).await;
        let _ = answered(queue.depths().await);
        assert_eq!(shown(&*queue, view.id).await, *view);
    }
}

/// The clock that is shown is the one that dates tasks, and moves on.
pub async fn the_clock_is_the_one_that_dates_tasks<H: QueueHarness>(harness: &H) {
    let queue = harness.open().await;
    let before = answered(queue.now().await);
    added(&*queue, &[task("a")]).await;
    let enqueued = shown(&*queue, task("a").id()).await.enqueued_at;
    assert!(before <= enqueued && enqueued <= answered(queue.now().await));
}

/// Every task that the filter takes, by pages of four.
async fn all(queue: &impl InspectQueue, filter: &TaskFilter) -> Vec<TaskView> {
    let mut views: Vec<TaskView> = Vec::new();
    loop {
        let after = views.last().map(|view| view.id);
        let page = answered(queue.list(filter, TaskPage { after, limit: 4 }).await);
        assert!(page.len() <= 4);
        if page.is_empty() {
            return views;
        }
        views.extend(page);
    }
}

fn takes(filter: &TaskFilter, view: &TaskView) -> bool {
    filter.state.is_none_or(|state| state == view.state)
        && filter.kind.as_deref().is_none_or(|kind| kind == &*view.kind)
        && filter.lane.as_ref().is_none_or(|lane| *lane == view.lane)
        && filter.version.is_none_or(|version| version == view.version)
}
