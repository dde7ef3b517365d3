//! From a call that is ready to go to its outcome.

use std::time::Duration;

use http::{HeaderMap, Method};
use reqwest::Url;
use tokio::time::Instant;

use super::Client;
use super::account::Account;
use super::engine::{Plan, Ran};
use super::error::{Error, ErrorKind};
use super::frozen::{Frozen, OnAttempt, Payload};
use super::journal::{Close, Entry, Opened};
use super::outcome::{Answer, Applied, NotApplied, Outcome, Unknown};
use super::wire::Wire;
use crate::retry::{Course, Ending, Stop};

/// A call that may have to be sent again.
#[derive(Debug)]
pub(super) struct Pending {
    client: Client,
    /// Boxed, because it is handed on several times and has half a kilobyte.
    call: Box<Frozen>,
    /// Somebody may have carried it out already.
    doubt: bool,
    /// When its key stops standing for it, as far as anybody said.
    expires: Option<Instant>,
}

/// Why a call goes no further.
enum Halt {
    /// It was not sent, and is not to be.
    NotSent(Error),
    /// It was sent by somebody, and cannot be sent any more.
    Expired(Error),
}

impl Pending {
    pub(super) fn new(client: Client, call: Frozen) -> Self {
        Self {
            client,
            doubt: call.was_sent,
            call: Box::new(call),
            expires: None,
        }
    }

    /// Carries the call out.
    pub(super) async fn send(mut self) -> Outcome {
        match self.open().await {
            Ok(()) => self.run().await,
            Err(Halt::NotSent(error)) if self.doubt => self.unknown(None, Some(error), None),
            Err(Halt::NotSent(error)) => Outcome::NotApplied(NotApplied {
                answer: None,
                error: Some(error),
                account: self.account(None),
            }),
            Err(Halt::Expired(error)) => self.unknown(None, Some(error), Some(Stop::Expired)),
        }
    }

    /// Carries it out again, if that does no harm.
    pub(super) async fn again(
        mut self: Box<Self>,
        answer: Option<Answer>,
        error: Option<Error>,
        account: Account,
    ) -> Outcome {
        let expired = self.expires.is_some_and(|expires| Instant::now() >= expires);
        if expired || !self.call.is_repeatable() {
            return Outcome::Unknown(Unknown {
                answer,
                error,
                account: Account {
                    stop: Some(if expired { Stop::Expired } else { Stop::Unrepeatable }),
                    ..account
                },
                pending: self,
            });
        }
        self.doubt = true;
        self.run().await
    }

    /// Asks somebody who knows.
    pub(super) async fn ask(
        self: Box<Self>,
        url: &str,
        answer: Option<Answer>,
        error: Option<Error>,
        account: Account,
    ) -> Outcome {
        let url = match url.parse::<Url>() {
            Ok(url) => url,
            Err(cause) => {
                return Outcome::Unknown(Unknown {
                    answer,
                    error: Some(Error::caused(ErrorKind::Invalid, format!("ask {url}"), cause)),
                    account,
                    pending: self,
                });
            }
        };
        let mut question = Frozen {
            method: Method::GET,
            headers: self.credentials(&url),
            url,
            payload: Payload::Whole(bytes::Bytes::new()),
            key: None,
            is_key_given: false,
            was_sent: false,
            key_header: self.call.key_header.clone(),
            operation: None,
            policy: self.call.policy.clone(),
            on_attempt: OnAttempt::default(),
        };
        let told = self.client.run(&mut question, false, None).await;
        let ending = match &told.answer {
            Some(answer) if answer.status.is_success() && told.ending == Ending::Applied => Ending::Applied,
            Some(answer) if answer.status == http::StatusCode::NOT_FOUND => Ending::NotApplied,
            _ => Ending::Unknown,
        };
        self.close(ending, None).await;
        match (ending, told.answer) {
            (Ending::Applied, Some(answer)) => Outcome::Applied(Applied { answer, account }),
            (Ending::NotApplied, answer) => Outcome::NotApplied(NotApplied {
                answer,
                error: None,
                account,
            }),
            (_, heard) => Outcome::Unknown(Unknown {
                answer: heard.or(answer),
                error: told.error.or(error),
                account,
                pending: self,
            }),
        }
    }

    /// What the question may carry: everything but the content, if it goes where the call went.
    fn credentials(&self, url: &Url) -> HeaderMap {
        if url.origin() != self.call.url.origin() {
            return HeaderMap::new();
        }
        let mut headers = self.call.headers.clone();
        headers.remove(http::header::CONTENT_TYPE);
        headers
    }

    /// Makes sure that the key is not used for something else, and writes the call down.
    async fn open(&mut self) -> Result<(), Halt> {
        let lifetime = self.client.key_lifetime();
        let reused = || {
            let context = "the key was used for another request: use a new key for a new operation";
            Halt::NotSent(Error::new(ErrorKind::KeyReused, context))
        };
        if !self.client.used_keys().admit(&self.call, lifetime) {
            return Err(reused());
        }
        let Some(journal) = self.client.journal().cloned() else {
            return Ok(());
        };
        // A call that has a name may have been sent by whoever had it before us.
        let is_named = self.call.operation.is_some() || self.call.is_key_given;
        let Some(entry) = self.entry(lifetime) else {
            return Ok(());
        };
        let opened = journal.open(&entry).await.map_err(|error| {
            self.doubt |= is_named;
            Halt::NotSent(Error::caused(ErrorKind::Journal, "write the call down", error))
        });
        match opened? {
            Opened::New => Ok(()),
            Opened::Resumed { key, expires_in, .. } => {
                self.doubt = true;
                self.expires = Some(Instant::now() + expires_in);
                self.call.rename(key).map_err(Halt::NotSent)
            }
            Opened::Expired { key, ending } => {
                self.doubt = true;
                self.expires = Some(Instant::now());
                self.call.rename(key).map_err(Halt::NotSent)?;
                let context = match ending {
                    Some(Ending::Applied) => "it happened, by the journal, and its key has expired: nothing was sent",
                    _ => "its key has expired, so that sending it again would make it a new operation",
                };
                Err(Halt::Expired(Error::new(ErrorKind::Expired, context)))
            }
            Opened::OtherRequest => Err(reused()),
        }
    }

    fn entry(&mut self, expires_in: Duration) -> Option<Entry> {
        let key = self.call.key.clone()?;
        let operation = match &self.call.operation {
            Some(operation) => operation.clone(),
            None => self.call.name(&key),
        };
        self.call.operation = Some(operation.clone());
        Some(Entry {
            operation,
            key,
            method: self.call.method.to_string(),
            place: self.call.place(),
            digest: self.call.digest(),
            within: self.call.policy.total,
            expires_in,
        })
    }

    async fn run(mut self) -> Outcome {
        let expires_in = self.expires.map(|at| at.saturating_duration_since(Instant::now()));
        let mut ran = self.client.run(&mut self.call, self.doubt, expires_in).await;
        let now = Instant::now();
        let expires = ran.expires_in.map(|left| now + left).or(self.expires);
        // Where nobody said how long the key stands, it is not relied on for longer than keys usually do.
        self.expires = expires.or_else(|| now.checked_add(self.client.key_lifetime().saturating_sub(ran.account.took)));
        let written = self.close(ran.ending, ran.expires_in).await;
        // Somebody else has the same operation open, and may be carrying it out at this moment.
        if ran.ending == Ending::NotApplied && written.is_some_and(|written| written != Ending::NotApplied) {
            ran.ending = Ending::Unknown;
        }
        self.ended(ran)
    }

    fn ended(self, ran: Ran<Answer>) -> Outcome {
        let (answer, error, account) = (ran.answer, ran.error, ran.account);
        match (ran.ending, answer) {
            (Ending::Applied, Some(answer)) => Outcome::Applied(Applied { answer, account }),
            (Ending::NotApplied, answer) => Outcome::NotApplied(NotApplied { answer, error, account }),
            (_, answer) => Outcome::Unknown(Unknown {
                answer,
                error,
                account,
                pending: Box::new(self),
            }),
        }
    }

    /// A call that was not sent by us, though perhaps by somebody before us.
    fn unknown(self, answer: Option<Answer>, error: Option<Error>, stop: Option<Stop>) -> Outcome {
        Outcome::Unknown(Unknown {
            answer,
            error,
            account: self.account(stop),
            pending: Box::new(self),
        })
    }

    fn account(&self, stop: Option<Stop>) -> Account {
        Account {
            key: self.call.key.clone(),
            stop,
            ..Account::default()
        }
    }

    /// Writes down how it ended, and tells what is written now, if anything is. A journal that fails here knows less than
    /// we do, never more: the call stays unsettled.
    async fn close(&self, ending: Ending, expires_in: Option<Duration>) -> Option<Ending> {
        let journal = self.client.journal()?;
        let close = Close {
            operation: self.call.operation.clone()?,
            key: self.call.key.clone()?,
            in_doubt: self.doubt,
            ending,
            expires_in,
        };
        match journal.close(&close).await {
            Ok(written) => Some(written),
            Err(error) => {
                tracing::warn!(key = close.key.digest(), %error, "the journal does not know how a call ended");
                None
            }
        }
    }
}

impl Client {
    /// Attempts a call until it is over.
    async fn run(&self, call: &mut Frozen, doubt: bool, expires_in: Option<Duration>) -> Ran<Answer> {
        let payload = call.payload.lend();
        let call = &*call;
        let mut course = Course::new(&call.policy, call.is_repeatable()).expires_in(expires_in);
        if doubt {
            course = course.in_doubt();
        }
        let plan = Plan {
            policy: &call.policy,
            key: call.key.as_ref(),
            destination: &call.destination(),
            once_only: call.is_streamed(),
        };
        let mut wire = Wire::new(self.http(), call, payload, self.answer_bytes_max(), self.is_plain());
        self.engine().run(&plan, course, &mut wire).await
    }
}
