//! Attempts over reqwest.

use std::borrow::Cow;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use reqwest::{Body, Request, Response, Url};
use tokio::time::Instant;

use super::account::Attempt;
use super::engine::{Attempted, Transport};
use super::error::{Error, ErrorKind};
use super::frozen::{Frozen, Payload};
use super::heard::{Told, illegible, wall};
use super::outcome::Answer;
use super::sending::Sending;
use crate::retry::{Ended, Fate};

/// How much time the caller has left, in whole milliseconds.
pub(super) const REQUEST_TIMEOUT: HeaderName = HeaderName::from_static("x-request-timeout");

/// How often an attempt is sent elsewhere.
const HOPS_MAX: u32 = 5;

/// Sends one call over reqwest.
#[derive(Debug)]
pub(super) struct Wire<'a> {
    http: &'a reqwest::Client,
    call: &'a Frozen,
    payload: Payload,
    answer_bytes_max: usize,
    /// Connections are of our own making.
    is_plain: bool,
    way: Way,
    under_way: UnderWay,
}

/// Where a call may be sent on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Wherever answers point.
    Free,
    /// Not where its key must not go: somebody may have carried it out before.
    WithKey,
    /// Nowhere: only who was asked can answer.
    Straight,
}

/// How far the attempt in flight has come.
#[derive(Debug, Default)]
struct UnderWay {
    /// Only for HTTP/1.1, where a body that was not asked for proves that nothing left.
    sending: Option<Sending>,
    began: Option<Began>,
    left_key: bool,
    /// It was answered by somebody who was not shown its key.
    is_spent: bool,
}

/// An answer of which the head is here.
#[derive(Debug)]
struct Began {
    told: Told,
    status: StatusCode,
    headers: HeaderMap,
    body: Collected,
}

/// What came of a body: as a rule in one piece, which is kept as it is.
#[derive(Debug, Default)]
struct Collected {
    first: Bytes,
    more: BytesMut,
}

impl Collected {
    fn len(&self) -> usize {
        self.first.len().max(self.more.len())
    }

    fn add(&mut self, piece: Bytes) {
        if self.len() == 0 {
            self.first = piece;
            return;
        }
        if self.more.is_empty() {
            self.more = BytesMut::from(std::mem::take(&mut self.first));
        }
        self.more.extend_from_slice(&piece);
    }

    fn freeze(self) -> Bytes {
        if self.more.is_empty() {
            self.first
        } else {
            self.more.freeze()
        }
    }
}

impl<'a> Wire<'a> {
    pub(super) fn new(
        http: &'a reqwest::Client,
        call: &'a Frozen,
        payload: Payload,
        answer_bytes_max: usize,
        is_plain: bool,
        way: Way,
    ) -> Self {
        Self {
            http,
            call,
            payload,
            answer_bytes_max,
            is_plain,
            way,
            under_way: UnderWay::default(),
        }
    }

    /// Hands the request over, to wherever it has come.
    async fn send(&mut self, hop: &Hop<'_>, deadline: Instant) -> Result<Response, Attempted<Answer>> {
        let mut request = Request::new(self.call.method.clone(), Url::clone(&hop.url));
        *request.headers_mut() = HeaderMap::clone(&hop.headers);
        request.headers_mut().insert(REQUEST_TIMEOUT, time_left(deadline));
        self.under_way.sending = None;
        match &mut self.payload {
            Payload::Whole(bytes) if bytes.is_empty() => {}
            Payload::Whole(bytes) => {
                let (body, sending) = Sending::of(bytes.clone());
                self.under_way.sending = (self.is_plain && hop.url.scheme() == "http").then_some(sending);
                *request.body_mut() = Some(Body::wrap(body));
            }
            Payload::Stream(stream) => *request.body_mut() = stream.take(),
        }
        self.http.execute(request).await.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: reqwest::Error) -> Attempted<Answer> {
        let (kind, context) = if error.is_connect() {
            (ErrorKind::Connect, "connect")
        } else if error.is_builder() {
            (ErrorKind::Invalid, "make the request")
        } else if error.is_timeout() {
            (ErrorKind::Timeout, "wait for the answer")
        } else {
            (ErrorKind::Broken, "exchange")
        };
        let not_sent = error.is_connect() || error.is_builder() || self.recalled();
        let ended = if not_sent { Ended::NotSent } else { Ended::Sent };
        self.left_key(Attempted::failed(
            ended,
            Error::caused(kind, context, error.without_url()),
        ))
    }

    fn recalled(&self) -> bool {
        self.under_way.sending.as_ref().is_some_and(Sending::recall)
    }

    /// Reads the answer whole, up to the limit.
    async fn read(&mut self, mut response: Response) -> Attempted<Answer> {
        let status = response.status();
        let headers = std::mem::take(response.headers_mut());
        let began = self.under_way.began.insert(Began {
            told: Told::head(status, &headers, wall),
            status,
            headers,
            body: Collected::default(),
        });
        let truncated = loop {
            match response.chunk().await {
                Ok(Some(mut chunk)) => {
                    let room = self.answer_bytes_max - began.body.len();
                    let fits = chunk.len() <= room;
                    chunk.truncate(room);
                    began.body.add(chunk);
                    if !fits {
                        break true;
                    }
                }
                Ok(None) => break false,
                Err(error) => {
                    let error = Error::caused(ErrorKind::Broken, "read the answer", error.without_url());
                    return self.cut_off(error);
                }
            }
        };
        let began = self.under_way.began.take().expect("it began above");
        let (mut told, body) = (began.told, began.body.freeze());
        let is_explained = told.is_explained(&began.headers);
        let is_understood = !is_explained || (!truncated && Told::is_legible(&began.headers, body.len()));
        if is_explained && is_understood {
            told.explain(&body);
        }
        let answer = Answer {
            status,
            headers: began.headers,
            body,
            truncated,
            code: told.code.clone(),
        };
        self.left_key(Attempted {
            ended: told.ended(is_understood),
            answer: Some(answer),
            code: told.code,
            error: (!is_understood).then(illegible),
            left_key: false,
            is_spent: false,
        })
    }

    /// The answer began, and will not come whole.
    fn cut_off(&mut self, error: Error) -> Attempted<Answer> {
        let began = self.under_way.began.take().expect("only what began can be cut off");
        let answer = Answer {
            status: began.status,
            headers: began.headers,
            body: began.body.freeze(),
            truncated: true,
            code: began.told.code.clone(),
        };
        self.left_key(Attempted {
            ended: Ended::CutOff(began.told.heard),
            answer: Some(answer),
            code: began.told.code,
            error: Some(error),
            left_key: false,
            is_spent: false,
        })
    }

    fn left_key(&self, mut attempted: Attempted<Answer>) -> Attempted<Answer> {
        attempted.left_key = self.under_way.left_key;
        attempted.is_spent = self.under_way.is_spent;
        attempted
    }
}

impl Transport for Wire<'_> {
    type Answer = Answer;

    async fn attempt(&mut self, deadline: Instant) -> Attempted<Answer> {
        self.under_way = UnderWay::default();
        let call = self.call;
        let mut hop = Hop {
            url: Cow::Borrowed(&call.url),
            headers: Cow::Borrowed(&call.headers),
        };
        for hops_left in (0..=HOPS_MAX).rev() {
            let response = match self.send(&hop, deadline).await {
                Ok(response) => response,
                Err(attempted) => return attempted,
            };
            self.under_way.is_spent |= self.under_way.left_key;
            match hop.next(call, &response, self.way) {
                Next::Answer => return self.read(response).await,
                Next::Refused(context) => {
                    return self.refused(response, context).await;
                }
                Next::Hop { .. } if hops_left == 0 => {
                    return self.refused(response, "the answer points elsewhere too often").await;
                }
                Next::Hop { to, leaves_key } => {
                    self.under_way.left_key |= leaves_key;
                    hop = to;
                }
            }
        }
        unreachable!("the last hop is answered or refused")
    }

    fn give_up(&mut self) -> Attempted<Answer> {
        if self.under_way.began.is_some() {
            return self.cut_off(Error::new(
                ErrorKind::Timeout,
                "the time was up before the answer was whole",
            ));
        }
        let ended = if self.recalled() { Ended::NotSent } else { Ended::Sent };
        self.left_key(Attempted::too_late(ended))
    }

    fn over(&mut self, attempt: &Attempt, wait: Option<Duration>) {
        if self.way == Way::Free && attempt.ended.fate() == Fate::Unknown {
            self.way = Way::WithKey;
        }
        self.call.on_attempt.tell(attempt, wait);
    }
}

impl Wire<'_> {
    async fn refused(&mut self, response: Response, context: &'static str) -> Attempted<Answer> {
        let mut attempted = self.read(response).await;
        attempted
            .error
            .get_or_insert_with(|| Error::new(ErrorKind::Redirect, context));
        attempted
    }
}

/// Where an attempt goes.
#[derive(Debug)]
struct Hop<'a> {
    url: Cow<'a, Url>,
    headers: Cow<'a, HeaderMap>,
}

enum Next<'a> {
    /// This is the answer.
    Answer,
    /// It points where the call must not go.
    Refused(&'static str),
    Hop {
        to: Hop<'a>,
        leaves_key: bool,
    },
}

impl<'a> Hop<'a> {
    /// What an answer means for the way of the call.
    fn next(&self, call: &Frozen, response: &Response, way: Way) -> Next<'a> {
        if way == Way::Straight {
            return Next::Answer;
        }
        let changes_nothing = is_safe(&call.method);
        let points = match response.status().as_u16() {
            307 | 308 => true,
            // To these a client would answer with a GET, which is another call.
            301..=303 => changes_nothing,
            _ => false,
        };
        let Some(location) = response.headers().get(header::LOCATION).filter(|_| points) else {
            return Next::Answer;
        };
        if matches!(call.payload, Payload::Stream(_)) {
            return Next::Refused("the answer points elsewhere, and the body is gone");
        }
        let url = location.to_str().ok().and_then(|location| self.url.join(location).ok());
        let Some(url) = url.filter(|url| matches!(url.scheme(), "http" | "https")) else {
            return Next::Refused("the answer points to no place that can be called");
        };
        if self.url.scheme() == "https" && url.scheme() == "http" {
            return Next::Refused("the answer points from https to http");
        }
        let stays = url.origin() == self.url.origin();
        if way == Way::WithKey && !stays && call.key.is_some() {
            return Next::Refused("the answer points where the key must not go, and the call may have happened");
        }
        let mut headers = self.headers.clone();
        if !stays {
            leave_secrets(headers.to_mut(), &call.key_header);
        }
        Next::Hop {
            to: Hop {
                url: Cow::Owned(url),
                headers,
            },
            leaves_key: !stays && call.key.is_some(),
        }
    }
}

/// Takes off what belongs to the origin that a call was meant for.
fn leave_secrets(headers: &mut HeaderMap, key: &HeaderName) {
    let secret: Vec<HeaderName> = headers
        .iter()
        .filter(|(name, value)| {
            value.is_sensitive()
                || *name == key
                || [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION].contains(name)
        })
        .map(|(name, _)| name.clone())
        .collect();
    for name in secret {
        headers.remove(name);
    }
}

/// What is left until `deadline`, as it travels.
pub(super) fn time_left(deadline: Instant) -> HeaderValue {
    let left = deadline.saturating_duration_since(Instant::now()).as_millis();
    HeaderValue::from(u64::try_from(left).unwrap_or(u64::MAX))
}

/// Whether a request with this method changes nothing, so that it needs no key to be sent again.
pub fn is_safe(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}
