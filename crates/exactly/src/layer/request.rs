//! From a request to a call: key, principal, body, fingerprint.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method};
use http_body::Body as HttpBody;
use serde_json::Value;

use super::body::{self, Body, BoxError, Read, Unread};
use super::config::Principal;
use super::policy::{KeyRule, Policy};
use super::problem::Refusal;
use super::{Shared, host, member, route};
use crate::fingerprint::FingerprintInput;
use crate::key::{InvalidKey, InvalidKeyKind};
use crate::{Call, Fingerprint, Key, Scope};

/// What a request asks the layer for.
pub(super) enum Asked {
    /// Nothing: it is passed on.
    Nothing(Body),
    /// This call, with this content.
    Call(Call, Bytes),
}

/// Finds out what a request on `route` asks for, and reads its body if that takes it.
pub(super) async fn ask<B>(
    policy: &Policy,
    shared: &Shared,
    route: &str,
    parts: &Parts,
    body: B,
) -> Result<Asked, Refusal<'static>>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    if policy.key == KeyRule::Off || !is_protected(&parts.method) {
        return Ok(Asked::Nothing(Body::stream(body)));
    }
    let in_header = key_of_headers(policy, &parts.headers)?;
    if in_header.is_none() && policy.key_field.is_none() {
        return without_key(policy, Body::stream(body));
    }
    // A stranger with a key is turned away before anything is read for him.
    let early = in_header.is_some().then(|| shared.principal.of(parts)).transpose()?;
    let body = read_body(policy, shared, body).await?;
    let in_body = key_of_body(policy, &body)?;
    let key = match (in_header, in_body) {
        (Some(one), Some(other)) if one != other => return Err(sent_twice()),
        (in_header, in_body) => in_header.or(in_body),
    };
    let Some(key) = key else {
        return without_key(policy, Body::from(body));
    };
    let principal = match early {
        Some(principal) => principal,
        None => shared.principal.of(parts)?,
    };
    let call = call(policy, route, principal, key, parts, &body);
    Ok(Asked::Call(call, body))
}

/// Whether requests with this method change something.
pub(super) fn is_protected(method: &Method) -> bool {
    [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(method)
}

fn without_key(policy: &Policy, body: Body) -> Result<Asked, Refusal<'static>> {
    match policy.key {
        KeyRule::Required => Err(Refusal::KeyMissing),
        KeyRule::Optional | KeyRule::Off => Ok(Asked::Nothing(body)),
    }
}

fn sent_twice() -> Refusal<'static> {
    Refusal::KeyInvalid(InvalidKey::new(InvalidKeyKind::SentTwice))
}

fn key_of_headers(policy: &Policy, headers: &HeaderMap) -> Result<Option<Key>, Refusal<'static>> {
    let mut found: Option<Key> = None;
    for name in &policy.key_headers {
        let lines = headers.get_all(name).iter().map(http::HeaderValue::as_bytes);
        let Some(key) = Key::from_header(lines, policy.key_syntax).map_err(Refusal::KeyInvalid)? else {
            continue;
        };
        let key = policy.key_format.check(key).map_err(Refusal::KeyInvalid)?;
        if found.replace(key.clone()).is_some_and(|other| other != key) {
            return Err(sent_twice());
        }
    }
    Ok(found)
}

/// The key in a member of a JSON body. Whoever cannot read the body cannot carry it out either, so it has no key.
fn key_of_body(policy: &Policy, body: &[u8]) -> Result<Option<Key>, Refusal<'static>> {
    let Some(field) = policy.key_field.as_deref() else {
        return Ok(None);
    };
    let values = member::values(field, body).unwrap_or_default();
    match values.as_slice() {
        [] | [Value::Null] => Ok(None),
        [Value::String(text)] => {
            let key = Key::new(text.as_str()).and_then(|key| policy.key_format.check(key));
            key.map(Some).map_err(Refusal::KeyInvalid)
        }
        [_] => Err(Refusal::KeyInvalid(InvalidKey::new(InvalidKeyKind::NotAString))),
        _ => Err(sent_twice()),
    }
}

/// The whole body, or why there is none.
async fn read_body<B>(policy: &Policy, shared: &Shared, body: B) -> Result<Bytes, Refusal<'static>>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let max = policy.body_max;
    // A body that says it is too long is not read at all.
    if body.size_hint().lower() > u64::try_from(max).unwrap_or(u64::MAX) {
        return Err(Refusal::BodyTooLarge { max });
    }
    if shared.held.is_full() {
        return Err(Refusal::Overloaded);
    }
    let within = shared.patience.request;
    match body::read(body, max, within, shared.held.for_request()).await {
        Ok(Read::Whole(bytes)) => Ok(bytes),
        Ok(Read::TooLong(_)) => Err(Refusal::BodyTooLarge { max }),
        Err(Unread::NoRoom) => Err(Refusal::Overloaded),
        Err(Unread::Late) => Err(Refusal::BodyLate { within }),
        Err(Unread::Broken) => Err(Refusal::BodyUnreadable),
    }
}

fn call(policy: &Policy, route: &str, principal: Option<Principal>, key: Key, parts: &Parts, body: &[u8]) -> Call {
    let operation = [parts.method.as_str(), " ", route].concat();
    let scope = match principal {
        Some(principal) => Scope::new(principal.into_name(), operation),
        None => Scope::global(operation),
    };
    Call::new(scope, key, fingerprint(policy, route, parts, body))
        .with_lease(policy.lease)
        .with_on_lost(policy.on_lost())
}

fn fingerprint(policy: &Policy, name: &str, parts: &Parts, body: &[u8]) -> Fingerprint {
    let headers: Vec<_> = policy
        .compared_headers
        .iter()
        .flat_map(|name| {
            parts
                .headers
                .get_all(name)
                .iter()
                .map(|value| (name.as_str(), value.as_bytes()))
        })
        .collect();
    let (content_type, content_encoding) = (joined(parts, CONTENT_TYPE), joined(parts, CONTENT_ENCODING));
    let uri = route::uri(parts);
    let host = policy.compare_host.then(|| host::of(parts)).flatten();
    FingerprintInput {
        method: parts.method.as_str(),
        route: name,
        host: host.as_deref(),
        path: uri.path(),
        query: uri.query(),
        content_type: content_type.as_deref(),
        content_encoding: content_encoding.as_deref(),
        headers: &headers,
        body,
        leave_out: &policy.leave_out,
    }
    .fingerprint()
}

/// All lines of a header. Several are joined by a byte that no single line can have, so they never pass for one.
pub(super) fn joined(parts: &Parts, name: HeaderName) -> Option<Cow<'_, [u8]>> {
    let mut lines = parts.headers.get_all(name).iter().map(http::HeaderValue::as_bytes);
    let first = lines.next()?;
    Some(lines.fold(Cow::Borrowed(first), |joined, line| {
        Cow::Owned([&joined, line].join(&b'\n'))
    }))
}
