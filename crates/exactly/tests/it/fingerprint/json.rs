//! JSON bodies: one form per value, and none where readers disagree.

use std::collections::BTreeMap;

use exactly::fingerprint::canonical_json;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

use super::request::of;
use crate::vectors;

const JSON: &str = "application/json";

#[track_caller]
fn check(text: impl AsRef<[u8]>, expected: Option<&str>) {
    let text = text.as_ref();
    let found = canonical_json(text).map(|found| String::from_utf8(found).expect("utf-8"));
    assert_eq!(found.as_deref(), expected, "{}", String::from_utf8_lossy(text));
}

#[test]
fn order_white_space_and_escapes_are_one_encoding_or_another() {
    for (text, expected) in [
        ("null", "null"),
        (" \t\r\n[ ] \n", "[]"),
        ("{ }", "{}"),
        ("[1 , [true,false ] ,{\"a\" : null}]", "[1,[true,false],{\"a\":null}]"),
        (r#"{"b":1,"a":2,"":3}"#, r#"{"":3,"a":2,"b":1}"#),
        (
            r#"{"b":{"d":1,"c":2},"a":[{"f":1,"e":2}]}"#,
            r#"{"a":[{"e":2,"f":1}],"b":{"c":2,"d":1}}"#,
        ),
        (r#"{"ab":1,"a":2}"#, r#"{"a":2,"ab":1}"#),
        (r#""\/\u0041\u00e9\u20AC\ud83d\uDE02""#, "\"/Aé€😂\""),
        (
            r#""\u0008\u0009\u000a\u000c\u000d\u001F\u0000\u0022\u005c""#,
            r#""\b\t\n\f\r\u001f\u0000\"\\""#,
        ),
        ("\"\u{7f}\\u007f\"", "\"\u{7f}\u{7f}\""),
        // In UTF-16 the surrogates of U+1F602 lie below U+FB33, and an unescaped quote below a letter.
        (
            "{\"\u{fb33}\":1,\"\u{1f602}\":2,\"\u{20ac}\":3}",
            "{\"\u{20ac}\":3,\"\u{1f602}\":2,\"\u{fb33}\":1}",
        ),
        (r#"{"A":1,"\"":2,"\\":3,"\n":4}"#, r#"{"\n":4,"\"":2,"A":1,"\\":3}"#),
    ] {
        check(text, Some(expected));
    }
}

#[test]
fn a_number_stays_as_it_was_written() {
    let numbers = [
        "0",
        "-0",
        "0.0",
        "-0.0",
        "1",
        "1.0",
        "1.00",
        "1e0",
        "1E0",
        "1e+0",
        "1e-0",
        "10e-1",
        "9007199254740992",
        "9007199254740993",
        "0.1",
        "0.10000000000000001",
        "1e400",
        "1e401",
        "123456789012345678901234567890",
        "123456789012345678901234567891",
    ];
    for (at, number) in numbers.iter().enumerate() {
        check(number, Some(number));
        for other in &numbers[..at] {
            assert_ne!(of(JSON, number), of(JSON, other), "{number} and {other}");
        }
    }
}

#[test]
fn what_readers_disagree_about_has_no_one_form() {
    for text in [
        "",
        " ",
        "{",
        "[1",
        "[1,]",
        "[,1]",
        "{\"a\":1,}",
        "{\"a\"}",
        "{a:1}",
        "{'a':1}",
        "{1:1}",
        "[1 2]",
        "{\"a\" 1}",
        "nul",
        "nulll",
        "True",
        "NaN",
        "Infinity",
        "undefined",
        "// a\n1",
        "/**/1",
        "1 1",
        "1,",
        "\"a\"b",
        "]",
        "}",
        "01",
        "-",
        "+1",
        "1.",
        ".1",
        "1e",
        "1e+",
        "0x1",
        "1_000",
        "--1",
        "-01",
        "١",
        "\"a",
        "\"\n\"",
        "\"\t\"",
        "\"\\",
        r#""\x41""#,
        r#""\u12""#,
        r#""\u+123""#,
        r#""\U0041""#,
        r#""\u00g0""#,
        r#""\ud83d""#,
        r#""\ude02""#,
        r#""\ud83d\u0041""#,
        r#""\ude02\ud83d""#,
        r#""\ud83dx""#,
        r#""\ud83d\n""#,
        "\u{feff}1",
        "1\u{a0}",
        "\u{b}1",
        "1\0",
    ] {
        check(text, None);
    }
    for bytes in [&b"\"\xff\""[..], b"\"\xed\xa0\xbd\"", b"\"\xc0\x80\"", b"[1]\xff"] {
        check(bytes, None);
    }
}

#[test]
fn a_name_that_occurs_twice_has_no_one_form_at_any_depth() {
    for text in [
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"b":2,"a":3}"#,
        r#"{"a":1,"\u0061":2}"#,
        r#"{"/":1,"\/":2}"#,
        r#"[{"x":{"":0,"":0}}]"#,
    ] {
        check(text, None);
    }
    // Once per object is once.
    check(
        r#"{"a":{"a":[{"a":1},{"a":1}]}}"#,
        Some(r#"{"a":{"a":[{"a":1},{"a":1}]}}"#),
    );
}

#[test]
fn nesting_stops_at_128_levels() {
    let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    check(nested(128), Some(&nested(128)));
    check(nested(129), None);
    let objects = |levels: usize| "{\"a\":".repeat(levels) + "1" + &"}".repeat(levels);
    check(objects(128), Some(&objects(128)));
    check(objects(129), None);
    check("[".repeat(1_000_000), None);
}

#[test]
fn a_body_without_one_form_still_counts_byte_for_byte() {
    let [one, other] = [r#"{"a":1,"a":2}"#, r#"{"a":1, "a":2}"#].map(|body| of(JSON, body));
    assert_ne!(one, other);
    assert_eq!(one, of(JSON, r#"{"a":1,"a":2}"#));
}

/// RFC 8785 prints numbers as doubles and we do not. Beside each case stand the numbers where that shows: as the RFC
/// prints them, and as they were written.
#[test]
fn the_one_form_agrees_with_the_published_cases_but_for_numbers() {
    let Some(folder) = vectors::find("jcs") else { return };
    for (name, printed, written) in [
        ("arrays", "", ""),
        ("french", "", ""),
        ("structures", ":56,", ":56.0,"),
        ("unicode", "", ""),
        (
            "values",
            "[333333333.3333333,1e+30,4.5,0.002,1e-27]",
            "[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001]",
        ),
        ("weird", "", ""),
    ] {
        let read = |side: &str| std::fs::read_to_string(folder.join(side).join(name).with_extension("json")).unwrap();
        let (input, output) = (read("input"), read("output"));
        let output = output.trim_end();
        check(output, Some(output));
        assert_eq!(
            output.replacen(printed, written, 1) == output,
            printed.is_empty(),
            "{name}"
        );
        check(input, Some(&output.replacen(printed, written, 1)));
    }
}

/// A value with its numbers as written: what a handler can tell apart.
#[derive(Clone, Debug, PartialEq)]
enum Json {
    Scalar(String),
    Text(String),
    Array(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

/// Few letters and few numbers, so that two values are often equal or nearly so.
fn json() -> impl Strategy<Value = Json> {
    let scalar = select(vec!["null", "true", "0", "-0", "1", "1.0", "10", "1e2", "1E2"]);
    let text = || "[ab\"\\\\\n\u{1f}/é\u{e000}\u{1f602}]{0,2}";
    let leaf = prop_oneof![
        scalar.prop_map(|text| Json::Scalar(text.to_owned())),
        text().prop_map(Json::Text)
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::Array),
            prop::collection::btree_map(text(), inner, 0..4).prop_map(Json::Object),
        ]
    })
}

/// Picks one of the ways to write a value, from a seed.
struct Hand(u64);

impl Hand {
    fn pick(&mut self, choices: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % choices
    }

    fn space(&mut self) -> &'static str {
        ["", "", " ", "\n\t", "\r\n"][self.pick(5)]
    }

    fn text(&mut self, text: &str) -> String {
        let mut written = vec!["\"".to_owned()];
        for char in text.chars() {
            written.push(match (char, self.pick(3)) {
                ('"' | '\\', 1 | 2) => format!("\\{char}"),
                ('/', 1) => "\\/".to_owned(),
                ('\n', 1) => "\\n".to_owned(),
                (' '.., 1 | 2) => char.to_string(),
                _ => escape(char),
            });
        }
        written.push("\"".to_owned());
        written.concat()
    }

    fn write(&mut self, value: &Json) -> String {
        let (open, mut items, close) = match value {
            Json::Scalar(text) => return text.clone(),
            Json::Text(text) => return self.text(text),
            Json::Array(items) => ("[", items.iter().map(|item| self.write(item)).collect::<Vec<_>>(), "]"),
            Json::Object(members) => {
                let mut written = Vec::new();
                for (name, value) in members {
                    let member = [
                        self.text(name),
                        self.space().into(),
                        ":".into(),
                        self.space().into(),
                        self.write(value),
                    ];
                    written.insert(self.pick(written.len() + 1), member.concat());
                }
                ("{", written, "}")
            }
        };
        for item in &mut items {
            *item = [self.space(), item, self.space()].concat();
        }
        [open, self.space(), &items.join(","), close].concat()
    }
}

fn escape(char: char) -> String {
    let mut units = [0; 2];
    let units = char.encode_utf16(&mut units);
    let escapes: Vec<String> = units.iter().map(|unit| format!("\\u{unit:04X}")).collect();
    escapes.concat()
}

proptest! {
    #[test]
    fn two_spellings_of_a_value_are_one_request(value in json(), seeds: (u64, u64)) {
        let (one, other) = (Hand(seeds.0).write(&value), Hand(seeds.1).write(&value));
        let form = canonical_json(one.as_bytes()).expect("valid json");
        prop_assert!(form.len() <= one.len());
        prop_assert_eq!(canonical_json(other.as_bytes()), Some(form.clone()));
        prop_assert_eq!(canonical_json(&form), Some(form));
        prop_assert_eq!(of(JSON, one), of(JSON, other));
    }

    #[test]
    fn two_values_are_one_request_only_if_they_are_equal(one in json(), other in json(), seeds: (u64, u64)) {
        let texts = (Hand(seeds.0).write(&one), Hand(seeds.1).write(&other));
        prop_assert_eq!(of(JSON, texts.0) == of(JSON, texts.1), one == other);
    }

    #[test]
    fn a_changed_byte_is_another_request_unless_it_is_white_space(value in json(), at: prop::sample::Index, byte: u8) {
        let text = canonical_json(Hand(0).write(&value).as_bytes()).expect("valid json");
        let spaced = [b" ", &*text, b"\n"].concat();
        let mut changed = spaced.clone();
        let at = at.index(spaced.len());
        changed[at] = byte;
        let old = spaced[at];
        let white_space = [old, byte].iter().all(|byte| b" \t\r\n".contains(byte));
        // The one letter that an escape may have, in the other case.
        let escaped = spaced[..at].ends_with(b"\\u001") && old.eq_ignore_ascii_case(&byte);
        let same = old == byte || white_space || escaped;
        prop_assert_eq!(of(JSON, &spaced) == of(JSON, &changed), same);
    }

    #[test]
    fn it_accepts_what_serde_json_accepts_but_for_repeated_names(value in json(), seed: u64, cuts: [prop::sample::Index; 2], with in "[\\[\\]{}\",:\\\\0-9eu.+ -]?") {
        let mut text = Hand(seed).write(&value).into_bytes();
        let [from, to] = cuts.map(|cut| cut.index(text.len()));
        text.splice(from..to.clamp(from, from + 1), with.bytes());
        let read = serde_json::from_slice::<Value>(&text);
        match canonical_json(&text) {
            Some(form) => prop_assert_eq!(read.unwrap(), serde_json::from_slice::<Value>(&form).unwrap()),
            None => prop_assert!(read.is_err() || has_repeated_name(&text), "{}", String::from_utf8_lossy(&text)),
        }
    }
}

/// An independent look: as many members as the text has colons outside strings, or fewer.
fn has_repeated_name(text: &[u8]) -> bool {
    fn members(value: &Value) -> usize {
        match value {
            Value::Array(items) => items.iter().map(members).sum(),
            Value::Object(object) => object.len() + object.values().map(members).sum::<usize>(),
            _ => 0,
        }
    }
    let (mut colons, mut quoted, mut escaped) = (0, false, false);
    for &byte in text {
        match byte {
            b'"' if !escaped => quoted = !quoted,
            b':' if !quoted => colons += 1,
            _ => {}
        }
        escaped = byte == b'\\' && !escaped;
    }
    serde_json::from_slice(text).is_ok_and(|value| members(&value) < colons)
}
