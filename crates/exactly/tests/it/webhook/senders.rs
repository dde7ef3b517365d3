//! Signatures of Stripe and GitHub.

use std::time::Duration;

use exactly::Hex;
use exactly::webhook::{Rejected, SharedSecret, Verifier};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::{Request, at};

const STRIPE: &str = "stripe-signature";
const GITHUB: &str = "x-hub-signature-256";
const DELIVERY: &str = "x-github-delivery";
const NOW: u64 = 1_700_000_000;
const SECRET: &str = "whsec_abc";
const BODY: &str = r#"{"id":"evt_1"}"#;
/// What Stripe's own library for Node made of these.
const CODE: &str = "79f159714a0d01d9505691104b38e71f0dbb0d4bdeef387b113d07b870f50db3";

fn shared(secret: &str) -> SharedSecret {
    secret.parse().unwrap()
}

fn hmac(key: &str, content: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap();
    mac.update(content.as_bytes());
    Hex(&mac.finalize().into_bytes()).to_string()
}

fn stripe(header: &str, body: &str) -> Result<Box<str>, Rejected> {
    let request = Request::new(&[(STRIPE, header)], body);
    let ours = Verifier::stripe([shared("whsec_other"), shared(SECRET)]);
    let verified = ours.verify(&request.headers, &request.body, at(NOW))?;
    assert_eq!(verified.timestamp, Some(at(NOW)));
    Ok(verified.event_id)
}

#[test]
fn an_event_of_stripe_is_known_by_the_id_in_its_body() {
    let wrong = "0".repeat(64);
    for good in [
        format!("t={NOW},v1={CODE}"),
        format!("t={NOW},v1={wrong},v1={CODE},v0={wrong}"),
        format!("v1={CODE},t={NOW}"),
        format!("t={NOW},v2=later,v1={CODE},,x"),
    ] {
        assert_eq!(stripe(&good, BODY), Ok("evt_1".into()), "{good}");
    }
}

#[test]
fn what_is_changed_of_an_event_of_stripe_is_noticed() {
    let sha = |time: &str| format!("t={time},v1={CODE}");
    let wrong = [
        (format!("t={NOW}"), BODY),
        // The weaker version has the right code, and is worth nothing.
        (format!("t={NOW},v0={CODE}"), BODY),
        (format!("t={NOW},V1={CODE}"), BODY),
        (format!("t={NOW},v1={}", &CODE[1..]), BODY),
        (format!("t={NOW},v1={CODE}0"), BODY),
        (format!("t={NOW},v1=80{}", &CODE[2..]), BODY),
        (format!("t={NOW},v1={}", "é".len()), BODY),
        (sha(&(NOW + 1).to_string()), BODY),
        (sha(&NOW.to_string()), r#"{"id":"evt_2"}"#),
    ];
    for (header, body) in wrong {
        assert_eq!(stripe(&header, body), Err(Rejected::WrongSignature), "{header}");
    }
    let twice = format!("t={NOW},t={NOW},v1={CODE}");
    for malformed in [
        "",
        "t",
        "v1",
        &format!("v1={CODE}"),
        &sha("now"),
        &sha("01"),
        &sha(""),
        &twice,
    ] {
        let rejected = stripe(malformed, BODY);
        assert!(
            matches!(rejected, Err(Rejected::Malformed { header: STRIPE, .. })),
            "{malformed}: {rejected:?}"
        );
    }
}

#[test]
fn a_signature_of_stripe_is_good_for_five_minutes() {
    let request = Request::new(&[(STRIPE, &format!("t={NOW},v1={CODE}"))], BODY);
    let ours = Verifier::stripe([shared(SECRET)]);
    let verify = |seconds| ours.verify(&request.headers, &request.body, at(seconds));
    assert!(verify(NOW + 300).is_ok());
    assert!(verify(NOW - 300).is_ok());
    let (past, tolerance) = (Duration::from_secs(301), Duration::from_mins(5));
    assert_eq!(verify(NOW + 301), Err(Rejected::TooOld { age: past, tolerance }));
    assert_eq!(verify(NOW - 301), Err(Rejected::TooNew { ahead: past, tolerance }));
}

#[test]
fn the_first_32_signatures_of_stripe_are_looked_at() {
    let behind = |count: usize| {
        let wrong = format!("v1={},", "0".repeat(64)).repeat(count);
        stripe(&format!("t={NOW},{wrong}v1={CODE}"), BODY)
    };
    assert!(behind(31).is_ok());
    assert_eq!(behind(32), Err(Rejected::WrongSignature));
}

#[test]
fn an_event_of_stripe_without_one_id_is_none() {
    let verify = |body: &str| stripe(&format!("t={NOW},v1={}", hmac(SECRET, &format!("{NOW}.{body}"))), body);
    assert_eq!(
        verify(r#"{"data":{"id":"obj_1"},"id":"evt_\u0031.2"}"#),
        Ok("evt_1.2".into())
    );
    let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(257));
    for body in [
        "",
        "[]",
        "{}",
        r#"{"id":7}"#,
        r#"{"id":""}"#,
        r#"{"id":"evt 1"}"#,
        r#"{"data":{"id":"obj_1"}}"#,
        // Others read the one or the other.
        r#"{"id":"evt_1","id":"evt_2"}"#,
        &long,
    ] {
        assert_eq!(verify(body), Err(Rejected::NoEventId), "{body}");
    }
}

/// The example of GitHub's documentation.
const GITHUB_SECRET: &str = "It's a Secret to Everybody";
const GITHUB_BODY: &str = "Hello, World!";
const GITHUB_CODE: &str = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

#[test]
fn an_event_of_github_is_known_by_its_delivery() {
    let request = Request::new(
        &[(GITHUB, &format!("sha256={GITHUB_CODE}")), (DELIVERY, "72d3162e-cc78")],
        GITHUB_BODY,
    );
    let ours = Verifier::github([shared("an old one"), shared(GITHUB_SECRET)]);
    let verified = ours.verify(&request.headers, &request.body, at(NOW)).unwrap();
    assert_eq!((&*verified.event_id, verified.timestamp), ("72d3162e-cc78", None));
    let other = Verifier::github([shared("an old one")]);
    assert_eq!(
        other.verify(&request.headers, &request.body, at(NOW)),
        Err(Rejected::WrongSignature)
    );
    for body in ["", "Hello, World", "hello, World!"] {
        let rejected = ours.verify(&request.headers, body.as_bytes(), at(NOW));
        assert_eq!(rejected, Err(Rejected::WrongSignature), "{body}");
    }
}

#[test]
fn an_event_of_github_needs_sha_256_and_a_delivery() {
    let ours = Verifier::github([shared(GITHUB_SECRET)]);
    let verify = |request: &Request| ours.verify(&request.headers, &request.body, at(NOW)).unwrap_err();
    let good = Request::new(
        &[(GITHUB, &format!("sha256={GITHUB_CODE}")), (DELIVERY, "1")],
        GITHUB_BODY,
    );

    let sha1 = "sha1=01dc10d0c83e72ed246219cdd91669667fe2ca59";
    let mut old = good.clone().with("x-hub-signature", sha1);
    old.headers.remove(GITHUB);
    assert_eq!(verify(&old), Rejected::MissingHeader(GITHUB));
    for bad in [
        "",
        "sha256=",
        GITHUB_CODE,
        sha1,
        &format!("sha1={GITHUB_CODE}"),
        &format!("SHA256={GITHUB_CODE}"),
        &format!("sha256={GITHUB_CODE}00"),
        &format!("sha256={}", "g".repeat(64)),
    ] {
        let rejected = verify(&good.clone().with(GITHUB, bad));
        assert!(
            matches!(rejected, Rejected::Malformed { header: GITHUB, .. }),
            "{bad}: {rejected}"
        );
    }
    let mut nameless = good.clone();
    nameless.headers.remove(DELIVERY);
    assert_eq!(verify(&nameless), Rejected::MissingHeader(DELIVERY));
    for header in [GITHUB, DELIVERY] {
        let mut twice = good.clone();
        twice.headers.append(header, good.headers[header].clone());
        assert!(matches!(verify(&twice), Rejected::Malformed { header: told, .. } if told == header));
    }
}
