//! What servers do wrong, one thing at a time.
//!
//! Most faults are put into a layer that works: by a wrong policy, or by showing it another request than the one that
//! is passed on. Those that take a memory of their own are in `outside`.

use std::time::Duration;

use bytes::Bytes;
use exactly::layer::{Body, IDEMPOTENCY_KEY, Policy};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, Uri, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;

use super::outside::MAIN_PATH;
use super::protector::nothing_happened;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    TakesAnyKey,
    RefusesLongKeys,
    TakesOneOfTwoKeys,
    TellsQuotesApart,
    ProtectsReads,
    ProtectsPostOnly,
    RemembersWithoutKey,
    SetsNothing,
    SharesKeys,
    ForgetsMethod,
    ForgetsPath,
    ForgetsHost,
    ForgetsQuery,
    RefusesSameContent,
    ComparesSpelling,
    ForgetsNumberKinds,
    ForgetsContentType,
    ComparesText,
    ComparesBoundaries,
    ForgetsPreconditions,
    PassesLargeBodies,
    FreesOnRefusal,
    FreesClientErrors,
    FreesEmpty,
    TurnsBodiesIntoText,
    FreesStreams,
    FreesNoStore,
    FreesLarge,
    WithholdsLocation,
    ReplaysCookies,
    ReplaysCallerHeaders,
    NeverWaits,
    AlwaysWaits,
    ChecksFlightFirst,
    WaiterCancelsOwner,
    WaitersHoldConnections,
    CancelsOnHangUp,
    ClaimsBeforeBody,
    KeepsUnavailable,
    Frees500,
    Frees502,
    ResendsWhatWasCut,
    FreesWhatWasCut,
    PassesHalfAnswers,
    LinksNowhere,
    TellsNothing,
    ExposesNothing,
    SaysNotWhenToRetry,
    RefusesInItsOwnWords,
    ForgetsNothing,
    HidesCounts,
}

impl Fault {
    /// The preset that the fault is put into.
    pub(crate) fn base(self) -> Policy {
        match self {
            Self::AlwaysWaits => Policy::ietf(),
            _ => Policy::playbook(),
        }
    }

    /// How it is checked.
    pub(crate) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::AlwaysWaits => &["--preset", "ietf"],
            // One rule at a time, because the fault holds up whatever runs beside.
            Self::WaitersHoldConnections => &["--jobs", "1", "--timeout", "3"],
            Self::ForgetsNothing => &["--route", "short"],
            _ => &[],
        }
    }

    pub(crate) fn policy(self, policy: Policy) -> Policy {
        match self {
            Self::NeverWaits => policy.wait(Duration::ZERO),
            Self::AlwaysWaits => policy.wait(Duration::from_secs(10)),
            Self::WithholdsLocation => policy.withheld_header(header::LOCATION),
            Self::ReplaysCookies => policy.replayed_header(header::SET_COOKIE),
            Self::ReplaysCallerHeaders => policy.replayed_header(header::WWW_AUTHENTICATE),
            _ => policy,
        }
    }

    /// Shows the layer another head than the one that is passed on.
    pub(crate) fn on_request(self, parts: &mut Parts) {
        match self {
            Self::TakesAnyKey if is_malformed(parts) => drop(parts.headers.remove(IDEMPOTENCY_KEY)),
            Self::RefusesLongKeys if key_len(parts) > 100 => {
                parts.headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_static(""));
            }
            Self::TakesOneOfTwoKeys => {
                if let Some(first) = parts.headers.get(IDEMPOTENCY_KEY).cloned() {
                    parts.headers.insert(IDEMPOTENCY_KEY, first);
                }
            }
            Self::TellsQuotesApart => tell_quotes_apart(parts),
            Self::ProtectsPostOnly if parts.method != Method::POST => drop(parts.headers.remove(IDEMPOTENCY_KEY)),
            Self::ForgetsMethod if !is_read(parts) => parts.method = Method::POST,
            Self::PassesLargeBodies if content_length(parts) > 1 << 20 => drop(parts.headers.remove(IDEMPOTENCY_KEY)),
            Self::ForgetsPath => parts.uri = uri(&parts.uri.to_string().replace("/other", "")),
            Self::ForgetsHost => drop(parts.headers.remove(header::HOST)),
            Self::ForgetsQuery => parts.uri = uri(parts.uri.path()),
            Self::ComparesSpelling => replace_content_type(parts, "application/json", "application/octet-stream"),
            Self::ForgetsContentType => replace_content_type(parts, "text/plain", "application/json"),
            Self::ComparesBoundaries => replace_content_type(parts, "multipart/", "application/octet-stream"),
            Self::ForgetsPreconditions => drop(parts.headers.remove(header::IF_MATCH)),
            _ => {}
        }
    }

    /// The same for the body, which the upstream does not look at.
    pub(crate) fn on_body(self, body: Bytes) -> Bytes {
        match self {
            Self::ForgetsNumberKinds => match str::from_utf8(&body) {
                Ok(text) => Bytes::from(text.replace("1.0", "1")),
                Err(_) => body,
            },
            Self::ComparesText => Bytes::from(String::from_utf8_lossy(&body).into_owned()),
            _ => body,
        }
    }

    /// Says of the upstream's answer what is not so.
    pub(crate) async fn on_answer(self, mut response: Response<Body>) -> Response<Body> {
        let status = response.status();
        let size = response.body().size_hint();
        let frees = match self {
            Self::FreesEmpty => size.exact() == Some(0),
            Self::FreesClientErrors => status.is_client_error(),
            Self::FreesStreams => size.exact().is_none(),
            Self::FreesNoStore => response.headers().contains_key(header::CACHE_CONTROL),
            Self::FreesLarge => size.lower() > 1 << 20,
            Self::Frees500 => [500, 501].contains(&status.as_u16()),
            Self::Frees502 => [StatusCode::BAD_GATEWAY, StatusCode::GATEWAY_TIMEOUT].contains(&status),
            _ => false,
        };
        if frees {
            return nothing_happened(response);
        }
        if self == Self::PassesHalfAnswers {
            response = half(response).await;
        }
        response
    }
}

/// The answer as far as it came, as if that were all of it.
async fn half(response: Response<Body>) -> Response<Body> {
    let (mut parts, mut body) = response.into_parts();
    let mut read = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(data) = frame.into_data() {
            read.extend_from_slice(&data);
        }
    }
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(Bytes::from(read)))
}

fn is_read(parts: &Parts) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(&parts.method)
}

fn content_length(parts: &Parts) -> u64 {
    let length = parts
        .headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok());
    length.and_then(|length| length.parse().ok()).unwrap_or_default()
}

fn key_len(parts: &Parts) -> usize {
    parts.headers.get(IDEMPOTENCY_KEY).map_or(0, HeaderValue::len)
}

/// Whether the one key is none that the layer takes.
fn is_malformed(parts: &Parts) -> bool {
    let lines: Vec<_> = parts.headers.get_all(IDEMPOTENCY_KEY).iter().collect();
    let [line] = lines.as_slice() else { return false };
    let is_good = |byte: &u8| byte.is_ascii_graphic() && *byte != b',' && *byte != b'"';
    let bytes = line.as_bytes();
    let quoted = bytes.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let bytes = quoted.unwrap_or(bytes);
    bytes.is_empty() || bytes.len() > 255 || !bytes.iter().all(is_good)
}

fn tell_quotes_apart(parts: &mut Parts) {
    let key = parts.headers.get(IDEMPOTENCY_KEY).and_then(|key| key.to_str().ok());
    let quoted = key.and_then(|key| key.strip_prefix('"')?.strip_suffix('"'));
    if let Some(inside) = quoted.filter(|inside| !inside.is_empty()) {
        let other = format!("quoted-{inside}").parse().unwrap();
        parts.headers.insert(IDEMPOTENCY_KEY, other);
    }
}

fn replace_content_type(parts: &mut Parts, prefix: &str, other: &'static str) {
    let kind = parts
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    if parts.uri.path() == MAIN_PATH && kind.is_some_and(|kind| kind.starts_with(prefix)) {
        parts
            .headers
            .insert(header::CONTENT_TYPE, HeaderValue::from_static(other));
    }
}

fn uri(text: &str) -> Uri {
    text.parse().unwrap()
}
