//! From a call that is ready to go to its outcome.

use std::time::Duration;

use http::{HeaderMap, Method};
use reqwest::Url;
use tokio::time::{Instant, sleep_until, timeout};

use super::Client;
use super::account::Account;
use super::engine::{Plan, Ran};
use super::error::{Error, ErrorKind};
use super::frozen::{Frozen, OnAttempt, Payload, address};
use super::journal::{Close, Entry, Opened};
use super::outcome::{Answer, Applied, NotApplied, Outcome, Unknown};
use super::wire::{Way, Wire};
use crate::retry::{Course, Ending, Expiry, Stop};

/// How long after the last attempt nobody believes that nothing was done: it may still be under way.
const UNDER_WAY: Duration = Duration::from_secs(2);

/// What stands for ever, to whoever counts time.
const FOREVER: Duration = Duration::from_hours(100 * 365 * 24);

/// A call that may have to be sent again.
#[derive(Debug)]
pub(super) struct Pending {
    client: Client,
    /// Boxed, because it is handed on several times and has half a kilobyte.
    call: Box<Frozen>,
    /// Its key is known to be its own.
    is_open: bool,
    /// Somebody may have carried it out already.
    doubt: bool,
    /// When its key stops standing for it, as far as anybody said.
    expires: Instant,
    /// When the last attempt ended.
    ended: Instant,
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
        let now = Instant::now();
        Self {
            expires: now + client.key_lifetime().min(FOREVER),
            client,
            is_open: false,
            doubt: call.was_sent,
            call: Box::new(call),
            ended: now,
        }
    }

    /// Carries the call out.
    pub(super) async fn send(mut self) -> Outcome {
        match self.open().await {
            Ok(()) => self.run().await,
            Err(Halt::NotSent(error)) if self.doubt => self.unknown(error, None),
            Err(Halt::NotSent(error)) => Outcome::NotApplied(NotApplied {
                answer: None,
                error: Some(error),
                account: self.account(None),
            }),
            Err(Halt::Expired(error)) => self.unknown(error, Some(Stop::Expired)),
        }
    }

    /// Carries it out again, if that does no harm.
    pub(super) async fn again(mut self: Box<Self>, mut unknown: Unknown) -> Outcome {
        let expired = Instant::now() >= self.expires;
        if expired || !self.call.is_repeatable() {
            unknown.account.stop = Some(if expired { Stop::Expired } else { Stop::Unrepeatable });
            return self.still(unknown);
        }
        self.doubt = true;
        if self.is_open {
            self.run().await
        } else {
            self.send().await
        }
    }

    /// Asks somebody who knows.
    pub(super) async fn ask(self: Box<Self>, url: &str, mut unknown: Unknown) -> Outcome {
        let url = match address(url) {
            Ok(url) => url,
            Err(error) => {
                unknown.error = Some(error);
                return self.still(unknown);
            }
        };
        let since = self.ended.elapsed();
        let mut told = self.question(&url).await;
        if ending_asked(&told) == Ending::NotApplied && since < UNDER_WAY {
            // Whoever answered may have looked before it was done.
            sleep_until(self.ended + UNDER_WAY).await;
            told = self.question(&url).await;
        }
        let ending = self.settled(ending_asked(&told), false, None).await;
        match (ending, told.answer) {
            (Ending::Applied, Some(answer)) => Outcome::Applied(Applied {
                answer,
                account: unknown.account,
            }),
            (Ending::NotApplied, answer) => Outcome::NotApplied(NotApplied {
                answer,
                error: None,
                account: unknown.account,
            }),
            (_, heard) => {
                unknown.answer = heard.or(unknown.answer);
                unknown.error = told.error.or(unknown.error);
                self.still(unknown)
            }
        }
    }

    async fn question(&self, url: &Url) -> Ran<Answer> {
        let mut question = Frozen {
            method: Method::GET,
            headers: self.credentials(url),
            url: url.clone(),
            payload: Payload::Whole(bytes::Bytes::new()),
            key: None,
            is_key_given: false,
            was_sent: false,
            is_straight: true,
            key_header: self.call.key_header.clone(),
            operation: None,
            policy: self.call.policy.clone(),
            on_attempt: OnAttempt::default(),
        };
        self.client.run(&mut question, Way::Straight, false, None).await
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
            self.is_open = true;
            return Ok(());
        };
        // A call that has a name may have been sent by whoever had it before us.
        let is_named = self.call.operation.is_some() || self.call.is_key_given;
        let Some(entry) = self.entry(lifetime) else {
            self.is_open = true;
            return Ok(());
        };
        // A journal that does not answer has no more time than those who are called.
        let opened = match timeout(self.call.policy.total, journal.open(&entry)).await {
            Ok(opened) => opened.map_err(|error| Error::caused(ErrorKind::Journal, "write the call down", error)),
            Err(_) => Err(Error::new(
                ErrorKind::Journal,
                "write the call down: the journal did not answer in time",
            )),
        };
        let opened = opened.map_err(|error| {
            self.doubt |= is_named;
            Halt::NotSent(error)
        });
        match opened? {
            Opened::New => {}
            Opened::Resumed { key, expires_in, .. } => {
                self.doubt = true;
                if self.call.is_key_given && self.call.key.as_ref() != Some(&key) {
                    let context = "the operation was begun with another key";
                    return Err(Halt::NotSent(Error::new(ErrorKind::KeyReused, context)));
                }
                self.expires = Instant::now() + expires_in.min(FOREVER);
                self.call.rename(key).map_err(Halt::NotSent)?;
            }
            Opened::Expired { key, ending } => {
                self.doubt = true;
                self.expires = Instant::now();
                self.call.rename(key).map_err(Halt::NotSent)?;
                let context = match ending {
                    Some(Ending::Applied) => "it happened, by the journal, and its key has expired: nothing was sent",
                    _ => "its key has expired, so that sending it again would make it a new operation",
                };
                return Err(Halt::Expired(Error::new(ErrorKind::Expired, context)));
            }
            Opened::OtherRequest => return Err(reused()),
        }
        self.is_open = true;
        Ok(())
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
        let expires_in = self.expires.saturating_duration_since(Instant::now());
        let way = match self.doubt {
            _ if self.call.is_straight => Way::Straight,
            true => Way::WithKey,
            false => Way::Free,
        };
        let mut ran = self.client.run(&mut self.call, way, self.doubt, Some(expires_in)).await;
        self.ended = Instant::now();
        let stands = ran.expires.map(|expires| match expires {
            Expiry::In(left) => left.min(FOREVER),
            Expiry::Never => FOREVER,
        });
        if let Some(stands) = stands {
            self.expires = self.ended + stands;
        }
        ran.ending = self.settled(ran.ending, ran.is_kept, stands).await;
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
                pending: Some(Box::new(self)),
            }),
        }
    }

    /// It is as unknown as it was.
    fn still(self: Box<Self>, mut unknown: Unknown) -> Outcome {
        unknown.pending = Some(self);
        Outcome::Unknown(unknown)
    }

    /// A call that was not sent by us, though perhaps by somebody before us.
    fn unknown(self, error: Error, stop: Option<Stop>) -> Outcome {
        Outcome::Unknown(Unknown {
            answer: None,
            error: Some(error),
            account: self.account(stop),
            pending: Some(Box::new(self)),
        })
    }

    fn account(&self, stop: Option<Stop>) -> Account {
        // A key that was made for a call which the journal may know by another one was never sent, and is not to be.
        let is_its_own = self.is_open || self.call.is_key_given || self.expires <= Instant::now();
        Account {
            key: self.call.key.clone().filter(|_| is_its_own),
            stop,
            ..Account::default()
        }
    }

    /// Writes down how it ended, and tells what is known with what others wrote.
    async fn settled(&self, ending: Ending, is_kept: bool, expires_in: Option<Duration>) -> Ending {
        let (Some(journal), Some(operation), Some(key)) = (self.client.journal(), &self.call.operation, &self.call.key)
        else {
            return ending;
        };
        let close = Close {
            operation: operation.clone(),
            key: key.clone(),
            in_doubt: self.doubt,
            ending,
            expires_in,
        };
        let others = match journal.close(&close).await {
            Ok(written) => written,
            Err(error) => {
                // The journal knows less than we do, never more: the call stays unsettled there.
                tracing::warn!(key = key.digest(), %error, "the journal does not know how a call ended");
                if is_kept { ending } else { Ending::Unknown }
            }
        };
        match ending {
            // Somebody else has the same operation open, and may be carrying it out at this moment.
            Ending::NotApplied if others != Ending::NotApplied => Ending::Unknown,
            ending => ending,
        }
    }
}

/// What the answer to a question tells.
fn ending_asked(told: &Ran<Answer>) -> Ending {
    match &told.answer {
        Some(answer) if answer.status.is_success() && told.ending == Ending::Applied => Ending::Applied,
        Some(answer) if answer.status == http::StatusCode::NOT_FOUND => Ending::NotApplied,
        _ => Ending::Unknown,
    }
}

impl Client {
    /// Attempts a call until it is over.
    async fn run(&self, call: &mut Frozen, way: Way, doubt: bool, expires_in: Option<Duration>) -> Ran<Answer> {
        let payload = call.payload.lend();
        let call = &*call;
        let mut course = Course::new(&call.policy, call.is_repeatable()).expires_in(expires_in);
        if doubt {
            course = course.in_doubt();
        }
        let plan = Plan {
            policy: &call.policy,
            key: call.key.as_ref(),
            destination: call.destination(),
            once_only: call.is_streamed(),
        };
        let mut wire = Wire::new(
            self.http(),
            call,
            payload,
            self.answer_bytes_max(),
            self.is_plain(),
            way,
        );
        self.engine().run(&plan, course, &mut wire).await
    }
}
