//! From a request to a call: key, principal, body, fingerprint.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method};
use http_body::Body as HttpBody;

use super::body::{self, BoxError, Read};
use super::config::Principal;
use super::policy::{KeyRule, Policy};
use super::problem::Refusal;
use crate::fingerprint::FingerprintInput;
use crate::key::{InvalidKey, InvalidKeyKind};
use crate::{Call, Fingerprint, Key, Scope};

/// What a policy says about a request before its body is read.
pub(super) enum Keyed {
    /// Not the layer's business.
    Unkeyed,
    /// The key came in a header.
    Key(Key),
    /// The key may be in the body.
    InBody,
}

/// Looks for the key in the headers.
pub(super) fn key_of_headers(policy: &Policy, method: &Method, headers: &HeaderMap) -> Result<Keyed, Refusal<'static>> {
    let protects = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(method);
    if policy.key == KeyRule::Off || !protects {
        return Ok(Keyed::Unkeyed);
    }
    let mut found: Option<Key> = None;
    for name in &policy.key_headers {
        let lines = headers.get_all(name).iter().map(http::HeaderValue::as_bytes);
        let Some(key) = Key::from_header(lines, policy.key_syntax).map_err(Refusal::KeyInvalid)? else {
            continue;
        };
        let key = policy.key_format.check(key).map_err(Refusal::KeyInvalid)?;
        if found.replace(key.clone()).is_some_and(|other| other != key) {
            return Err(Refusal::KeyInvalid(InvalidKey::new(InvalidKeyKind::SentTwice)));
        }
    }
    match (found, policy.key) {
        (Some(key), _) => Ok(Keyed::Key(key)),
        (None, _) if policy.key_field.is_some() => Ok(Keyed::InBody),
        (None, KeyRule::Required) => Err(Refusal::KeyMissing),
        (None, KeyRule::Optional | KeyRule::Off) => Ok(Keyed::Unkeyed),
    }
}

/// Looks for the key in a JSON body.
pub(super) fn key_of_body(policy: &Policy, body: &[u8]) -> Result<Option<Key>, Refusal<'static>> {
    let field = policy.key_field.as_deref().unwrap_or_default();
    let json: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    match json.as_ref().and_then(|json| json.get(field)) {
        Some(serde_json::Value::String(text)) => {
            let key = Key::new(text.as_str()).and_then(|key| policy.key_format.check(key));
            key.map(Some).map_err(Refusal::KeyInvalid)
        }
        Some(value) if !value.is_null() => Err(Refusal::KeyInvalid(InvalidKey::new(InvalidKeyKind::NotAString))),
        _ if policy.key == KeyRule::Required => Err(Refusal::KeyMissing),
        _ => Ok(None),
    }
}

/// The whole body, or why there is none.
pub(super) async fn read_body<B>(policy: &Policy, body: B) -> Result<Bytes, Refusal<'static>>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let max = policy.body_max;
    // A body that says it is too long is not read at all.
    if body.size_hint().lower() > u64::try_from(max).unwrap_or(u64::MAX) {
        return Err(Refusal::BodyTooLarge { max });
    }
    match body::read(body, max).await {
        Ok(Read::Whole(bytes)) => Ok(bytes),
        Ok(Read::TooLong(_)) => Err(Refusal::BodyTooLarge { max }),
        Err(_) => Err(Refusal::BodyUnreadable),
    }
}

/// The call that a request with `key` asks for.
pub(super) fn call(
    policy: &Policy,
    route: &str,
    principal: Option<Principal>,
    key: Key,
    parts: &Parts,
    body: &[u8],
) -> Call {
    let operation = format!("{} {route}", parts.method);
    let scope = match principal {
        Some(principal) => Scope::new(principal.into_name(), operation),
        None => Scope::global(operation),
    };
    Call::new(scope, key, fingerprint(policy, route, parts, body))
        .with_lease(policy.lease)
        .with_on_lost(policy.on_lost())
}

fn fingerprint(policy: &Policy, route: &str, parts: &Parts, body: &[u8]) -> Fingerprint {
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
    FingerprintInput {
        method: parts.method.as_str(),
        route,
        path: parts.uri.path(),
        query: parts.uri.query(),
        content_type: content_type.as_deref(),
        content_encoding: content_encoding.as_deref(),
        headers: &headers,
        body,
        leave_out: &policy.leave_out,
    }
    .fingerprint()
}

/// All lines of a header. Several are joined by a byte that no single line can have, so they never pass for one.
fn joined(parts: &Parts, name: HeaderName) -> Option<Cow<'_, [u8]>> {
    let mut lines = parts.headers.get_all(name).iter().map(http::HeaderValue::as_bytes);
    let first = lines.next()?;
    Some(lines.fold(Cow::Borrowed(first), |joined, line| {
        Cow::Owned([&joined, line].join(&b'\n'))
    }))
}
