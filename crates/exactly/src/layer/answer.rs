//! What is kept of an answer, and how it comes back.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use super::body::Body;
use super::policy::Policy;
use crate::CallId;

const PLAIN: u8 = 1;
const SEALED: u8 = 2;

const WHOLE: u8 = 1;
const NOT_KEPT: u8 = 2;

/// An answer as it was stored.
#[derive(Debug)]
pub(super) enum Stored {
    /// To be sent again.
    Whole(Response<Body>),
    /// The effect happened and answered with this status, but the answer was not kept.
    NotKept(StatusCode),
}

/// Why a stored answer cannot be read: its key is not on the ring, or another program wrote it.
#[derive(Debug)]
pub(super) struct Unreadable;

/// The bytes to store for an answer; without a `body` only that there was one.
pub(super) fn encode(
    policy: &Policy,
    id: &CallId,
    status: StatusCode,
    headers: &HeaderMap,
    body: Option<&Bytes>,
) -> Bytes {
    let mut plain = BytesMut::with_capacity(256 + body.map_or(0, Bytes::len));
    if policy.sealed_by.is_none() {
        plain.put_u8(PLAIN);
    }
    match body.filter(|_| policy.store_answer) {
        None => {
            plain.put_u8(NOT_KEPT);
            plain.put_u16(status.as_u16());
        }
        Some(body) => {
            plain.put_u8(WHOLE);
            plain.put_u16(status.as_u16());
            put_headers(&mut plain, policy, headers);
            plain.put_slice(body);
        }
    }
    match &policy.sealed_by {
        None => plain.freeze(),
        Some(keys) => {
            let sealed = keys.seal(id, &plain);
            let mut bytes = BytesMut::with_capacity(1 + sealed.len());
            bytes.put_u8(SEALED);
            bytes.put_slice(&sealed);
            bytes.freeze()
        }
    }
}

/// The answer that was stored as `outcome`.
pub(super) fn decode(policy: &Policy, id: &CallId, mut outcome: Bytes) -> Result<Stored, Unreadable> {
    match outcome.try_get_u8() {
        Ok(PLAIN) => {}
        Ok(SEALED) => {
            let keys = policy.sealed_by.as_ref().ok_or(Unreadable)?;
            outcome = keys.open(id, &outcome).ok_or(Unreadable)?;
        }
        _ => return Err(Unreadable),
    }
    let mut stored = decode_plain(outcome).ok_or(Unreadable)?;
    if let Stored::Whole(response) = &mut stored {
        // An upstream that stores its answer itself knows nothing of the policy.
        for name in &policy.withheld_headers {
            response.headers_mut().remove(name);
        }
    }
    Ok(stored)
}

fn decode_plain(mut plain: Bytes) -> Option<Stored> {
    let kind = plain.try_get_u8().ok()?;
    let status = StatusCode::from_u16(plain.try_get_u16().ok()?).ok()?;
    match kind {
        NOT_KEPT => return Some(Stored::NotKept(status)),
        WHOLE => {}
        _ => return None,
    }
    let mut headers = HeaderMap::new();
    for _ in 0..plain.try_get_u16().ok()? {
        let len = take_len(&mut plain)?;
        let name = HeaderName::from_bytes(plain.get(..len)?).ok()?;
        plain.advance(len);
        let len = take_len(&mut plain)?;
        let value = (len <= plain.len()).then(|| plain.split_to(len))?;
        headers.append(name, HeaderValue::from_maybe_shared(value).ok()?);
    }
    let mut response = Response::new(Body::from(plain));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Some(Stored::Whole(response))
}

fn put_headers(plain: &mut BytesMut, policy: &Policy, headers: &HeaderMap) {
    let kept: Vec<_> = headers
        .iter()
        .filter(|(name, _)| is_kept(policy, headers, name))
        .collect();
    // A count and lengths of fixed width; hyper's own limits are far below them.
    let count = u16::try_from(kept.len()).unwrap_or(u16::MAX);
    plain.put_u16(count);
    for (name, value) in kept.into_iter().take(usize::from(count)) {
        put(plain, name.as_str().as_bytes());
        put(plain, value.as_bytes());
    }
}

fn put(plain: &mut BytesMut, text: &[u8]) {
    plain.put_u32(u32::try_from(text.len()).expect("a header is shorter than 4 GiB"));
    plain.put_slice(text);
}

fn take_len(plain: &mut Bytes) -> Option<usize> {
    usize::try_from(plain.try_get_u32().ok()?).ok()
}

/// Whether a duplicate may see this header of the first caller's answer.
fn is_kept(policy: &Policy, headers: &HeaderMap, name: &HeaderName) -> bool {
    !is_of_connection(name)
        && !is_named_by_connection(headers, name)
        && !policy.withheld_headers.contains(name)
        && (!is_of_caller(name) || policy.replayed_headers.contains(name))
}

/// Whether the header says something about one connection and its messages, or is one that the layer writes itself.
pub(super) fn is_of_connection(name: &HeaderName) -> bool {
    const OF_CONNECTION: [HeaderName; 8] = [
        header::CONNECTION,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::CONTENT_LENGTH,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
    ];
    OF_CONNECTION.contains(name) || name.as_str().starts_with("idempotency-")
}

/// Whether the header was for the first caller alone, or for the moment of its exchange: cookies, credentials, dates, CORS.
fn is_of_caller(name: &HeaderName) -> bool {
    const OF_CALLER: [HeaderName; 10] = [
        header::SET_COOKIE,
        header::AUTHORIZATION,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::WWW_AUTHENTICATE,
        header::DATE,
        header::AGE,
        HeaderName::from_static("set-cookie2"),
        HeaderName::from_static("authentication-info"),
        HeaderName::from_static("proxy-authentication-info"),
    ];
    OF_CALLER.contains(name) || name.as_str().starts_with("access-control-")
}

fn is_named_by_connection(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|token| token.trim().eq_ignore_ascii_case(name.as_str()))
}
