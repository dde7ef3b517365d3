//! Sending something once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use tokio::time::{Instant, timeout_at};

use super::connections::{Broken, Connections};
use super::dial::Dial;
use super::exchange::{Answer, Exchange, Fault, Trouble, TroubleKind};
use super::names::{self, Lookup, Names, Resolving};
use super::{Destinations, Target, headers};
use crate::client::sending::Sending;
use crate::client::tls;

const DEADLINE_DEFAULT: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// Sends each parcel once.
///
/// Cheap to clone; clones share connections. It speaks HTTP/1.1 only, on which a request that has not begun to leave can be
/// told from one that has. It asks no proxy, keeps no cookie, follows no redirect and unpacks nothing.
#[derive(Clone, Debug)]
pub struct Sender {
    connections: Connections,
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

    /// What is sent is put together before anything is waited for, so that there is one of it while this waits.
    fn exchange(&self, parcel: Parcel<'_>, deadline: Instant) -> impl Future<Output = Result<Answer, Fault>> {
        let Parcel { url, headers, body } = parcel;
        // A URL that names its address is dialled without asking for it.
        let checked = self.destinations.check_target(url);
        let (body, sending) = Sending::of(body);
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = url.path().clone();
        *request.headers_mut() = headers::dressed(headers, url.host());
        async move {
            checked.map_err(|refused| Fault::NotSent(refused.into()))?;
            let trouble = match timeout_at(deadline, self.connections.send(url, request)).await {
                Ok(Ok((connection, response))) => {
                    let answer = Answer::read(response, deadline).await;
                    if !answer.cut {
                        self.connections.keep(url, connection, deadline).await;
                    }
                    return Ok(answer);
                }
                Ok(Err(Broken::Dialling(error))) => return Err(Fault::NotSent(Trouble::of_dialling(&*error))),
                Ok(Err(Broken::Sending(error))) => Trouble::of_sending(&error),
                Err(_) => {
                    let message = format!("no answer within {:?}", self.deadline);
                    Trouble::new(TroubleKind::Timeout, message)
                }
            };
            let fault = if sending.recall() { Fault::NotSent } else { Fault::Lost };
            Err(fault(trouble))
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

    /// The sender. Fails if there is no time in which anything could be sent.
    pub fn build(self) -> Result<Sender, InvalidSender> {
        for (name, time) in [("deadline", self.deadline), ("connect_timeout", self.connect_timeout)] {
            if time.is_zero() {
                return Err(InvalidSender(format!("{name} is 0, and more is accepted").into()));
            }
        }
        let names = Names {
            destinations: self.destinations.clone(),
            lookup: self.lookup,
        };
        let dial = Dial::new(names, self.tls, self.connect_timeout);
        Ok(Sender {
            connections: Connections::new(dial),
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
