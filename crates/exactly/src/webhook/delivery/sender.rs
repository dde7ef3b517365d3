//! Sending something once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use reqwest::{Body, Request};
use tokio::time::{Instant, timeout_at};

use super::exchange::{Answer, Exchange, Fault, Trouble, TroubleKind};
use super::names::{self, Lookup, Names, Resolving};
use super::{Destinations, Target, headers};
use crate::client::sending::Sending;
use crate::client::tls;

const DEADLINE_DEFAULT: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// How long a connection is kept for the next delivery. Common servers close theirs after five seconds, and a request that
/// leaves at that moment is lost: it cannot be sent again, since that would be a second attempt that nobody has written down.
const IDLE_TIME_MAX: Duration = Duration::from_secs(4);
/// How many connections to one host are kept. As many as are in use at once, where many endpoints are on one host: what is over
/// that is dialled anew for each delivery, which costs more than sending it.
const IDLE_PER_HOST_MAX: usize = 256;

/// Sends each parcel once.
///
/// Cheap to clone; clones share connections. It speaks HTTP/1.1 only, on which a request that has not begun to leave can be
/// told from one that has. It asks no proxy, keeps no cookie, follows no redirect and unpacks nothing.
#[derive(Clone, Debug)]
pub struct Sender {
    http: reqwest::Client,
    destinations: Destinations,
    deadline: Duration,
}

/// What is sent.
pub struct Parcel<'a> {
    /// Where to.
    pub url: &'a Target,
    /// What is said of it. What belongs to the message on the wire is left out, and said by the sender; without a
    /// `content-type`, it is JSON.
    pub headers: HeaderMap,
    /// The body, byte for byte. Of an empty one it cannot always be told that it has not left.
    pub body: Bytes,
}

/// Without what it says, which is somebody else's.
impl fmt::Debug for Parcel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parcel")
            .field("url", self.url)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Puts a [`Sender`] together.
#[must_use = "a sender is made by `build`"]
pub struct SenderBuilder {
    destinations: Destinations,
    deadline: Duration,
    connect_timeout: Duration,
    lookup: Lookup,
    tls: rustls::ClientConfig,
}

impl Sender {
    /// Puts a sender together.
    pub fn builder() -> SenderBuilder {
        SenderBuilder {
            destinations: Destinations::default(),
            deadline: DEADLINE_DEFAULT,
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            lookup: names::system(),
            tls: tls::by_default(),
        }
    }

    /// Makes one POST. When this returns nothing of it is under way any more, and when it is dropped neither.
    pub async fn send(&self, parcel: Parcel<'_>) -> Exchange {
        let began = Instant::now();
        let answer = self.exchange(parcel, began + self.deadline).await;
        Exchange {
            answer,
            took: began.elapsed(),
        }
    }

    /// The longest that an exchange takes.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Where this sends to.
    pub fn destinations(&self) -> &Destinations {
        &self.destinations
    }

    async fn exchange(&self, parcel: Parcel<'_>, deadline: Instant) -> Result<Answer, Fault> {
        // A URL that names its address is dialled without asking for it.
        let checked = self.destinations.check_target(parcel.url);
        checked.map_err(|refused| Fault::NotSent(refused.into()))?;
        let (body, sending) = Sending::of(parcel.body);
        let mut request = Request::new(Method::POST, parcel.url.url().clone());
        *request.headers_mut() = headers::dressed(parcel.headers);
        *request.body_mut() = Some(Body::wrap(body));
        match timeout_at(deadline, self.http.execute(request)).await {
            Ok(Ok(response)) => Ok(Answer::read(response, deadline).await),
            Ok(Err(error)) => {
                let not_sent = error.is_connect() || error.is_builder() || sending.recall();
                let fault = if not_sent { Fault::NotSent } else { Fault::Lost };
                Err(fault(Trouble::of(error)))
            }
            Err(_) => {
                let fault = if sending.recall() { Fault::NotSent } else { Fault::Lost };
                let message = format!("no answer within {:?}", self.deadline);
                Err(fault(Trouble::new(TroubleKind::Timeout, message)))
            }
        }
    }
}

impl SenderBuilder {
    /// Which addresses may be dialled; public ones, if nobody says.
    pub fn destinations(mut self, destinations: Destinations) -> Self {
        self.destinations = destinations;
        self
    }

    /// The longest that an exchange takes, from looking up the name to the end of the answer; 15 seconds, if nobody says.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The longest that it takes until a connection is there; 5 seconds, if nobody says.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Trusts the certificate authorities in this PEM text, and no others. Without it, those of the system.
    pub fn authorities(mut self, pem: &[u8]) -> Result<Self, InvalidSender> {
        self.tls = tls::trusting(pem).map_err(|error| InvalidSender(Box::new(error)))?;
        Ok(self)
    }

    /// Looks names up in another way than the system does. What is found is checked all the same.
    pub fn lookup(mut self, lookup: impl Fn(&str) -> Resolving + Send + Sync + 'static) -> Self {
        self.lookup = Arc::new(lookup);
        self
    }

    /// The sender. Fails if connections cannot be made as asked.
    pub fn build(self) -> Result<Sender, InvalidSender> {
        let names = Names {
            destinations: self.destinations.clone(),
            lookup: self.lookup,
        };
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(self.tls)
            .http1_only()
            .dns_resolver(names)
            .connect_timeout(self.connect_timeout)
            .pool_idle_timeout(IDLE_TIME_MAX)
            .pool_max_idle_per_host(IDLE_PER_HOST_MAX)
            // A proxy would dial for us, whatever it is asked for.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            // Another crate of the program may have turned these on.
            .no_gzip()
            .no_brotli()
            .no_deflate()
            .no_zstd()
            .build()
            .map_err(|error| InvalidSender(Box::new(error)))?;
        Ok(Sender {
            http,
            destinations: self.destinations,
            deadline: self.deadline,
        })
    }
}

impl fmt::Debug for SenderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SenderBuilder")
            .field("destinations", &self.destinations)
            .field("deadline", &self.deadline)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}

/// Why there is no sender.
#[derive(Debug)]
pub struct InvalidSender(Box<dyn std::error::Error + Send + Sync>);

impl fmt::Display for InvalidSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "set up sending: {}", self.0)
    }
}

impl std::error::Error for InvalidSender {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}
