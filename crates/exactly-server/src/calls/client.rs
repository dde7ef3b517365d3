//! The API of a running server, as its client sees it.

use std::error::Error as _;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::Refused;
use crate::admin::ACTOR;
use crate::admin::input::Actor;
use crate::admin::problem::Problem;

/// How long an answer may take: longer than what the server gives its store.
const PATIENCE: Duration = Duration::from_secs(30);

/// The largest answer: a page of records with room to spare.
const ANSWER_MAX: usize = 16 << 20;

/// A text that nobody else is shown.
#[derive(Clone)]
pub(crate) struct Secret(String);

/// Asks a server's API.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: legacy::Client<HttpConnector, Full<Bytes>>,
    authority: Authority,
    token: Option<Secret>,
    actor: Option<Actor>,
}

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

impl Client {
    pub(crate) fn new(url: &str, token: Option<Secret>, actor: Option<Actor>) -> Result<Self, Refused> {
        let wrong = || Refused::Usage("--admin is not an address; accepted is http://HOST:PORT".to_owned());
        let uri: Uri = url.trim_end_matches('/').parse().map_err(|_| wrong())?;
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        let is_root = matches!(uri.path(), "" | "/") && uri.query().is_none();
        match authority {
            Some(authority) if uri.scheme() == Some(&Scheme::HTTP) && is_root => Ok(Self {
                http: legacy::Client::builder(TokioExecutor::new()).build_http(),
                authority: authority.clone(),
                token,
                actor,
            }),
            _ => Err(wrong()),
        }
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str, query: &impl Serialize) -> Result<T, Refused> {
        self.ask(Method::GET, &with_query(path, query)?, None).await
    }

    pub(crate) async fn delete<T: DeserializeOwned>(&self, path: &str, query: &impl Serialize) -> Result<T, Refused> {
        self.ask(Method::DELETE, &with_query(path, query)?, None).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Refused> {
        let body = serde_json::to_vec(body).map_err(Refused::failed)?;
        self.ask(Method::POST, path, Some(body.into())).await
    }

    pub(crate) async fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Refused> {
        let body = serde_json::to_vec(body).map_err(Refused::failed)?;
        self.ask(Method::PUT, path, Some(body.into())).await
    }

    pub(crate) async fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Refused> {
        let body = serde_json::to_vec(body).map_err(Refused::failed)?;
        self.ask(Method::PATCH, path, Some(body.into())).await
    }

    /// A POST that says everything by its address.
    pub(crate) async fn post_query<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<T, Refused> {
        self.ask(Method::POST, &with_query(path, query)?, None).await
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: Option<Bytes>) -> Result<T, Refused> {
        if self.token.is_none() {
            let why = "no token: give the server's with EXACTLY_ADMIN_TOKEN or --token";
            return Err(Refused::Failed(why.to_owned()));
        }
        let answered = self.send(method, path, body).await?;
        if answered.status.is_success() {
            let read = serde_json::from_slice(&answered.body);
            return read
                .map_err(|_| self.failed("its answer is not that of exactly's API; is this the admin address?"));
        }
        match serde_json::from_slice::<Problem>(&answered.body) {
            Ok(problem) if answered.status == StatusCode::UNAUTHORIZED => {
                let fix = "give the server's token with EXACTLY_ADMIN_TOKEN or --token";
                Err(self.failed(&format!("{}; {fix}", problem.detail)))
            }
            Ok(problem) => Err(problem.into()),
            Err(_) => {
                let why = format!("it answered {}; is this exactly's admin address?", answered.status);
                Err(self.failed(&why))
            }
        }
    }

    /// One exchange, within bounds.
    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<Bytes>) -> Result<Answered, Refused> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.authority));
        if let Some(Secret(token)) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(actor) = &self.actor {
            request = request.header(ACTOR, actor.as_ref());
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(body.unwrap_or_default()));
        // What cannot be in a header is no token; its text stays out of the message.
        let request = request.map_err(|_| Refused::Usage("the token cannot be sent in a header".to_owned()))?;
        let exchange = async {
            let (parts, body) = self
                .http
                .request(request)
                .await
                .map_err(|error| self.unreached(&error))?
                .into_parts();
            let body = Limited::new(body, ANSWER_MAX).collect().await;
            let body = body.map_err(|error| self.failed(&format!("its answer broke off: {error}")))?;
            Ok(Answered {
                status: parts.status,
                body: body.to_bytes(),
            })
        };
        let late = || self.failed(&format!("no answer within {} s", PATIENCE.as_secs()));
        timeout(PATIENCE, exchange).await.unwrap_or_else(|_| Err(late()))
    }

    fn unreached(&self, error: &legacy::Error) -> Refused {
        let cause = error.source().map_or_else(|| error.to_string(), deepest);
        if error.is_connect() {
            self.failed(&format!(
                "{cause}; is `exactly serve` running, and is this its admin address?"
            ))
        } else {
            self.failed(&format!(
                "{cause}; whether it was done is not known, so look before you repeat it"
            ))
        }
    }

    fn failed(&self, why: &str) -> Refused {
        Refused::Failed(format!("ask http://{}: {why}", self.authority))
    }
}

fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

fn with_query(path: &str, query: &impl Serialize) -> Result<String, Refused> {
    let query = serde_urlencoded::to_string(query).map_err(Refused::failed)?;
    Ok(if query.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{query}")
    })
}

impl FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
