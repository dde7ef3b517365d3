//! Encryption at rest.

use std::fs;

use crate::client::post;
use crate::server::{Server, exactly};
use crate::upstream::{Upstream, reply};
use crate::wire::Message;

const ONE: &str = "1111111111111111111111111111111111111111111111111111111111111111";
const TWO: &str = "IiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiI=";

/// Everything is sealed except on one route.
fn settings(keys: &[&str]) -> String {
    format!(
        "[seal]\nkeys = {keys:?}\n[defaults]\nsealed = true\n[[routes]]\nmethod = \"POST\"\npath = \"/plain\"\nsealed = false\n"
    )
}

/// Everything that is on disk beside the server's records.
fn on_disk(server: &Server) -> Vec<u8> {
    let names = ["exactly.db", "exactly.db-wal"];
    names
        .iter()
        .flat_map(|name| fs::read(server.file(name)).unwrap_or_default())
        .collect()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Starts the server again with other keys.
fn rotate(server: &mut Server, keys: &[&str]) {
    let file = server.file("exactly.toml");
    let store = format!("store = \"sqlite:{}\"\n", server.file("exactly.db").display());
    fs::write(file, store + &settings(keys)).unwrap();
    server.restart();
}

#[tokio::test]
async fn a_gateway_seals_what_it_stores_and_replays_it_after_a_rotation() {
    let upstream = Upstream::answering(|request: Message| async move {
        let (receipt, body) = (
            format!("receipt-of{}", request.target()),
            format!("answer-of{}", request.target()),
        );
        reply(201, &[("x-receipt", &receipt)], &body)
    })
    .await;
    let mut server = Server::with(upstream.address, &settings(&[ONE]));
    let (sealed, plain) = (post("/sealed").key("k1"), post("/plain").key("k1"));
    let first = sealed.to(server.listen).await;
    assert_eq!((first.status(), first.text().as_str()), (201, "answer-of/sealed"));
    plain.to(server.listen).await;
    let stored = on_disk(&server);
    // What is not sealed shows that it would be found.
    assert!(contains(&stored, "answer-of/plain") && contains(&stored, "receipt-of/plain"));
    assert!(!contains(&stored, "answer-of/sealed") && !contains(&stored, "receipt-of/sealed"));

    let replayed = async |server: &Server, ask: &crate::client::Ask, first: &Message| {
        let again = ask.to(server.listen).await;
        assert_eq!((again.status(), again.key_status()), (201, Some("replayed")));
        assert_eq!(
            (&again.body, again.header("x-receipt")),
            (&first.body, first.header("x-receipt"))
        );
    };
    replayed(&server, &sealed, &first).await;
    rotate(&mut server, &[TWO, ONE]);
    replayed(&server, &sealed, &first).await;
    let later = post("/later").key("k2");
    let second = later.to(server.listen).await;
    assert!(!contains(&on_disk(&server), "answer-of/later"));

    // The first key is gone, and with it what it sealed. Nothing runs again for that.
    rotate(&mut server, &[TWO]);
    replayed(&server, &later, &second).await;
    let unreadable = sealed.to(server.listen).await;
    assert_eq!(unreadable.status(), 409);
    assert!(
        unreadable.text().contains("OUTCOME.replay_unavailable"),
        "{}",
        unreadable.text()
    );
    assert_eq!(upstream.requests().len(), 3);
}

#[tokio::test]
async fn seals_that_cannot_be_are_told_without_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("exactly.toml");
    let check = |text: &str, key: Option<&str>| {
        fs::write(&file, text).unwrap();
        let mut command = exactly(&["check-config", &file.display().to_string()]);
        if let Some(key) = key {
            command.env("EXACTLY_SEAL_KEY", key);
        }
        let output = command.output().unwrap();
        let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(!told.contains("hunter2"), "{told}");
        told
    };
    let of_environment = settings(&["$EXACTLY_SEAL_KEY"]);
    assert!(check(&of_environment, Some(TWO)).ends_with("good, 1 routes\n"));
    for (text, key, told) in [
        (
            of_environment.as_str(),
            None,
            ":2: seal.keys: [0]: EXACTLY_SEAL_KEY is not in the environment",
        ),
        (
            &of_environment,
            Some("hunter2"),
            ":2: seal.keys: [0]: accepted are 32 bytes in base64",
        ),
        (&settings(&[]), None, ":2: seal.keys: there are none"),
        (
            "[seal]\nkeys = \"hunter2\"\n[defaults]\nsealed = true",
            None,
            ":2: seal.keys is something else than a list",
        ),
        ("[seal]\n[defaults]\nsealed = true", None, ":1: seal needs keys"),
        (
            &format!("[seal]\nkeys = [{TWO:?}]\n"),
            None,
            ":1: seal.keys seal nothing: set sealed = true",
        ),
        (
            &format!(
                "store = \"postgres://db/x\"\n{}guarantee = \"joined\"\nsealed = true",
                settings(&[TWO]).replace("sealed = false\n", "")
            ),
            None,
            ":9: routes[0].guarantee is \"joined\", accepted is answers that are neither sealed nor withheld",
        ),
    ] {
        let said = check(text, key);
        assert!(said.contains(told), "{said}\n{told}");
    }
}
