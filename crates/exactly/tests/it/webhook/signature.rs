//! Signatures of Standard Webhooks, made and verified.

use std::fs;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use exactly::clock::Timestamp;
use exactly::webhook::{
    EventId, ID_HEADER, Rejected, SIGNATURE_HEADER, Secret, SharedSecret, Signer, SigningKey, TIMESTAMP_HEADER,
    Verified, Verifier, VerifyWith, sign,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::{Request, at, counterpart};
use crate::vectors;

const NOW: u64 = 1_700_000_000;
const ID: &str = "evt_7f3c";
const BODY: &[u8] = br#"{"amount":1000}"#;
const WRONG: &str = "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

/// A signature that others published.
#[derive(serde::Deserialize)]
struct Vector {
    name: String,
    #[serde(alias = "secret_seed_pub_b64")]
    secret: String,
    #[serde(default)]
    public: Option<String>,
    id: String,
    timestamp: u64,
    body: String,
    signature: String,
}

impl Vector {
    fn check(&self) {
        let name = &self.name;
        let signer: Signer = if self.public.is_some() {
            Signer::V1a(format!("whsk_{}", self.secret).parse().unwrap())
        } else {
            Signer::V1(self.secret.parse().unwrap())
        };
        let with = self.public.as_ref().map_or_else(
            || counterpart(&signer),
            |public| VerifyWith::Key(public.parse().unwrap()),
        );
        let id = EventId::new(self.id.as_str()).unwrap();
        let signature = sign(&[signer], &id, at(self.timestamp), self.body.as_bytes());
        assert_eq!(signature, self.signature, "{name}");

        let request = Request::standard(
            &self.id,
            &self.timestamp.to_string(),
            &self.signature,
            self.body.as_bytes(),
        );
        let ours = Verifier::standard([with]);
        let verified = ours.verify(&request.headers, &request.body, at(self.timestamp));
        assert_eq!(verified.unwrap().event_id, self.id.clone().into(), "{name}");
        let changed = ours.verify(&request.headers, b"{}", at(self.timestamp));
        assert_eq!(changed, Err(Rejected::WrongSignature), "{name}");
    }
}

/// From the tests of the Rust library of Standard Webhooks, from the documentation of Svix, and from the tests of their server.
#[test]
fn signatures_are_those_that_others_published() {
    let vector =
        |name: &str, secret: &str, public: Option<&str>, id: &str, timestamp, body: &str, signature: &str| Vector {
            name: name.into(),
            secret: secret.into(),
            public: public.map(Into::into),
            id: id.into(),
            timestamp,
            body: body.into(),
            signature: signature.into(),
        };
    let vectors = [
        vector(
            "the library of Standard Webhooks",
            "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
            None,
            "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
            1_649_367_553,
            r#"{"email":"test@example.com","username":"test_user"}"#,
            "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=",
        ),
        vector(
            "the documentation of Svix",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            None,
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            r#"{"test": 2432232314}"#,
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ),
        vector(
            "the server of Svix",
            "6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==",
            Some("whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="),
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            r#"{"test": 2432232314}"#,
            "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==",
        ),
    ];
    for vector in vectors {
        vector.check();
    }
}

#[test]
fn signatures_are_those_of_the_published_vectors() {
    let Some(file) = vectors::find("webhook-vectors.json") else {
        return;
    };
    let vectors: Vec<Vector> = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert!(!vectors.is_empty());
    for vector in vectors {
        vector.check();
    }
}

/// One of each, and what verifies them.
fn signers() -> [Signer; 2] {
    [Signer::V1(Secret::random()), Signer::V1a(SigningKey::random())]
}

fn verify(with: &[&Signer], request: &Request, now: Timestamp) -> Result<Verified, Rejected> {
    let with = with.iter().map(|signer| counterpart(signer));
    Verifier::standard(with).verify(&request.headers, &request.body, now)
}

/// The same text with one letter of it changed into another one of its kind.
fn changed(text: &str, at: usize) -> String {
    let letter = match &text[at..=at] {
        "0" => "1",
        "a" => "b",
        letter if letter.as_bytes()[0].is_ascii_digit() => "0",
        _ => "a",
    };
    format!("{}{letter}{}", &text[..at], &text[at + 1..])
}

#[test]
fn whatever_is_changed_on_the_way_is_noticed() {
    for signer in signers() {
        let good = Request::signed(std::slice::from_ref(&signer), ID, NOW, BODY);
        assert_eq!(verify(&[&signer], &good, at(NOW)).unwrap().timestamp, Some(at(NOW)));
        let signature = good.header(SIGNATURE_HEADER).to_owned();
        let (version, encoded) = signature.split_once(',').unwrap();

        let mut forged = Vec::new();
        for n in 0..ID.len() {
            forged.push(("id", good.clone().with(ID_HEADER, &changed(ID, n))));
        }
        // The last digits: those in front would make it too old or too new, which is noticed before.
        for n in [8, 9] {
            let timestamp = changed(&NOW.to_string(), n);
            forged.push(("timestamp", good.clone().with(TIMESTAMP_HEADER, &timestamp)));
        }
        for n in 0..BODY.len() {
            let mut request = good.clone();
            request.body[n] ^= 1;
            forged.push(("body", request));
        }
        for body in [&b""[..], &BODY[1..], &BODY[..BODY.len() - 1], b"{\"amount\":1000} "] {
            let body = body.to_vec();
            forged.push(("length of the body", Request { body, ..good.clone() }));
        }
        let bytes = STANDARD.decode(encoded).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let signature = format!("{version},{}", STANDARD.encode(bytes));
            forged.push(("signature", good.clone().with(SIGNATURE_HEADER, &signature)));
        }
        let bare = encoded.trim_end_matches('=');
        for other in ["", "v1,", "v1a,", ",", "v1", "v1,=", bare, encoded] {
            forged.push(("signature", good.clone().with(SIGNATURE_HEADER, other)));
        }
        let unpadded = format!("{version},{bare}");
        forged.push(("padding", good.clone().with(SIGNATURE_HEADER, &unpadded)));
        let other = if version == "v1" { "v1a" } else { "v1" };
        for version in [other, "v0", "v2", "V1", "V1A", "v1b", ""] {
            let signature = format!("{version},{encoded}");
            forged.push(("version", good.clone().with(SIGNATURE_HEADER, &signature)));
        }
        for (what, request) in forged {
            let rejected = verify(&[&signer], &request, at(NOW)).expect_err(what);
            assert_eq!(rejected, Rejected::WrongSignature, "{what}: {request:?}");
            assert!(!rejected.to_string().contains(bare), "{what}: {rejected}");
        }
    }
}

#[test]
fn a_signature_by_somebody_else_is_refused_and_so_is_everything_without_a_secret() {
    for signer in signers() {
        let request = Request::signed(std::slice::from_ref(&signer), ID, NOW, BODY);
        let [secret, key] = signers();
        let others = verify(&[&secret, &key], &request, at(NOW));
        assert_eq!(others, Err(Rejected::WrongSignature));
        assert_eq!(verify(&[], &request, at(NOW)), Err(Rejected::WrongSignature));
    }
}

/// The other solution of the equation that a signature is: good to whoever does not check that it is the smaller one.
#[test]
fn an_ed25519_signature_cannot_be_changed_into_another_good_one() {
    let order = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let signer = Signer::V1a(SigningKey::random());
    let good = Request::signed(std::slice::from_ref(&signer), ID, NOW, BODY);
    let mut signature = STANDARD.decode(&good.header(SIGNATURE_HEADER)["v1a,".len()..]).unwrap();
    let mut carry = 0;
    for (byte, add) in signature[32..].iter_mut().zip(order) {
        let sum = u16::from(*byte) + add + carry;
        *byte = sum.to_le_bytes()[0];
        carry = sum >> 8;
    }
    let forged = format!("v1a,{}", STANDARD.encode(signature));
    let forged = good.clone().with(SIGNATURE_HEADER, &forged);
    assert!(verify(&[&signer], &good, at(NOW)).is_ok());
    assert_eq!(verify(&[&signer], &forged, at(NOW)), Err(Rejected::WrongSignature));
}

#[test]
fn a_signature_is_good_for_five_minutes_in_both_directions_or_for_as_long_as_is_said() {
    let [signer, _] = signers();
    let request = Request::signed(std::slice::from_ref(&signer), ID, NOW, BODY);
    let ours = Verifier::standard([counterpart(&signer)]);
    let minutes = Duration::from_mins(5);
    for (ours, tolerance) in [
        (ours.clone(), minutes),
        (ours.clone().tolerance(Duration::from_secs(7)), Duration::from_secs(7)),
        (ours.tolerance(Duration::ZERO), Duration::ZERO),
    ] {
        let millis = u64::try_from(tolerance.as_millis()).unwrap();
        let (sent, ms) = (NOW * 1000, Duration::from_millis(1));
        let verify = |now| ours.verify(&request.headers, &request.body, Timestamp::from_millis(now));
        assert!(verify(sent + millis).is_ok());
        assert!(verify(sent - millis).is_ok());
        let age = tolerance + ms;
        assert_eq!(verify(sent + millis + 1), Err(Rejected::TooOld { age, tolerance }));
        let ahead = tolerance + ms;
        assert_eq!(verify(sent - millis - 1), Err(Rejected::TooNew { ahead, tolerance }));
    }
}

#[test]
fn secrets_rotate_with_an_overlap_on_either_side() {
    let [old, new] = [Secret::random(), Secret::random()].map(Signer::V1);
    let [key, next] = [SigningKey::random(), SigningKey::random()].map(Signer::V1a);
    let by = |signers: &[&Signer]| {
        let signers: Vec<Signer> = signers.iter().map(|signer| (*signer).clone()).collect();
        Request::signed(&signers, ID, NOW, BODY)
    };
    let cases: [(&[&Signer], &[&Signer], bool); 12] = [
        (&[&old], &[&old], true),
        (&[&old, &new], &[&old], true),
        (&[&old, &new], &[&new], true),
        (&[&old], &[&old, &new], true),
        (&[&new], &[&old, &new], true),
        (&[&new], &[&old], false),
        (&[&old], &[&new], false),
        // From a secret to a key, with both in one header.
        (&[&old, &key], &[&old], true),
        (&[&old, &key], &[&key], true),
        (&[&key, &next], &[&next], true),
        (&[&key], &[&old, &next, &key], true),
        (&[&old, &key], &[&new, &next], false),
    ];
    for (n, (signers, with, good)) in cases.into_iter().enumerate() {
        let request = by(signers);
        assert_eq!(request.header(SIGNATURE_HEADER).split(' ').count(), signers.len());
        assert_eq!(verify(with, &request, at(NOW)).is_ok(), good, "case {n}");
    }
}

#[test]
fn versions_that_come_after_us_are_passed_over() {
    let [signer, _] = signers();
    let good = Request::signed(std::slice::from_ref(&signer), ID, NOW, BODY);
    let signature = good.header(SIGNATURE_HEADER).to_owned();
    for header in [
        format!("v9,whatever {signature}"),
        format!("{signature} v2,"),
        format!("nothing {WRONG} v1,short v1a,short {signature}"),
        format!("  {signature}  "),
    ] {
        let request = good.clone().with(SIGNATURE_HEADER, &header);
        assert!(verify(&[&signer], &request, at(NOW)).is_ok(), "{header}");
    }
}

#[test]
fn the_first_32_signatures_are_looked_at() {
    for signer in signers() {
        let good = Request::signed(std::slice::from_ref(&signer), ID, NOW, BODY);
        let behind = |count: usize| {
            let mut signatures = vec![WRONG; count];
            signatures.push(good.header(SIGNATURE_HEADER));
            let request = good.clone().with(SIGNATURE_HEADER, &signatures.join(" "));
            verify(&[&signer], &request, at(NOW))
        };
        assert!(behind(31).is_ok());
        assert_eq!(behind(32), Err(Rejected::WrongSignature));
    }
}

#[test]
fn each_header_is_there_once() {
    let [signer, _] = signers();
    let good = Request::signed(std::slice::from_ref(&signer), ID, NOW, BODY);
    for header in [ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER] {
        let mut without = good.clone();
        without.headers.remove(header);
        assert_eq!(
            verify(&[&signer], &without, at(NOW)),
            Err(Rejected::MissingHeader(header))
        );

        let mut twice = good.clone();
        twice.headers.append(header, good.headers[header].clone());
        let expected = "a single line";
        assert_eq!(
            verify(&[&signer], &twice, at(NOW)),
            Err(Rejected::Malformed { header, expected })
        );

        let mut foreign = good.clone();
        foreign
            .headers
            .insert(header, HeaderValue::from_bytes(b"\xc3\xa9").unwrap());
        let rejected = verify(&[&signer], &foreign, at(NOW));
        assert!(matches!(rejected, Err(Rejected::Malformed { header: told, .. }) if told == header));
    }
}

#[test]
fn ids_and_timestamps_are_written_in_one_way() {
    let [signer, _] = signers();
    let good = Request::signed(std::slice::from_ref(&signer), ID, NOW, BODY);
    let rejected = |header: &'static str, value: &str| {
        let request = good.clone().with(header, value);
        let rejected = verify(&[&signer], &request, at(NOW)).expect_err(value);
        assert!(
            matches!(rejected, Rejected::Malformed { header: told, .. } if told == header),
            "{value:?}: {rejected}"
        );
    };
    for id in ["", "evt 1", "a.b", ".", "evt\t1", &"x".repeat(257)] {
        rejected(ID_HEADER, id);
    }
    for timestamp in [
        "",
        "0",
        "01700000000",
        "+1700000000",
        "-1700000000",
        "1700000000.0",
        "1.7e9",
        "0x6553f100",
        "1700000000 ",
        "now",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999999",
    ] {
        rejected(TIMESTAMP_HEADER, timestamp);
    }
    // Longer than our own ids may be, because it is another's.
    let id = "x".repeat(256);
    let request = good.clone().with(ID_HEADER, &id);
    assert_eq!(verify(&[&signer], &request, at(NOW)), Err(Rejected::WrongSignature));
}

#[test]
fn a_rejection_says_what_was_expected() {
    let seconds = Duration::from_secs;
    let said = [
        Rejected::MissingHeader(ID_HEADER),
        Rejected::Malformed {
            header: TIMESTAMP_HEADER,
            expected: "digits",
        },
        Rejected::TooOld {
            age: seconds(400),
            tolerance: seconds(300),
        },
        Rejected::TooNew {
            ahead: seconds(400),
            tolerance: seconds(300),
        },
    ]
    .map(|rejected| rejected.to_string());
    let expected = [
        "verify webhook: the header `webhook-id` is missing",
        "verify webhook: the header `webhook-timestamp` is malformed: expected digits",
        "verify webhook: it was signed 400 s ago, and 300 s are the most: sign each attempt anew, check both clocks",
        "verify webhook: it was signed 400 s ahead of time, and 300 s are the most: check both clocks",
    ];
    assert_eq!(said, expected);
}

fn any_headers() -> impl Strategy<Value = HeaderMap> {
    let name = prop::sample::select(vec![
        ID_HEADER,
        TIMESTAMP_HEADER,
        SIGNATURE_HEADER,
        "stripe-signature",
        "x-hub-signature-256",
        "x-github-delivery",
    ]);
    let value = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..80).prop_map(|bytes| HeaderValue::from_bytes(&bytes).ok()),
        "(t=|v1=|v1a?,|sha256=|[0-9a-fA-F]{0,70}|[A-Za-z0-9+/=]{0,90}|[,. ]){0,12}"
            .prop_map(|text| HeaderValue::from_str(&text).ok()),
        Just(HeaderValue::from_str(&NOW.to_string()).ok()),
        Just(Some(HeaderValue::from_static(ID))),
    ];
    prop::collection::vec((name, value), 0..8).prop_map(|lines| {
        let lines = lines.into_iter().filter_map(|(name, value)| Some((name, value?)));
        lines
            .map(|(name, value)| (HeaderName::from_static(name), value))
            .collect()
    })
}

proptest! {
    #[test]
    fn arbitrary_headers_never_verify_and_never_panic(
        headers in any_headers(),
        body in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let shared: SharedSecret = "a secret of others".parse().unwrap();
        let [secret, key] = signers();
        let verifiers = [
            Verifier::standard([counterpart(&secret), counterpart(&key)]),
            Verifier::stripe([shared.clone()]),
            Verifier::github([shared]),
        ];
        for ours in verifiers {
            prop_assert!(ours.verify(&headers, &body, at(NOW)).is_err());
        }
    }

    #[test]
    fn what_is_signed_verifies_and_a_changed_byte_does_not(
        id in "[!-\\-/-~]{1,128}",
        millis in 1_000..10_000_000_000_000u64,
        body in prop::collection::vec(any::<u8>(), 1..256),
        key in prop::collection::vec(any::<u8>(), 24..=64),
        at in any::<prop::sample::Index>(),
    ) {
        let secret = Signer::V1(STANDARD.encode(key).parse().unwrap());
        let now = Timestamp::from_millis(millis);
        for signer in [secret, Signer::V1a(SigningKey::random())] {
            let signature = sign(std::slice::from_ref(&signer), &EventId::new(id.as_str()).unwrap(), now, &body);
            let mut request = Request::standard(&id, &(millis / 1000).to_string(), &signature, &body);
            let verified = verify(&[&signer], &request, now).unwrap();
            prop_assert_eq!(&*verified.event_id, &*id);
            prop_assert_eq!(verified.timestamp, Some(Timestamp::from_millis(millis / 1000 * 1000)));
            let n = at.index(body.len());
            request.body[n] ^= 0x20;
            prop_assert_eq!(verify(&[&signer], &request, now), Err(Rejected::WrongSignature));
        }
    }
}
