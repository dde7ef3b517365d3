//! Who is there, and for how long nobody could see to what the dead have left.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Which workers live, which do not, and since when.
#[derive(Debug, Default)]
pub(crate) struct Attendance(Mutex<HashMap<String, Presence>>);

#[derive(Clone, Copy, Debug)]
enum Presence {
    Here(Instant),
    Gone(Instant),
}

impl Attendance {
    pub(crate) fn comes(&self, worker: &str) {
        self.seen(worker, Presence::Here(Instant::now()));
    }

    pub(crate) fn goes(&self, worker: &str) {
        self.seen(worker, Presence::Gone(Instant::now()));
    }

    /// How long something that this worker holds could have been rescued by another one: its lease was over, and somebody
    /// was there.
    pub(crate) fn overdue(&self, worker: &str, lease: Duration) -> Duration {
        let presences = self.presences();
        let Some(Presence::Gone(gone)) = presences.get(worker) else {
            return Duration::ZERO;
        };
        let ended = *gone + lease;
        let first = presences.values().filter_map(|presence| match presence {
            Presence::Here(since) => Some((*since).max(ended)),
            Presence::Gone(_) => None,
        });
        first.min().map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn seen(&self, worker: &str, presence: Presence) {
        self.presences().insert(worker.to_owned(), presence);
    }

    fn presences(&self) -> MutexGuard<'_, HashMap<String, Presence>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const LEASE: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn what_the_living_hold_is_not_overdue() {
        let attendance = Attendance::default();
        attendance.comes("a");
        attendance.comes("b");
        advance(LEASE * 5).await;
        assert_eq!(attendance.overdue("a", LEASE), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_dead_hold_is_overdue_from_the_end_of_the_lease_while_somebody_is_there() {
        let attendance = Attendance::default();
        attendance.comes("a");
        attendance.comes("b");
        attendance.goes("a");
        advance(LEASE * 3).await;
        assert_eq!(attendance.overdue("a", LEASE), LEASE * 2);
        attendance.goes("b");
        assert_eq!(attendance.overdue("a", LEASE), Duration::ZERO);
        attendance.comes("c");
        advance(LEASE / 2).await;
        assert_eq!(attendance.overdue("a", LEASE), LEASE / 2);
    }
}
