//! `exactly listen`: what a developer sees of what is sent.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStderr, ChildStdout, Stdio};

use exactly::clock::{Clock as _, WallClock};
use exactly::webhook::{EventId, Secret, Signer, sign};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::News;
use crate::PATIENCE;
use crate::binary::exactly as ran;
use crate::client::ask;
use crate::jobs::Backend;
use crate::server::{exactly, until};
use crate::upstream::{Upstream, reply};
use crate::wire::Message;

/// A receiver at a terminal, until it is dropped.
struct Terminal {
    child: Child,
    url: String,
    out: Lines<BufReader<ChildStdout>>,
    _err: BufReader<ChildStderr>,
}

impl Terminal {
    fn open(arguments: &[&str]) -> Self {
        let mut child = exactly(&[&["listen", "--port", "0"], arguments].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut err = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        err.read_line(&mut line).unwrap();
        let url = line
            .trim()
            .strip_prefix("listening on ")
            .unwrap_or_else(|| panic!("{line}"));
        Self {
            url: url.to_owned(),
            out: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
            _err: err,
        }
    }

    fn line(&mut self) -> String {
        self.out.next().expect("it goes on").unwrap()
    }

    fn json(&mut self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    async fn post(&self, headers: &[(&str, &str)], body: &str) -> Message {
        let mut request = ask("POST", "/hook").body(body);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let address = self.url.strip_prefix("http://").unwrap().trim_end_matches('/');
        request.to(address.parse().unwrap()).await
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn what_a_server_sends_is_verified_and_printed() {
    let news = News::open(Backend::Sqlite, Upstream::counting().await).await;
    let secret = Secret::random().expose();
    let mut terminal = Terminal::open(&["--secret", &secret, "--json", "--count", "2"]);
    news.endpoint("terminal", json!({"url": terminal.url, "secret": secret}))
        .await;
    news.publish("e1", "invoice.paid").await;
    let heard = terminal.json();
    assert_eq!(
        (
            &heard["verified"],
            &heard["id"],
            &heard["type"],
            &heard["body"]["data"],
            &heard["status"]
        ),
        (
            &json!(true),
            &json!("e1"),
            &json!("invoice.paid"),
            &json!({"of": "e1"}),
            &json!(200)
        ),
        "{heard}"
    );
    news.until_delivery("e1", "terminal", "done").await;
    // Somebody who does not know the secret.
    let told = terminal.post(&[("webhook-id", "e2")], "{}").await;
    assert_eq!(told.status(), 401);
    let heard = terminal.json();
    assert_eq!(
        (&heard["verified"], heard.get("body")),
        (&json!(false), None),
        "{heard}"
    );
    let ended = until(async || terminal.child.try_wait().unwrap());
    assert!(timeout(PATIENCE, ended).await.expect("two are enough").success());
}

#[tokio::test]
async fn failures_are_rehearsed() {
    let news = News::open(Backend::Sqlite, Upstream::counting().await).await;
    let secret = Secret::random().expose();
    let mut terminal = Terminal::open(&["--secret", &secret, "--status", "410"]);
    news.endpoint("terminal", json!({"url": terminal.url, "secret": secret}))
        .await;
    news.publish("e1", "invoice.paid").await;
    assert_eq!(terminal.line(), "e1  invoice.paid  (answered 410)");
    assert!(terminal.line().contains("\"eventId\":\"e1\""));
    let disabled = until(async || {
        let shown = news.get("/v1/endpoints/terminal").await;
        (shown["state"] == "disabled").then_some(())
    });
    timeout(PATIENCE, disabled).await.expect("it is gone");
}

#[tokio::test]
async fn what_is_verified_is_passed_on_and_the_rest_is_not() {
    let service = Upstream::answering(|_| async { reply(202, &[], "later") }).await;
    let secret = Secret::random();
    let forward = format!("http://{}/events", service.address);
    let mut terminal = Terminal::open(&["--secret", &secret.expose(), "--forward", &forward]);
    let (id, now) = (EventId::new("e1").unwrap(), WallClock.now());
    let signature = sign(&[Signer::V1(secret)], &id, now, b"{\"a\": 1}");
    let seconds = (now.as_millis() / 1000).to_string();
    let headers = [
        ("webhook-id", "e1"),
        ("webhook-timestamp", &seconds),
        ("webhook-signature", &signature),
        ("content-type", "application/json"),
    ];
    for again in [false, true] {
        let told = terminal.post(&headers, "{\"a\": 1}").await;
        assert_eq!((told.status(), told.text().as_str()), (202, "later"));
        assert_eq!(terminal.line().contains("came before"), again);
        terminal.line();
    }
    assert_eq!(terminal.post(&headers, "{\"a\": 2}").await.status(), 401);
    let requests = service.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(
        (requests[0].target(), requests[0].text().as_str()),
        ("/events", "{\"a\": 1}")
    );
    assert_eq!(requests[0].header("webhook-signature"), Some(signature.as_str()));
}

#[tokio::test]
async fn signatures_of_github_are_verified_too() {
    // The example of GitHub's own documentation.
    let secret = "It's a Secret to Everybody";
    let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let mut terminal = Terminal::open(&["--secret", secret, "--source-style", "github", "--json"]);
    let headers = [("x-github-delivery", "d1"), ("x-hub-signature-256", signature)];
    assert_eq!(terminal.post(&headers, "Hello, World!").await.status(), 200);
    let heard = terminal.json();
    assert_eq!(
        (&heard["id"], &heard["body_text"]),
        (&json!("d1"), &json!("Hello, World!")),
        "{heard}"
    );
    assert_eq!(terminal.post(&headers, "Hello, World?").await.status(), 401);
}

#[test]
fn what_cannot_be_listened_with_is_refused_without_the_secret() {
    ran(&["listen"]).refused(2, "--secret");
    let wrong = ran(&["listen", "--secret", "hunter2"]);
    wrong.refused(2, "--secret: ");
    assert!(!wrong.err.contains("hunter2"), "{wrong:?}");
    ran(&["listen", "--secret", "whsk_hunter2"]).refused(2, "public half");
    let secret = Secret::random().expose();
    ran(&["listen", "--secret", &secret, "--forward", "nonsense"]).refused(2, "--forward: ");
    ran(&["listen", "--secret", &secret, "--status", "99"]).refused(2, "--status");
}
