//! The engine around a client that somebody has already.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, Method};

use super::KEY_HEADER;
use super::account::Account;
use super::engine::Engine;
use super::error::{Error, ErrorKind};
use super::frozen::spelled;
use super::request::fresh_key;
use super::wire::is_safe;
use crate::Key;
use crate::key::KeySyntax;
use crate::retry::{BudgetLimits, Budgets, Class, Course, Ending, Policy};

/// What a layer and a middleware have in common.
#[derive(Clone, Debug)]
pub(super) struct Around {
    pub(super) engine: Engine,
    pub(super) policy: Arc<Policy>,
    pub(super) key_header: HeaderName,
}

/// A call that brought no answer.
///
/// Its [`ending`](Self::ending) is *not applied* or *unknown*. If it is unknown, send the same request again with the same
/// key ([`account`](Self::account) has it), never with a new one.
#[derive(Debug)]
pub struct NoAnswer {
    ending: Ending,
    account: Account,
    source: Option<Error>,
}

impl Around {
    pub(super) fn new() -> Self {
        Self {
            engine: Engine::new(Arc::new(Budgets::default())),
            policy: Arc::new(Policy::of(Class::UserFacing)),
            key_header: KEY_HEADER,
        }
    }

    pub(super) fn budget(&mut self, limits: BudgetLimits) {
        self.engine = Engine::new(Arc::new(Budgets::new(limits)));
    }

    /// The key of a request, which gets one if it has none and changes something.
    pub(super) fn key(&self, method: &Method, headers: &mut HeaderMap) -> Result<Option<Key>, NoAnswer> {
        let lines = headers
            .get_all(&self.key_header)
            .iter()
            .map(http::HeaderValue::as_bytes);
        let invalid = |error| NoAnswer::before(Error::caused(ErrorKind::Invalid, "use the key", error));
        if let Some(key) = Key::from_header(lines, KeySyntax::Lenient).map_err(invalid)? {
            return Ok(Some(key));
        }
        if is_safe(method) {
            return Ok(None);
        }
        let key = fresh_key();
        let value = spelled(&key).map_err(NoAnswer::before)?;
        headers.insert(self.key_header.clone(), value);
        Ok(Some(key))
    }

    pub(super) fn course(&self, method: &Method, key: Option<&Key>) -> Course<'_> {
        Course::new(&self.policy, key.is_some() || is_safe(method))
    }
}

impl NoAnswer {
    pub(super) fn new(ending: Ending, account: Account, source: Option<Error>) -> Self {
        Self {
            ending,
            account,
            source,
        }
    }

    /// Nothing was sent, and nothing is to be.
    fn before(error: Error) -> Self {
        Self::new(Ending::NotApplied, Account::default(), Some(error))
    }

    /// What is known.
    pub fn ending(&self) -> Ending {
        self.ending
    }

    /// How it went, attempt by attempt.
    pub fn account(&self) -> &Account {
        &self.account
    }
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attempts = self.account.attempts.len();
        match self.ending {
            Ending::NotApplied => write!(f, "the call did not happen (after {attempts} attempts)"),
            Ending::Applied | Ending::Unknown => {
                write!(
                    f,
                    "it is not known whether the call happened (after {attempts} attempts)"
                )
            }
        }
    }
}

impl StdError for NoAnswer {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.source.as_ref()?;
        Some(source)
    }
}

/// Whether an error proves that nothing was sent: only an attempt to connect is refused.
pub(super) fn is_refused(error: &(dyn StdError + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused) {
            return true;
        }
        cause = error.source();
    }
    false
}
