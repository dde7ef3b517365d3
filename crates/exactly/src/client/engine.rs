//! The loop: attempt, judge, wait, and again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use tracing::Instrument as _;

use super::account::{Account, Attempt};
use super::error::{Error, ErrorKind};
use crate::retry::{Budget, Budgets, Course, Decision, Ended, Ending, Expiry, Fate, Policy, Repeat, Stop};
use crate::spread::Spread;
use crate::{Key, telemetry};

/// What calls to all destinations share.
#[derive(Clone)]
pub(super) struct Engine {
    budgets: Arc<Budgets>,
    /// What budgets count time from.
    epoch: Instant,
    random: Arc<dyn Fn() -> u64 + Send + Sync>,
}

/// One call, for the loop.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) policy: &'a Policy,
    pub(super) key: Option<&'a Key>,
    /// Whose budget pays for retries.
    pub(super) destination: &'a str,
    /// The body is gone with the first attempt, sent or not.
    pub(super) once_only: bool,
}

/// Something that can send the call, time after time.
pub(super) trait Transport {
    type Answer: Send;

    /// Sends the call once. `deadline` is when the call has to be over, which whoever answers it is told.
    fn attempt(&mut self, deadline: Instant) -> impl Future<Output = Attempted<Self::Answer>> + Send;

    /// The time was up while an attempt was under way: how far did it come?
    fn give_up(&mut self) -> Attempted<Self::Answer>;

    /// An attempt is over, and this is how long is waited before the next one, if there is one.
    fn over(&mut self, _attempt: &Attempt, _wait: Option<Duration>) {}
}

/// How one attempt went.
#[derive(Debug)]
pub(super) struct Attempted<A> {
    pub(super) ended: Ended,
    pub(super) answer: Option<A>,
    pub(super) code: Option<String>,
    pub(super) error: Option<Error>,
    /// The call was sent on to where its key must not go.
    pub(super) left_key: bool,
    /// It reached somebody without its key, so that it must not go there again, whatever came of the rest of its way.
    pub(super) is_spent: bool,
}

/// How a call went.
#[derive(Debug)]
pub(super) struct Ran<A> {
    pub(super) ending: Ending,
    pub(super) answer: Option<A>,
    pub(super) error: Option<Error>,
    pub(super) account: Account,
    /// The server's word on when the key stops standing for the call, from now.
    pub(super) expires: Option<Expiry>,
    /// The answer is the one that the key keeps.
    pub(super) is_kept: bool,
}

impl Engine {
    pub(super) fn new(budgets: Arc<Budgets>) -> Self {
        let spread = Spread::new();
        Self {
            budgets,
            epoch: Instant::now(),
            random: Arc::new(move || spread.next()),
        }
    }

    pub(super) fn with_random(mut self, random: Arc<dyn Fn() -> u64 + Send + Sync>) -> Self {
        self.random = random;
        self
    }

    /// Attempts the call until it is over.
    pub(super) async fn run<T: Transport>(
        &self,
        plan: &Plan<'_>,
        mut course: Course<'_>,
        transport: &mut T,
    ) -> Ran<T::Answer> {
        let started = Instant::now();
        let deadline = after(started, plan.policy.total);
        let class = plan.policy.class;
        let now = started.duration_since(self.epoch);
        let budget = self.budgets.of(plan.destination, class, now);
        budget.call(now);
        let mut attempts = Vec::with_capacity(1);
        let mut delay = Duration::ZERO;
        let (mut answer, mut error) = (None, None);
        // A clock is read when something has taken time, and not for everybody who wants to know.
        let (mut begun, mut ended) = (started, started);
        let stop = loop {
            let Some(until) = attempt_until(plan.policy, &course, started, begun) else {
                break Stop::Expired;
            };
            let span = attempt_span(plan, course.attempts() + 1);
            let attempt = transport.attempt(deadline).instrument(span);
            let mut attempted = match timeout_at(until.min(deadline), attempt).await {
                Ok(attempted) => attempted,
                Err(_) => transport.give_up(),
            };
            ended = Instant::now();
            let took = ended.duration_since(begun);
            count_expiry_from_start(&mut attempted.ended, took);
            let was_applied = course.is_applied();
            let next = self.next(plan, &mut course, &budget, &attempted, started, ended);
            // Of a call that is known to have happened, as much of its answer as came is better than any other.
            answer = if was_applied && !is_whole(&attempted.ended) {
                answer.or(attempted.answer)
            } else {
                attempted.answer
            };
            let attempt = Attempt {
                number: course.attempts(),
                delay,
                took,
                ended: attempted.ended,
                code: attempted.code,
                error: attempted.error.as_ref().map(Error::kind),
                note: attempted.error.as_ref().map(Error::story),
            };
            error = attempted.error;
            transport.over(&attempt, next.ok());
            attempts.push(attempt);
            match next {
                Ok(wait) => {
                    telemetry::retry(class, wait);
                    // As many series as there are budgets, and no more.
                    if !self.budgets.is_shared(&budget) {
                        telemetry::budget(class, plan.destination, budget.left(ended.duration_since(self.epoch)));
                    }
                    sleep(wait).await;
                    delay = wait;
                    begun = Instant::now();
                }
                Err(stop) => break stop,
            }
        };
        telemetry::called(class, course.ending(), stop);
        let took = ended.duration_since(started);
        Ran::ended(plan, &course, stop, attempts, took, answer, error)
    }

    /// How long to wait for the next attempt, or why there is none.
    fn next<A>(
        &self,
        plan: &Plan<'_>,
        course: &mut Course<'_>,
        budget: &Budget,
        attempted: &Attempted<A>,
        started: Instant,
        ended: Instant,
    ) -> Result<Duration, Stop> {
        if attempted.left_key {
            course.leave_key();
        }
        let now = ended.duration_since(self.epoch);
        budget.ended(now, is_well(&attempted.ended));
        let elapsed = ended.duration_since(started);
        let once_only = plan.once_only || attempted.is_spent;
        let grant = || !once_only && budget.take(now);
        match course.after(&attempted.ended, elapsed, (self.random)(), grant) {
            Decision::Wait(_) | Decision::Stop(Stop::Budget) if once_only => Err(Stop::Unrepeatable),
            // It would be over before it begins.
            Decision::Wait(wait) if elapsed.saturating_add(wait) >= plan.policy.total => {
                Err(Stop::Deadline { ready_in: wait })
            }
            Decision::Wait(wait) => Ok(wait),
            Decision::Stop(stop) => Err(stop),
        }
    }
}

impl<A> Ran<A> {
    fn ended(
        plan: &Plan<'_>,
        course: &Course<'_>,
        stop: Stop,
        attempts: Vec<Attempt>,
        took: Duration,
        answer: Option<A>,
        error: Option<Error>,
    ) -> Self {
        Self {
            ending: course.ending(),
            answer,
            error,
            account: Account {
                key: plan.key.cloned(),
                attempts,
                stop: Some(stop),
                took,
            },
            expires: course.expires_told().map(|expires| match expires {
                Expiry::In(told) => Expiry::In(told.saturating_sub(took)),
                Expiry::Never => Expiry::Never,
            }),
            is_kept: course.is_kept(),
        }
    }
}

impl<A> Attempted<A> {
    /// No answer came.
    pub(super) fn failed(ended: Ended, error: Error) -> Self {
        Self {
            ended,
            answer: None,
            code: None,
            error: Some(error),
            left_key: false,
            is_spent: false,
        }
    }

    /// The time was up.
    pub(super) fn too_late(ended: Ended) -> Self {
        let context = match ended {
            Ended::NotSent => "no connection before the time was up",
            Ended::CutOff(_) => "the time was up before the answer was whole",
            Ended::Sent | Ended::Answered(_) => "no answer before the time was up",
        };
        Self::failed(ended, Error::new(ErrorKind::Timeout, context))
    }
}

/// The moment `wait` after `instant`, or one that nobody lives to see.
fn after(instant: Instant, wait: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_hours(100 * 365 * 24);
    instant + wait.min(CENTURY)
}

/// When the attempt that begins now has to end, or nothing, if its key does not stand for the call any more: what arrives
/// then would be a new operation.
fn attempt_until(policy: &Policy, course: &Course<'_>, started: Instant, begun: Instant) -> Option<Instant> {
    let own = after(begun, policy.attempt);
    let Some(expires) = course.expires() else {
        return Some(own);
    };
    let expires = after(started, expires);
    (begun < expires).then_some(own.min(expires))
}

/// Makes sure that no key is relied on for too long: an answer took its time to arrive, and its dates have whole seconds.
fn count_expiry_from_start(ended: &mut Ended, took: Duration) {
    const ROUNDED: Duration = Duration::from_secs(1);
    if let Ended::CutOff(heard) | Ended::Answered(heard) = ended
        && let Some(Expiry::In(left)) = &mut heard.expires
    {
        *left = left.saturating_sub(took.saturating_add(ROUNDED));
    }
}

/// Whether this is the whole answer of a call that happened.
fn is_whole(ended: &Ended) -> bool {
    matches!(ended, Ended::Answered(heard) if heard.fate() == Fate::Happened)
}

/// Whether the destination is doing well: it answered, and not by asking to be left alone.
fn is_well(ended: &Ended) -> bool {
    match ended {
        Ended::Answered(heard) => heard.repeat() == Repeat::IsUseless,
        Ended::NotSent | Ended::Sent | Ended::CutOff(_) => false,
    }
}

fn attempt_span(plan: &Plan<'_>, attempt: u32) -> tracing::Span {
    let span = tracing::debug_span!(
        "attempt",
        key = tracing::field::Empty,
        attempt,
        destination = plan.destination
    );
    // A digest costs more than a span that nobody looks at.
    if !span.is_disabled()
        && let Some(key) = plan.key
    {
        span.record("key", key.digest());
    }
    span
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("budgets", &self.budgets)
            .finish_non_exhaustive()
    }
}
