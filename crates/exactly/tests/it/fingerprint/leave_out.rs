//! Fields that a route leaves out.

use exactly::Fingerprint;
use exactly::fingerprint::{FingerprintInput, LeaveOut};

use super::request::REQUEST;

const FORM: &str = "application/x-www-form-urlencoded";
const MULTIPART: &str = "multipart/form-data; boundary=B";

fn pointers(pointers: &[&str]) -> LeaveOut {
    let add = |leave_out: LeaveOut, pointer: &&str| leave_out.pointer(pointer).expect("a pointer");
    pointers.iter().fold(LeaveOut::nothing(), add)
}

fn of(leave_out: &LeaveOut, content_type: &str, body: impl AsRef<[u8]>) -> Fingerprint {
    let content_type = Some(content_type.as_bytes());
    let body = body.as_ref();
    FingerprintInput {
        content_type,
        body,
        leave_out,
        ..REQUEST
    }
    .fingerprint()
}

#[track_caller]
fn check_json(leave_out: &[&str], one: &str, other: &str, same: bool) {
    let leave_out = pointers(leave_out);
    let [left, right] = [one, other].map(|body| of(&leave_out, "application/json", body));
    assert_eq!(left == right, same, "{one} and {other}");
}

#[test]
fn a_place_left_out_may_change_appear_and_vanish() {
    check_json(&["/t"], r#"{"a":1,"t":5}"#, r#"{"t":[{"x":6}],"a":1}"#, true);
    check_json(&["/t"], r#"{"a":1,"t":5}"#, r#"{"a":1}"#, true);
    check_json(&["/t"], r#"{"t":5}"#, "{}", true);
    check_json(&["/t", "/u"], r#"{"u":1,"t":5}"#, "{}", true);
    check_json(&["/c/t"], r#"{"c":{"t":1,"d":2}}"#, r#"{"c":{"d":2}}"#, true);
    check_json(&["/c", "/c/t"], r#"{"c":{"t":1,"d":2}}"#, "{}", true);
    check_json(&["/i/1/t"], r#"{"i":[{},{"t":1}]}"#, r#"{"i":[{},{"t":2}]}"#, true);
    check_json(&["/0"], "[1,2]", "[3,2]", true);
    check_json(&["/a~1b", "/~0"], r#"{"a/b":1,"~":2}"#, r#"{"\u007e":3}"#, true);
    check_json(&["/é", "/"], r#"{"\u00e9":1,"":2}"#, "{}", true);
}

#[test]
fn everything_else_still_counts() {
    check_json(&["/t"], r#"{"a":1,"t":5}"#, r#"{"a":2,"t":5}"#, false);
    check_json(&["/t"], r#"{"c":{"t":1}}"#, r#"{"c":{"t":2}}"#, false);
    check_json(&["/c/t"], r#"{"t":1}"#, r#"{"t":2}"#, false);
    check_json(&["/c/t"], r#"{"c":{}}"#, "{}", false);
    check_json(&["/c/t"], r#"{"c":1}"#, r#"{"c":2}"#, false);
    check_json(&["/0"], "[1,2]", "[1,3]", false);
    check_json(&["/0"], r#"{"0":1}"#, r#"{"0":2}"#, true);
    check_json(&["/00"], "[1]", "[2]", false);
    check_json(&["/-"], "[1]", "[2]", false);
    check_json(&["/t"], "1", "2", false);
}

#[test]
fn a_body_in_doubt_counts_whole() {
    check_json(&["/t"], r#"{"t":1,"t":1}"#, r#"{"t":1,"t":2}"#, false);
    check_json(&["/t"], r#"{"t":{"a":1,"a":1}}"#, r#"{"t":{"a":1,"a":2}}"#, false);
    check_json(&["/t"], r#"{"t":1"#, r#"{"t":2"#, false);
    check_json(&["/t"], r#"{"t":01}"#, r#"{"t":02}"#, false);
}

#[test]
fn a_pointer_that_cannot_be_meant_is_refused_with_its_reason() {
    for (pointer, message) in [
        ("", r#"json pointer "": points at the whole body; name a field in it"#),
        ("a/b", r#"json pointer "a/b": must start with a slash, as in "/a/b""#),
        ("#/a", r##"json pointer "#/a": must start with a slash, as in "/#/a""##),
        (
            "/a~",
            r#"json pointer "/a~": a tilde must be followed by 0 (for a tilde) or 1 (for a slash)"#,
        ),
        (
            "/a~2",
            r#"json pointer "/a~2": a tilde must be followed by 0 (for a tilde) or 1 (for a slash)"#,
        ),
    ] {
        let error = LeaveOut::nothing().pointer(pointer).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn a_form_field_is_left_out_by_its_decoded_name() {
    let leave_out = LeaveOut::nothing().field("t x");
    for (one, other, same) in [
        ("a=1&t+x=5", "a=1&t%20x=6", true),
        ("a=1&t+x=5&t+x=7", "a=1", true),
        ("t+x&a=1", "a=1", true),
        ("a=1&t+x=5", "a=2&t+x=5", false),
        ("a=t+x", "a=", false),
        ("a=1&tx=5", "a=1&tx=6", false),
        ("a=%&t+x=5", "a=%&t+x=6", false),
    ] {
        let same_found = of(&leave_out, FORM, one) == of(&leave_out, FORM, other);
        assert_eq!(same_found, same, "{one} and {other}");
    }
}

#[test]
fn a_part_is_left_out_only_if_its_name_is_beyond_doubt() {
    let leave_out = LeaveOut::nothing().field("t");
    let is_left_out = |headers: &str| {
        let [one, other] = ["1", "2"].map(|value| format!("--B\r\n\r\nx\r\n--B\r\n{headers}\r\n\r\n{value}\r\n--B--"));
        of(&leave_out, MULTIPART, one) == of(&leave_out, MULTIPART, other)
    };
    for headers in [
        "Content-Disposition: form-data; name=\"t\"",
        "content-disposition:Form-Data;name=t",
        "Content-Type: text/plain\r\nContent-Disposition: form-data; filename=\"a; name=b\"; name=\"t\"",
        "Content-Disposition: form-data; filename=\"é\"; NAME=\"t\"",
    ] {
        assert!(is_left_out(headers), "{headers}");
    }
    for headers in [
        "",
        "Content-Type: text/plain",
        "Content-Disposition: form-data; name=\"T\"",
        "Content-Disposition: form-data; name=\"a\"; filename=\"t\"",
        "Content-Disposition: attachment; name=\"t\"",
        "Content-Disposition: form-data; name=\"t\"; name=\"a\"",
        "Content-Disposition: form-data; name=\"t\"; name*=utf-8''a",
        "Content-Disposition: form-data; name=\"\\t\"",
        "Content-Disposition: form-data; name=\"t\"; filename=\"\\\"\"",
        "Content-Disposition: form-data; name=\"t",
        "Content-Disposition: form-data;\r\n name=\"t\"",
        "Content-Disposition: form-data; name=\"t\"\r\n ; name=\"a\"",
        "Content-Disposition: form-data; name=\"t\"\r\n ; x=\":\"; name=\"a\"",
        "Content-Disposition: form-data; filename=\"a\\\"; name=\"t\"",
        "Content-Disposition : form-data; name=\"t\"",
        "Content-Disposition\t: form-data; name=\"t\"",
        "Content-Disposition: form-data; name=\"t\"\r\nContent-Disposition: form-data; name=\"a\"",
        "Content-Disposition: form-data; name=\"a\"\r\nContent-Disposition: form-data; name=\"t\"",
        "X: y\nContent-Disposition: form-data; name=\"a\"\r\nContent-Disposition: form-data; name=\"t\"",
        "no colon\r\nContent-Disposition: form-data; name=\"t\"",
        "\r\nContent-Disposition: form-data; name=\"t\"",
    ] {
        assert!(!is_left_out(headers), "{headers:?}");
    }
}

#[test]
fn a_changed_configuration_never_equates_two_requests() {
    let configurations = [
        pointers(&[]),
        pointers(&["/t"]),
        pointers(&["/u"]),
        pointers(&["/t", "/u"]),
    ];
    for (at, one) in configurations.iter().enumerate() {
        for other in &configurations[..at] {
            let stored = of(one, "application/json", r#"{"a":1,"t":5}"#);
            assert_ne!(stored, of(other, "application/json", r#"{"a":1}"#));
        }
    }
    let fields = [
        LeaveOut::nothing(),
        LeaveOut::nothing().field("t"),
        LeaveOut::nothing().field("u"),
    ];
    for (at, one) in fields.iter().enumerate() {
        for other in &fields[..at] {
            assert_ne!(of(one, FORM, "a=1&t=5"), of(other, FORM, "a=1"));
        }
    }
}

#[test]
fn a_configuration_counts_only_for_the_bodies_it_is_about_and_in_any_order() {
    let (nothing, json, form) = (LeaveOut::nothing(), pointers(&["/t"]), LeaveOut::nothing().field("t"));
    assert_eq!(of(&nothing, FORM, "a=1"), of(&json, FORM, "a=1"));
    assert_eq!(
        of(&nothing, "application/json", "{}"),
        of(&form, "application/json", "{}")
    );
    assert_eq!(of(&nothing, "text/plain", "a"), of(&json.field("t"), "text/plain", "a"));
    assert_eq!(
        of(&pointers(&["/t", "/u", "/t"]), "application/json", "{}"),
        of(&pointers(&["/u", "/t"]), "application/json", "{}"),
    );
}
