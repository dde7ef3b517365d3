//! Jobs that share a transaction.
//!
//! Nobody waits for company: whoever finds a place for a transaction takes along what waits by then. Under load that is
//! more the longer a commit takes.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tokio::sync::{Semaphore, oneshot};

use super::{Transactional, Working, roll_back};
use crate::Fenced;
use crate::job::{Context, Job, JobError, read};
use crate::queue::{End, Leased, Settlement, TransactionalQueue};
use crate::worker::Ran;
use crate::worker::attempt::contained;

/// Jobs that wait for a transaction.
#[derive(Debug)]
pub(super) struct Shared {
    most: usize,
    // A std mutex, since it is held for a push or a few pops and never across an await.
    waiting: Mutex<VecDeque<Waiting>>,
    transactions: Semaphore,
}

#[derive(Debug)]
struct Waiting {
    task: Leased,
    /// Dropped without a word if the job has to run alone.
    told: oneshot::Sender<Ran>,
}

/// How a shared transaction ended.
enum Together {
    Committed,
    /// Nothing happened, and each runs alone.
    RolledBack,
    /// It may have been committed all the same, so none of them may run again before its settlement tells.
    Unknown(JobError),
}

impl Shared {
    pub(super) fn new(most: usize, at_once: usize) -> Self {
        Self {
            most,
            waiting: Mutex::default(),
            transactions: Semaphore::new(at_once.clamp(1, Semaphore::MAX_PERMITS)),
        }
    }

    fn join(&self, task: &Leased) -> oneshot::Receiver<Ran> {
        let (told, answer) = oneshot::channel();
        let task = task.clone();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(Waiting { task, told });
        answer
    }

    /// Those who have waited the longest, without those who are gone.
    fn take(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut party = Vec::new();
        while party.len() < self.most {
            match waiting.pop_front() {
                Some(next) if next.told.is_closed() => {}
                Some(next) => party.push(next),
                None => break,
            }
        }
        party
    }
}

impl<J, Q, F> Transactional<J, Q, F>
where
    J: Job,
    Q: TransactionalQueue,
    F: for<'t> Fn(J, &'t mut Q::Tx, Context) -> Working<'t, J> + Send + Sync + 'static,
{
    /// What came of the job in a transaction with others, or nothing if it has to run alone.
    pub(super) async fn run_shared(&self, shared: &Shared, task: &Leased) -> Option<Ran> {
        let mut answer = shared.join(task);
        loop {
            tokio::select! {
                biased;
                // Whoever took it along may be gone, and has rolled back then.
                answered = &mut answer => return answered.ok(),
                place = shared.transactions.acquire() => {
                    let place = place.ok()?;
                    let party = shared.take();
                    if party.is_empty() {
                        // Somebody has taken this one along already.
                        drop(place);
                        return answer.await.ok();
                    }
                    self.ride(party).await;
                }
            }
        }
    }

    /// Runs those who found a place. A panic is told by the job that panics again, alone, and not by the one that took it
    /// along.
    async fn ride(&self, party: Vec<Waiting>) {
        if party.len() < 2 {
            // In the place, so that others gather meanwhile.
            for Waiting { task, told } in party {
                if let Ok(ran) = contained(self.run_alone(&task)).await {
                    let _ = told.send(ran);
                }
            }
            return;
        }
        match contained(self.together(&party)).await.unwrap_or(Together::RolledBack) {
            Together::Committed => {
                for Waiting { told, .. } in party {
                    let _ = told.send(Ran::Settled);
                }
            }
            Together::RolledBack => {}
            Together::Unknown(error) => {
                for Waiting { task, told } in party {
                    let _ = told.send(Ran::End(self.terms.failed(&task, &error)));
                }
            }
        }
    }

    async fn together(&self, party: &[Waiting]) -> Together {
        let Ok(mut tx) = self.terms.bounded("open transaction", self.queue.open()).await else {
            return Together::RolledBack;
        };
        let mut settlements = Vec::with_capacity(party.len());
        for Waiting { task, .. } in party {
            let worked = match read::<J>(task) {
                Ok(job) => self.work(task, job, &mut tx).await.ok(),
                Err(_) => None,
            };
            let Some(outcome) = worked else {
                roll_back(&*self.queue, tx).await;
                return Together::RolledBack;
            };
            settlements.push(Settlement::new(task.lease, End::Done(outcome)));
        }
        let settled = self.queue.settle_in(&mut tx, &settlements);
        let settled = self.terms.bounded("settle jobs", settled).await;
        if !settled.is_ok_and(|settled| settled.iter().all(|fenced| *fenced == Fenced::Applied)) {
            roll_back(&*self.queue, tx).await;
            return Together::RolledBack;
        }
        match self.terms.bounded("commit jobs", self.queue.commit(tx)).await {
            Ok(()) => Together::Committed,
            Err(error) => Together::Unknown(error),
        }
    }
}
