//! The engine as a middleware of `reqwest-middleware`.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http::{Extensions, HeaderName, HeaderValue};
use reqwest::{Request, Response, ResponseBuilderExt as _};
use reqwest_middleware::{Middleware, Next};

use super::around::{Around, NoAnswer};
use super::engine::{Attempted, Plan, Transport};
use super::error::{Error, ErrorKind};
use super::heard::{PROBLEM_BYTES_MAX, Told};
use super::wire::REQUEST_TIMEOUT;
use crate::retry::{BudgetLimits, Ended, Policy};

/// Repeats the requests of a client with middleware, safely.
///
/// As [`RetryLayer`](super::RetryLayer): requests that change something get a key, every attempt carries the same one, and
/// the last answer carries its [`Ending`](crate::retry::Ending) and [`Account`](super::Account) among its extensions. A call
/// without an answer is a [`reqwest_middleware::Error::Middleware`] with a [`NoAnswer`] inside. A request whose body is a
/// stream is sent once.
///
/// Build the client with `redirect(reqwest::redirect::Policy::none())`: reqwest would carry the key to wherever an answer
/// points.
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

    async fn attempt(&mut self, left: Duration) -> Attempted<Response> {
        let copy = self.request.as_ref().and_then(Request::try_clone);
        let mut request = copy
            .or_else(|| self.request.take())
            .expect("what can be sent once only is attempted once only");
        let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        request.headers_mut().insert(REQUEST_TIMEOUT, HeaderValue::from(millis));
        match self.next.clone().run(request, self.extensions).await {
            Ok(response) => read(response).await,
            Err(error) => failed(error),
        }
    }

    fn give_up(&mut self) -> Attempted<Response> {
        Attempted::too_late(Ended::Sent)
    }
}

fn failed(error: reqwest_middleware::Error) -> Attempted<Response> {
    let not_sent = match &error {
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
async fn read(mut response: Response) -> Attempted<Response> {
    let mut told = Told::head(response.status(), response.headers());
    let explained = told.is_explained(response.headers())
        && response
            .content_length()
            .is_some_and(|length| length <= PROBLEM_BYTES_MAX as u64);
    if !explained {
        return Attempted {
            ended: Ended::Answered(told.heard),
            answer: Some(response),
            code: told.code,
            error: None,
            left_key: false,
        };
    }
    let mut body = BytesMut::new();
    let broken = loop {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => break None,
            Err(error) => break Some(Error::caused(ErrorKind::Broken, "read the answer", error.without_url())),
        }
    };
    told.explain(&body);
    let ended = match broken {
        Some(_) => Ended::CutOff(told.heard),
        None => Ended::Answered(told.heard),
    };
    Attempted {
        ended,
        answer: Some(with_body(response, body)),
        code: told.code,
        error: broken,
        left_key: false,
    }
}

/// The response with the body that was taken out of it.
fn with_body(mut response: Response, body: BytesMut) -> Response {
    let mut again = http::Response::builder()
        .status(response.status())
        .version(response.version())
        .url(response.url().clone())
        .body(body.freeze())
        .expect("its parts are those of a response");
    *again.headers_mut() = std::mem::take(response.headers_mut());
    Response::from(again)
}
