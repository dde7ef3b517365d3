//! One call, from its first attempt to its end.

use std::time::Duration;

use super::code::Repeat;
use super::heard::{Expiry, Fate, Heard};
use super::policy::Policy;

/// How far an attempt came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Not one byte of the request left, provably.
    NotSent,
    /// Bytes left, and no answer came.
    Sent,
    /// Bytes left, and an answer began that did not come whole.
    CutOff(Heard),
    /// A whole answer came.
    Answered(Heard),
}

/// What to do after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Decision {
    /// Wait that long, then attempt again with the same key and the same bytes.
    Wait(Duration),
    /// Do not attempt again.
    Stop(Stop),
}

/// Why there is no further attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// It happened.
    Done,
    /// The answer would be the same again.
    Final,
    /// Bytes left without a key, or from a body that can be sent once only.
    Unrepeatable,
    /// The retries are used up.
    Attempts,
    /// The next attempt could not begin in time.
    Deadline {
        /// When it could have begun, from now.
        ready_in: Duration,
    },
    /// The key would stand for a new operation by then.
    Expired,
    /// Too many calls to this destination are retried already.
    Budget,
}

impl Stop {
    /// Every way to end for want of attempts, time or budget.
    #[cfg(feature = "client")]
    pub(crate) const EXHAUSTIONS: [Self; 4] = [
        Self::Attempts,
        Self::Deadline {
            ready_in: Duration::ZERO,
        },
        Self::Expired,
        Self::Budget,
    ];

    /// The name in metrics and accounts of a call.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Final => "final",
            Self::Unrepeatable => "unrepeatable",
            Self::Attempts => "attempts",
            Self::Deadline { .. } => "deadline",
            Self::Expired => "expired",
            Self::Budget => "budget",
        }
    }

    /// Whether the call ended for want of attempts, time or budget, and not because it was answered for good.
    pub const fn is_exhaustion(self) -> bool {
        matches!(
            self,
            Self::Attempts | Self::Deadline { .. } | Self::Expired | Self::Budget
        )
    }
}

/// What is known when a call is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Ending {
    /// It happened, once.
    Applied,
    /// It did not happen, and will not.
    NotApplied,
    /// It may have happened, or may yet.
    Unknown,
}

impl Ending {
    /// The name in metrics and accounts of a call.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::NotApplied => "not_applied",
            Self::Unknown => "unknown",
        }
    }
}

/// One call on its way: how often it was attempted, and what the attempts told.
#[derive(Clone, Debug)]
pub struct Course<'p> {
    policy: &'p Policy,
    repeatable: bool,
    attempts: u32,
    /// Some attempt before the last may have happened, or may still be on its way.
    doubt: bool,
    /// Some attempt is known to have happened, even if its answer was cut off.
    happened: bool,
    last: Option<Last>,
    /// When the key is thought to stop standing for this call, from its start.
    assumed: Option<Duration>,
    /// The same by the server's word, which is better; of several, the earliest.
    told: Option<Expiry>,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    fate: Fate,
    speaks_for_the_key: bool,
}

impl<'p> Course<'p> {
    /// A call that has not been attempted. `repeatable`: a key makes sending it again harmless, or it changes nothing, and
    /// its bytes can be sent again.
    pub fn new(policy: &'p Policy, repeatable: bool) -> Self {
        Self {
            policy,
            repeatable,
            attempts: 0,
            doubt: false,
            happened: false,
            last: None,
            assumed: None,
            told: None,
        }
    }

    /// The same for a call that somebody attempted before, without learning what came of it.
    #[must_use]
    pub fn in_doubt(mut self) -> Self {
        self.doubt = true;
        self
    }

    /// The same with a key that is thought to stand for this call so long from its start, until the server says better.
    #[must_use]
    pub fn expires_in(mut self, assumed: Option<Duration>) -> Self {
        self.assumed = assumed;
        self
    }

    /// From here on the call cannot be repeated: its key was left behind.
    pub fn leave_key(&mut self) {
        self.repeatable = false;
    }

    /// How often the call was attempted.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// When the key stops standing for this call, from its start; none, if it never does or nobody knows.
    pub fn expires(&self) -> Option<Duration> {
        match self.told {
            Some(Expiry::In(told)) => Some(told),
            Some(Expiry::Never) => None,
            None => self.assumed,
        }
    }

    /// The server's word on when the key stops standing for this call, from its start.
    pub fn expires_told(&self) -> Option<Expiry> {
        self.told
    }

    /// Whether some attempt is known to have happened.
    pub fn is_applied(&self) -> bool {
        self.happened
    }

    /// Whether the last attempt brought the answer that the key keeps.
    pub fn is_kept(&self) -> bool {
        self.last.is_some_and(|last| last.speaks_for_the_key)
    }

    /// Takes in how an attempt ended, `elapsed` after the start of the call, and decides what to do. `random` is any number,
    /// all equally likely; `grant` asks the retry budget, and only when everything else speaks for another attempt.
    pub fn after(&mut self, ended: &Ended, elapsed: Duration, random: u64, grant: impl FnOnce() -> bool) -> Decision {
        self.attempts = self.attempts.saturating_add(1);
        self.doubt |= self.last.is_some_and(|last| last.fate == Fate::Unknown);
        let last = ended.last();
        self.last = Some(last);
        self.happened |= last.fate == Fate::Happened;
        self.told = match (self.told, ended.heard().and_then(|heard| heard.expires)) {
            (Some(Expiry::In(told)), Some(Expiry::In(left))) => {
                Some(Expiry::In(told.min(elapsed.saturating_add(left))))
            }
            (_, Some(Expiry::In(left))) => Some(Expiry::In(elapsed.saturating_add(left))),
            (None, said) => said,
            (told, _) => told,
        };
        match self.next(ended, last.fate, elapsed, random) {
            Ok(_) if !grant() => Decision::Stop(Stop::Budget),
            Ok(wait) => Decision::Wait(wait),
            Err(stop) => Decision::Stop(stop),
        }
    }

    /// What is known, should it be over now.
    pub fn ending(&self) -> Ending {
        match self.last {
            // What is asked for again is only the rest of the answer.
            _ if self.happened => Ending::Applied,
            None if self.doubt => Ending::Unknown,
            None => Ending::NotApplied,
            Some(last) => match last.fate {
                Fate::Happened => Ending::Applied,
                Fate::Unknown => Ending::Unknown,
                // Of an earlier attempt a refusal tells nothing, unless it is the answer that the key has for good.
                Fate::DidNotHappen if self.doubt && !last.speaks_for_the_key => Ending::Unknown,
                Fate::DidNotHappen => Ending::NotApplied,
            },
        }
    }

    fn next(&self, ended: &Ended, fate: Fate, elapsed: Duration, random: u64) -> Result<Duration, Stop> {
        // Of an answer that was cut off, the rest is worth another attempt even if it is known what it says.
        let whole = !matches!(ended, Ended::CutOff(_));
        if fate == Fate::Happened && whole {
            return Err(Stop::Done);
        }
        if !self.repeatable && *ended != Ended::NotSent {
            return Err(Stop::Unrepeatable);
        }
        if let Ended::Answered(heard) = ended
            && heard.repeat() == Repeat::IsUseless
        {
            return Err(Stop::Final);
        }
        if self.attempts > self.policy.retries_max {
            return Err(Stop::Attempts);
        }
        let total = self.policy.total;
        let schedule = &self.policy.schedule;
        let backoff = schedule
            .wait(self.attempts, elapsed, total, random)
            .ok_or(Stop::Attempts)?;
        let asked = ended.heard().and_then(|heard| heard.retry_after).unwrap_or_default();
        let wait = backoff.max(asked);
        let then = elapsed.saturating_add(wait);
        if self.expires().is_some_and(|expires| then >= expires) {
            return Err(Stop::Expired);
        }
        let left = total.checked_sub(elapsed);
        if left.is_none_or(|left| wait > left) {
            return Err(Stop::Deadline { ready_in: wait });
        }
        Ok(wait)
    }
}

impl Ended {
    /// What was heard from the server, whole or not.
    pub fn heard(&self) -> Option<&Heard> {
        match self {
            Self::NotSent | Self::Sent => None,
            Self::CutOff(heard) | Self::Answered(heard) => Some(heard),
        }
    }

    /// What the attempt alone tells of the effect.
    pub fn fate(&self) -> Fate {
        match self {
            Self::NotSent => Fate::DidNotHappen,
            Self::Answered(heard) => heard.fate(),
            // That it happened is kept already, and cannot be taken back. Why it did not would be in what is missing, and
            // may be that it had happened before.
            Self::CutOff(heard) if heard.speaks_for_the_key() && heard.fate() == Fate::Happened => Fate::Happened,
            Self::Sent | Self::CutOff(_) => Fate::Unknown,
        }
    }

    fn last(&self) -> Last {
        Last {
            fate: self.fate(),
            speaks_for_the_key: self.heard().is_some_and(Heard::speaks_for_the_key),
        }
    }
}
