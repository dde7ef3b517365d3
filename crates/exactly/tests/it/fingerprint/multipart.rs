//! Multipart bodies: the boundary does not count, everything else does.

use exactly::Fingerprint;
use proptest::prelude::*;

use super::request::of;

const PART: &str = "Content-Disposition: form-data; name=\"a\"\r\n\r\nhello";

fn body(boundary: &str, parts: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut body = Vec::new();
    for part in parts {
        body.extend([b"--", boundary.as_bytes(), b"\r\n", part.as_ref(), b"\r\n"].concat());
    }
    body.extend(["--", boundary, "--\r\n"].concat().bytes());
    body
}

fn multipart(boundary: &str, parts: &[impl AsRef<[u8]>]) -> Fingerprint {
    of(
        &format!("multipart/form-data; boundary=\"{boundary}\""),
        body(boundary, parts),
    )
}

/// Whether a body, with `B` for the boundary, is one request whichever boundary is chosen.
fn is_free_of_its_boundary(content_type: &str, body: &str) -> bool {
    let [one, other] =
        ["xYz17", "----other"].map(|boundary| of(&content_type.replace('B', boundary), body.replace('B', boundary)));
    one == other
}

#[test]
fn a_new_boundary_is_not_a_new_request() {
    for content_type in [
        "multipart/form-data; boundary=B",
        "multipart/form-data;boundary=\"B\"",
        "Multipart/Mixed; a=1; boUnDARY=B; b=\"2\"",
        "multipart/related; boundary=B; type=\"text/xml\"",
    ] {
        for body in [
            "--B--",
            "--B--\r\n",
            "--B\r\n\r\n\r\n--B--",
            "--B\r\nX: y\r\n\r\none\r\n--B\r\n\r\ntwo\r\n--B--\r\n",
        ] {
            assert!(is_free_of_its_boundary(content_type, body), "{content_type}: {body:?}");
        }
    }
    // Quoting it, or where it stands among the parameters, is no difference either.
    let text = body("B", &[PART]);
    let quoted = of("multipart/form-data; boundary=\"B\"; a=1", &text);
    assert_eq!(quoted, of("multipart/form-data; a=1; boundary=B", &text));
    assert_ne!(quoted, of("multipart/form-data; boundary=B; a=2", &text));
    // Java's mail library sends this one without quotes.
    let java = "----=_Part_0_1.2";
    assert_eq!(
        of(&format!("multipart/mixed; boundary={java}"), body(java, &[PART])),
        of("multipart/mixed; boundary=B", &text)
    );
}

#[test]
fn a_boundary_that_readers_disagree_about_counts() {
    let body = "--B\r\n\r\none\r\n--B--\r\n";
    for content_type in [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"\"",
        "multipart/form-data; boundary=B; boundary=B",
        "multipart/form-data; boundary=B; Boundary=C",
        "multipart/form-data; boundary=B; boundary*=utf-8''C",
        "multipart/form-data; boundary*0=B",
        "multipart/form-data; boundary=\"B \"",
        "multipart/form-data; boundary=\"\\B\"",
        "multipart/form-data; boundary=\"B",
        "multipart/form-data; boundary=B x",
        "multipart/form-data; boundary =B",
        "multipart/form-data; boundary=B;",
        "multipart/form-data, boundary=B",
        "application/form-data; boundary=B",
    ] {
        assert!(!is_free_of_its_boundary(content_type, body), "{content_type}");
    }
    // Dashes alone: where the last delimiter begins is anybody's guess.
    assert_ne!(multipart("-", &[PART]), multipart("B", &[PART]));
    // Some readers trim the space.
    assert_ne!(multipart("B ", &[PART]), multipart("C ", &[PART]));
    let long = "x".repeat(71);
    assert_ne!(multipart(&long, &[PART]), multipart("B", &[PART]));
    assert_eq!(multipart(&long[1..], &[PART]), multipart("B", &[PART]));
}

#[test]
fn a_body_that_readers_disagree_about_counts_with_its_boundary() {
    for body in [
        "",
        "--B",
        "--B\r\n",
        "B\r\n\r\none\r\nB--",
        "--B\r\n\r\none\r\n",
        "--B\r\n\r\none\r\n--B",
        "--B\r\n\r\none\r\n--B\r\n",
        "preamble\r\n--B\r\n\r\none\r\n--B--\r\n",
        "\r\n--B\r\n\r\none\r\n--B--\r\n",
        "--B\r\n\r\none\r\n--B--\r\nepilogue",
        "--B\r\n\r\none\r\n--B--\r\n\r\n",
        "--B\r\n\r\none\r\n--B--\n",
        "--B\r\n\r\none\r\n--B-- ",
        "--B \r\n\r\none\r\n--B--\r\n",
        "--B\t\r\n\r\none\r\n--B--\r\n",
        "--B\r\n\r\none\r\n--B \r\n\r\ntwo\r\n--B--\r\n",
        "--B\n\none\n--B--\n",
        "--B\r\n\r\none\n--B--\r\n",
        "--B\r\n\r\none\n--B\r\n\r\ntwo\r\n--B--\r\n",
        "--B\r\n--B--\r\n",
        "--B--\r\n--B--\r\n",
        "--B--\r\n--B\r\n\r\none\r\n--B--\r\n",
        // The delimiter inside a part: as text, at the start of a line, and as the start of a longer word.
        "--B\r\n\r\none --B two\r\n--B--\r\n",
        "--B\r\n\r\none\r\n--Bother\r\n--B--\r\n",
        "--B\r\n\r\none\r\n--B-\r\n--B--\r\n",
        "--B\r\n\r\none\r\n---B\r\n--B--\r\n",
    ] {
        assert!(
            !is_free_of_its_boundary("multipart/form-data; boundary=B", body),
            "{body:?}"
        );
    }
}

#[test]
fn parts_that_a_handler_tells_apart_are_told_apart() {
    let forms: [&[&str]; 12] = [
        &[],
        &[""],
        &["", ""],
        &[PART],
        &[PART, PART],
        &[PART, ""],
        &["", PART],
        &["content-disposition: form-data; name=\"a\"\r\n\r\nhello"],
        &["Content-Disposition: form-data; name=\"a\"\r\n\r\nhello\r\n"],
        &["Content-Disposition: form-data; name=\"a\"\r\n\r\n\r\nhello"],
        &["Content-Disposition: form-data; name=\"a\"\r\n\r\nhello\n"],
        &["Content-Disposition: form-data; name=a\r\n\r\nhello"],
    ];
    for (at, one) in forms.iter().enumerate() {
        for other in &forms[..at] {
            assert_ne!(multipart("B", one), multipart("C", other), "{one:?} and {other:?}");
        }
    }
    let text = body("B", &[PART]);
    assert_ne!(
        of("multipart/form-data; boundary=B", &text),
        of("multipart/mixed; boundary=B", &text)
    );
}

#[test]
fn a_boundary_that_another_begins_with_splits_nothing() {
    let inner = body("Bx", &[PART]);
    let inner = [b"Content-Type: multipart/mixed; boundary=Bx\r\n\r\n", &*inner].concat();
    // Free of the inner boundary, the outer one may be renamed; with the inner one's beginning, it may not.
    assert_eq!(multipart("other", &[&inner]), multipart("Bxy", &[&inner]));
    assert_ne!(multipart("other", &[&inner]), multipart("B", &[&inner]));
}

/// Bytes that look like line ends and delimiters, as often as not.
fn hostile(bytes_max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(b"\r\n--Bb\0\xff".to_vec()), 0..bytes_max)
}

fn replace(text: &[u8], from: &str, to: &str) -> Vec<u8> {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let (mut replaced, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.first() {
        if let Some(after) = rest.strip_prefix(from) {
            replaced.extend(to);
            rest = after;
        } else {
            replaced.push(*first);
            rest = &rest[1..];
        }
    }
    replaced
}

proptest! {
    #[test]
    fn two_lists_of_binary_parts_are_one_request_only_if_they_are_equal(
        one in prop::collection::vec(hostile(4), 0..3),
        other in prop::collection::vec(hostile(4), 0..3),
        boundaries in ("x[Bb-]{0,3}", "x[Bb-]{0,3}"),
    ) {
        prop_assert_eq!(multipart(&boundaries.0, &one), multipart(&boundaries.1, &one));
        prop_assert_eq!(multipart(&boundaries.0, &one) == multipart(&boundaries.1, &other), one == other);
    }

    #[test]
    fn equal_requests_differ_in_nothing_but_the_boundary(
        boundaries in ("[Bb-]{1,2}", "[Bb-]{1,2}"),
        parts in prop::collection::vec(hostile(6), 0..3),
        hostile in hostile(24),
        splice: prop::sample::Index,
    ) {
        let content_type = |boundary: &str| format!("multipart/mixed; boundary={boundary}");
        let one = body(&boundaries.0, &parts);
        let at = splice.index(one.len());
        let spliced = [&one[..at], &hostile, &one[at..]].concat();
        let renamed = replace(&one, &format!("--{}", boundaries.0), &format!("--{}", boundaries.1));
        let candidates = [one, spliced, renamed, body(&boundaries.1, &parts)];
        for (left, right) in candidates.iter().flat_map(|left| candidates.iter().map(move |right| (left, right))) {
            if of(&content_type(&boundaries.0), left) == of(&content_type(&boundaries.1), right) {
                let delimiters = (format!("--{}", boundaries.0), format!("--{}", boundaries.1));
                prop_assert_eq!(&replace(left, &delimiters.0, &delimiters.1), right);
            }
        }
    }
}
