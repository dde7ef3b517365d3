//! What comes out: tables, JSON, XML, lists, messages, exit codes.

use std::net::SocketAddr;

use exactly::layer::Policy;
use tokio::net::TcpListener;

use super::fault::Fault;
use super::process::{Upstream, check, exactly};
use super::protector::{Setup, protect};

const SECRET: &str = "Authorization: Bearer ada-s3cr3t";

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

async fn faulty() -> (Upstream, SocketAddr) {
    let upstream = Upstream::start();
    let target = protect(upstream.address, Setup::with(Fault::ReplaysCookies)).await;
    (upstream, target)
}

#[tokio::test]
async fn the_table_shows_each_rule_with_the_exchange_behind_it() {
    let (_upstream, target) = faulty().await;
    let target = format!("http://{target}");
    let only = [
        "--only",
        "replay-no-cookie",
        "--only",
        "label-stored",
        "--only",
        "key-missing",
    ];
    let arguments = [&["conformance", "--target", &target, "--header", SECRET], &only[..]].concat();
    let output = exactly(&arguments).await;
    assert_eq!(output.status.code(), Some(1));
    let table = text(output.stdout);
    let row = |begin: &str| {
        table
            .lines()
            .find(|line| line.starts_with(begin))
            .unwrap_or_else(|| panic!("{table}"))
    };
    assert!(
        row("pass  label-stored").contains("POST /effects/payments?tag="),
        "{table}"
    );
    assert!(row("pass  label-stored").ends_with("→ 201 stored"), "{table}");
    assert!(
        row("FAIL  replay-no-cookie").ends_with("set-cookie of the first answer came back"),
        "{table}"
    );
    assert!(row("n/a   key-missing").contains("--route required"), "{table}");
    assert!(
        table.contains("replay-no-cookie: Set-Cookie of the first caller does not come back."),
        "{table}"
    );
    assert!(table.contains("    > Idempotency-Key: "), "{table}");
    assert!(table.contains("    > authorization: [redacted]"), "{table}");
    assert!(table.contains("    < set-cookie: session=[redacted]"), "{table}");
    assert!(table.ends_with("\n1 passed, 1 failed, 1 not applicable\n"), "{table}");
    assert!(!table.contains("s3cr3t"), "{table}");
    // All exchanges, also those of rules that hold and the counts that were asked for.
    let verbose = text(
        exactly(&[&arguments[..], &["--verbose", "--only", "replay-byte-for-byte"]].concat())
            .await
            .stdout,
    );
    assert!(verbose.contains("    > GET /effects?tag="), "{verbose}");
    assert!(!verbose.contains("s3cr3t"), "{verbose}");
}

#[tokio::test]
async fn json_and_xml_say_the_same() {
    let (_upstream, target) = faulty().await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (json, xml, target) = (path("report.json"), path("report.xml"), format!("http://{target}"));
    let arguments = ["conformance", "--target", &target, "--header", SECRET, "--jobs", "16"];
    let output = exactly(&[&arguments[..], &["--json", &json, "--junit", &xml]].concat()).await;
    assert_eq!(output.status.code(), Some(1));
    // The table is still printed.
    assert!(text(output.stdout).contains("FAIL  replay-no-cookie"));
    let (json, xml) = (
        std::fs::read_to_string(json).unwrap(),
        std::fs::read_to_string(xml).unwrap(),
    );
    assert!(!json.contains("s3cr3t") && !xml.contains("s3cr3t"));
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let document = roxmltree::Document::parse(&xml).unwrap();
    let suite = document
        .descendants()
        .find(|node| node.has_tag_name("testsuite"))
        .unwrap();
    let cases: Vec<_> = suite.children().filter(roxmltree::Node::is_element).collect();
    let rules = report["rules"].as_array().unwrap();
    assert_eq!(cases.len(), rules.len());
    assert_eq!(suite.attribute("failures"), Some("1"));
    assert_eq!(
        suite.attribute("skipped"),
        Some(report["notApplicable"].to_string().as_str())
    );
    for (case, rule) in cases.iter().zip(rules) {
        assert_eq!(case.attribute("name"), rule["id"].as_str());
        let inside = case.first_element_child();
        let (tag, verdict) = (
            inside.map(|node| node.tag_name().name()),
            rule["verdict"].as_str().unwrap(),
        );
        let expected = match verdict {
            "passed" => None,
            "failed" => Some("failure"),
            _ => Some("skipped"),
        };
        assert_eq!(tag, expected, "{}", rule["id"]);
        assert_eq!(
            inside.and_then(|node| node.attribute("message")),
            rule["reason"].as_str()
        );
    }
    let failed = rules.iter().find(|rule| rule["id"] == "replay-no-cookie").unwrap();
    let exchange = &failed["exchanges"][0];
    assert_eq!(exchange["answer"]["status"], 201);
    let line = exchange["request"]["line"].as_str().unwrap();
    assert!(line.starts_with("POST /effects/payments?tag="), "{line}");
}

#[tokio::test]
async fn rules_are_listed_with_their_sentences() {
    let listed = exactly(&["conformance", "--list"]).await;
    assert!(listed.status.success());
    let listed = text(listed.stdout);
    assert!(
        listed.contains("key-missing\n    Where a key is required, a request without one is refused"),
        "{listed}"
    );
    assert!(
        listed.contains("    needs a second caller: --other-header\n"),
        "{listed}"
    );
    let one = text(
        exactly(&["conformance", "--list", "--only", "key-missing"])
            .await
            .stdout,
    );
    assert_eq!(one.lines().filter(|line| !line.starts_with(' ')).count(), 1);
}

#[tokio::test]
async fn whatever_cannot_be_checked_is_said_with_code_two() {
    let refuses = |arguments: &'static [&'static str], message: &'static str| async move {
        let output = exactly(&[&["conformance"], arguments].concat()).await;
        let said = text(output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(message), "{arguments:?}: {said}");
    };
    refuses(&[], "--target").await;
    refuses(
        &["--target", "ftp://shop.example"],
        "it must look like http://HOST:PORT or https://HOST",
    )
    .await;
    refuses(&["--target", "shop"], "http://HOST:PORT").await;
    refuses(
        &["--target", "http://127.0.0.1:1", "--only", "key-mising"],
        "no rule is called \"key-mising\"",
    )
    .await;
    refuses(
        &["--target", "http://127.0.0.1:1", "--header", "secret"],
        "'Name: value'",
    )
    .await;
    refuses(
        &["--target", "http://127.0.0.1:1", "--route", "fast"],
        "the routes are required",
    )
    .await;
    refuses(&["--markdown"], "--list").await;
    refuses(&["--list", "--json"], "cannot be used with").await;
    refuses(&["--target", "http://127.0.0.1:1", "--timeout", "1"], "3..=600").await;
    refuses(&["upstream", "--target", "http://127.0.0.1:1"], "--target").await;
    refuses(
        &["--target", "http://127.0.0.1:1"],
        "reach http://127.0.0.1:1: connect: ",
    )
    .await;
}

#[tokio::test]
async fn a_target_that_turns_everything_away_is_not_checked() {
    let answering = |answer: &'static str| async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        format!("http://{address}")
    };
    for (answer, message) in [
        ("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n", "--header"),
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "--path"),
        ("", "the connection was closed without an answer"),
        ("SSH-2.0-OpenSSH_9.6\r\n", "not HTTP/1.1"),
    ] {
        let target = answering(answer).await;
        let output = exactly(&["conformance", "--target", &target]).await;
        let said = text(output.stderr);
        assert_eq!(output.status.code(), Some(2), "{answer}: {said}");
        assert!(said.contains(message), "{answer}: {said}");
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let upstream = Upstream::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}", listener.local_addr().unwrap());
    let effects = format!("http://{}", upstream.address);
    let silent = [
        "conformance",
        "--target",
        &target,
        "--timeout",
        "3",
        "--effects-url",
        &effects,
    ];
    let output = exactly(&silent).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(text(output.stderr).contains("no answer within 3 s"));
}

#[tokio::test]
async fn credentials_go_to_the_target_only() {
    let upstream = Upstream::start();
    let target = protect(upstream.address, Setup::of(Policy::playbook())).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let counter = listener.local_addr().unwrap();
    let heard = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let len = stream.read(&mut request).await.unwrap();
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnope")
            .await;
        String::from_utf8_lossy(&request[..len]).into_owned()
    });
    let effects = format!("http://{counter}/count/{{tag}}");
    let run = check(target, &["--header", SECRET, "--effects-url", &effects]).await;
    assert_eq!(run.code, 2, "what is no count is refused");
    let heard = heard.await.unwrap();
    assert!(heard.starts_with("GET /count/nothing HTTP/1.1\r\n"), "{heard}");
    assert!(!heard.contains("s3cr3t"), "{heard}");
}
