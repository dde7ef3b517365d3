//! Jobs that share transactions: nothing changes but how often is committed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use exactly::job::{self, JobError, Jobs};
use exactly::queue::{FailureKind, InspectQueue as _, TaskFilter, TaskPage, TaskState, TaskView};
use exactly::worker::{Running, Worker};
use tokio::time::sleep;

use super::Offers;
use super::ledger::{Ledger, Point};
use crate::worker::{Fault, SECOND};

const JOBS: usize = 20;

struct Scene {
    ledger: Arc<Ledger>,
    runs: Arc<Mutex<BTreeMap<String, u32>>>,
    at_once: Arc<AtomicU32>,
    _running: Running,
}

/// What the handler does for whom, by how often it ran for them.
type Plan = fn(&str, u32) -> Result<(), JobError>;

impl Scene {
    async fn new(ledger: Ledger, plan: Plan) -> Self {
        let ledger = Arc::new(ledger);
        let runs = Arc::<Mutex<BTreeMap<String, u32>>>::default();
        let at_once = Arc::<AtomicU32>::default();
        let handler = job::transactional(Arc::clone(&ledger), {
            let (runs, at_once) = (Arc::clone(&runs), Arc::clone(&at_once));
            move |offers: Offers, tx, _| {
                let run = {
                    let mut runs = runs.lock().unwrap();
                    let run = runs.entry(offers.user.clone()).or_default();
                    *run += 1;
                    *run
                };
                let at_once = Arc::clone(&at_once);
                Box::pin(async move {
                    tx.effects.push(offers.user.clone());
                    sleep(SECOND / 10).await;
                    at_once.fetch_max(u32::try_from(tx.effects.len()).unwrap(), Ordering::SeqCst);
                    plan(&offers.user, run)?;
                    Ok(vec![offers.user])
                })
            }
        });
        let users: Vec<_> = (0..JOBS).map(|n| Offers::to(&format!("user-{n:02}"))).collect();
        let _ = Jobs::new(Arc::clone(&ledger)).enqueue_all(&users).await.unwrap();
        let running = Worker::builder(Arc::<Ledger>::clone(&ledger)).job(handler.sharing(6, 2));
        Self {
            ledger,
            runs,
            at_once,
            _running: running.start().unwrap(),
        }
    }

    async fn ended(&self) -> Vec<TaskView> {
        let page = TaskPage {
            after: None,
            limit: 100,
        };
        for _ in 0..100_000 {
            let tasks = self.ledger.inner.list(&TaskFilter::default(), page).await.unwrap();
            if tasks
                .iter()
                .all(|task| matches!(task.state, TaskState::Done | TaskState::Dead))
            {
                // After the end nothing more happens.
                sleep(600 * SECOND).await;
                return self.ledger.inner.list(&TaskFilter::default(), page).await.unwrap();
            }
            sleep(SECOND / 10).await;
        }
        panic!("the jobs never ended");
    }

    fn effects(&self) -> Vec<String> {
        let mut effects = self.ledger.effects();
        effects.sort();
        effects
    }
}

fn everybody() -> Vec<String> {
    (0..JOBS).map(|n| format!("user-{n:02}")).collect()
}

#[tokio::test(start_paused = true)]
async fn jobs_at_hand_share_a_transaction_and_have_one_effect_each() {
    let scene = Scene::new(Ledger::new(), |_, _| Ok(())).await;
    assert!(scene.ended().await.iter().all(|task| task.state == TaskState::Done));
    assert_eq!(scene.effects(), everybody());
    assert_eq!(scene.at_once.load(Ordering::SeqCst), 6);
    assert!(scene.runs.lock().unwrap().values().all(|runs| *runs == 1));
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_takes_nobody_along() {
    for panics in [false, true] {
        let plan: Plan = if panics {
            |user, _| if user == "user-07" { panic!("a bug") } else { Ok(()) }
        } else {
            |user, _| {
                if user == "user-07" {
                    return Err(JobError::logic("never"));
                }
                Ok(())
            }
        };
        let scene = Scene::new(Ledger::new(), plan).await;
        let tasks = scene.ended().await;
        let dead: Vec<_> = tasks.iter().filter(|task| task.state == TaskState::Dead).collect();
        assert_eq!(dead.len(), 1);
        assert!(dead[0].key.contains("user-07"));
        let kind = if panics {
            FailureKind::Panicked
        } else {
            FailureKind::Logic
        };
        assert_eq!(dead[0].failure.as_ref().unwrap().kind, kind);
        assert_eq!(dead[0].failures, 1);
        let others: Vec<_> = everybody().into_iter().filter(|user| user != "user-07").collect();
        assert_eq!(scene.effects(), others);
        for task in tasks.iter().filter(|task| task.state == TaskState::Done) {
            assert_eq!(task.failures, 0, "{task:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn any_fault_of_a_shared_transaction_leaves_one_effect_each() {
    for point in [Point::Open, Point::Settle, Point::Commit] {
        for fault in [Fault::Refuses, Fault::LosesReply, Fault::Hangs] {
            for times in [1, 3] {
                let ledger = Ledger::new();
                ledger.script(point, std::iter::repeat_n(fault, times));
                let scene = Scene::new(ledger, |_, _| Ok(())).await;
                let tasks = scene.ended().await;
                let what = format!("{point:?} {fault:?} {times}");
                assert!(tasks.iter().all(|task| task.state == TaskState::Done), "{what}");
                assert_eq!(scene.effects(), everybody(), "{what}");
            }
        }
    }
}
