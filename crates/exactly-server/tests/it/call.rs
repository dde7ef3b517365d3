//! `exactly call`, as people and scripts use it.

mod form;
mod journal;
mod tls;

use std::fs::File;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::PATIENCE;
use crate::binary::Ran;
use crate::server::{Server, until};
use crate::upstream::{Gate, Upstream, reply};
use crate::wire::Message;

const STORED: (&str, &str) = ("idempotency-status", "stored");

/// What a server does with a request that has arrived whole.
#[derive(Clone)]
enum Act {
    /// Answers so, and did what it was asked for if the status says so.
    Answer(Vec<u8>),
    /// Does it, and closes the connection.
    Cut,
    /// Does it, and never answers.
    Silence,
}

/// A server that does these things in turn, and the last one for ever.
async fn script(acts: impl Into<Vec<Act>>) -> Upstream {
    let (acts, next) = (Arc::new(acts.into()), Arc::new(AtomicUsize::new(0)));
    Upstream::scripted(move |mut wire, upstream| {
        let (acts, next) = (Arc::clone(&acts), Arc::clone(&next));
        async move {
            while let Some(request) = wire.request().await {
                upstream.note(&request);
                let turn = next.fetch_add(1, Ordering::SeqCst);
                match &acts[turn.min(acts.len() - 1)] {
                    Act::Answer(answer) if wire.send(answer.clone()).await.is_ok() => {}
                    Act::Silence => std::future::pending().await,
                    Act::Answer(_) | Act::Cut => return,
                }
            }
        }
    })
    .await
}

fn url(server: &Upstream) -> String {
    format!("http://{}/refunds", server.address)
}

fn spawn(arguments: &[&str]) -> Child {
    spawn_with(arguments, Stdio::piped())
}

fn spawn_with(arguments: &[&str], stderr: impl Into<Stdio>) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exactly"));
    command.arg("call").args(arguments).env_remove("RUST_LOG");
    // A machine that can only get out through a proxy has it for the whole process.
    for proxy in [
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
    ] {
        command.env_remove(proxy);
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .unwrap()
}

async fn end(child: Child) -> Ran {
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output());
    let output = timeout(PATIENCE, ended).await.unwrap().unwrap().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

async fn call(arguments: &[&str]) -> Ran {
    end(spawn(arguments)).await
}

async fn call_with(arguments: &[&str], input: &[u8]) -> Ran {
    let mut child = spawn(arguments);
    child.stdin.take().unwrap().write_all(input).unwrap();
    end(child).await
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

fn key_of(request: &Message) -> String {
    request.header("idempotency-key").unwrap().to_owned()
}

/// The key that it told somebody to keep.
#[track_caller]
fn kept(ran: &Ran) -> String {
    let (_, key) = ran.err.rsplit_once("--resume ").unwrap();
    key.trim().to_owned()
}

#[tokio::test]
async fn it_is_repeated_until_it_is_applied_and_has_one_effect() {
    let count = Arc::new(AtomicUsize::new(0));
    let upstream = Upstream::scripted(move |mut wire, upstream| {
        let count = Arc::clone(&count);
        async move {
            while let Some(request) = wire.request().await {
                let answer = if count.fetch_add(1, Ordering::SeqCst) < 2 {
                    reply(503, &[], "busy")
                } else {
                    upstream.note(&request);
                    reply(201, &[], "rf_1")
                };
                let _ = wire.send(answer).await;
            }
        }
    })
    .await;
    let server = Server::start(upstream.address);
    let url = format!("http://{}/refunds", server.listen);
    let ran = call(&["post", &url, "--data-json", r#"{"amount": 10}"#]).await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "rf_1"), "{ran:?}");
    let lines: Vec<_> = ran.err.lines().collect();
    let [key, one, two, three, end] = lines[..] else {
        panic!("{ran:?}")
    };
    assert!(
        one.starts_with("attempt 1: 503 ") && one.contains(", again in "),
        "{one}"
    );
    assert!(two.starts_with("attempt 2 after ") && two.contains(": 503 "), "{two}");
    assert!(
        three.starts_with("attempt 3 after ") && three.ends_with(": 201 (stored)"),
        "{three}"
    );
    assert!(end.starts_with("applied after 3 attempts in "), "{end}");
    let request = upstream.request();
    assert_eq!(key, format!("key {}", key_of(&request)));
    assert_eq!(request.text(), r#"{"amount": 10}"#, "not one byte is changed");
    assert_eq!(request.header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn what_is_unknown_is_resolved_by_the_key_that_was_told() {
    for flag in ["--resume", "--key"] {
        let gate = Gate::default();
        let upstream = Upstream::held(&gate).await;
        let server = Server::start(upstream.address);
        let url = format!("http://{}/refunds", server.listen);
        let ran = call(&["POST", &url, "--data", "10", "--within", "500ms", "--retries", "0"]).await;
        assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{ran:?}");
        assert!(ran.err.contains("attempt 1: sent, no answer in time"), "{ran:?}");
        assert!(ran.err.contains("unknown: it may have happened"), "{ran:?}");
        let key = kept(&ran);
        gate.open();
        let ran = call(&["POST", &url, "--data", "10", flag, &key]).await;
        assert_eq!((ran.code, ran.out.as_str()), (0, "done"), "{ran:?}");
        assert!(ran.err.contains("201 (replayed)"), "{ran:?}");
        assert_eq!(upstream.effects(), 1, "{flag}");
    }
}

#[tokio::test]
async fn a_refusal_tells_nothing_of_what_was_sent_before() {
    let refused = || Act::Answer(reply(401, &[], "who are you?"));
    let server = script([refused()]).await;
    let ran = call(&["POST", &url(&server), "--key", "k1"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (1, "who are you?"), "{ran:?}");
    let ran = call(&["POST", &url(&server), "--resume", "k1"]).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_eq!(kept(&ran), "k1");
}

#[tokio::test]
async fn what_did_not_happen_is_said_to_be_so() {
    let problem = r#"{"code":"VALIDATION.amount","retryable":false}"#;
    let answer = reply(422, &[("content-type", "application/problem+json")], problem);
    let server = script([Act::Answer(answer)]).await;
    let ran = call(&["POST", &url(&server)]).await;
    assert_eq!((ran.code, ran.out.as_str()), (1, problem), "{ran:?}");
    assert!(
        ran.err
            .contains("attempt 1: 422 VALIDATION.amount\nnot applied\nfix the input\n"),
        "{ran:?}"
    );

    // A port that nobody listens on.
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let ran = call(&["POST", &format!("http://{free}/"), "--retries", "1"]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.err.contains("attempt 2 after") && ran.err.contains(": not sent (connect"),
        "{ran:?}"
    );
    assert!(ran.err.contains("not applied after 2 attempts"), "{ran:?}");
}

#[tokio::test]
async fn somebody_who_stops_it_is_told_the_key() {
    for name in ["-INT", "-TERM"] {
        let server = script([Act::Silence]).await;
        let child = spawn(&["POST", &url(&server), "--data", "10"]);
        until(async || (server.effects() == 1).then_some(())).await;
        signal(&child, name);
        let ran = end(child).await;
        assert_eq!(ran.code, 3, "{ran:?}");
        assert_eq!(kept(&ran), key_of(&server.request()));
    }
}

#[tokio::test]
async fn somebody_who_stops_it_between_attempts_knows_what_the_attempts_told() {
    for (status, code) in [(503, 1), (500, 3)] {
        let server = script([Act::Answer(reply(status, &[], ""))]).await;
        let mut child = spawn(&["POST", &url(&server), "--class", "scheduled"]);
        // It rests for half a minute once it has said so.
        let mut told = std::io::BufReader::new(child.stderr.take().unwrap());
        let told = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            while !line.contains("again in") {
                line.clear();
                std::io::BufRead::read_line(&mut told, &mut line).unwrap();
            }
            told
        });
        let mut told = timeout(PATIENCE, told).await.unwrap().unwrap();
        signal(&child, "-INT");
        let ran = end(child).await;
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut told, &mut rest).unwrap();
        assert_eq!(ran.code, code, "{status}: {rest}");
        assert!(rest.contains("interrupted"), "{rest}");
    }
}

/// Runs it with a standard error that takes nothing.
fn call_unheard(arguments: &[&str], is_full: bool) -> impl Future<Output = i32> + use<> {
    let child = if is_full {
        spawn_with(arguments, File::options().write(true).open("/dev/full").unwrap())
    } else {
        // As `| head -1` leaves it.
        let mut child = spawn(arguments);
        drop(child.stderr.take());
        child
    };
    async { end(child).await.code }
}

#[tokio::test]
async fn a_call_does_not_depend_on_anybody_who_listens() {
    let busy = Act::Answer(reply(503, &[], ""));
    let refused = Act::Answer(reply(422, &[], "no"));
    let done = Act::Answer(reply(201, &[STORED], "whole"));
    for (acts, more, code, attempts) in [
        ([&busy, &done], &[][..], 0, 2),
        ([&busy, &done], &["--csv"], 0, 2),
        ([&busy, &refused], &[], 1, 2),
        ([&busy, &Act::Cut], &["--retries", "1"], 3, 2),
        ([&busy, &done], &["--output", "/dev/full"], 4, 2),
        ([&busy, &done], &["--data-json", "{1}"], 2, 0),
    ] {
        for is_full in [true, false] {
            let server = script(acts.map(Act::clone)).await;
            let ended = call_unheard(&[&["POST", &url(&server)][..], more].concat(), is_full);
            assert_eq!(ended.await, code, "{more:?} {is_full}");
            assert_eq!(server.effects(), attempts, "{more:?} {is_full}");
        }
    }
}

#[tokio::test]
async fn whoever_knows_is_asked() {
    let happened = || Act::Answer(reply(200, &[], "rf_7"));
    let nothing_yet = || Act::Answer(reply(404, &[], "no such"));
    let at_a_loss = || Act::Answer(reply(500, &[], ""));
    let cases = [
        (vec![happened()], 0),
        (vec![nothing_yet(), nothing_yet()], 1),
        // The attempt that was given up was still under way.
        (vec![nothing_yet(), happened()], 0),
        (vec![nothing_yet(), at_a_loss()], 3),
        (vec![at_a_loss()], 3),
    ];
    join_all(cases.map(|(answers, code)| async move {
        let questions = answers.len();
        let server = script([Act::Silence]).await;
        let desk = script(answers).await;
        let ask = format!("http://{}/refunds/by-key", desk.address);
        let arguments = ["--within", "300ms", "--retries", "0", "--ask", &ask];
        let ran = call(&[&["POST", &url(&server)][..], &arguments].concat()).await;
        assert_eq!((ran.code, desk.requests().len()), (code, questions), "{ran:?}");
        assert_eq!(ran.out == "rf_7", code == 0, "{ran:?}");
        assert_eq!(server.effects(), 1, "it is asked for and not repeated");
    }))
    .await;
}

#[tokio::test]
async fn what_went_where_its_key_must_not_go_is_not_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let named = ["--operation", "refund-17", "--journal", journal.to_str().unwrap()];
    for more in [&[][..], &named] {
        let elsewhere = script([Act::Cut]).await;
        let server = script([Act::Answer(reply(307, &[("location", &url(&elsewhere))], ""))]).await;
        let ran = call(&[&["POST", &url(&server)][..], more].concat()).await;
        assert_eq!((ran.code, elsewhere.effects()), (3, 1), "{ran:?}");
        assert_eq!(elsewhere.request().header("idempotency-key"), None);
        assert!(ran.err.contains("find out there whether it happened"), "{ran:?}");
        assert!(
            !ran.err.contains("--resume") && !ran.err.contains("same command"),
            "{ran:?}"
        );
    }
}

#[tokio::test]
async fn an_answer_that_is_not_whole_is_an_exit_code_of_its_own() {
    let mut answer = reply(201, &[STORED], "a long answer");
    answer.truncate(answer.len() - 5);
    let server = Upstream::scripted(move |mut wire, upstream| {
        let answer = answer.clone();
        async move {
            if let Some(request) = wire.request().await {
                upstream.note(&request);
                let _ = wire.send(answer).await;
            }
        }
    })
    .await;
    let ran = call(&["POST", &url(&server), "--retries", "0"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (4, "a long a"), "{ran:?}");
    assert!(ran.err.contains("the answer is not whole"), "{ran:?}");

    let server = script([Act::Answer(reply(201, &[STORED], "whole"))]).await;
    let ran = call(&["POST", &url(&server), "--output", "/dev/full"]).await;
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.err.contains("could not be written"), "{ran:?}");
}
