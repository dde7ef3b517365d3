//! The engine as a tower layer, around any HTTP client that is a service.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::{HeaderName, Request, Response};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use super::around::{Around, NoAnswer, is_refused};
use super::engine::{Attempted, Plan, Transport};
use super::error::{Error, ErrorKind};
use super::heard::{PROBLEM_BYTES_MAX, Told, illegible, wall};
use super::wire::{REQUEST_TIMEOUT, time_left};
use crate::retry::{BudgetLimits, Ended, Policy};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Repeats the requests of an HTTP client, safely.
///
/// Requests with POST, PUT, PATCH or DELETE get a key if they have none, and every attempt carries the same one. What comes
/// back is the last answer, with its [`Ending`](crate::retry::Ending) and [`Account`](super::Account) among the response's
/// extensions, or a [`NoAnswer`] that says whether the call may have happened.
///
/// The answer to a call that happened is handed on as it comes: if its body breaks off, send the request again with the
/// same key. Bodies must be `Clone`, as `Full<Bytes>` is; redirects are answers like any other. The inner service must send
/// each request once: if it repeats or redirects by itself, a refused connection no longer proves that nothing was sent.
///
/// ```
/// # async fn doc() {
/// use bytes::Bytes;
/// use exactly::client::RetryLayer;
/// use exactly::retry::Ending;
/// use http_body_util::Full;
/// use tower::{Layer, Service, ServiceExt};
///
/// let client = tower::service_fn(|request: http::Request<Full<Bytes>>| async move {
///     assert!(request.headers().contains_key("idempotency-key"));
///     Ok::<_, std::io::Error>(http::Response::new(Full::new(Bytes::from("done"))))
/// });
/// let mut client = RetryLayer::new().layer(client);
/// let request = http::Request::post("http://shop.example/orders").body(Full::default()).unwrap();
/// let response = client.ready().await.unwrap().call(request).await.unwrap();
/// assert_eq!(response.extensions().get(), Some(&Ending::Applied));
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(doc());
/// ```
#[derive(Clone, Debug)]
pub struct RetryLayer {
    around: Around,
}

/// A service with a [`RetryLayer`] around it.
#[derive(Clone, Debug)]
pub struct Retry<S> {
    around: Around,
    inner: S,
}

impl RetryLayer {
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

impl Default for RetryLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for RetryLayer {
    type Service = Retry<S>;

    fn layer(&self, inner: S) -> Retry<S> {
        Retry {
            around: self.around.clone(),
            inner,
        }
    }
}

impl<S, B, A> Service<Request<B>> for Retry<S>
where
    S: Service<Request<B>, Response = Response<A>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Clone + Send + Sync + 'static,
    A: Body<Data = Bytes> + Unpin + Send + 'static,
    A::Error: Into<BoxError>,
{
    type Response = Response<AnswerBody<A>>;
    type Error = NoAnswer;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, NoAnswer>> + Send>>;

    /// Each attempt waits for the inner service itself, under the call's deadline.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NoAnswer>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let around = self.around.clone();
        let inner = self.inner.clone();
        Box::pin(async move { send(&around, inner, request).await })
    }
}

async fn send<S, B, A>(around: &Around, inner: S, mut request: Request<B>) -> Result<Response<AnswerBody<A>>, NoAnswer>
where
    S: Service<Request<B>, Response = Response<A>> + Clone + Send,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Clone + Send + Sync,
    A: Body<Data = Bytes> + Unpin + Send,
    A::Error: Into<BoxError>,
{
    let method = request.method().clone();
    let key = around.key(&method, request.headers_mut())?;
    let destination = destination(&request);
    let plan = Plan {
        policy: &around.policy,
        key: key.as_ref(),
        destination: &destination,
        once_only: false,
    };
    let course = around.course(&method, key.as_ref());
    let mut attempts = Attempts { inner, request };
    let ran = around.engine.run(&plan, course, &mut attempts).await;
    match ran.answer {
        Some(mut response) => {
            response.extensions_mut().insert(ran.ending);
            response.extensions_mut().insert(ran.account);
            Ok(response)
        }
        None => Err(NoAnswer::new(ran.ending, ran.account, ran.error)),
    }
}

/// Scheme and authority, or the host that a client with a fixed destination was given.
fn destination<B>(request: &Request<B>) -> String {
    let uri = request.uri();
    if let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) {
        // Whose name and password stand in front of the host is nobody's business.
        let (_, host) = authority.as_str().rsplit_once('@').unwrap_or(("", authority.as_str()));
        return format!("{scheme}://{host}");
    }
    let host = request.headers().get(http::header::HOST);
    host.and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned()
}

struct Attempts<S, B> {
    inner: S,
    request: Request<B>,
}

impl<S, B, A> Transport for Attempts<S, B>
where
    S: Service<Request<B>, Response = Response<A>> + Clone + Send,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Clone + Send + Sync,
    A: Body<Data = Bytes> + Unpin + Send,
    A::Error: Into<BoxError>,
{
    type Answer = Response<AnswerBody<A>>;

    async fn attempt(&mut self, deadline: Instant) -> Attempted<Self::Answer> {
        let ready = std::future::poll_fn(|cx| self.inner.poll_ready(cx).map_err(Into::into)).await;
        if let Err(error) = ready {
            let error: BoxError = error;
            return Attempted::failed(
                Ended::NotSent,
                Error::caused(ErrorKind::Connect, "wait for the client", error),
            );
        }
        let mut request = self.request.clone();
        request.headers_mut().insert(REQUEST_TIMEOUT, time_left(deadline));
        // The error may not be `Send`, so it is boxed before anything else is waited for.
        let answered: Result<_, BoxError> = self.inner.call(request).await.map_err(Into::into);
        match answered {
            Ok(response) => read(response).await,
            Err(error) => failed(error),
        }
    }

    fn give_up(&mut self) -> Attempted<Self::Answer> {
        Attempted::too_late(Ended::Sent)
    }
}

fn failed<A>(error: BoxError) -> Attempted<A> {
    if is_refused(&*error) {
        Attempted::failed(Ended::NotSent, Error::caused(ErrorKind::Connect, "connect", error))
    } else {
        Attempted::failed(Ended::Sent, Error::caused(ErrorKind::Broken, "exchange", error))
    }
}

/// Reads as much of an answer as it takes to judge it.
pub(super) async fn read<A>(response: Response<A>) -> Attempted<Response<AnswerBody<A>>>
where
    A: Body<Data = Bytes> + Unpin + Send,
    A::Error: Into<BoxError>,
{
    let (parts, mut rest) = response.into_parts();
    let mut told = Told::head(parts.status, &parts.headers, wall);
    let mut read = BytesMut::new();
    let mut is_understood = true;
    if told.is_explained(&parts.headers) {
        is_understood = loop {
            match std::future::poll_fn(|cx| Pin::new(&mut rest).poll_frame(cx)).await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        read.extend_from_slice(&data);
                    }
                    if read.len() > PROBLEM_BYTES_MAX {
                        break false;
                    }
                }
                Some(Err(error)) => {
                    let error = Error::caused(ErrorKind::Broken, "read the answer", error);
                    return Attempted::failed(told.ended(false), error);
                }
                None => break Told::is_legible(&parts.headers, read.len()),
            }
        };
        if is_understood {
            told.explain(&read);
        }
    }
    let body = AnswerBody {
        read: (!read.is_empty()).then(|| read.freeze()),
        rest,
    };
    Attempted {
        ended: told.ended(is_understood),
        answer: Some(Response::from_parts(parts, body)),
        code: told.code,
        error: (!is_understood).then(illegible),
        left_key: false,
        is_spent: false,
    }
}

/// The body of an answer, of which the beginning may have been read already.
#[derive(Debug)]
pub struct AnswerBody<A> {
    read: Option<Bytes>,
    rest: A,
}

impl<A: Body<Data = Bytes> + Unpin> Body for AnswerBody<A> {
    type Data = Bytes;
    type Error = A::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, A::Error>>> {
        match self.read.take() {
            Some(read) => Poll::Ready(Some(Ok(Frame::data(read)))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.read.as_ref().map_or(0, |read| read.len() as u64);
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(read));
        }
        hint
    }
}
