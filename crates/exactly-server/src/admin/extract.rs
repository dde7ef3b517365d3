//! Reading requests, and saying what is wrong with them.

use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use exactly::CallId;
use exactly::queue::TaskId;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::input::{Actor, IdText};
use super::jobs::ask::JobIdText;
use super::problem::{Answer, Problem};

/// Who acts, as the trail tells it.
pub(crate) const ACTOR: HeaderName = HeaderName::from_static("x-exactly-actor");

/// Room for the largest outcome in base64, and for what is around it.
pub(crate) const BODY_MAX: usize = 2 << 20;

/// How long a client may take to send a body.
const BODY_PATIENCE: Duration = Duration::from_secs(10);

/// JSON in, read strictly: what is not known is refused, and named.
#[derive(Debug)]
pub(super) struct Asked<T>(pub(super) T);

/// The query, read as strictly. A misspelled filter would otherwise match everything.
#[derive(Debug)]
pub(super) struct Filtered<T>(pub(super) T);

/// The call that the path names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Id(pub(super) CallId);

/// What the path names, as text.
#[derive(Debug)]
pub(super) struct Named(pub(super) String);

/// The job that the path names.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobNamed(pub(super) TaskId);

/// Who acts.
#[derive(Debug)]
pub(super) struct By(pub(super) Actor);

/// JSON out.
#[derive(Debug)]
pub(super) struct Told<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Answer<Self> {
        let is_json = is_json(request.headers());
        let may_be_nothing = !request.headers().contains_key(header::CONTENT_TYPE);
        if !is_json && !may_be_nothing {
            return Err(Problem::media_type());
        }
        let body = read(request).await?;
        if is_json {
            parse_json(&body).map(Self)
        } else if body.is_empty() {
            // Nothing was said: what has to be is missed by its name.
            parse_json(b"{}").map(Self)
        } else {
            Err(Problem::media_type())
        }
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Filtered<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Answer<Self> {
        let query = parts.uri.query().unwrap_or_default();
        let pairs = serde_urlencoded::Deserializer::new(form_urlencoded::parse(query.as_bytes()));
        serde_path_to_error::deserialize(pairs)
            .map(Self)
            .map_err(|error| at(&error))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(name) = path.map_err(|error| Problem::unreadable(error.body_text()))?;
        Ok(Self(name))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for JobNamed {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        let Named(id) = Named::from_request_parts(parts, state).await?;
        let id = JobIdText::try_from(id).map_err(|why| Problem::invalid("job", why))?;
        Ok(Self(id.id()))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        let Named(id) = Named::from_request_parts(parts, state).await?;
        let id = IdText::try_from(id).map_err(|why| Problem::invalid("id", why))?;
        Ok(Self(id.id()))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for By {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Answer<Self> {
        let mut lines = parts.headers.get_all(ACTOR).iter();
        let actor = match (lines.next(), lines.next()) {
            (None, _) => Ok("api".to_owned()),
            (Some(line), None) => line.to_str().map(str::to_owned).map_err(|_| "is not ASCII".to_owned()),
            (Some(_), Some(_)) => Err("is there twice".to_owned()),
        };
        let actor = actor.and_then(Actor::try_from);
        actor.map(Self).map_err(|why| Problem::invalid(ACTOR.as_str(), why))
    }
}

impl<T: Serialize> IntoResponse for Told<T> {
    fn into_response(self) -> Response {
        let Ok(json) = serde_json::to_vec(&self.0) else {
            return Problem::failed("the answer cannot be written as JSON").into_response();
        };
        let mut response = json.into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // Records change, and some of what is told is secret.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

async fn read(request: Request) -> Answer<Bytes> {
    let body = Limited::new(request.into_body(), BODY_MAX).collect();
    match timeout(BODY_PATIENCE, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Problem::body_too_large(BODY_MAX)),
        Ok(Err(_)) => Err(Problem::unreadable("the body ended early; nothing was done")),
        Err(_) => Err(Problem::body_late(BODY_PATIENCE)),
    }
}

pub(crate) fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Answer<T> {
    // It would be read as an object whose fields are in this order, which nobody can have meant.
    if body.trim_ascii_start().starts_with(b"[") {
        return Err(Problem::invalid("request", "accepted is an object, and this is a list"));
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let asked = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        if error.inner().is_data() {
            return at(&error);
        }
        Problem::unreadable(format!("the body is not JSON: {}", error.inner()))
    })?;
    json.end()
        .map_err(|error| Problem::unreadable(format!("the body is more than JSON: {error}")))?;
    Ok(asked)
}

fn at<E: std::error::Error>(error: &serde_path_to_error::Error<E>) -> Problem {
    let why = error.inner().to_string();
    let path = error.path().to_string();
    // A field that is missing or not known is at its object, and only the message names it.
    let named = why.split('`').nth(1).filter(|_| why.contains(" field `"));
    let field = match (path.as_str(), named) {
        (".", Some(named)) => named.to_owned(),
        (path, Some(named)) if !path.ends_with(named) => format!("{path}.{named}"),
        (".", None) => "request".to_owned(),
        (path, _) => path.to_owned(),
    };
    Problem::invalid(field, why)
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return false;
    };
    let essence = line.to_str().ok().and_then(|line| line.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}
