//! How often, how long and how soon.

use std::fmt;
use std::time::Duration;

use super::schedule::Schedule;

/// What kind of work is repeated. Budgets and metrics are kept apart by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Somebody waits: 3 retries within 10 seconds.
    UserFacing,
    /// Nobody waits: 5 retries within 5 minutes.
    Background,
    /// An event on its way to another system: ten attempts within 24 hours.
    Webhook,
    /// Work that a schedule started: 3 retries within an hour.
    Scheduled,
    /// A class of your own, by the name it has in metrics.
    Custom(&'static str),
}

impl Class {
    /// The four classes that have a policy of their own.
    pub const ALL: [Self; 4] = [Self::UserFacing, Self::Background, Self::Webhook, Self::Scheduled];

    /// The name in metrics, configuration and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UserFacing => "user-facing",
            Self::Background => "background",
            Self::Webhook => "webhook",
            Self::Scheduled => "scheduled",
            Self::Custom(name) => name,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How often, how long and how soon a call of one class is repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What the work is.
    pub class: Class,
    /// Attempts after the first one.
    pub retries_max: u32,
    /// From the first byte of the first attempt to the last of the last one, with every wait between.
    pub total: Duration,
    /// How long one attempt may take, so that a server that says nothing does not use up the time of all.
    pub attempt: Duration,
    /// How long to wait before each retry.
    pub schedule: Schedule,
}

impl Policy {
    /// The policy of a class; a custom one starts out as user-facing.
    pub fn of(class: Class) -> Self {
        let seconds = Duration::from_secs;
        let (retries_max, total, attempt, schedule) = match class {
            Class::UserFacing | Class::Custom(_) => (3, seconds(10), seconds(5), Schedule::PLAYBOOK),
            Class::Background => (5, Duration::from_mins(5), seconds(30), Schedule::SECONDS),
            Class::Webhook => (9, Duration::from_hours(24), seconds(30), Schedule::WEBHOOK),
            Class::Scheduled => (3, Duration::from_hours(1), Duration::from_mins(1), Schedule::SCHEDULED),
        };
        Self {
            class,
            retries_max,
            total,
            attempt,
            schedule,
        }
    }

    /// The same with another number of attempts after the first one; zero never repeats.
    #[must_use]
    pub fn retries(mut self, max: u32) -> Self {
        self.retries_max = max;
        self
    }

    /// The same within another time.
    #[must_use]
    pub fn within(mut self, total: Duration) -> Self {
        self.total = total;
        self
    }

    /// The same with another time for each attempt.
    #[must_use]
    pub fn attempt_within(mut self, attempt: Duration) -> Self {
        self.attempt = attempt;
        self
    }

    /// The same with other waits.
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }
}
