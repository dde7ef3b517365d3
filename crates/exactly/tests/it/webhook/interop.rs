//! Libraries and programs of others as the other side: they verify what we sign, and we verify what they sign.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use exactly::Hex;
use exactly::clock::{Clock as _, WallClock};
use exactly::webhook::{Rejected, Secret, SharedSecret, Signer, SigningKey, Verified, Verifier};
use serde_json::json;

use super::{Request, at, counterpart};

const PYTHON: &str = include_str!("interop/peer.py");
const NODE: &str = include_str!("interop/peer.mjs");

const BODIES: [&str; 4] = [
    "{}",
    r#"{"id":"evt_1","name":"Zoë","emoji":"🦀"}"#,
    "no.json.at all\n",
    " ",
];

/// Theirs judge by the real time.
fn now() -> u64 {
    WallClock.now().as_millis() / 1000
}

#[expect(
    clippy::disallowed_methods,
    reason = "where the libraries are is told by the environment"
)]
fn libraries() -> PathBuf {
    let folder = std::env::var("EXACTLY_TEST_WEBHOOK_LIBRARIES");
    folder.expect("run `cargo xtask test`, which installs them").into()
}

#[derive(Clone, Copy, Debug)]
enum Library {
    Python,
    Node,
}

impl Library {
    /// Asks all at once, since a process takes longer to start than to answer.
    fn ask(self, asked: &[serde_json::Value]) -> Vec<String> {
        let folder = libraries();
        let mut command = match self {
            Self::Python => Command::new(folder.join("bin/python")),
            Self::Node => Command::new(folder.join("bin/node")),
        };
        match self {
            Self::Python => command.args(["-c", PYTHON]),
            Self::Node => command.args(["--input-type=module", "--eval", NODE]),
        };
        let lines: Vec<String> = asked.iter().map(ToString::to_string).collect();
        // Packages are looked for from there.
        let said = output(command.current_dir(folder), lines.join("\n").as_bytes());
        let said = String::from_utf8(said).unwrap();
        let mut answers: Vec<String> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let version = answers.pop().unwrap();
        assert!(version.starts_with("standardwebhooks "), "{version}");
        assert_eq!(answers.len(), asked.len());
        answers
    }
}

/// What a program that has to succeed says.
fn output(command: &mut Command, input: &[u8]) -> Vec<u8> {
    let ended = ended(command, input);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{command:?}: {said}");
    ended.stdout
}

fn ended(command: &mut Command, input: &[u8]) -> Output {
    let piped = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

/// Secrets of every length that is written in another way.
fn secrets() -> [Secret; 4] {
    [24, 25, 32, 64].map(|bytes| {
        let key = [Secret::random(), Secret::random()]
            .map(|secret| secret.expose())
            .concat();
        STANDARD.encode(&key[..bytes]).parse().unwrap()
    })
}

fn verify(ours: &Verifier, request: &Request) -> Option<Verified> {
    ours.verify(&request.headers, &request.body, at(now())).ok()
}

/// Each body signed by us with an old secret and a key beside the one that the other side knows.
fn they_verify(library: Library) {
    let (key, old) = (Signer::V1a(SigningKey::random()), Signer::V1(Secret::random()));
    let mut asked = Vec::new();
    for secret in secrets() {
        for body in BODIES {
            let signers = [old.clone(), Signer::V1(secret.clone()), key.clone()];
            let request = Request::signed(&signers, "evt_7f3c", now(), body.as_bytes());
            let case = |body: &str, timestamp: u64, secret: &Secret| {
                json!({
                    "do": "verify", "secret": secret.expose(), "id": request.header("webhook-id"), "timestamp": timestamp,
                    "signature": request.header("webhook-signature"), "body": STANDARD.encode(body),
                })
            };
            let signed_at: u64 = request.header("webhook-timestamp").parse().unwrap();
            asked.push((case(body, signed_at, &secret), true));
            asked.push((case(&format!("{body}."), signed_at, &secret), false));
            asked.push((case(body, signed_at - 1, &secret), false));
            asked.push((case(body, signed_at, &Secret::random()), false));
        }
    }
    let (asked, good): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
    for ((asked, good), said) in asked.iter().zip(good).zip(library.ask(&asked)) {
        let expected = if good {
            "verified"
        } else {
            "refused: No matching signature found"
        };
        assert_eq!(said, expected, "{library:?}: {asked}");
    }
}

fn they_sign(library: Library) {
    let mut asked = Vec::new();
    for secret in secrets() {
        for body in BODIES {
            asked.push((secret.clone(), now(), body));
        }
    }
    let lines: Vec<_> = asked
        .iter()
        .map(|(secret, timestamp, body)| {
            json!({
                "do": "sign", "secret": secret.expose(), "id": "msg_1", "timestamp": timestamp, "body": STANDARD.encode(body),
            })
        })
        .collect();
    for ((secret, timestamp, body), signature) in asked.into_iter().zip(library.ask(&lines)) {
        let request = Request::standard("msg_1", &timestamp.to_string(), &signature, body.as_bytes());
        let ours = Verifier::standard([counterpart(&Signer::V1(secret))]);
        assert_eq!(
            &*verify(&ours, &request).unwrap().event_id,
            "msg_1",
            "{library:?}: {body}"
        );
        let other = Request {
            body: b"{ }".to_vec(),
            ..request
        };
        assert_eq!(verify(&ours, &other), None, "{library:?}: {body}");
    }
}

#[test]
fn the_python_library_verifies_what_we_sign() {
    they_verify(Library::Python);
}

#[test]
fn we_verify_what_the_python_library_signs() {
    they_sign(Library::Python);
}

#[test]
fn the_javascript_library_verifies_what_we_sign() {
    they_verify(Library::Node);
}

#[test]
fn we_verify_what_the_javascript_library_signs() {
    they_sign(Library::Node);
}

/// The secret of one sender's library, and what it put into the header.
fn by_sender(sender: &str, secrets: &[&str], header: &'static str) -> Vec<(SharedSecret, Request)> {
    let timestamp = now();
    let asked: Vec<_> = secrets
        .iter()
        .flat_map(|secret| BODIES.map(|body| (*secret, body)))
        .collect();
    let lines: Vec<_> = asked
        .iter()
        .map(|(secret, body)| json!({ "do": sender, "secret": secret, "timestamp": timestamp, "body": STANDARD.encode(body) }))
        .collect();
    let said = Library::Node.ask(&lines);
    let requests = asked.into_iter().zip(said);
    requests
        .map(|((secret, body), value)| (secret.parse().unwrap(), Request::new(&[(header, &value)], body)))
        .collect()
}

#[test]
fn we_verify_what_the_library_of_stripe_signs() {
    let other: SharedSecret = "whsec_other".parse().unwrap();
    let mut with_id = 0;
    for (secret, request) in by_sender(
        "stripe",
        &["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "x"],
        "stripe-signature",
    ) {
        let verify = |secret: &SharedSecret, request: &Request| {
            Verifier::stripe([secret.clone()]).verify(&request.headers, &request.body, at(now()))
        };
        match verify(&secret, &request) {
            Ok(verified) => {
                assert_eq!(&*verified.event_id, "evt_1");
                with_id += 1;
            }
            // Which is told only if the signature is right.
            Err(rejected) => assert_eq!(rejected, Rejected::NoEventId),
        }
        assert_eq!(verify(&other, &request), Err(Rejected::WrongSignature));
        let changed = Request {
            body: b"{\"id\":\"evt_2\"}".to_vec(),
            ..request
        };
        assert_eq!(verify(&secret, &changed), Err(Rejected::WrongSignature));
    }
    assert_eq!(with_id, 2);
}

#[test]
fn we_verify_what_the_library_of_github_signs() {
    for (secret, request) in by_sender("github", &["It's a Secret to Everybody", "ключ"], "x-hub-signature-256") {
        let request = request.with("x-github-delivery", "72d3162e-cc78");
        let ours = Verifier::github([secret]);
        assert_eq!(&*verify(&ours, &request).unwrap().event_id, "72d3162e-cc78");
        let changed = Request {
            body: b"{ }".to_vec(),
            ..request
        };
        assert_eq!(verify(&ours, &changed), None);
    }
}

/// Bytes that are no text, which the libraries above do not take.
const BINARY: &[u8] = b"\x00\xff\r\n\xc3{\"binary\":\x80}";

fn openssl(arguments: &[&str]) -> Command {
    let mut command = Command::new("openssl");
    command.args(arguments);
    command
}

#[test]
fn openssl_makes_the_same_codes_as_we() {
    for secret in secrets() {
        let key = STANDARD.decode(&secret.expose()["whsec_".len()..]).unwrap();
        let key = format!("hexkey:{}", Hex(&key));
        let signed = [b"evt_1.1700000000.", BINARY].concat();
        let code = output(
            &mut openssl(&["dgst", "-sha256", "-mac", "HMAC", "-macopt", &key, "-binary"]),
            &signed,
        );
        let request = Request::signed(&[Signer::V1(secret)], "evt_1", 1_700_000_000, BINARY);
        assert_eq!(
            request.header("webhook-signature"),
            format!("v1,{}", STANDARD.encode(code))
        );
    }
}

/// How the two halves of an ed25519 key are wrapped for openssl (RFC 8410).
const PKCS8: &[u8] = &[0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
const SPKI: &[u8] = &[0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];

/// The key and a message in files, because openssl reads a raw message only from one.
struct Desk {
    folder: tempfile::TempDir,
    key: SigningKey,
}

impl Desk {
    fn new() -> Self {
        let key = SigningKey::random();
        let desk = Self {
            folder: tempfile::tempdir().unwrap(),
            key,
        };
        let pair = STANDARD.decode(&desk.key.expose()["whsk_".len()..]).unwrap();
        let public = STANDARD
            .decode(&desk.key.public().to_string()["whpk_".len()..])
            .unwrap();
        desk.put("private", &[PKCS8, &pair[..32]].concat());
        desk.put("public", &[SPKI, &public].concat());
        desk.put("message", &[b"evt_1.1700000000.", BINARY].concat());
        desk
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.folder.path().join(name), bytes).unwrap();
    }

    fn openssl(&self, arguments: &[&str]) -> Command {
        let mut command = openssl(&["pkeyutl", "-keyform", "DER", "-rawin", "-in", "message"]);
        command.args(arguments).current_dir(self.folder.path());
        command
    }

    fn request(&self) -> Request {
        Request::signed(&[Signer::V1a(self.key.clone())], "evt_1", 1_700_000_000, BINARY)
    }
}

#[test]
fn openssl_verifies_what_we_sign_with_ed25519() {
    let desk = Desk::new();
    let signature = desk.request().header("webhook-signature")["v1a,".len()..].to_owned();
    desk.put("signature", &STANDARD.decode(signature).unwrap());
    let verify = || {
        ended(
            &mut desk.openssl(&["-verify", "-pubin", "-inkey", "public", "-sigfile", "signature"]),
            b"",
        )
    };
    let said = verify();
    assert!(said.status.success(), "{said:?}");
    desk.put("message", &[b"evt_1.1700000001.", BINARY].concat());
    assert!(!verify().status.success());
}

#[test]
fn we_verify_what_openssl_signs_with_ed25519() {
    let desk = Desk::new();
    let signature = output(&mut desk.openssl(&["-sign", "-inkey", "private"]), b"");
    let signature = format!("v1a,{}", STANDARD.encode(signature));
    // The same to the bit, since nothing about them is random.
    assert_eq!(desk.request().header("webhook-signature"), signature);
    let request = Request::standard("evt_1", "1700000000", &signature, BINARY);
    let ours = Verifier::standard([counterpart(&Signer::V1a(desk.key.clone()))]);
    assert!(ours.verify(&request.headers, &request.body, at(1_700_000_000)).is_ok());
    let forged = request.with("webhook-id", "evt_2");
    assert!(ours.verify(&forged.headers, &forged.body, at(1_700_000_000)).is_err());
}
