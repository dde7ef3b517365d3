//! The Rust library of Standard Webhooks, as the other side.

use exactly::clock::{Clock as _, WallClock};
use exactly::webhook::{ID_HEADER, Rejected, SIGNATURE_HEADER, Secret, Signer, SigningKey, TIMESTAMP_HEADER, Verifier};
use standardwebhooks::Webhook;

use super::{Request, at, counterpart};

/// Theirs judges by the real time.
fn now() -> u64 {
    WallClock.now().as_millis() / 1000
}

const BODIES: [&str; 4] = ["", "{}", r#"{"name":"Zoë","emoji":"🦀"}"#, "no.json.at all\n"];

#[test]
fn the_library_verifies_what_we_sign_also_among_other_signatures() {
    let (secret, other) = (Secret::random(), Secret::random());
    let library = Webhook::new(&secret.expose()).unwrap();
    let signers = [Signer::V1a(SigningKey::random()), Signer::V1(other), Signer::V1(secret)];
    for body in BODIES {
        let mut request = Request::signed(&signers, "evt_1", now(), body.as_bytes());
        library.verify(&request.body, &request.headers).unwrap();
        request.body.push(b' ');
        assert!(library.verify(&request.body, &request.headers).is_err());
    }
}

#[test]
fn we_verify_what_the_library_signs() {
    let secret = Secret::random();
    let library = Webhook::new(&secret.expose()).unwrap();
    let ours = Verifier::standard([counterpart(&Signer::V1(secret))]);
    for body in BODIES {
        let seconds = now();
        let signature = library
            .sign("msg_1", seconds.try_into().unwrap(), body.as_bytes())
            .unwrap();
        let request = Request::standard("msg_1", &seconds.to_string(), &signature, body.as_bytes());
        let verified = ours.verify(&request.headers, &request.body, at(seconds)).unwrap();
        assert_eq!(&*verified.event_id, "msg_1");
        assert!(ours.verify(&request.headers, b"{ }", at(seconds)).is_err());
    }
}

/// A body can be chosen by whoever an event is about. If it begins with digits and a dot, its signature is also one for the
/// rest of it, under an id with a dot.
#[test]
fn an_id_with_a_dot_is_refused_since_it_makes_two_events_of_one_signature() {
    let secret = Secret::random();
    let (signed_at, seconds) = (now() - 1, now());
    let body = format!("{seconds}.{{}}");
    let genuine = Request::signed(&[Signer::V1(secret.clone())], "msg_1", signed_at, body.as_bytes());
    let forged = Request::new(
        &[
            (ID_HEADER, &format!("msg_1.{signed_at}")),
            (TIMESTAMP_HEADER, &seconds.to_string()),
            (SIGNATURE_HEADER, genuine.header(SIGNATURE_HEADER)),
        ],
        "{}",
    );
    let library = Webhook::new(&secret.expose()).unwrap();
    assert!(library.verify(&genuine.body, &genuine.headers).is_ok());
    assert!(
        library.verify(&forged.body, &forged.headers).is_ok(),
        "the library takes it"
    );

    let ours = Verifier::standard([counterpart(&Signer::V1(secret))]);
    assert!(ours.verify(&genuine.headers, &genuine.body, at(seconds)).is_ok());
    let rejected = ours.verify(&forged.headers, &forged.body, at(seconds));
    assert!(
        matches!(rejected, Err(Rejected::Malformed { header: ID_HEADER, .. })),
        "{rejected:?}"
    );
}
