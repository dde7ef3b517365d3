//! Keys as a header carries them.

use exactly::key::KeySyntax::{Lenient, Strict};
use exactly::key::{Key, KeySyntax};
use serde_json::Value;

use super::InvalidKeyKind::{
    self, BrokenQuotedString, Comma, ControlCharacter, Empty, NotQuoted, NotVisibleAscii, SentTwice, TooLong,
};
use crate::vectors;

#[track_caller]
fn check(syntax: KeySyntax, line: impl AsRef<[u8]>, expected: Result<&str, InvalidKeyKind>) {
    let found = Key::from_header([line.as_ref()], syntax).map(|key| key.expect("a line was sent"));
    super::check(&found, expected);
}

#[test]
fn quoted_and_bare_are_the_same_key() {
    for (line, key) in [
        ("abc", "abc"),
        (r#""abc""#, "abc"),
        ("  abc\t", "abc"),
        ("\t\"abc\" ", "abc"),
        (r#""abc";v=1;w"#, "abc"),
        ("two words", "two words"),
        (r#"" edges ""#, " edges "),
        (r#""a,b""#, "a,b"),
        (r#""say \"hi\" \\""#, r#"say "hi" \"#),
        (r#"say "hi" \"#, r#"say "hi" \"#),
        ("abc;v=1", "abc;v=1"),
        ("'abc'", "'abc'"),
        (
            "8e03978e-40d5-43dd-bc93-6894a57f9324",
            "8e03978e-40d5-43dd-bc93-6894a57f9324",
        ),
    ] {
        check(Lenient, line, Ok(key));
    }
}

#[test]
fn a_lenient_header_refuses_what_could_mean_two_things() {
    for (line, kind) in [
        (&b""[..], Empty),
        (b" \t ", Empty),
        (br#""""#, Empty),
        (b"a,b", Comma),
        (b"abc, abc", Comma),
        (b"a\tb", ControlCharacter),
        (b"a\x7fb", ControlCharacter),
        (b"a\0", ControlCharacter),
        ("schlüssel".as_bytes(), NotVisibleAscii),
        (b"\xff", NotVisibleAscii),
        (br#"""#, BrokenQuotedString),
        (br#""abc"#, BrokenQuotedString),
        (br#""abc"def"#, BrokenQuotedString),
        (br#""abc", "abc""#, BrokenQuotedString),
        (br#""a\bc""#, BrokenQuotedString),
        ("\"schlüssel\"".as_bytes(), BrokenQuotedString),
        (b"\"a\tb\"", BrokenQuotedString),
        (br#""abc";V=1"#, BrokenQuotedString),
    ] {
        check(Lenient, line, Err(kind));
    }
}

#[test]
fn a_strict_header_takes_a_quoted_string_and_nothing_else() {
    check(Strict, r#""abc""#, Ok("abc"));
    check(Strict, r#"  "abc";v=1  "#, Ok("abc"));
    for line in [
        "abc",
        "17",
        "8e03978e-40d5-43dd-bc93-6894a57f9324",
        "?1",
        ":YWJj:",
        "%\"abc\"",
        "@17",
        "(\"abc\")",
    ] {
        check(Strict, line, Err(NotQuoted));
    }
    check(Strict, "", Err(Empty));
    check(Strict, r#""""#, Err(Empty));
    check(Strict, r#""abc"#, Err(BrokenQuotedString));
}

#[test]
fn the_length_limit_counts_what_the_key_says_and_not_its_escapes() {
    let longest = "\"".repeat(255);
    let quoted = format!("\"{}\"", "\\\"".repeat(255));
    for syntax in [Lenient, Strict] {
        check(syntax, &quoted, Ok(&longest));
        check(syntax, format!("\"{}\"", "x".repeat(256)), Err(TooLong));
    }
    check(Lenient, "x".repeat(255), Ok(&"x".repeat(255)));
    check(Lenient, "x".repeat(256), Err(TooLong));
}

#[test]
fn two_lines_are_refused_even_when_they_are_equal() {
    for syntax in [Lenient, Strict] {
        let line = br#""abc""#.as_slice();
        assert_eq!(Key::from_header([], syntax), Ok(None));
        for lines in [[line, line], [line, b""], [b"", b""]] {
            let error = Key::from_header(lines, syntax).unwrap_err();
            assert_eq!(error.kind(), SentTwice);
        }
    }
}

#[test]
fn a_comma_is_explained() {
    let error = Key::from_header([b"a,b".as_slice()], Lenient).unwrap_err();
    assert_eq!(
        error.to_string(),
        "key contains a comma, which cannot be told from two header lines joined by a proxy; quote it"
    );
}

/// Strict mode against the structured-field cases of the HTTP working group.
#[test]
fn strict_mode_agrees_with_the_published_cases() {
    let Some(folder) = vectors::find("sf") else { return };
    let mut accepted = 0;
    for file in ["string.json", "string-generated.json", "item.json"] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
        assert!(!rows.is_empty(), "{file}");
        for row in rows {
            accepted += usize::from(agrees(&row));
        }
    }
    assert!(accepted > 90, "only {accepted} rows were accepted");
}

/// Whether the row is a key; panics if we and the row disagree.
fn agrees(row: &Value) -> bool {
    let lines: Vec<&[u8]> = row["raw"].as_array().expect("lines").iter().map(raw).collect();
    let found = Key::from_header(lines.iter().copied(), Strict);
    let text = row["expected"][0].as_str();
    let expected = match text {
        _ if row["must_fail"] == true => None,
        // Ours: a key in two lines is refused, though a string that a comma splits could be joined again.
        _ if lines.len() > 1 => None,
        // Ours: a key has 1 to 255 bytes. Any other item is no string, so no key.
        Some(text) => (1..=Key::BYTES_MAX).contains(&text.len()).then_some(text),
        None => None,
    };
    let found = found.as_ref().ok().and_then(Option::as_ref).map(Key::as_str);
    assert_eq!(found, expected, "{}", row["name"]);
    expected.is_some()
}

fn raw(line: &Value) -> &[u8] {
    line.as_str().expect("a line").as_bytes()
}
