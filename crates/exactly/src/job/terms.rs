//! The table: what is tried again, when, and how often.

use std::time::Duration;

use tokio::time::timeout;

use super::JobError;
use crate::StoreError;
use crate::queue::{End, FailureKind, Leased};
use crate::retry::{Class, Policy, Schedule};
use crate::spread::Spread;

/// How long an attempt may take unless told otherwise.
pub(super) const TIME_LIMIT_DEFAULT: Duration = Duration::from_mins(5);

/// What applies to the jobs of one kind.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(super) schedule: Schedule,
    pub(super) retries_max: u32,
    pub(crate) time_limit: Duration,
    spread: Spread,
}

impl Default for Terms {
    fn default() -> Self {
        let Policy {
            schedule, retries_max, ..
        } = Policy::of(Class::Scheduled);
        Self {
            schedule,
            retries_max,
            time_limit: TIME_LIMIT_DEFAULT,
            spread: Spread::new(),
        }
    }
}

impl Terms {
    /// What becomes of a job whose attempt failed so.
    pub(crate) fn failed(&self, task: &Leased, error: &JobError) -> End {
        self.end(error, task.failures, self.spread.next())
    }

    /// The same for what was no task yet at its first attempt.
    #[cfg(feature = "webhook")]
    pub(crate) fn failed_first(&self, error: &JobError) -> End {
        self.end(error, 0, self.spread.next())
    }

    /// What the queue answers in the time of an attempt.
    pub(crate) async fn bounded<T>(
        &self,
        attempted: &str,
        reply: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, JobError> {
        match timeout(self.time_limit, reply).await {
            Ok(answer) => answer.map_err(JobError::transient),
            Err(_) => Err(JobError::timeout(format!(
                "{attempted}: no answer within {:?}",
                self.time_limit
            ))),
        }
    }

    /// An attempt that was given so long has not ended.
    pub(super) fn late(&self) -> JobError {
        JobError::timeout(format!("no end within {:?}", self.time_limit))
    }

    /// The same as a plain function: `failures` attempts have failed before this one.
    fn end(&self, error: &JobError, failures: u32, random: u64) -> End {
        let failure = error.failure();
        match error.kind() {
            FailureKind::Transient | FailureKind::Timeout => match self.wait(failures, random) {
                Some(wait) => End::Retry {
                    after: wait.max(error.asked()),
                    failure,
                },
                None => End::Bury(failure),
            },
            FailureKind::Unknown => End::Hold(failure),
            _ => End::Bury(failure),
        }
    }

    fn wait(&self, failures: u32, random: u64) -> Option<Duration> {
        let retry = failures.saturating_add(1);
        if retry > self.retries_max {
            return None;
        }
        // Times after the start are counted as if attempts took none: the queue's clock is the queue's.
        let elapsed = match &self.schedule {
            Schedule::Offsets(offsets) => {
                let before = usize::try_from(failures).ok()?.checked_sub(1);
                before
                    .and_then(|before| offsets.get(before).copied())
                    .unwrap_or_default()
            }
            Schedule::Doubling { .. } | Schedule::Delays(_) => Duration::ZERO,
        };
        self.schedule.wait(retry, elapsed, Duration::MAX, random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    /// In the middle of what is drawn at random.
    const MIDDLE: u64 = 1 << 63;

    fn after(terms: &Terms, error: &JobError, failures: u32) -> Option<Duration> {
        match terms.end(error, failures, MIDDLE) {
            End::Retry { after, failure } => {
                assert_eq!(failure.kind, error.kind());
                Some(after)
            }
            End::Bury(failure) => {
                assert_eq!(failure.kind, error.kind());
                None
            }
            end => panic!("{end:?}"),
        }
    }

    #[test]
    fn what_may_work_later_is_tried_after_30_s_2_min_and_5_min() {
        let terms = Terms::default();
        for error in [JobError::transient("away"), JobError::timeout("slow")] {
            let waits: Vec<_> = (0..5).map(|failures| after(&terms, &error, failures)).collect();
            let table = [Some(30 * SECOND), Some(120 * SECOND), Some(300 * SECOND), None, None];
            assert_eq!(waits, table);
        }
    }

    #[test]
    fn what_would_fail_again_is_not_tried_again() {
        let terms = Terms::default();
        for error in [JobError::logic("wrong"), JobError::inconsistent("odd")] {
            assert_eq!(after(&terms, &error, 0), None);
            assert_eq!(after(&terms, &error.retry_after(SECOND), 0), None);
        }
    }

    #[test]
    fn what_is_not_known_is_held() {
        let end = Terms::default().end(&JobError::unknown("no answer"), 0, MIDDLE);
        assert!(matches!(end, End::Hold(failure) if failure.kind == FailureKind::Unknown));
    }

    #[test]
    fn nothing_is_tried_earlier_than_asked() {
        let terms = Terms::default();
        let asked = |seconds| JobError::transient("busy").retry_after(seconds * SECOND);
        assert_eq!(after(&terms, &asked(600), 0), Some(600 * SECOND));
        assert_eq!(after(&terms, &asked(3), 0), Some(30 * SECOND));
        assert_eq!(after(&terms, &asked(600), 3), None);
    }

    #[test]
    fn times_after_the_start_become_waits_between_attempts() {
        let terms = Terms {
            schedule: Schedule::WEBHOOK,
            retries_max: 9,
            ..Terms::default()
        };
        let waits: Vec<_> = (0..4)
            .map(|failures| after(&terms, &JobError::transient("away"), failures))
            .collect();
        let table = [5, 25, 90, 480].map(|seconds| Some(seconds * SECOND));
        assert_eq!(waits, table);
    }
}
