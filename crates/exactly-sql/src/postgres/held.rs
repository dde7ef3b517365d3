//! Steps about records that a transaction elsewhere holds.
//!
//! A service that completes its call in its own transaction holds the record until it commits, for as long as it likes.
//! Nobody else's step waits for that: those about the record are set aside, and one task asks for all of them again, in
//! one batch and after a pause. However many records are held, it takes one connection more, and that only while it asks.

use std::mem;
use std::sync::PoisonError;
use std::time::Duration;

use exactly::{StoreError, StoreErrorKind};
use tokio::time::{Instant, sleep};

use super::failure::may_be_one_steps_fault;
use super::flush::{PgFlush, Way, fitting};
use crate::batch::{BATCH_MAX, Step};

/// How long steps wait for a record that a transaction elsewhere holds. A begin is then told that the store cannot answer,
/// not that the key is in flight: the record may be its own, from a reply that was lost.
pub(super) const HELD_TIMEOUT: Duration = Duration::from_secs(3);

/// The most steps that wait so; what comes on top is refused, which bounds memory.
const HELD_MAX: usize = 16 * 1024;

/// Between two questions. Doubles from the one to the other: most records are held for the time of a commit.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Steps that were set aside.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Those that the task has not taken up yet.
    fresh: Vec<Waiting>,
    /// How many there are in all.
    count: usize,
    /// Whether there is a task that asks for them.
    attended: bool,
}

#[derive(Debug)]
struct Waiting {
    step: Step,
    until: Instant,
}

impl PgFlush {
    /// Leaves the steps to the task that asks for held records, which is started if there is none.
    pub(super) fn set_aside(&self, steps: Vec<Step>) {
        if steps.is_empty() {
            return;
        }
        let until = Instant::now() + HELD_TIMEOUT;
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.count + steps.len() > HELD_MAX {
            drop(held);
            return self.refuse(
                steps,
                "too many callers wait for records that transactions elsewhere hold",
            );
        }
        held.count += steps.len();
        held.fresh.extend(steps.into_iter().map(|step| Waiting { step, until }));
        if !mem::replace(&mut held.attended, true) {
            tokio::spawn(self.clone().attend());
        }
    }

    async fn attend(self) {
        let mut pause = PAUSE_MIN;
        let mut waiting: Vec<Waiting> = Vec::new();
        loop {
            sleep(pause).await;
            {
                let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
                let fresh = mem::take(&mut held.fresh);
                pause = if fresh.is_empty() { pause * 2 } else { PAUSE_MIN }.min(PAUSE_MAX);
                waiting.extend(fresh);
                held.count = waiting.len();
                if waiting.is_empty() {
                    held.attended = false;
                    return;
                }
            }
            waiting = self.ask_again(waiting).await;
        }
    }

    /// Carries out what is free by now, and returns the rest.
    async fn ask_again(&self, mut waiting: Vec<Waiting>) -> Vec<Waiting> {
        waiting.retain(|waiting| !waiting.step.is_pointless());
        let mut left = Vec::new();
        while !waiting.is_empty() {
            let (mut untils, mut steps): (Vec<_>, Vec<_>) = waiting.into_iter().map(|w| (w.until, w.step)).unzip();
            let size = fitting(&steps).min(BATCH_MAX);
            let (rest, rest_untils) = (steps.split_off(size), untils.split_off(size));
            left.extend(self.ask_once(steps, &untils).await);
            waiting = rest.into_iter().zip(rest_untils).map(Waiting::new).collect();
        }
        left
    }

    async fn ask_once(&self, steps: Vec<Step>, untils: &[Instant]) -> Vec<Waiting> {
        let done = match self.carry_out(&steps, Way::Careful).await {
            Ok(done) => done,
            Err(error) => {
                if may_be_one_steps_fault(&error) {
                    self.isolate(steps).await;
                } else {
                    self.fail(steps, error);
                }
                return Vec::new();
            }
        };
        let held = self.deliver_free(steps, done).await;
        let now = Instant::now();
        let (left, late): (Vec<_>, Vec<_>) = held
            .into_iter()
            .map(|(place, step)| Waiting::new((step, untils[place])))
            .partition(|waiting| now < waiting.until);
        let held_for = HELD_TIMEOUT.as_secs();
        self.refuse(
            late.into_iter().map(|waiting| waiting.step).collect(),
            &format!("a transaction elsewhere has held the record for {held_for} s"),
        );
        left
    }

    /// Tells callers why what they attempted was not even begun.
    fn refuse(&self, steps: Vec<Step>, why: &str) {
        let refused = steps.into_iter().filter_map(|step| {
            let context = format!("{}: {why}", step.attempted());
            step.refuse(StoreError::new(StoreErrorKind::Unavailable, context))
        });
        self.again.queue(refused.collect());
    }
}

impl Waiting {
    fn new((step, until): (Step, Instant)) -> Self {
        Self { step, until }
    }
}
