//! How a call ends.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;

use super::account::Account;
use super::error::Error;
use super::pending::Pending;
use crate::Key;
use crate::retry::Stop;

/// How a call ended. There is no fourth way, and no `?` that turns *unknown* into *failed*.
#[derive(Debug)]
#[must_use = "an outcome may be unknown, and then the operation must not be made anew with another key"]
pub enum Outcome {
    /// It happened, once.
    Applied(Applied),
    /// It did not happen, and will not.
    NotApplied(NotApplied),
    /// It may have happened, or may yet: ask again with [`Unknown::resolve`], never with a new key.
    Unknown(Unknown),
}

/// The call happened, and this is what it answered.
#[derive(Debug)]
pub struct Applied {
    pub(super) answer: Answer,
    pub(super) account: Account,
}

/// The call did not happen.
#[derive(Debug)]
pub struct NotApplied {
    pub(super) answer: Option<Answer>,
    pub(super) error: Option<Error>,
    pub(super) account: Account,
}

/// Nobody on this side knows whether the call happened.
#[derive(Debug)]
pub struct Unknown {
    pub(super) answer: Option<Answer>,
    pub(super) error: Option<Error>,
    pub(super) account: Account,
    /// None, if the request was malformed, so that there is nothing to send.
    pub(super) pending: Option<Box<Pending>>,
}

/// An answer, read whole.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) truncated: bool,
    pub(super) code: Option<String>,
}

/// What [`Outcome::applied`] fails with.
#[derive(Debug)]
pub enum Failure {
    /// The call did not happen.
    NotApplied(Box<NotApplied>),
    /// The call may have happened.
    Unknown(Box<Unknown>),
}

impl Outcome {
    /// The answer, if the call happened.
    pub fn applied(self) -> Result<Answer, Failure> {
        match self {
            Self::Applied(applied) => Ok(applied.answer),
            Self::NotApplied(not) => Err(Failure::NotApplied(Box::new(not))),
            Self::Unknown(unknown) => Err(Failure::Unknown(Box::new(unknown))),
        }
    }

    /// How it went, attempt by attempt.
    pub fn account(&self) -> &Account {
        match self {
            Self::Applied(applied) => &applied.account,
            Self::NotApplied(not) => &not.account,
            Self::Unknown(unknown) => &unknown.account,
        }
    }

    /// The last answer, if any came.
    pub fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Applied(applied) => Some(&applied.answer),
            Self::NotApplied(not) => not.answer.as_ref(),
            Self::Unknown(unknown) => unknown.answer.as_ref(),
        }
    }

    /// `applied`, `not_applied` or `unknown`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Applied(_) => "applied",
            Self::NotApplied(_) => "not_applied",
            Self::Unknown(_) => "unknown",
        }
    }
}

impl Applied {
    /// What the call answered.
    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    /// The same, taken out.
    pub fn into_answer(self) -> Answer {
        self.answer
    }

    /// How it went.
    pub fn account(&self) -> &Account {
        &self.account
    }
}

impl NotApplied {
    /// The refusal, if the server sent one.
    pub fn answer(&self) -> Option<&Answer> {
        self.answer.as_ref()
    }

    /// Why there is no answer, or why none was asked for.
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// How it went.
    pub fn account(&self) -> &Account {
        &self.account
    }
}

impl Unknown {
    /// The last answer, if it was one that left the question open.
    pub fn answer(&self) -> Option<&Answer> {
        self.answer.as_ref()
    }

    /// Why the last attempt brought no answer.
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// How it went.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The key to keep until it is known what happened.
    pub fn key(&self) -> Option<&Key> {
        self.account.key()
    }

    /// Sends the same request with the same key again, with as much time as the call had: what happened is replayed, what
    /// did not happen is done. A call that cannot be repeated, or whose key has expired, stays unknown.
    pub async fn resolve(mut self) -> Outcome {
        match self.pending.take() {
            Some(pending) => pending.again(self).await,
            None => Outcome::Unknown(self),
        }
    }

    /// Asks instead of repeating: a GET to `url` answers what was done for this key. 2xx: it happened, and this is the
    /// answer. 404: nothing was done, and nothing will be. Anything else: still unknown.
    ///
    /// An attempt that was given up may still be under way, so a 404 is believed only if it is still one two seconds after
    /// the last attempt ended. Whoever answers must not say 404 of what has begun.
    pub async fn ask(mut self, url: &str) -> Outcome {
        match self.pending.take() {
            Some(pending) => pending.ask(url, self).await,
            None => Outcome::Unknown(self),
        }
    }
}

impl Answer {
    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The body.
    pub fn bytes(&self) -> &Bytes {
        &self.body
    }

    /// The body as text; bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }

    /// The body as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }

    /// Whether the body broke off, or was longer than the client reads.
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// The error code that the server gave, as it wrote it.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (words, answer, error, account) = match self {
            Self::NotApplied(not) => ("the call did not happen", &not.answer, &not.error, &not.account),
            Self::Unknown(unknown) => (
                "it is not known whether the call happened",
                &unknown.answer,
                &unknown.error,
                &unknown.account,
            ),
        };
        f.write_str(words)?;
        if let Some(answer) = answer {
            write!(f, ": answered {}", answer.status)?;
            if let Some(code) = answer.code() {
                write!(f, " {code}")?;
            }
        }
        if let Some(error) = error {
            write!(f, ": {error}")?;
        }
        let attempts = account.attempts.len();
        match account.stop {
            Some(Stop::Done | Stop::Final) | None => Ok(()),
            Some(stop) => write!(f, " (after {attempts} attempts; {})", stop.as_str()),
        }
    }
}

impl StdError for Failure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let error = match self {
            Self::NotApplied(not) => not.error.as_ref(),
            Self::Unknown(unknown) => unknown.error.as_ref(),
        };
        error.and_then(StdError::source)
    }
}
