//! Keys, scopes and the identity of a call.

use exactly::key::{InvalidKey, InvalidKeyKind, Key, KeyFormat};
use exactly::{CallId, InvalidCallId, Scope};
use proptest::prelude::*;

#[cfg(feature = "layer")]
mod header;

use InvalidKeyKind::{ControlCharacter, Empty, NotUuidV4, TooLong};

const UUID: &str = "8e03978e-40d5-43dd-bc93-6894a57f9324";

fn key(text: &str) -> Key {
    Key::new(text).expect("a valid key")
}

#[track_caller]
fn check(found: &Result<Key, InvalidKey>, expected: Result<&str, InvalidKeyKind>) {
    let found = found.as_ref().map(Key::as_str).map_err(InvalidKey::kind);
    assert_eq!(found, expected);
}

#[test]
fn a_key_is_any_text_of_1_to_255_bytes_without_control_characters() {
    let longest = "é".repeat(127) + "x";
    for text in ["a", " ", "a,b", "\"quoted\"", "schlüssel 🗝", &longest] {
        check(&Key::new(text), Ok(text));
    }
    check(&Key::new(""), Err(Empty));
    check(&Key::new("x".repeat(256)), Err(TooLong));
    check(&Key::new("é".repeat(128)), Err(TooLong));
    for text in ["\0", "a\nb", "tab\t", "\u{7f}", "\u{85}"] {
        check(&Key::new(text), Err(ControlCharacter));
    }
}

#[test]
fn a_refused_key_says_why_and_does_not_repeat_itself() {
    let message = |text: &str| Key::new(text).unwrap_err().to_string();
    assert_eq!(message(""), "key is empty");
    assert_eq!(
        message(&"x".repeat(300)),
        "key is 300 bytes long, at most 255 are accepted"
    );
    assert_eq!(message("secret\n"), "key contains a control character");
    let debug = format!("{:?}", Key::new("secret\n").unwrap_err());
    assert!(!debug.contains("secret"), "{debug}");
}

#[test]
fn a_key_shows_only_the_digest_an_operator_can_compute() {
    // printf %s abc | sha256sum | cut -c1-12
    assert_eq!(key("abc").digest(), "ba7816bf8f01");
    assert_eq!(format!("{:?}", key("abc")), "Key(#ba7816bf8f01)");
}

#[test]
fn an_opaque_format_takes_any_key_as_it_is() {
    for text in ["anything", &UUID.to_uppercase()] {
        check(&KeyFormat::default().check(key(text)), Ok(text));
    }
}

#[test]
fn one_uuid_is_one_key_in_either_case() {
    let mixed = "8E03978e-40D5-43dd-BC93-6894a57f9324";
    for text in [UUID, mixed, &UUID.to_uppercase()] {
        check(&KeyFormat::UuidV4.check(key(text)), Ok(UUID));
    }
}

#[test]
fn only_a_hyphenated_uuid_of_version_4_is_one() {
    for text in [
        "8e03978e40d543ddbc936894a57f9324",
        "{8e03978e-40d5-43dd-bc93-6894a57f9324}",
        "urn:uuid:8e03978e-40d5-43dd-bc93-6894a57f9324",
        "8e03978e-40d5-13dd-bc93-6894a57f9324",
        "8e03978e-40d5-73dd-bc93-6894a57f9324",
        "8e03978e-40d5-43dd-cc93-6894a57f9324",
        "8e03978e-40d5-43dd-7c93-6894a57f9324",
        "00000000-0000-0000-0000-000000000000",
        "8e03978e-40d5-43dd-bc93-6894a57f932",
        "8e03978e-40d5-43dd-bc93-6894a57f932g",
        "8e03978e-40d5-43dd-bc936-894a57f9324",
        "8e03978e-40d5-43dd-bc93-6894a57f93é",
        "abc",
    ] {
        check(&KeyFormat::UuidV4.check(key(text)), Err(NotUuidV4));
    }
}

#[test]
fn a_scope_never_shows_its_principal() {
    let scope = Scope::new("ann@example.com", "POST /refunds");
    let shown = format!("{scope:?}");
    assert!(
        !shown.contains("ann") && shown.contains('#') && shown.contains("POST /refunds"),
        "{shown}"
    );
    assert!(format!("{:?}", Scope::global("league.join")).contains("global"));
}

#[test]
fn a_call_id_tells_apart_what_a_concatenation_would_not() {
    let calls = [
        (Scope::new("a", "b"), "c"),
        (Scope::new("ab", "c"), "c"),
        (Scope::new("a", "bc"), "c"),
        (Scope::new("a", "b"), "bc"),
        (Scope::new("", "ab"), "c"),
        (Scope::global("ab"), "c"),
        (Scope::global("b"), "c"),
        (Scope::new("", "b"), "c"),
        (Scope::new("global", "b"), "c"),
        (Scope::new("b", "a"), "c"),
    ];
    let ids: Vec<CallId> = calls
        .iter()
        .map(|(scope, text)| CallId::new(scope, &key(text)))
        .collect();
    for (at, id) in ids.iter().enumerate() {
        assert!(!ids[..at].contains(id), "{:?}", calls[at]);
    }
}

#[test]
fn a_call_id_is_the_same_in_every_release() {
    // Computed apart from this crate, by Python's hashlib. A change here orphans every stored record.
    let ids = [
        (
            Scope::new("user-1", "POST /refunds"),
            "7a540188d4b6026aa854ec33851ca2e378e7e18f8965a9fb9c0fdb5df845f27f",
        ),
        (
            Scope::global("league.join"),
            "44e20e47d39e10875317b5c5498e0d9890fdfcf3338bb6433672fc09c8bb7570",
        ),
    ];
    for (scope, expected) in ids {
        assert_eq!(CallId::new(&scope, &key("abc")).to_string(), expected);
    }
}

#[test]
fn a_call_id_survives_its_text_and_its_bytes() {
    let id = CallId::new(&Scope::global("x"), &key("abc"));
    assert_eq!(id.to_string().parse(), Ok(id));
    assert_eq!(id.to_string().to_uppercase().parse(), Ok(id));
    assert_eq!(CallId::from_bytes(*id.as_bytes()), id);
    let text = id.to_string();
    for broken in [
        "",
        &text[1..],
        &text[2..],
        &format!("{text}00"),
        &"g".repeat(64),
        &"+0".repeat(32),
    ] {
        assert_eq!(broken.parse::<CallId>(), Err(InvalidCallId), "{broken}");
    }
}

proptest! {
    #[test]
    fn two_calls_share_an_id_only_if_they_are_the_same(
        one in ("[ab]{0,2}", "[ab]{0,2}", "[ab]{1,2}", any::<bool>()),
        other in ("[ab]{0,2}", "[ab]{0,2}", "[ab]{1,2}", any::<bool>()),
    ) {
        let id = |(principal, operation, text, global): &(String, String, String, bool)| {
            let scope = match global {
                true => Scope::global(operation.as_str()),
                false => Scope::new(principal.as_str(), operation.as_str()),
            };
            (CallId::new(&scope, &key(text)), scope, text.clone())
        };
        let (one, other) = (id(&one), id(&other));
        prop_assert_eq!(one.0 == other.0, (one.1, one.2) == (other.1, other.2));
    }
}
