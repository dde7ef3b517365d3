//! What the queue's answers change.

use std::time::Duration;

use tokio::time::Instant;

use super::super::calls::{Answer, RESCUES};
use super::super::hand::Lost;
use super::super::log;
use super::super::settler::{Batch, Unsettled};
use super::{Shift, about};
use crate::queue::{End, Lease, Leased, Rescued, Ruling};
use crate::{Fenced, StoreError, StoreErrorKind, telemetry};

/// How long nothing is rescued after a call failed. Whoever could not renew or settle while the queue was away tries within
/// half of it, and is not to find its task taken by somebody who was quicker.
const GRACE: Duration = Duration::from_secs(10);

impl Shift {
    /// Takes in what came of a call.
    pub(super) fn take_answer(&mut self, answer: Answer) {
        let now = Instant::now();
        match answer {
            Answer::Leased { asked, at, tasks } => self.take_leased(asked, at, tasks, now),
            Answer::Renewed { leases, at, rulings } => self.take_renewed(&leases, at, rulings, now),
            Answer::Settled { batch, rulings } => self.take_settled(batch, rulings, now),
            Answer::Rescued(rescued) => self.take_rescued(rescued, now),
        }
    }

    fn take_rescued(&mut self, rescued: Result<Vec<Rescued>, StoreError>, now: Instant) {
        match rescued {
            Ok(rescued) => {
                self.answered_at = now;
                self.sweep.worked(now);
                if u32::try_from(rescued.len()).is_ok_and(|count| count >= RESCUES) {
                    self.sweep.hurry(now);
                }
                self.books.rescued(&rescued, self.settings.rescues_max);
            }
            Err(error) => {
                self.sweep.failed(&error, now, self.spread.next());
                self.put_off_sweep(&error, now);
            }
        }
    }

    fn put_off_sweep(&mut self, error: &StoreError, now: Instant) {
        if is_away(error) {
            self.sweep.put_off(now + GRACE);
        }
    }

    fn take_leased(&mut self, asked: u32, at: Instant, tasks: Result<Vec<Leased>, StoreError>, now: Instant) {
        let tasks = match tasks {
            Ok(tasks) => tasks,
            Err(error) => {
                self.appetite.refused();
                self.appetite.backoff.failed(&error, now, self.spread.next());
                self.put_off_sweep(&error, now);
                return;
            }
        };
        self.answered_at = now;
        let pause = about(self.settings.poll_every, &self.spread);
        let got = tasks.len();
        let sure_until = at + self.settings.lease;
        if !tasks.is_empty() {
            self.unsure_at.get_or_insert(sure_until);
        }
        for task in tasks {
            if let Some(task) = self.hand.take(task, sure_until) {
                self.settle(task, End::Release, now);
            }
        }
        self.appetite.fed(asked, got, &self.hand, now + pause, now);
        if self.closing.is_some() {
            self.release_waiting(now);
        }
    }

    fn take_renewed(&mut self, leases: &[Lease], at: Instant, rulings: Result<Vec<Ruling>, StoreError>, now: Instant) {
        let rulings = match rulings {
            Ok(rulings) => rulings,
            Err(error) => {
                self.heartbeat.failed(&error, now, self.spread.next());
                self.put_off_sweep(&error, now);
                return;
            }
        };
        self.answered_at = now;
        self.heartbeat.worked(now);
        // What ended while the call was under way was settled by its own handler, perhaps, and not by somebody else.
        while let Ok(report) = self.inbox.try_recv() {
            self.take_report(report);
        }
        for (lease, ruling) in leases.iter().zip(rulings) {
            match ruling {
                Ruling::Applied => self.hand.renewed(*lease, at + self.settings.lease),
                Ruling::Superseded => {
                    if let Some(lost) = self.hand.superseded(*lease) {
                        telemetry::job_leases_lost(1);
                        if let Lost::Waiting(task) = lost {
                            log::lost(&task, "somebody else has it");
                        }
                    }
                }
                // It goes on as long as it would have, and is renewed next time.
                Ruling::Busy => {}
            }
        }
    }

    fn take_settled(&mut self, batch: Batch, rulings: Result<Vec<Ruling>, StoreError>, now: Instant) {
        let rulings = match rulings {
            Ok(rulings) => rulings,
            Err(error) => {
                self.settler.backoff.failed(&error, now, self.spread.next());
                self.put_off_sweep(&error, now);
                let heard_at = (!is_away(&error)).then_some(self.answered_at);
                let given_up = self.settler.refused(batch, self.settings.lease, heard_at, now);
                self.give_up(given_up);
                return;
            }
        };
        self.answered_at = now;
        let batch = self.settler.taken(batch, now);
        // A capped lane may have a place again, which not every queue tells of.
        self.appetite.hear();
        for (unsettled, ruling) in batch.into_iter().zip(rulings) {
            let fenced = match ruling {
                Ruling::Applied => Fenced::Applied,
                Ruling::Superseded => Fenced::Superseded,
                Ruling::Busy => {
                    let given_up = self.settler.busy(unsettled, self.settings.lease, now);
                    self.give_up(given_up);
                    continue;
                }
            };
            let Unsettled { task, end, .. } = unsettled;
            self.hand.let_go(task.lease);
            if let End::Defer { after } = end
                && after < self.settings.poll_every
            {
                self.appetite.expect(now + after);
            }
            self.books.settled(&task, &end, fenced);
        }
    }

    /// The queue is not told how this one ended.
    fn give_up(&mut self, unsettled: Option<Unsettled>) {
        if let Some(Unsettled { task, .. }) = unsettled {
            log::given_up(&task);
            self.hand.let_go(task.lease);
        }
    }
}

/// Whether a queue could take nothing at all, and not only what it was given.
fn is_away(error: &StoreError) -> bool {
    use StoreErrorKind::{Full, ReadOnly, Unavailable};
    matches!(error.kind(), Unavailable | Full | ReadOnly)
}
