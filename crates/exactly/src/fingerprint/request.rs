//! The fingerprint of an HTTP request.

use std::fmt;

use super::form::{self, Segment};
use super::json;
use super::multipart::{self, Multipart};
use super::parameters::{Ambiguous, Parameterized};
use super::{Fingerprint, LeaveOut};
use crate::digest::Digest;

/// Names the layout below. Whoever changes a line of it changes the tag, or stored fingerprints change meaning.
const TAG: &str = "exactly/http/v2";

/// The parts of a request that its fingerprint covers.
///
/// A struct of borrowed fields and not a builder: every part has to be thought of, so none has a default.
///
/// ```
/// use exactly::fingerprint::{FingerprintInput, LeaveOut};
///
/// let leave_out = LeaveOut::nothing();
/// let first = FingerprintInput {
///     method: "POST",
///     route: "/users/{id}/refunds",
///     host: Some(b"shop.example"),
///     path: "/users/7/refunds",
///     query: None,
///     content_type: Some(b"application/json"),
///     content_encoding: None,
///     headers: &[],
///     body: br#"{"order": 17, "amount": 4.50}"#,
///     leave_out: &leave_out,
/// };
/// let reordered = FingerprintInput { body: br#"{"amount":4.50,"order":17}"#, ..first };
/// let another = FingerprintInput { body: br#"{"amount":4.51,"order":17}"#, ..first };
/// assert_eq!(first.fingerprint(), reordered.fingerprint());
/// assert_ne!(first.fingerprint(), another.fingerprint());
/// ```
#[derive(Clone, Copy)]
pub struct FingerprintInput<'a> {
    /// As sent; methods are case-sensitive.
    pub method: &'a str,
    /// The pattern that matched, which alone may choose the handler: two routers can send one path to two of them.
    pub route: &'a str,
    /// The name of the host that it is for, in lower case: one service may answer for several.
    pub host: Option<&'a [u8]>,
    /// The path as sent, still percent-encoded.
    pub path: &'a str,
    /// The text after `?`, as sent. No query and an empty one differ.
    pub query: Option<&'a str>,
    /// The value of `Content-Type`. Join several lines with a line feed, which no header value can contain: then they
    /// match no single line, and the body is taken as it came.
    pub content_type: Option<&'a [u8]>,
    /// The value of `Content-Encoding`; several lines are joined as above.
    pub content_encoding: Option<&'a [u8]>,
    /// Further headers that a handler decides by, one pair per line. Names are compared without case, and only the
    /// order of lines of one name counts.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The whole body, as sent.
    pub body: &'a [u8],
    /// What the route leaves out.
    pub leave_out: &'a LeaveOut,
}

/// A body in the form it is hashed in.
enum Body<'a> {
    Raw(&'a [u8]),
    Json(Vec<u8>),
    Form(Vec<Segment<'a>>),
    Multipart {
        content_type: Vec<u8>,
        multipart: Multipart<'a>,
    },
}

impl<'a> FingerprintInput<'a> {
    /// Equal for two encodings of one request, and different for any two requests that a handler could tell apart.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let mut digest = Digest::new(TAG);
        for text in [self.method, self.route, self.path] {
            digest.part(text.as_bytes());
        }
        digest.optional(self.host);
        digest.optional(self.query.map(str::as_bytes));
        digest.optional(self.content_encoding);
        self.hash_headers(&mut digest);
        self.hash_body(&mut digest);
        Fingerprint(digest.finish())
    }

    fn hash_headers(&self, digest: &mut Digest) {
        let lower_case = |&(name, value): &(&str, _)| (name.to_ascii_lowercase(), value);
        let mut lines: Vec<(String, &[u8])> = self.headers.iter().map(lower_case).collect();
        // A stable sort: lines of one name keep their order, which a handler sees.
        lines.sort_by(|(one, _), (other, _)| one.cmp(other));
        digest.count(lines.len());
        for (name, value) in lines {
            digest.part(name.as_bytes());
            digest.part(value);
        }
    }

    /// The form is named before its content, so that no raw body can imitate the canonical form of another.
    fn hash_body(&self, digest: &mut Digest) {
        match self.body() {
            Body::Raw(bytes) => {
                digest.part(b"raw");
                digest.optional(self.content_type);
                digest.part(bytes);
            }
            Body::Json(text) => {
                digest.part(b"json");
                digest.optional(self.content_type);
                hash_left_out(digest, self.leave_out.pointers());
                digest.part(&text);
            }
            Body::Form(segments) => {
                digest.part(b"form");
                digest.optional(self.content_type);
                hash_left_out(digest, self.leave_out.fields());
                digest.count(segments.len());
                for segment in segments {
                    digest.part(&segment.name);
                    digest.optional(segment.value.as_deref());
                }
            }
            Body::Multipart {
                content_type,
                multipart,
            } => {
                digest.part(b"multipart");
                digest.part(&content_type);
                hash_left_out(digest, self.leave_out.fields());
                digest.count(multipart.parts.len());
                for part in multipart.parts {
                    digest.part(part);
                }
                digest.part(multipart.ending);
            }
        }
    }

    fn body(&self) -> Body<'a> {
        self.canonical().unwrap_or(Body::Raw(self.body))
    }

    /// None wherever the media type, the encoding or the body leaves any doubt about what a handler would read.
    fn canonical(&self) -> Option<Body<'a>> {
        let content_type = self.content_type?;
        let media_type = Parameterized::parse(content_type)?;
        let essence = media_type.value;
        let (kind, subtype) = essence.split_once('/')?;
        if subtype.contains('/') || !is_identity(self.content_encoding) {
            None
        } else if kind.eq_ignore_ascii_case("multipart") {
            let (content_type, boundary) = multipart::take_boundary(content_type, &media_type)?;
            let multipart = multipart::split(self.body, &boundary, self.leave_out)?;
            Some(Body::Multipart {
                content_type,
                multipart,
            })
        } else if !is_utf8(&media_type) {
            None
        } else if essence.eq_ignore_ascii_case("application/json") || ends_with_json(subtype) {
            json::canonical(self.body, self.leave_out.tree()).map(Body::Json)
        } else if essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            form::segments(self.body, self.leave_out).map(Body::Form)
        } else {
            None
        }
    }
}

impl fmt::Debug for FingerprintInput<'_> {
    /// Paths, queries, headers and bodies carry what their sender would not like to find in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FingerprintInput")
            .field("method", &self.method)
            .field("route", &self.route)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// What was left out is part of the hash: all that the route is configured to leave out from this kind of body, present
/// in the request or not. Otherwise `{"a":1,"t":5}`, stored while `/t` was left out, would equal `{"a":1}` once `/t`
/// counts again. The price is that a key which is retried across such a change is refused as a mismatch, which does no
/// harm; and changing the pointers leaves forms alone, and the other way round.
fn hash_left_out<'a>(digest: &mut Digest, left_out: impl ExactSizeIterator<Item = &'a str>) {
    digest.count(left_out.len());
    for name in left_out {
        digest.part(name.as_bytes());
    }
}

/// Whether a media type is one of those that are JSON underneath, such as `application/problem+json`.
fn ends_with_json(subtype: &str) -> bool {
    const SUFFIX: &[u8] = b"+json";
    let start = subtype.len().checked_sub(SUFFIX.len());
    start.is_some_and(|start| subtype.as_bytes()[start..].eq_ignore_ascii_case(SUFFIX))
}

fn is_identity(content_encoding: Option<&[u8]>) -> bool {
    content_encoding.is_none_or(|coding| coding.eq_ignore_ascii_case(b"identity"))
}

fn is_utf8(media_type: &Parameterized<'_>) -> bool {
    match media_type.only("charset") {
        Ok(None) => true,
        Ok(Some(charset)) => charset.value.eq_ignore_ascii_case(b"utf-8"),
        Err(Ambiguous) => false,
    }
}
