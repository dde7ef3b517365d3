//! Putting an inbox together, with every mistake told at once.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;

use super::head::HEADERS_MAX;
use super::{Apply, Applying, Inbox, Order, Parts, Received, Version};
use crate::clock::{Clock, WallClock};
use crate::job::Terms;
use crate::queue::{InspectQueue, Task, TransactionalQueue};
use crate::webhook::Verifier;
use crate::worker::Buried;
use crate::worker::books::OnBuried;

/// The kind of tasks that events are, up to their source.
const KIND: &str = "exactly.inbox/";
/// The kind of those whose id was used before.
const QUARANTINE_KIND: &str = "exactly.quarantine/";

/// The longest name of a source, in bytes.
const SOURCE_BYTES_MAX: usize = 100;

/// Less than senders wait for an answer: Stripe, GitHub and our own deliveries give up between 10 and 30 s.
const TIME_LIMIT_DEFAULT: Duration = Duration::from_secs(8);
/// Well below the silence after which a database ends the transaction.
const TIME_LIMIT: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(30);

/// Builds an [`Inbox`].
#[must_use]
pub struct InboxBuilder<Q: TransactionalQueue> {
    queue: Arc<Q>,
    source: Arc<str>,
    verifier: Option<Verifier>,
    headers: Vec<String>,
    apply: Option<Box<Apply<Q::Tx>>>,
    order: Option<Box<Order>>,
    on_buried: Option<OnBuried>,
    clock: Arc<dyn Clock>,
    time_limit: Duration,
}

impl<Q: TransactionalQueue> InboxBuilder<Q> {
    pub(super) fn new(queue: Arc<Q>, source: Arc<str>) -> Self {
        Self {
            queue,
            source,
            verifier: None,
            headers: Vec::new(),
            apply: None,
            order: None,
            on_buried: None,
            clock: Arc::new(WallClock),
            time_limit: TIME_LIMIT_DEFAULT,
        }
    }

    /// What tells the sender's requests from others. There has to be one.
    pub fn verifier(mut self, verifier: Verifier) -> Self {
        self.verifier = Some(verifier);
        self
    }

    /// Keeps these headers of a request with its event, so that the handler [sees](Received::header) them at each attempt: at
    /// most 16, of 8 KiB together. Of GitHub's events `X-GitHub-Event` is kept without a word, since nothing else tells a push
    /// from an issue.
    ///
    /// They are stored as they came, so name none with a secret in it. They are no part of what an event is known by: the same
    /// id and body with another header is a duplicate, and the first one counts.
    pub fn keep_headers(mut self, names: impl IntoIterator<Item: Into<String>>) -> Self {
        self.headers.extend(names.into_iter().map(Into::into));
        self
    }

    /// What is done about an event, in the transaction that it is noted in. The function neither commits nor rolls back. There
    /// has to be one.
    ///
    /// It may run more than once for one event, but only one run commits; what it does outside of the transaction happens each
    /// time.
    pub fn handler<F>(mut self, apply: F) -> Self
    where
        F: for<'t> Fn(&'t mut Q::Tx, &'t Received) -> Applying<'t> + Send + Sync + 'static,
    {
        self.apply = Some(Box::new(apply));
        self
    }

    /// What an event is about and how new it is, if it says. One that is not newer than what was applied to the same is
    /// [stale](super::Receipt::Stale), and its handler does not run. Without this, events are applied as they come.
    ///
    /// The highest number of every entity is kept in a row of its own, until nobody has raised it for
    /// [so long](crate::sweep::Retention::marks) that no sender has anything older left to send.
    pub fn versions(mut self, order: impl Fn(&Received) -> Option<Version> + Send + Sync + 'static) -> Self {
        self.order = Some(Box::new(order));
        self
    }

    /// Calls this for each event that fails for good while its sender waits: to alert somebody. It must not block. What a worker
    /// buries later is told by [the worker](crate::worker::Builder::on_buried).
    pub fn on_buried(mut self, callback: impl Fn(&Buried) + Send + Sync + 'static) -> Self {
        self.on_buried = Some(Box::new(callback));
        self
    }

    /// How long the handler may take while the sender waits: 8 seconds unless told otherwise. What takes longer is deferred to
    /// a worker, which gives it 5 minutes.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// The clock that judges how old a signature is: the wall clock unless told otherwise, since senders go by theirs.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The inbox, or all that is wrong with it.
    pub fn build(self) -> Result<Inbox<Q>, InvalidInbox>
    where
        Q: InspectQueue,
    {
        let mut faults = self.faults();
        let headers = self.headers(&mut faults);
        let (Some(verifier), Some(apply), true) = (self.verifier, self.apply, faults.is_empty()) else {
            return Err(InvalidInbox(faults));
        };
        Ok(Inbox(Arc::new(Parts {
            ledger: Arc::<Q>::clone(&self.queue),
            queue: self.queue,
            kind: format!("{KIND}{}", self.source).into(),
            quarantine: format!("{QUARANTINE_KIND}{}", self.source).into(),
            source: self.source,
            verifier,
            headers,
            clock: self.clock,
            apply,
            order: self.order,
            on_buried: self.on_buried,
            time_limit: self.time_limit,
            terms: Terms::default(),
        })))
    }

    /// What is kept of heads, each name once.
    fn headers(&self, faults: &mut Vec<String>) -> Box<[HeaderName]> {
        let by_default: &[&str] = self.verifier.as_ref().map_or(&[], Verifier::kept_headers);
        let named = self.headers.iter().map(String::as_str);
        let mut headers: Vec<HeaderName> = Vec::new();
        for name in by_default.iter().copied().chain(named) {
            match HeaderName::try_from(name) {
                Ok(name) if headers.contains(&name) => {}
                Ok(name) => headers.push(name),
                Err(_) => faults.push(format!("keep_headers has {name:?}, which is the name of no header")),
            }
        }
        if headers.len() > HEADERS_MAX {
            let count = headers.len();
            faults.push(format!("keep_headers has {count} headers: use {HEADERS_MAX} at most"));
        }
        headers.into()
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let (source, most) = (&self.source, SOURCE_BYTES_MAX);
        if !(1..=most).contains(&source.len()) || source.chars().any(char::is_control) {
            faults.push(format!(
                "source is {source:?}: use 1 to {most} bytes without control characters"
            ));
        }
        if self.verifier.is_none() {
            faults.push("there is no verifier: without one anybody could send events".to_owned());
        }
        if self.apply.is_none() {
            faults.push("there is no handler".to_owned());
        }
        if !TIME_LIMIT.contains(&self.time_limit) {
            let (least, most) = (TIME_LIMIT.start(), TIME_LIMIT.end());
            let limit = self.time_limit;
            faults.push(format!("time_limit is {limit:?}: use {least:?} to {most:?}"));
        }
        faults
    }
}

impl<Q: TransactionalQueue> fmt::Debug for InboxBuilder<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxBuilder")
            .field("source", &self.source)
            .field("time_limit", &self.time_limit)
            .finish_non_exhaustive()
    }
}

/// What is wrong with an inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidInbox(Vec<String>);

impl fmt::Display for InvalidInbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "build inbox: {}", self.0.join("; "))
    }
}

impl std::error::Error for InvalidInbox {}

// Both kinds fit with the longest source.
const _: () = assert!(QUARANTINE_KIND.len() + SOURCE_BYTES_MAX <= Task::KIND_BYTES_MAX);
const _: () = assert!(KIND.len() <= QUARANTINE_KIND.len());
