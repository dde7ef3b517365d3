//! `exactly calls`, straight on a store and through the API of a server.

use std::fs;

use exactly::store::Phase;
use exactly::{Call, Fingerprint, Key, Scope, Store as _, Verdict};
use serde_json::{Value, json};

use crate::binary::{Shop, exactly};

fn ids(page: &Value) -> Vec<&str> {
    let calls = page["calls"].as_array().unwrap();
    calls.iter().map(|call| call["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn calls_are_listed_as_a_table_and_as_json() {
    let shop = Shop::open().await;
    assert_eq!(shop.calls(&["list"]).ok(), "no calls\n");
    let made = shop.fill("POST /refunds").await;
    let table = shop.calls(&["list"]).ok();
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 5, "{table}");
    assert!(lines[0].starts_with("ID "), "{table}");
    for (phase, id) in &made {
        let line = lines.iter().find(|line| line.starts_with(&id[..16])).unwrap();
        assert!(line.contains("POST /refunds") && line.contains(" s ago)"), "{line}");
        assert!(!line.contains(&format!("{phase:?}")), "the key is not shown: {line}");
    }
    let page = shop.calls(&["list", "--json", "--phase", "in_doubt"]).json();
    assert_eq!(ids(&page), [&made[1].1]);
    assert_eq!(page["calls"][0]["phase"], "in_doubt");
    let none = shop.calls(&["list", "--json", "--operation", "POST /orders"]).json();
    assert!(ids(&none).is_empty());
    assert!(ids(&shop.calls(&["list", "--json", "--older-than", "1h"]).json()).is_empty());
    assert_eq!(
        ids(&shop
            .calls(&["list", "--json", "--created-before", "2999-01-01T00:00:00Z"])
            .json())
        .len(),
        4
    );
}

#[tokio::test]
async fn pages_lead_on() {
    let shop = Shop::open().await;
    shop.fill("POST /refunds").await;
    let first = shop.calls(&["list", "--limit", "3", "--json"]).json();
    let next = first["next"].as_str().unwrap();
    let rest = shop.calls(&["list", "--after", next, "--json"]).json();
    assert_eq!((ids(&first).len(), ids(&rest).len()), (3, 1));
    let table = shop.calls(&["list", "--limit", "3"]).ok();
    assert!(table.ends_with(&format!("there are more: --after {next}\n")), "{table}");
}

#[tokio::test]
async fn a_call_is_shown_by_the_start_of_its_id() {
    let shop = Shop::open().await;
    let made = shop.fill("POST /refunds").await;
    let (_, doubt) = &made[1];
    let text = shop.calls(&["show", &doubt[..8]]).ok();
    for part in [
        doubt.as_str(),
        "in_doubt",
        "POST /refunds",
        "the key was first used",
        "--did-not-happen --yes",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let shown = shop.calls(&["show", &doubt[..9].to_uppercase(), "--json"]).json();
    assert_eq!(shown["call"]["id"], *doubt);
    assert_eq!(shown["call"].get("key"), None);
    let revealed = shop.calls(&["show", doubt, "--json", "--reveal"]).json();
    assert_eq!(revealed["call"]["key"], "InDoubt");

    shop.calls(&["show", &"0".repeat(64)])
        .refused(1, "no record has this id");
    shop.calls(&["show", "00000000"])
        .refused(1, "no record has an id that begins so");
    shop.calls(&["show", "1234567"]).refused(2, "8 to 64 hex digits");
}

#[tokio::test]
async fn a_doubt_is_settled_with_an_answer() {
    let shop = Shop::open().await;
    let doubt = shop.add("POST /refunds", "r-1", Phase::InDoubt).await;
    let happened = [
        "resolve",
        &doubt[..12],
        "--happened",
        "--status",
        "201",
        "--header",
        "content-type: text/plain",
    ];
    shop.calls(&[&happened[..], &["--body", "ok"]].concat())
        .refused(2, "--yes");
    let dry = shop
        .calls(&[&happened[..], &["--body", "ok", "--dry-run"]].concat())
        .ok();
    assert!(dry.contains("would be settled"), "{dry}");
    assert_eq!(shop.phase(&doubt), "in_doubt");
    let yes = [
        "--body",
        "ok",
        "--yes",
        "--actor",
        "ada",
        "--reason",
        "the bank says so",
    ];
    let told = shop.calls(&[&happened[..], &yes].concat()).ok();
    assert!(told.contains("was in_doubt, is done"), "{told}");
    assert_eq!(shop.phase(&doubt), "done");
    shop.calls(&[&happened[..], &yes].concat())
        .refused(1, "the call is done: it happened");

    let trail = shop.calls(&["trail", "--call", &doubt[..8], "--json"]).json();
    let details: Vec<_> = trail["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["detail"])
        .collect();
    assert_eq!(
        details[0],
        "asked: it happened and answered 201 with 2 bytes; reason: the bank says so"
    );
    assert_eq!(details[1], "done: stored the outcome");
    assert_eq!(trail["entries"][0]["actor"], "ada");
    let table = shop.calls(&["trail"]).ok();
    assert!(table.contains("refused: the call is done"), "{table}");
}

#[tokio::test]
async fn a_doubt_of_a_worker_is_settled_with_a_file() {
    let shop = Shop::open().await;
    let doubt = shop.add("mail.welcome", "m-1", Phase::InDoubt).await;
    let file = shop.path("outcome");
    fs::write(&file, b"\0\xff250 queued").unwrap();
    let file = file.display().to_string();
    shop.calls(&["resolve", &doubt, "--happened", "--status", "200", "--yes"])
        .refused(1, "was not made over HTTP");
    shop.calls(&["resolve", &doubt, "--happened", "--outcome-file", &file, "--yes"])
        .ok();
    let call = Call::new(
        Scope::new("ada", "mail.welcome"),
        Key::new("m-1").unwrap(),
        Fingerprint::of("m-1"),
    );
    let Verdict::Replay(replay) = shop.store().await.begin(&call).await.unwrap() else {
        panic!("it happened");
    };
    assert_eq!(replay.outcome, &b"\0\xff250 queued"[..]);
}

#[tokio::test]
async fn what_did_not_happen_frees_the_key() {
    let shop = Shop::open().await;
    let doubt = shop.add("POST /refunds", "r-1", Phase::InDoubt).await;
    let shown = shop.calls(&["show", &doubt, "--json"]).json();
    let stale = [
        "resolve",
        &doubt,
        "--did-not-happen",
        "--yes",
        "--claim",
        "0123456789abcdef",
    ];
    shop.calls(&stale).refused(1, "another attempt or claim");
    let claim = shown["call"]["claim"].as_str().unwrap();
    let settled = shop
        .calls(&[
            "resolve",
            &doubt,
            "--did-not-happen",
            "--yes",
            "--claim",
            claim,
            "--json",
        ])
        .json();
    assert_eq!(settled, json!({"id": doubt, "was": "in_doubt", "now": "absent"}));
    shop.calls(&["show", &doubt]).refused(1, "no record has this id");
}

#[tokio::test]
async fn what_is_settled_has_to_be_said_once_and_wholly() {
    let id = "0".repeat(64);
    for (arguments, why) in [
        (vec!["resolve", &id, "--yes"], "required"),
        (
            vec!["resolve", &id, "--happened", "--did-not-happen", "--yes"],
            "cannot be used with",
        ),
        (
            vec!["resolve", &id, "--did-not-happen", "--status", "200", "--yes"],
            "cannot be used with",
        ),
        (
            vec!["resolve", &id, "--happened", "--status", "99", "--yes"],
            "200 to 599",
        ),
        (vec!["resolve", &id, "--happened", "--body", "x", "--yes"], "--status"),
        (
            vec![
                "resolve",
                &id,
                "--happened",
                "--status",
                "200",
                "--header",
                "nothing",
                "--yes",
            ],
            "NAME: VALUE",
        ),
        (vec!["free", &id, "--yes", "--dry-run"], "cannot be used with"),
        (vec!["list", "--limit", "1001"], "1 to 1000"),
        (vec!["list", "--older-than", "a while"], "10s, 5m, 24h or 7d"),
    ] {
        exactly(&[&["calls", "--store", "sqlite:none.db"], &arguments[..]].concat()).refused(2, why);
    }
    let shop = Shop::open().await;
    let doubt = shop.add("POST /refunds", "r-1", Phase::InDoubt).await;
    shop.calls(&["resolve", &doubt, "--happened", "--yes"])
        .refused(2, "say what it answered");
}

#[tokio::test]
async fn keys_are_freed_unless_in_flight() {
    let shop = Shop::open().await;
    for (phase, id) in shop.fill("POST /refunds").await {
        shop.calls(&["free", &id]).refused(2, "--yes");
        let dry = shop.calls(&["free", &id, "--dry-run"]).ok();
        let ran = shop.calls(&["free", &id, "--yes"]);
        if phase == Phase::InFlight {
            assert!(dry.contains("would not be freed"), "{dry}");
            ran.refused(1, "an attempt holds a lease on it");
            assert!(ran.err.contains("try again in"), "{ran:?}");
            assert_eq!(shop.phase(&id), "in_flight");
        } else {
            assert!(dry.contains("would be freed"), "{dry}");
            assert!(ran.ok().contains("gone: the next request with its key runs"));
            shop.calls(&["show", &id]).refused(1, "no record has this id");
        }
    }
}

#[tokio::test]
async fn finished_calls_are_purged_when_it_is_meant() {
    let shop = Shop::open().await;
    shop.fill("POST /refunds").await;
    let kept = shop.add("POST /orders", "o-1", Phase::Done).await;
    let purge = ["purge", "--operation", "POST /refunds"];
    shop.calls(&purge).refused(2, "--dry-run");
    let dry = shop.calls(&[&purge[..], &["--dry-run"]].concat()).ok();
    assert_eq!(dry, "1 finished calls would be forgotten\n");
    let wet = shop.calls(&[&purge[..], &["--yes", "--json"]].concat()).json();
    assert_eq!(
        (&wet["matched"], &wet["purged"], &wet["dry_run"]),
        (&json!(1), &json!(1), &json!(false))
    );
    assert_eq!(
        shop.calls(&[&purge[..], &["--yes"]].concat()).ok(),
        "0 of 0 finished calls were forgotten\n"
    );
    assert_eq!(shop.phase(&kept), "done");
    shop.calls(&["purge", "--yes"]).refused(1, "say which records");
    assert_eq!(
        shop.calls(&["purge", "--all", "--yes"]).ok(),
        "1 of 1 finished calls were forgotten\n"
    );
    assert_eq!(ids(&shop.calls(&["list", "--json"]).json()).len(), 3);
}

/// More than fits one step.
#[tokio::test]
async fn a_purge_goes_through_all_pages() {
    let shop = Shop::open().await;
    let store = shop.store().await;
    for n in 0..1_030 {
        let key = Key::new(format!("k-{n}")).unwrap();
        let call = Call::new(Scope::global("o"), key, Fingerprint::of("x"));
        let Verdict::Run(claim) = store.begin(&call).await.unwrap() else {
            panic!("the key is fresh")
        };
        let _ = store.complete(&claim, &"".into(), exactly::Keep::DAY).await.unwrap();
    }
    assert_eq!(
        shop.calls(&["purge", "--all", "--dry-run"]).ok(),
        "1030 finished calls would be forgotten\n"
    );
    assert_eq!(
        shop.calls(&["purge", "--all", "--yes"]).ok(),
        "1030 of 1030 finished calls were forgotten\n"
    );
}

#[tokio::test]
async fn the_api_and_the_store_say_the_same() {
    let shop = Shop::open().await;
    let made = shop.fill("POST /refunds").await;
    let server = shop.serve();
    let (_, doubt) = &made[1];
    let (_, done) = &made[3];
    for arguments in [
        vec!["list", "--json"],
        vec!["list", "--json", "--phase", "done", "--limit", "1"],
        vec!["show", &doubt[..8], "--json"],
        vec!["trail", "--json"],
        vec!["purge", "--all", "--dry-run", "--json"],
        vec!["free", done, "--dry-run"],
    ] {
        assert_eq!(
            server.calls(&arguments).ok(),
            shop.calls(&arguments).ok(),
            "{arguments:?}"
        );
    }
    for arguments in [
        vec!["show", "00000000"],
        vec!["free", &made[0].1[..8], "--yes"],
        vec!["resolve", done, "--did-not-happen", "--yes"],
        vec!["purge", "--yes"],
    ] {
        let (api, store) = (server.calls(&arguments), shop.calls(&arguments));
        // How long to wait differs by the second that passed between.
        let said = |text: &str| text.split("; try again").next().unwrap().to_owned();
        assert_eq!(
            (api.code, said(&api.err)),
            (store.code, said(&store.err)),
            "{arguments:?}"
        );
        assert_ne!(api.code, 0, "{arguments:?}");
    }
    let resolve = [
        "resolve",
        &doubt[..8],
        "--happened",
        "--status",
        "200",
        "--yes",
        "--actor",
        "bob",
    ];
    assert!(server.calls(&resolve).ok().contains("is done"));
    let trail = shop.calls(&["trail", "--json", "--call", doubt]).json();
    assert_eq!(trail["entries"][0]["actor"], "bob");
}

#[tokio::test]
async fn a_server_that_cannot_be_asked_is_told_with_the_fix() {
    let shop = Shop::open().await;
    let server = shop.serve();
    let ask = |token: &[&str]| exactly(&[&["calls", "list", "--admin", &server.admin], token].concat());
    ask(&[]).refused(1, "no token: give the server's with EXACTLY_ADMIN_TOKEN or --token");
    ask(&["--token", "not-the-right-token"]).refused(1, "give the server's token with EXACTLY_ADMIN_TOKEN");
    ask(&["--token", "line\nfeed"]).refused(2, "cannot be sent");
    let nowhere = ["calls", "list", "--token", "x", "--admin"];
    exactly(&[&nowhere[..], &["http://127.0.0.1:1"]].concat()).refused(1, "is `exactly serve` running");
    for wrong in ["127.0.0.1:8081", "https://example.org", "http://a@b", "http://a/b", ""] {
        exactly(&[&nowhere[..], &[wrong]].concat()).refused(2, "http://HOST:PORT");
    }
    drop(server);
}

#[tokio::test]
async fn a_store_that_cannot_be_opened_is_told_without_its_password() {
    for (url, why) in [
        ("mysql://ada:hunter2@db/shop", "accepted is sqlite:FILE"),
        ("hunter2", "accepted is sqlite:FILE"),
        (
            "postgres://ada:hunter2@127.0.0.1:1/shop",
            "connect to PostgreSQL at 127.0.0.1:1",
        ),
        ("redis://ada:hunter2@127.0.0.1:1/", "redis://127.0.0.1:1"),
        (
            "sqlite:no/such/folder.db",
            "`exactly serve` or `exactly migrate` makes one",
        ),
    ] {
        let ran = exactly(&["calls", "list", "--store", url]);
        ran.refused(1, why);
        assert!(!ran.err.contains("hunter2"), "{ran:?}");
    }
}

/// Principals and operations come from clients, and a terminal obeys what it is sent.
#[tokio::test]
async fn a_terminal_is_not_told_what_to_do_by_a_client() {
    let shop = Shop::open().await;
    shop.add("evil\u{1b}[2J\noperation", "k", Phase::Done).await;
    let table = shop.calls(&["list"]).ok();
    assert!(table.contains("evil\\u{1b}[2J\\noperation"), "{table}");
    assert!(!table.contains('\u{1b}'), "{table:?}");
}
