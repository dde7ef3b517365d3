//! Answers that a promise allows. Anything else fails the test at the line that asked.

use std::fmt::Debug;
use std::time::Duration;

use exactly::{Claim, Fenced, Replay, StoreError, Verdict};

/// What a test expects of `begin` and its kin.
pub(crate) trait VerdictExt: Sized {
    fn verdict(self) -> Verdict;

    #[track_caller]
    fn must_run(self) -> Claim {
        match self.verdict() {
            Verdict::Run(claim) => claim,
            other => unexpected("run", &other),
        }
    }

    #[track_caller]
    fn must_replay(self) -> Replay {
        match self.verdict() {
            Verdict::Replay(replay) => replay,
            other => unexpected("replay", &other),
        }
    }

    #[track_caller]
    fn must_replay_exactly(self, outcome: &[u8]) {
        let replay = self.must_replay();
        assert!(
            replay.outcome == outcome,
            "expected the stored {} bytes back, got {} others",
            outcome.len(),
            replay.outcome.len()
        );
    }

    #[track_caller]
    fn must_be_in_flight(self) -> Duration {
        match self.verdict() {
            Verdict::InFlight { retry_after } => retry_after,
            other => unexpected("in flight", &other),
        }
    }

    #[track_caller]
    fn must_mismatch(self) -> Option<Duration> {
        match self.verdict() {
            Verdict::Mismatch { expires_in } => expires_in,
            other => unexpected("mismatch", &other),
        }
    }

    #[track_caller]
    fn must_be_in_doubt(self) -> Claim {
        match self.verdict() {
            Verdict::InDoubt(claim) => claim,
            other => unexpected("in doubt", &other),
        }
    }
}

impl VerdictExt for Result<Verdict, StoreError> {
    #[track_caller]
    fn verdict(self) -> Verdict {
        answered(self)
    }
}

impl VerdictExt for Result<Option<Verdict>, StoreError> {
    #[track_caller]
    fn verdict(self) -> Verdict {
        match answered(self) {
            Some(verdict) => verdict,
            None => panic!("peek says that begin would claim"),
        }
    }
}

/// What a test expects of a fenced write.
pub(crate) trait FencedExt {
    #[track_caller]
    fn must_apply(self);

    #[track_caller]
    fn must_be_superseded(self);
}

impl FencedExt for Result<Fenced, StoreError> {
    #[track_caller]
    fn must_apply(self) {
        assert_eq!(answered(self), Fenced::Applied, "the claim owns its record");
    }

    #[track_caller]
    fn must_be_superseded(self) {
        assert_eq!(answered(self), Fenced::Superseded, "the claim does not own the record");
    }
}

/// The answer of a store that has no reason to fail.
#[track_caller]
pub(crate) fn answered<T>(answer: Result<T, StoreError>) -> T {
    match answer {
        Ok(answer) => answer,
        Err(error) => panic!("the store could not answer: {error}"),
    }
}

#[track_caller]
fn unexpected(expected: &str, actual: &impl Debug) -> ! {
    panic!("expected {expected}, the store says {actual:?}")
}
