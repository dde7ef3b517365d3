//! Asking the upstream whether a caller may still see what a key stands for.
//!
//! A replay never reaches the service that would have checked the caller, and a token that was good for the first request
//! may have been revoked since. With this, whoever sends a key is asked about first.

use exactly::layer::{Body, IDEMPOTENCY_KEY};
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, Request, Response, header};

use super::proxy::{NoAnswer, Proxy};
use super::{correlation, problem, proxy};

const X_ORIGINAL_METHOD: HeaderName = HeaderName::from_static("x-original-method");
const X_ORIGINAL_URI: HeaderName = HeaderName::from_static("x-original-uri");

/// What belongs to the request and its body. A condition that it does not meet, or a part of what is there, is no leave.
const OF_REQUEST: [HeaderName; 14] = [
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::EXPECT,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    header::RANGE,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    IDEMPOTENCY_KEY,
];

#[derive(Clone, Debug)]
pub(super) struct Authorize {
    path: PathAndQuery,
    proxy: Proxy,
}

impl Authorize {
    pub(super) fn new(path: PathAndQuery, proxy: Proxy) -> Self {
        Self { path, proxy }
    }

    /// The same question, asked over other lines.
    pub(super) fn over(&self, proxy: Proxy) -> Self {
        Self::new(self.path.clone(), proxy)
    }

    /// 2xx lets the request on; 401 and 403 are passed back; anything else is nobody's leave.
    pub(super) async fn check<B>(&self, request: &Request<B>) -> Result<(), Response<Body>> {
        if [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method()) {
            return Ok(());
        }
        let mut question = Request::get(self.path.clone())
            .body(Body::default())
            .expect("a path that was parsed makes a request");
        let headers = question.headers_mut();
        headers.clone_from(request.headers());
        for name in OF_REQUEST {
            headers.remove(name);
        }
        // Whoever may do something for one host may not do it for another.
        if let Some(host) = request.uri().authority().and_then(proxy::host) {
            headers.insert(header::HOST, host);
        }
        headers.insert(
            X_ORIGINAL_METHOD,
            HeaderValue::from_str(request.method().as_str()).expect("a method is a token"),
        );
        let asked_for = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        // What a client says under this name never gets through.
        headers.remove(X_ORIGINAL_URI);
        if let Ok(uri) = HeaderValue::from_bytes(asked_for.as_bytes()) {
            headers.insert(X_ORIGINAL_URI, uri);
        }
        if let Some(peer) = request.extensions().get::<super::Peer>() {
            question.extensions_mut().insert(*peer);
        }
        match self.proxy.ask(question).await {
            Ok(answer) if answer.status().is_success() => {
                self.proxy.let_go(answer);
                Ok(())
            }
            Ok(answer) if matches!(answer.status().as_u16(), 401 | 403) => Err(self.proxy.pass_back(answer)),
            Ok(answer) => Err(problem::unreached(
                self.proxy.upstream(),
                &format!("{} answered {} when asked for leave", self.path, answer.status()),
                correlation::of(request).as_ref(),
            )),
            Err(NoAnswer { cause, .. }) => {
                let id = correlation::of(request);
                Err(problem::unreached(self.proxy.upstream(), &cause, id.as_ref()))
            }
        }
    }
}
