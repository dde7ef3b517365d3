//! Whatever fails, whoever is killed: each task ends once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use exactly::queue::{End, Failure, FailureKind, TaskState};
use exactly::worker::{Ran, Running, from_fn};
use proptest::prelude::*;
use proptest::test_runner::Config;
use tokio::time::{Instant, sleep};

use super::{Fault, RiggedQueue, SECOND, Verb, builder, done, enqueue, history, show, transient};

const TASKS: usize = 12;
const RESCUES_MAX: u32 = 3;
/// After so many failures a task of these tests is buried.
const FAILURES_MAX: u32 = 3;

/// What a handler does the next time that it runs, whichever task it is.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Done,
    Slow(u8),
    Fail,
    Bury,
    Panic,
    Hang,
}

/// What happens to the workers and the queue meanwhile.
#[derive(Clone, Copy, Debug)]
enum Event {
    Wait(u8),
    Kill,
    Drain,
    Start,
    Break(Verb, Fault),
    Mend,
}

fn turns() -> impl Strategy<Value = Turn> {
    prop_oneof![
        6 => Just(Turn::Done),
        3 => (1..40_u8).prop_map(Turn::Slow),
        3 => Just(Turn::Fail),
        1 => Just(Turn::Bury),
        1 => Just(Turn::Panic),
        1 => Just(Turn::Hang),
    ]
}

fn events() -> impl Strategy<Value = Event> {
    let verbs = prop_oneof![
        Just(Verb::Lease),
        Just(Verb::Renew),
        Just(Verb::Settle),
        Just(Verb::Rescue)
    ];
    let faults = prop_oneof![Just(Fault::Refuses), Just(Fault::LosesReply), Just(Fault::Hangs)];
    prop_oneof![
        4 => (1..30_u8).prop_map(Event::Wait),
        2 => Just(Event::Kill),
        1 => Just(Event::Drain),
        2 => Just(Event::Start),
        2 => (verbs, faults).prop_map(|(verb, fault)| Event::Break(verb, fault)),
        2 => Just(Event::Mend),
    ]
}

/// What handlers say that they did, by task and fence.
type Said = Arc<Mutex<BTreeMap<(String, u64), Ran>>>;

fn worker(queue: &Arc<RiggedQueue>, turns: &Arc<Mutex<Vec<Turn>>>, said: &Said) -> Running {
    let (turns, said) = (Arc::clone(turns), Arc::clone(said));
    let handler = from_fn(move |task| {
        let turn = turns.lock().unwrap().pop().unwrap_or(Turn::Done);
        let said = Arc::clone(&said);
        Box::pin(async move {
            let failure = || Failure::new(FailureKind::Logic, "as told");
            let ran = match turn {
                Turn::Done => Ran::End(End::Done(format!("fence {}", task.lease.fence).into())),
                Turn::Slow(seconds) => {
                    sleep(SECOND * u32::from(seconds)).await;
                    done()
                }
                Turn::Fail if task.failures < FAILURES_MAX => transient(20 * SECOND),
                Turn::Fail | Turn::Bury => Ran::End(End::Bury(failure())),
                Turn::Panic => panic!("as told"),
                Turn::Hang => std::future::pending().await,
            };
            let mut said = said.lock().unwrap();
            said.insert((task.key.to_string(), task.lease.fence.get()), ran.clone());
            ran
        })
    });
    let builder = builder(queue, handler).concurrency(3).rescues_max(RESCUES_MAX);
    builder.drain_for(5 * SECOND).start().unwrap()
}

async fn each_task_ends_once(turns: Vec<Turn>, events: Vec<Event>) {
    let queue = Arc::new(RiggedQueue::new());
    let ids = enqueue(&queue, "work", TASKS).await;
    let (turns, said) = (Arc::new(Mutex::new(turns)), Said::default());
    let mut workers: Vec<Running> = Vec::new();
    for event in events {
        match event {
            Event::Wait(seconds) => sleep(SECOND * u32::from(seconds)).await,
            Event::Kill => drop(workers.pop()),
            Event::Drain => {
                if let Some(worker) = workers.pop() {
                    worker.drain().await;
                }
            }
            Event::Start => workers.push(worker(&queue, &turns, &said)),
            Event::Break(verb, fault) => queue.break_with(verb, fault),
            Event::Mend => queue.mend(),
        }
    }
    // From here on nothing fails any more, and handlers that hang lose their process.
    queue.mend();
    let started = Instant::now();
    let mut open = ids.clone();
    while !open.is_empty() {
        drop(std::mem::take(&mut workers));
        workers.push(worker(&queue, &turns, &said));
        sleep(120 * SECOND).await;
        let mut still = Vec::new();
        for id in open {
            if !matches!(show(&queue, id).await.state, TaskState::Done | TaskState::Dead) {
                still.push(id);
            }
        }
        open = still;
        assert!(
            started.elapsed() < Duration::from_hours(48),
            "{} tasks never end",
            open.len()
        );
    }
    let mut ends = Vec::new();
    for id in &ids {
        let view = show(&queue, *id).await;
        let history = history(&queue, *id).await;
        let ended = |so: fn(FailureKind) -> bool| history.iter().filter(|attempt| so(attempt.failure.kind)).count();
        let lost = ended(|kind| kind == FailureKind::Lost);
        assert_eq!(usize::try_from(view.rescues).unwrap(), lost);
        let failed = ended(FailureKind::is_counted);
        assert_eq!(usize::try_from(view.failures).unwrap(), failed);
        assert!(history.is_sorted_by_key(|attempt| attempt.fence));
        let dead = history.iter().filter(|attempt| attempt.then == TaskState::Dead).count();
        assert_eq!(dead, usize::from(view.state == TaskState::Dead));
        if view.state == TaskState::Done {
            // The outcome is what the handler with that very fence said.
            let said = said.lock().unwrap();
            let by_fence = said.get(&(view.key.to_string(), view.fence.get()));
            assert_eq!(by_fence, Some(&Ran::End(End::Done(view.outcome.clone().unwrap()))));
        } else {
            assert_eq!(history.last().map(|attempt| &attempt.failure), view.failure.as_ref());
        }
        ends.push((view.state, view.fence, view.outcome));
    }
    // It stays so.
    sleep(300 * SECOND).await;
    for (id, end) in ids.iter().zip(ends) {
        let view = show(&queue, *id).await;
        assert_eq!((view.state, view.fence, view.outcome), end);
    }
}

proptest! {
    #![proptest_config(Config { cases: 200, ..Config::default() })]

    #[test]
    fn each_task_ends_done_or_dead_once_whatever_fails(
        turns in proptest::collection::vec(turns(), 0..60),
        events in proptest::collection::vec(events(), 0..30),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(each_task_ends_once(turns, events));
    }
}
