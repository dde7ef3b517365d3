//! What is kept of a request's head.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

/// How many headers an inbox keeps at most.
pub(super) const HEADERS_MAX: usize = 16;

/// How large what is kept of a head may be, in bytes.
pub(super) const HEAD_BYTES_MAX: usize = 8 * 1024;

/// The version of tasks whose payload begins with a head. Those of version 0 are bodies as they came.
const HEADED: u32 = 1;

/// Lines of a head, in an order of their own, so that what is kept of it has one writing.
pub(super) type Head = Vec<(HeaderName, HeaderValue)>;

/// The lines of these names.
pub(super) fn kept(names: &[HeaderName], headers: &HeaderMap) -> Head {
    let lines = names.iter().flat_map(|name| {
        let values = headers.get_all(name).into_iter();
        values.map(|value| (name.clone(), value.clone()))
    });
    lines.collect()
}

/// How many bytes are written of a head.
pub(super) fn len(head: &Head) -> usize {
    let lines = head.iter();
    lines
        .map(|(name, value)| name.as_str().len() + value.len() + ": \n".len())
        .sum()
}

/// The payload of an event, and the version of its task. Without a head it is the body, byte for byte; with one it is written
/// as HTTP has it, for people to read: lines, an empty one, and the body.
pub(super) fn written(head: &Head, body: &Bytes) -> (Bytes, u32) {
    if head.is_empty() {
        return (body.clone(), 0);
    }
    let mut payload = BytesMut::with_capacity(len(head) + 1 + body.len());
    for (name, value) in head {
        payload.put_slice(name.as_str().as_bytes());
        payload.put_slice(b": ");
        payload.put_slice(value.as_bytes());
        payload.put_u8(b'\n');
    }
    payload.put_u8(b'\n');
    payload.put_slice(body);
    (payload.freeze(), HEADED)
}

/// What [`written`] was given. A line that is none of a head, which nobody here writes, is left out.
pub(super) fn read(payload: &Bytes, version: u32) -> (Head, Bytes) {
    let (mut head, mut rest) = (Head::new(), payload.clone());
    if version != HEADED {
        return (head, rest);
    }
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = rest.split_to(end + 1);
        if end == 0 {
            break;
        }
        head.extend(field(&line[..end]));
    }
    (head, rest)
}

fn field(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let value = line[colon + 1..].strip_prefix(b" ")?;
    Some((
        HeaderName::from_bytes(&line[..colon]).ok()?,
        HeaderValue::from_bytes(value).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(lines: &[(&'static str, &[u8])]) -> Head {
        let lines = lines.iter();
        let line = |(name, value): &(&'static str, &[u8])| {
            let value = HeaderValue::from_bytes(value).unwrap();
            (HeaderName::from_static(name), value)
        };
        lines.map(line).collect()
    }

    #[test]
    fn a_head_is_read_as_it_was_written_and_the_body_whatever_it_is() {
        let head = head(&[
            ("x-github-event", b"push"),
            ("x-other", b"caf\xe9: two"),
            ("x-other", b""),
        ]);
        for body in ["", "\n", "\n\nx: y\n", "{\"a\":1}", "x-github-event: issues\n\n"] {
            let body = Bytes::from(body);
            let (payload, version) = written(&head, &body);
            assert_eq!(read(&payload, version), (head.clone(), body.clone()));
            assert_eq!(payload.len(), len(&head) + 1 + body.len());
            // Without a head nothing is added, and nothing is taken for one.
            let (payload, version) = written(&Head::new(), &body);
            assert_eq!((&payload, version), (&body, 0));
            assert_eq!(read(&payload, version), (Head::new(), body));
        }
    }

    #[test]
    fn what_is_kept_has_one_writing_in_whatever_order_it_came() {
        let names = [HeaderName::from_static("b"), HeaderName::from_static("a")];
        for order in [["a", "b", "c"], ["c", "b", "a"]] {
            let mut headers = HeaderMap::new();
            for name in order {
                headers.insert(name, HeaderValue::from_static("1"));
            }
            let (payload, version) = written(&kept(&names, &headers), &Bytes::from("x"));
            assert_eq!((&payload[..], version), (&b"b: 1\na: 1\n\nx"[..], HEADED));
        }
    }
}
