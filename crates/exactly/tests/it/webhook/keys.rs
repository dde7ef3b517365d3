//! Secrets and keys: how they are written, and that they are not shown.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use exactly::webhook::{Secret, SharedSecret, Signer, SigningKey, Verifier, VerifyWith, VerifyingKey};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const PAIR: &str = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";
const SEED: &str = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbc=";
const PUBLIC: &str = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=";

fn secret_of(bytes: usize) -> String {
    format!("whsec_{}", STANDARD.encode(vec![7; bytes]))
}

#[test]
fn a_secret_has_24_to_64_bytes_and_an_error_says_so() {
    for bytes in [24, 25, 26, 32, 64] {
        let text = secret_of(bytes);
        let secret: Secret = text.parse().unwrap();
        assert_eq!(secret.expose(), text, "{bytes} bytes");
    }
    for bytes in [0, 1, 23, 65] {
        let error = secret_of(bytes).parse::<Secret>().unwrap_err().to_string();
        let expected = format!(
            "read webhook key: the secret has {bytes} bytes, and Standard Webhooks asks for 24 to 64: encode as many random ones"
        );
        assert_eq!(error, expected);
    }
}

#[test]
fn a_secret_is_the_same_with_its_prefix_and_padding_and_without() {
    let padded = secret_of(32);
    let bare = padded.trim_start_matches("whsec_").trim_end_matches('=');
    assert_eq!(bare.parse::<Secret>().unwrap().expose(), padded);
}

#[test]
fn a_key_is_its_seed_with_its_public_half_or_without() {
    let (pair, seed): (SigningKey, SigningKey) = (PAIR.parse().unwrap(), SEED.parse().unwrap());
    assert_eq!(pair.expose(), PAIR);
    assert_eq!(seed.expose(), PAIR);
    assert_eq!(pair.public().to_string(), PUBLIC);
    assert_eq!(PUBLIC.parse::<VerifyingKey>().unwrap(), seed.public());
}

#[test]
fn random_ones_differ_and_are_read_back() {
    let (one, other) = (Secret::random().expose(), Secret::random().expose());
    assert_ne!(one, other);
    assert_eq!(one.parse::<Secret>().unwrap().expose(), one);
    let (one, other) = (SigningKey::random(), SigningKey::random());
    assert_ne!(one.public(), other.public());
    let read: SigningKey = one.expose().parse().unwrap();
    assert_eq!(read.public(), one.public());
}

#[test]
fn what_is_written_tells_what_it_is() {
    assert!(matches!(SECRET.parse().unwrap(), Signer::V1(_)));
    assert!(matches!(PAIR.parse().unwrap(), Signer::V1a(_)));
    assert!(matches!(SECRET.parse().unwrap(), VerifyWith::Secret(_)));
    assert!(matches!(PUBLIC.parse().unwrap(), VerifyWith::Key(_)));
    // A public key signs nothing, and who only verifies needs no key that signs.
    let error = PUBLIC.parse::<Signer>().unwrap_err().to_string();
    assert!(error.contains("cannot sign"), "{error}");
    let error = PAIR.parse::<VerifyWith>().unwrap_err().to_string();
    assert!(error.contains("use its public half"), "{error}");
    for other in [PAIR, PUBLIC] {
        assert!(other.parse::<Secret>().is_err(), "{other}");
    }
}

#[test]
fn keys_that_are_none_are_refused_without_being_shown() {
    // All the same but one letter: the public half belongs to another seed.
    let torn = PAIR.replace("MbfVKIDij2", "MbfVKIDij3");
    // Points of small order, under which one signature fits every message.
    let weak = |first: u8| {
        let mut bytes = [0; 32];
        bytes[0] = first;
        format!("whpk_{}", STANDARD.encode(bytes))
    };
    let short = format!("whpk_{}", STANDARD.encode([9; 31]));
    assert!(torn.parse::<SigningKey>().is_err());
    assert!(weak(0).parse::<VerifyingKey>().is_err());
    assert!(weak(1).parse::<VerifyingKey>().is_err());
    assert!(short.parse::<VerifyingKey>().is_err());

    let bad = [
        torn.as_str(),
        "whsk_6Xb/dCcHpPea21PS1N9VY",
        "whsec_MfKQ9r8GKYqr~wjUPD8ILPZIo2LaLaSw",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa_-",
    ];
    for bad in bad {
        let error = bad.parse::<Signer>().unwrap_err().to_string();
        for part in ["MfKQ9r8G", "2LaLa", "6Xb/dCcH", "~"] {
            assert!(!error.contains(part), "{bad}: {error}");
        }
    }
}

#[test]
fn a_shared_secret_is_never_empty_and_has_no_line_break_of_a_file() {
    for bad in ["", " ", "secret\n", " secret", "sec\u{0}ret", &"x".repeat(1025)] {
        assert!(bad.parse::<SharedSecret>().is_err(), "{bad:?}");
    }
    for good in ["x", "It's a Secret to Everybody", "whsec_abc"] {
        assert!(good.parse::<SharedSecret>().is_ok(), "{good:?}");
    }
}

#[test]
fn nothing_secret_is_shown_by_debug() {
    let (signer, key): (Signer, Signer) = (SECRET.parse().unwrap(), PAIR.parse().unwrap());
    let shared: SharedSecret = "It's a Secret to Everybody".parse().unwrap();
    let standard = Verifier::standard([SECRET.parse().unwrap(), PUBLIC.parse().unwrap()]);
    let shown = format!("{signer:?} {key:?} {standard:?} {:?}", Verifier::stripe([shared]));
    for part in ["MfKQ9r8", "6Xb/dCc", "49, 242", "Everybody"] {
        assert!(!shown.contains(part), "{shown}");
    }
    assert!(shown.contains(PUBLIC), "a public key is no secret: {shown}");
}
