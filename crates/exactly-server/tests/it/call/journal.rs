//! Operations that outlive the process that began them.

use super::{Act, call, key_of, script, spawn, url};
use crate::server::{Server, until};
use crate::upstream::{Gate, Upstream, reply};

#[tokio::test]
async fn a_run_that_is_killed_half_way_and_run_again_has_one_effect() {
    let gate = Gate::default();
    let upstream = Upstream::held(&gate).await;
    let server = Server::start(upstream.address);
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let url = format!("http://{}/refunds", server.listen);
    let arguments = [
        "POST",
        &url,
        "--data",
        "10",
        "--operation",
        "refund-17",
        "--journal",
        journal.to_str().unwrap(),
    ];

    let mut child = spawn(&arguments);
    until(async || (upstream.effects() == 1).then_some(())).await;
    child.kill().unwrap();
    child.wait().unwrap();
    gate.open();

    let again = call(&arguments).await;
    assert_eq!((again.code, again.out.as_str()), (0, "done"), "{again:?}");
    assert!(again.err.starts_with("operation refund-17\n"), "{again:?}");
    assert!(again.err.contains("201 (replayed)"), "{again:?}");
    assert_eq!(upstream.effects(), 1);
    // And once more, for a script that does not know that it is done.
    let again = call(&arguments).await;
    assert_eq!((again.code, again.out.as_str()), (0, "done"), "{again:?}");
    assert_eq!(upstream.effects(), 1);
}

#[tokio::test]
async fn an_operation_does_not_change_its_content() {
    let server = script([Act::Silence, Act::Answer(reply(201, &[], ""))]).await;
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let url = url(&server);
    let arguments = [
        "POST",
        &url,
        "--operation",
        "refund-17",
        "--journal",
        journal.to_str().unwrap(),
    ];
    let ran = call(&[&arguments[..], &["--data", "10", "--within", "300ms", "--retries", "0"]].concat()).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(
        ran.err.contains("run the same command again: the journal has its key"),
        "{ran:?}"
    );
    let other = call(&[&arguments[..], &["--data", "1000"]].concat()).await;
    assert_eq!(other.code, 1, "{other:?}");
    assert!(
        other.err.contains("not applied: the key was used for another request"),
        "{other:?}"
    );
    assert_eq!(server.effects(), 1, "nothing was sent");
    let same = call(&[&arguments[..], &["--data", "10"]].concat()).await;
    assert_eq!(same.code, 0, "{same:?}");
    let keys: Vec<_> = server.requests().iter().map(key_of).collect();
    assert_eq!(keys[0], keys[1]);
}

#[tokio::test]
async fn without_its_journal_nothing_is_sent_and_nothing_is_claimed() {
    let server = script([Act::Answer(reply(201, &[], ""))]).await;
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    std::fs::write(&journal, [b'?'; 8192]).unwrap();
    let arguments = [
        "POST",
        &url(&server),
        "--operation",
        "a",
        "--journal",
        journal.to_str().unwrap(),
    ];
    let ran = call(&arguments).await;
    // An earlier run may have sent it, for all that anybody can read here.
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(
        ran.err.contains("nothing was sent: ") && ran.err.contains("not a database"),
        "{ran:?}"
    );
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_mistake_is_one_in_an_operation_too() {
    let server = script([Act::Answer(reply(201, &[], ""))]).await;
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let arguments = [
        "POST",
        &url(&server),
        "-H",
        "Idempotency-Key: schlüssel",
        "--operation",
        "a",
        "--journal",
        journal.to_str().unwrap(),
    ];
    let ran = call(&arguments).await;
    assert_eq!((ran.code, server.connections()), (2, 0), "{ran:?}");
    assert!(ran.err.contains("exactly: ") && !ran.err.contains("unknown"), "{ran:?}");
}

#[tokio::test]
async fn a_key_that_is_told_first_outlives_a_run_without_a_journal() {
    let server = script([Act::Silence]).await;
    let mut child = spawn(&["POST", &url(&server)]);
    until(async || (server.effects() == 1).then_some(())).await;
    let mut told = child.stderr.take().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut told, &mut text).unwrap();
    let key = text.lines().next().unwrap().strip_prefix("key ").unwrap();
    assert_eq!(key, key_of(&server.request()));
}
