//! The engine as a middleware of `reqwest-middleware`.

use std::sync::Arc;

use http::{Extensions, HeaderName};
use reqwest::{Body, Request, Response, ResponseBuilderExt as _, Url};
use reqwest_middleware::{Middleware, Next};
use tokio::time::Instant;

use super::around::{Around, NoAnswer};
use super::engine::{Attempted, Plan, Transport};
use super::error::{Error, ErrorKind};
use super::layer::{self, AnswerBody};
use super::wire::{REQUEST_TIMEOUT, time_left};
use crate::retry::{BudgetLimits, Ended, Policy};

/// Repeats the requests of a client with middleware, safely.
///
/// As [`RetryLayer`](super::RetryLayer): requests that change something get a key, every attempt carries the same one, and
/// the last answer carries its [`Ending`](crate::retry::Ending) and [`Account`](super::Account) among its extensions. A call
/// without an answer is a [`reqwest_middleware::Error::Middleware`] with a [`NoAnswer`] inside. A request whose body is a
/// stream is sent once.
///
/// Build the client with `redirect(reqwest::redirect::Policy::none())`: reqwest would carry the key to wherever an answer
/// points. And put no other middleware behind this one that repeats requests.
#[derive(Clone, Debug)]
pub struct RetryMiddleware {
    around: Around,
}

impl RetryMiddleware {
    /// For calls that somebody waits for: 3 retries within 10 seconds.
    pub fn new() -> Self {
        Self { around: Around::new() }
    }

    /// Repeats calls as this says.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.around.policy = Arc::new(policy);
        self
    }

    /// How many retries each destination is given.
    #[must_use]
    pub fn budget(mut self, limits: BudgetLimits) -> Self {
        self.around.budget(limits);
        self
    }

    /// The header that carries the key.
    #[must_use]
    pub fn key_header(mut self, name: HeaderName) -> Self {
        self.around.key_header = name;
        self
    }
}

impl Default for RetryMiddleware {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait::async_trait]
impl Middleware for RetryMiddleware {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let method = request.method().clone();
        let key = self
            .around
            .key(&method, request.headers_mut())
            .map_err(reqwest_middleware::Error::middleware)?;
        let destination = request.url().origin().ascii_serialization();
        let once_only = request.try_clone().is_none();
        let plan = Plan {
            policy: &self.around.policy,
            key: key.as_ref(),
            destination: &destination,
            once_only,
        };
        let course = self.around.course(&method, key.as_ref());
        let mut attempts = Attempts {
            request: Some(request),
            extensions,
            next,
        };
        let ran = self.around.engine.run(&plan, course, &mut attempts).await;
        match ran.answer {
            Some(mut response) => {
                response.extensions_mut().insert(ran.ending);
                response.extensions_mut().insert(ran.account);
                Ok(response)
            }
            None => Err(reqwest_middleware::Error::middleware(NoAnswer::new(
                ran.ending,
                ran.account,
                ran.error,
            ))),
        }
    }
}

struct Attempts<'a> {
    /// None, if it could be sent once only, and was.
    request: Option<Request>,
    extensions: &'a mut Extensions,
    next: Next<'a>,
}

impl Transport for Attempts<'_> {
    type Answer = Response;

    async fn attempt(&mut self, deadline: Instant) -> Attempted<Response> {
        let copy = self.request.as_ref().and_then(Request::try_clone);
        let mut request = copy
            .or_else(|| self.request.take())
            .expect("what can be sent once only is attempted once only");
        request.headers_mut().insert(REQUEST_TIMEOUT, time_left(deadline));
        let url = request.url().clone();
        match self.next.clone().run(request, self.extensions).await {
            Ok(response) => read(response).await,
            Err(error) => failed(&url, error),
        }
    }

    fn give_up(&mut self) -> Attempted<Response> {
        Attempted::too_late(Ended::Sent)
    }
}

fn failed(url: &Url, error: reqwest_middleware::Error) -> Attempted<Response> {
    let not_sent = match &error {
        // Of another address: the request was answered with a redirect, which reqwest followed.
        reqwest_middleware::Error::Reqwest(error) if error.url().is_some_and(|called| called != url) => false,
        reqwest_middleware::Error::Reqwest(error) => error.is_connect() || error.is_builder(),
        // Another middleware may have sent the request before it failed.
        reqwest_middleware::Error::Middleware(_) => false,
    };
    if not_sent {
        let error = Error::caused(ErrorKind::Connect, "connect", error.without_url());
        Attempted::failed(Ended::NotSent, error)
    } else {
        let error = Error::caused(ErrorKind::Broken, "exchange", error.without_url());
        Attempted::failed(Ended::Sent, error)
    }
}

/// Reads as much of an answer as it takes to judge it.
async fn read(response: Response) -> Attempted<Response> {
    let url = response.url().clone();
    let read = layer::read(http::Response::<Body>::from(response)).await;
    Attempted {
        ended: read.ended,
        answer: read.answer.map(|answer| from(&url, answer)),
        code: read.code,
        error: read.error,
        left_key: false,
        is_spent: false,
    }
}

/// The response of reqwest's kind, which knows its address by an extension.
fn from(url: &Url, answer: http::Response<AnswerBody<Body>>) -> Response {
    let marked = http::Response::builder().url(url.clone()).body(());
    let (mut parts, body) = answer.into_parts();
    parts
        .extensions
        .extend(marked.expect("an address is all it has").into_parts().0.extensions);
    Response::from(http::Response::from_parts(parts, Body::wrap(body)))
}
