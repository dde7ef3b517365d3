//! What a run answers.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::plan::{Content, Plan, With};
use super::{Body, MARK, never};

/// Between two pieces of an answer, so that the first is on its way before the next one, or the end, comes.
const PIECE_PAUSE: Duration = Duration::from_millis(30);

/// A JSON answer.
pub(super) fn json(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(full(Bytes::from(value.to_string())));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The answer to one run. It names the run, so that no two runs answer alike.
pub(super) fn of_run(plan: &Plan, status: StatusCode, run: u64, effect: Option<u64>, is_cut: bool) -> Response<Body> {
    let told = json!({ "upstream": MARK, "tag": plan.tag, "run": run, "effect": effect });
    let mut response = json(status, &told);
    let text = Bytes::from(told.to_string());
    let (kind, bytes) = match plan.body {
        Content::Json | Content::Streamed => ("application/json", text),
        Content::Empty => ("", Bytes::new()),
        Content::Binary => ("application/octet-stream", binary(&text)),
        Content::Large => ("text/plain", large(&text, plan.size)),
    };
    let is_empty = status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED || bytes.is_empty();
    if is_empty {
        response.headers_mut().remove(header::CONTENT_TYPE);
        *response.body_mut() = full(Bytes::new());
    } else {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if is_cut {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
        }
        *response.body_mut() = match plan.body {
            _ if is_cut => broken(&bytes),
            Content::Streamed => pieces(&bytes),
            _ => full(bytes),
        };
    }
    for with in &plan.with {
        add(response.headers_mut(), *with, &plan.tag, run);
    }
    response
}

fn add(headers: &mut HeaderMap, with: With, tag: &str, run: u64) {
    let mut put = |name: HeaderName, value: String| {
        // A tag that is no header value leaves the header out.
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.append(name, value);
        }
    };
    match with {
        With::Cookie => put(header::SET_COOKIE, format!("session={tag}-{run}; HttpOnly")),
        With::Links => {
            put(header::LOCATION, format!("/made/{tag}/{run}"));
            put(header::ETAG, format!("\"{tag}-{run}\""));
            put(HeaderName::from_static("x-made"), format!("{tag}-{run}"));
        }
        With::NoStore => put(header::CACHE_CONTROL, "no-store".to_owned()),
        With::Caller => {
            put(header::DATE, "Thu, 01 Jan 1970 00:00:00 GMT".to_owned());
            put(header::WWW_AUTHENTICATE, format!("Bearer realm=\"{tag}-{run}\""));
            let origin = format!("https://{tag}-{run}.example");
            put(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        }
    }
}

/// Every byte there is, which no text can hold.
fn binary(text: &[u8]) -> Bytes {
    let mut bytes: Vec<u8> = (0..=u8::MAX).rev().collect();
    bytes.extend_from_slice(text);
    bytes.extend(0..=u8::MAX);
    Bytes::from(bytes)
}

fn large(text: &[u8], size: usize) -> Bytes {
    let mut bytes = text.to_vec();
    bytes.resize(size.max(text.len()), b'.');
    Bytes::from(bytes)
}

fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(never).boxed_unsync()
}

fn pieces(bytes: &Bytes) -> Body {
    let piece = bytes.len().div_ceil(4).max(1);
    let pieces: Vec<_> = bytes.chunks(piece).map(|piece| bytes.slice_ref(piece)).collect();
    let frames = stream::iter(pieces).then(|piece| async move {
        sleep(PIECE_PAUSE).await;
        Ok(Frame::data(piece))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// Half of it, and then the connection is cut.
fn broken(bytes: &Bytes) -> Body {
    let half = bytes.slice(..bytes.len() / 2);
    let frames = stream::iter([Some(half), None]).then(|piece| async move {
        if let Some(piece) = piece {
            return Ok(Frame::data(piece));
        }
        sleep(PIECE_PAUSE).await;
        Err(io::Error::other("cut inside the answer"))
    });
    StreamBody::new(frames).boxed_unsync()
}
