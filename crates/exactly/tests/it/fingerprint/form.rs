//! Form bodies: one form per list of fields.

use proptest::prelude::*;

use super::request::of;

const FORM: &str = "application/x-www-form-urlencoded";

#[test]
fn percent_encoding_is_one_encoding_or_another() {
    for (one, other) in [
        ("a=1", "%61=%31"),
        ("a=x+y", "a=x%20y"),
        ("a=%c3%a9", "a=%C3%A9"),
        ("a=b=c", "a=b%3Dc"),
        ("a[]=1", "a%5B%5D=1"),
        ("a=%7E", "a=~"),
    ] {
        assert_eq!(of(FORM, one), of(FORM, other), "{one} and {other}");
        let with_charset = "application/x-www-form-urlencoded; charset=UTF-8";
        assert_eq!(of(with_charset, one), of(with_charset, other), "{one} and {other}");
        let latin = "application/x-www-form-urlencoded; charset=latin1";
        assert_ne!(of(latin, one), of(latin, other), "{one} and {other}");
    }
}

#[test]
fn fields_that_a_handler_tells_apart_are_told_apart() {
    let bodies = [
        "",
        "&",
        "&&",
        "a",
        "a=",
        "=a",
        "=",
        "a=&",
        "&a=",
        "a&=",
        "a=1&b=2",
        "b=2&a=1",
        "a=1&&b=2",
        "a=1&a=2",
        "a=2&a=1",
        "a=1%26b=2",
        "a=1&b%3D2",
        "a%3D1&b=2",
        "a=+",
        "a=%2B",
        "a=%FF",
        "a=%FE",
        "a=%EF%BF%BD",
        "a=A",
        "A=a",
        "a=%00",
    ];
    for (at, one) in bodies.iter().enumerate() {
        for other in &bodies[..at] {
            assert_ne!(of(FORM, one), of(FORM, other), "{one} and {other}");
        }
    }
}

#[test]
fn a_form_that_readers_disagree_about_counts_byte_for_byte() {
    for (one, other) in [
        // The second of each pair is what decoding the first would equate it with.
        ("a=%zz&b=%31", "a=%zz&b=1"),
        ("a=%&b=%31", "a=%&b=1"),
        ("a=%4&b=%31", "a=%4&b=1"),
        ("a=1;b=2", "a=1%3Bb=2"),
        ("a=é", "a=%C3%A9"),
        ("a=1\r\n", "a=1%0D%0A"),
        ("a=x y", "a=x+y"),
        ("a=\0", "a=%00"),
    ] {
        assert_ne!(of(FORM, one), of(FORM, other), "{one} and {other}");
    }
}

/// A field without a value is not a field with an empty one.
type Fields = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// At least one: an empty body is one field without name and value.
fn fields() -> impl Strategy<Value = Fields> {
    let bytes = || prop::collection::vec(prop::sample::select(b"ab =&+%;\xff\n".to_vec()), 0..3);
    prop::collection::vec((bytes(), prop::option::of(bytes())), 1..4)
}

/// Writes fields in one of many ways: bit by bit, the choices say which bytes to encode and how.
fn write(fields: &Fields, mut choices: u64) -> String {
    let mut encode = |bytes: &[u8], may_stay: &[u8]| -> String {
        let mut next = |byte: u8| {
            choices = choices.rotate_left(7).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            match (byte, choices & 3) {
                (b' ', 0) => "+".to_owned(),
                (_, 1 | 2) if may_stay.contains(&byte) => char::from(byte).to_string(),
                (_, 3) => format!("%{byte:02x}"),
                _ => format!("%{byte:02X}"),
            }
        };
        let written: Vec<String> = bytes.iter().map(|&byte| next(byte)).collect();
        written.concat()
    };
    let pieces: Vec<String> = fields
        .iter()
        .map(|(name, value)| match value {
            Some(value) => encode(name, b"ab") + "=" + &encode(value, b"ab="),
            None => encode(name, b"ab"),
        })
        .collect();
    pieces.join("&")
}

proptest! {
    #[test]
    fn two_spellings_of_a_form_are_one_request(fields in fields(), choices: (u64, u64)) {
        prop_assert_eq!(of(FORM, write(&fields, choices.0)), of(FORM, write(&fields, choices.1)));
    }

    #[test]
    fn two_forms_are_one_request_only_if_they_are_equal(one in fields(), other in fields(), choices: (u64, u64)) {
        let bodies = (write(&one, choices.0), write(&other, choices.1));
        prop_assert_eq!(of(FORM, bodies.0) == of(FORM, bodies.1), one == other);
    }
}
