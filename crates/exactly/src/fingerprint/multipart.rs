//! Multipart bodies without their boundary, which clients choose anew on every attempt.
//!
//! A part is kept byte for byte, headers included. So nothing is lost but the boundary itself, and that only where its
//! delimiter occurs nowhere else: then every reader, however forgiving about line ends, sees the same parts, and any
//! other boundary would have split the body at the same places.

use super::LeaveOut;
use super::parameters::Parameterized;

/// The limit of RFC 2046.
const BOUNDARY_BYTES_MAX: usize = 70;

pub(super) struct Multipart<'a> {
    /// Headers, empty line and content, between two delimiters.
    pub(super) parts: Vec<&'a [u8]>,
    /// The line end after the last delimiter, if there is one. No reader cares, but it costs nothing to keep: a client
    /// ends all its bodies alike.
    pub(super) ending: &'a [u8],
}

/// The content type without its boundary, and the boundary. None when there is not exactly one, in plain letters: RFC
/// 2046 allows spaces too, which some readers trim.
pub(super) fn take_boundary(content_type: &[u8], parsed: &Parameterized<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
    let boundary = parsed.only("boundary").ok()??;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=?".contains(byte);
    if !(1..=BOUNDARY_BYTES_MAX).contains(&boundary.value.len()) || !boundary.value.iter().all(plain) {
        return None;
    }
    let before = &content_type[..boundary.span.start];
    let after = &content_type[boundary.span.end..];
    Some(([before, after].concat(), boundary.value.to_vec()))
}

/// None unless the body is delimiters and parts and nothing else: a preamble, an epilogue, padding after a delimiter,
/// line feeds alone or a missing end are read differently by different readers.
pub(super) fn split<'a>(body: &'a [u8], boundary: &[u8], leave_out: &LeaveOut) -> Option<Multipart<'a>> {
    let delimiter = [b"--", boundary].concat();
    let mut parts = Vec::new();
    let mut at = 0;
    let mut rest = body.strip_prefix(&*delimiter)?;
    loop {
        // From the next byte on and not after the delimiter: an overlapping one is as ambiguous as any other.
        let next = find(body, &delimiter, at + 1);
        let Some(next) = next else {
            let ending = rest.strip_prefix(b"--")?;
            return matches!(ending, b"" | b"\r\n").then_some(Multipart { parts, ending });
        };
        let start = body.len() - rest.strip_prefix(b"\r\n")?.len();
        let part = body.get(start..next)?.strip_suffix(b"\r\n")?;
        if !(leave_out.has_fields() && name(part).is_some_and(|name| leave_out.has_field(name))) {
            parts.push(part);
        }
        at = next;
        rest = &body[next + delimiter.len()..];
    }
}

fn find(body: &[u8], delimiter: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        at += body.get(at..)?.iter().position(|&byte| byte == b'-')?;
        if body[at..].starts_with(delimiter) {
            return Some(at);
        }
        at += 1;
    }
}

/// The field a part is for. None when its headers leave any doubt, and then the part stays in.
fn name(part: &[u8]) -> Option<&[u8]> {
    let end = part.windows(4).position(|window| window == b"\r\n\r\n")?;
    let mut disposition = None;
    for line in lines(&part[..end]) {
        // A folded line, or a line end that only some readers honour.
        if matches!(line, [b' ' | b'\t', ..]) || line.iter().any(|byte| b"\r\n".contains(byte)) {
            return None;
        }
        let colon = line.iter().position(|&byte| byte == b':')?;
        let header = line[..colon].trim_ascii();
        if header.eq_ignore_ascii_case(b"content-disposition") {
            // Two of them, or white space before the colon, which makes it another header to some readers.
            if disposition.is_some() || header.len() < colon {
                return None;
            }
            disposition = Some(line[colon + 1..].trim_ascii());
        }
    }
    let disposition = Parameterized::parse(disposition?)?;
    let form_data = disposition.value.eq_ignore_ascii_case("form-data");
    let name = disposition.only("name").ok()??.value;
    form_data.then_some(name)
}

fn lines(headers: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(headers);
    std::iter::from_fn(move || {
        let text = rest?;
        let end = text.windows(2).position(|window| window == b"\r\n");
        rest = end.map(|end| &text[end + 2..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}
