//! The one error of every store.

use std::error::Error;
use std::fmt;

/// A store could not answer. Protocol answers (replay, conflict, doubt) are never errors.
///
/// Programs branch on [`kind`](Self::kind); people read the message, which names what was attempted and why it failed.
/// The [`source`](Error::source) is what lies behind that, so that nothing is reported twice.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    context: Box<str>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What a program may want to tell apart about a [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// Not reachable, out of connections, timed out, or restarting: trying later may help.
    Unavailable,
    /// No room for another record: disk or memory is full.
    Full,
    /// The store accepts no writes: a standby, or a file system mounted read-only.
    ReadOnly,
    /// Refused at start-up, because its settings or its schema would break the promise.
    Refused,
    /// A record is there but cannot be read.
    Corrupt,
    /// The store answered with something that is none of the above.
    Other,
}

impl StoreError {
    /// An error of `kind` while doing `context`, a lowercase fragment such as `begin record`.
    pub fn new(kind: StoreErrorKind, context: impl Into<Box<str>>) -> Self {
        Self {
            kind,
            context: context.into(),
            source: None,
        }
    }

    /// The same error with what caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What a program may branch on.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{}: {source}", self.context),
            None => f.write_str(&self.context),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref()?.source()
    }
}
