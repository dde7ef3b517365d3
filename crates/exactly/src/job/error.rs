//! Why a job failed, and so whether it is tried again.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::queue::{Failure, FailureKind};

/// How a job failed. Which kind it is decides what becomes of the job, so nothing turns into one by itself: every error is
/// named at the place that knows what it means.
#[derive(Debug)]
pub struct JobError {
    kind: FailureKind,
    source: Box<dyn Error + Send + Sync>,
    retry_after: Option<Duration>,
}

impl JobError {
    /// It may work later: a database was away, a service was busy.
    pub fn transient(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(FailureKind::Transient, source)
    }

    /// Something took too long.
    pub fn timeout(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(FailureKind::Timeout, source)
    }

    /// The work itself is wrong, and would fail again.
    pub fn logic(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(FailureKind::Logic, source)
    }

    /// What the work is about contradicts itself, and somebody has to look at it.
    pub fn inconsistent(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(FailureKind::Inconsistent, source)
    }

    /// Whether the effect happened is not known, and trying again might make it twice.
    pub fn unknown(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(FailureKind::Unknown, source)
    }

    /// If it is tried again, then not earlier than this from now. It may be later: the table says when at the earliest.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// What it means for another attempt.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    fn new(kind: FailureKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            kind,
            source: source.into(),
            retry_after: None,
        }
    }

    pub(super) fn asked(&self) -> Duration {
        self.retry_after.unwrap_or_default()
    }

    /// As it is kept with the job: the error with all that lies behind it.
    pub(super) fn failure(&self) -> Failure {
        let mut message = self.source.to_string();
        let mut source = self.source.source();
        while let Some(behind) = source {
            message.push_str(": ");
            message.push_str(&behind.to_string());
            source = behind.source();
        }
        Failure::new(self.kind, message)
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.source)
    }
}

impl Error for JobError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.source()
    }
}
