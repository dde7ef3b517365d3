//! Effects that commit together with the job's outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use exactly::job::{self, JobError, Jobs};
use exactly::queue::{
    AttemptView, End, FailureKind, InspectQueue, Lease, Queue, Settlement, TaskId, TaskState, TaskView,
};
use exactly::worker::{Running, Worker};
use tokio::time::sleep;

use super::Offers;
use super::ledger::{Ledger, Point};
use crate::worker::{Fault, SECOND};

/// What the handler does, by its run, from 1.
type Plan = fn(u32) -> Result<(), JobError>;

struct Scene {
    ledger: Arc<Ledger>,
    runs: Arc<AtomicU32>,
    running: Running,
    id: TaskId,
}

impl Scene {
    async fn new(ledger: Ledger, plan: Plan) -> Self {
        let ledger = Arc::new(ledger);
        let runs = Arc::new(AtomicU32::new(0));
        let handler = job::transactional(Arc::clone(&ledger), {
            let runs = Arc::clone(&runs);
            move |offers: Offers, tx, _| {
                let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
                Box::pin(async move {
                    tx.effects.push(offers.user.clone());
                    sleep(SECOND).await;
                    plan(run)?;
                    Ok(vec![format!("{} by run {run}", offers.user)])
                })
            }
        });
        let id = Jobs::new(Arc::clone(&ledger))
            .enqueue(&Offers::to("ada"))
            .await
            .unwrap()
            .id();
        let running = Worker::builder(Arc::<Ledger>::clone(&ledger))
            .job(handler)
            .start()
            .unwrap();
        Self {
            ledger,
            runs,
            running,
            id,
        }
    }

    async fn view(&self) -> TaskView {
        self.ledger.inner.show(self.id).await.unwrap().unwrap()
    }

    async fn history(&self) -> Vec<AttemptView> {
        self.ledger.inner.attempts(self.id).await.unwrap()
    }

    async fn ended(&self) -> TaskView {
        for _ in 0..100_000 {
            let view = self.view().await;
            if !matches!(view.state, TaskState::Waiting | TaskState::Running) {
                return view;
            }
            sleep(SECOND / 10).await;
        }
        panic!("the job never ended");
    }

    fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn effect_and_outcome_are_there_together() {
    let scene = Scene::new(Ledger::new(), |_| Ok(())).await;
    sleep(SECOND / 2).await;
    assert_eq!(scene.ledger.effects(), [""; 0]);
    let view = scene.ended().await;
    assert_eq!(
        (view.state, scene.ledger.effects()),
        (TaskState::Done, vec!["ada".to_owned()])
    );
    assert_eq!(view.outcome.unwrap(), "[\"ada by run 1\"]");
    assert_eq!(scene.running.drain().await.left, 0);
}

#[tokio::test(start_paused = true)]
async fn a_failure_rolls_back() {
    let plan: Plan = |run| {
        if run == 1 {
            Err(JobError::transient("away"))
        } else {
            Ok(())
        }
    };
    let scene = Scene::new(Ledger::new(), plan).await;
    let view = scene.ended().await;
    assert_eq!(
        (view.state, scene.ledger.effects()),
        (TaskState::Done, vec!["ada".to_owned()])
    );
    assert_eq!((scene.runs(), scene.ledger.rolled_back()), (2, 1));
    assert_eq!(scene.history().await[0].failure.message, "away");
}

#[tokio::test(start_paused = true)]
async fn a_panic_rolls_back_and_buries() {
    let scene = Scene::new(Ledger::new(), |_| panic!("a bug")).await;
    let view = scene.ended().await;
    assert_eq!((view.state, scene.ledger.effects()), (TaskState::Dead, Vec::new()));
    assert_eq!(view.failure.unwrap().kind, FailureKind::Panicked);
}

#[tokio::test(start_paused = true)]
async fn any_fault_of_a_transaction_leaves_one_effect() {
    for point in [Point::Open, Point::Settle, Point::Commit] {
        for first in [Fault::Refuses, Fault::LosesReply, Fault::Hangs] {
            for second in [None, Some(Fault::Refuses), Some(Fault::LosesReply)] {
                let ledger = Ledger::new();
                ledger.script(point, [Some(first), second].into_iter().flatten());
                let scene = Scene::new(ledger, |_| Ok(())).await;
                let view = scene.ended().await;
                let what = format!("{point:?} {first:?} {second:?}");
                assert_eq!(view.state, TaskState::Done, "{what}");
                assert_eq!(scene.ledger.effects(), ["ada"], "{what}");
                // Each failure was told, and not left to the lease.
                let history = scene.history().await;
                assert!(
                    history.iter().all(|attempt| attempt.failure.kind != FailureKind::Lost),
                    "{what}"
                );
                // After the end nothing more happens.
                sleep(600 * SECOND).await;
                assert_eq!(scene.ledger.effects(), ["ada"], "{what}");
                assert_eq!(scene.view().await, view, "{what}");
                assert_eq!(scene.running.drain().await.left, 0, "{what}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_came_through_is_not_repeated() {
    let ledger = Ledger::new();
    ledger.script(Point::Commit, [Fault::LosesReply]);
    let scene = Scene::new(ledger, |_| Ok(())).await;
    sleep(600 * SECOND).await;
    assert_eq!((scene.view().await.state, scene.runs()), (TaskState::Done, 1));
    assert_eq!(scene.history().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_can_never_work_ends_in_the_dead_letter() {
    let ledger = Ledger::new();
    ledger.script(Point::Commit, [Fault::Refuses; 100]);
    let scene = Scene::new(ledger, |_| Ok(())).await;
    let view = scene.ended().await;
    assert_eq!((view.state, scene.ledger.effects()), (TaskState::Dead, Vec::new()));
    assert_eq!(scene.runs(), 4);
    assert_eq!(view.failure.unwrap().message, "ledger: connection lost");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_taken_meanwhile_is_rolled_back_and_left_alone() {
    let scene = Scene::new(Ledger::new(), |_| Ok(())).await;
    sleep(SECOND / 2).await;
    let lease = Lease {
        id: scene.id,
        fence: scene.view().await.fence,
    };
    let elsewhere = Settlement::new(lease, End::Done("[\"elsewhere\"]".into()));
    let _ = scene.ledger.inner.settle(&[elsewhere]).await.unwrap();
    let before = scene.view().await;
    sleep(60 * SECOND).await;
    assert_eq!(scene.view().await, before);
    assert_eq!(
        (scene.ledger.effects(), scene.ledger.rolled_back(), scene.runs()),
        (Vec::new(), 1, 1)
    );
    assert_eq!(scene.history().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_job_is_enqueued_if_the_transaction_commits() {
    use exactly::queue::TransactionalQueue as _;
    let ledger = Arc::new(Ledger::new());
    let jobs = Jobs::new(Arc::clone(&ledger));
    let (kept, gone) = (Offers::to("ada"), Offers::to("bob"));
    let mut tx = ledger.open().await.unwrap();
    let rolled_back = jobs.enqueue_in(&mut tx, &gone).await.unwrap().id();
    ledger.rollback(tx).await.unwrap();
    let mut tx = ledger.open().await.unwrap();
    let rows = jobs.enqueue_all_in(&mut tx, std::slice::from_ref(&kept)).await.unwrap();
    let committed = rows[0].as_ref().unwrap().id();
    assert_eq!(ledger.inner.show(committed).await.unwrap(), None);
    ledger.commit(tx).await.unwrap();
    assert_eq!(ledger.inner.show(rolled_back).await.unwrap(), None);
    assert_eq!(
        ledger.inner.show(committed).await.unwrap().unwrap().state,
        TaskState::Waiting
    );
}
