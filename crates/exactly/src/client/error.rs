//! Why a call has no answer.

use std::error::Error as StdError;
use std::fmt;

/// Why a call was not sent, or brought no answer.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    context: Box<str>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What a program may want to tell apart about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request, its key or a setting is malformed; nothing was sent.
    Invalid,
    /// The key was used for other bytes; nothing was sent.
    KeyReused,
    /// The journal cannot be written or read; nothing was sent.
    Journal,
    /// The key of a call that was sent before stands for it no longer; nothing was sent.
    Expired,
    /// No connection.
    Connect,
    /// The time was up.
    Timeout,
    /// The connection broke, or what came over it made no sense.
    Broken,
    /// The answer points elsewhere, where the call must not go.
    Redirect,
}

impl Error {
    pub(super) fn new(kind: ErrorKind, context: impl Into<Box<str>>) -> Self {
        Self {
            kind,
            context: context.into(),
            source: None,
        }
    }

    pub(super) fn caused(
        kind: ErrorKind,
        context: impl Into<Box<str>>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self {
            source: Some(source.into()),
            ..Self::new(kind, context)
        }
    }

    /// What a program may branch on.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The whole story in one line.
    pub(super) fn story(&self) -> String {
        use fmt::Write as _;

        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(cause) = source {
            // A writer of errors that repeats its cause would make the line tell everything twice.
            let cause_text = cause.to_string();
            if !text.contains(&cause_text) {
                let _ = write!(text, ": {cause_text}");
            }
            source = cause.source();
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.source.as_deref()?)
    }
}
