//! Configurations that cannot be, told before anything is served.

use std::fs;
use std::net::TcpListener;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::binary::{Ran, exactly};

/// One mistake a line, except where a line is a good one.
const MISTAKEN: &str = r#"listen = "somewhere"
upstream = "http://127.0.0.1:99999"
store = "mysql://ada:hunter2@db/shop"
stoer = "sqlite:x.db"
reconcile_every = "0s"
connections_max = 0
settle_link = "/calls/"
authorize = "auth"
[timeouts]
connect = "0s"
header = "213503982334601d"
response = 10
[principal]
cookies = ["a;b"]
[[routes]]
method = "GET"
path = "/x"
[[routes]]
method = "POST"
path = "refunds"
[[routes]]
method = "POST"
path = "/refunds"
lease = "10ms"
wait = "2h"
keep = "0s"
guarantee = "exactly-once"
reconcile = "/without-a-name"
leave_out = ["/a/~2"]
[[routes]]
method = "PUT"
path = "/refunds"
replayed_headers = ["connection"]
[[routes]]
method = "PUT"
path = "/refunds"
[[routes]]
method = "POST"
path = "/again"
guarantee = "rerunnable"
reconcile = "/by/{call}"
reconcile_after = "1s"
[[routes]]
method = "POST"
path = "/alone"
reconcile_headers = { authorization = "Bearer hunter2" }
[[routes]]
method = "POST"
path = "/sealed"
sealed = true
[[routes]]
method = "FETCH"
path = "refunds/{id"
[[routes]]
path = "refunds"
replayed_headers = ["connection", "te"]
"#;

const TOLD: [(usize, &str); 32] = [
    (1, "listen is \"somewhere\", accepted is an address"),
    (
        2,
        "upstream is \"http://127.0.0.1:99999\", accepted is http://HOST:PORT",
    ),
    (
        3,
        "store: read the store's address: its scheme is \"mysql\"; accepted is sqlite:FILE",
    ),
    (4, "stoer is not a setting; here are: accept, admin"),
    (5, "reconcile_every is \"0s\", accepted is a number and a unit"),
    (6, "connections_max is 0, accepted is a number that is at least 1"),
    (7, "settle_link is \"/calls/\", accepted is a URL"),
    (8, "authorize is \"auth\", accepted is a path"),
    (10, "timeouts.connect is \"0s\", accepted is a number and a unit"),
    (
        11,
        "timeouts.header is \"213503982334601d\", accepted is a number and a unit",
    ),
    (12, "timeouts.response is 10, accepted is a number and a unit"),
    (14, "principal.cookies is [\"a;b\"], accepted is a list of cookie names"),
    (
        16,
        "routes[0].method is \"GET\", accepted is \"POST\", \"PUT\", \"PATCH\" or \"DELETE\"",
    ),
    (20, "routes[1].path is \"refunds\", accepted is /literal"),
    (24, "routes[2].lease is \"10ms\", accepted is a number and a unit"),
    (25, "routes[2].wait is \"2h\", accepted is a number and a unit"),
    (26, "routes[2].keep is \"0s\", accepted is a number and a unit"),
    (
        27,
        "routes[2].guarantee is \"exactly-once\", accepted is \"at-most-once\"",
    ),
    (
        28,
        "routes[2].reconcile is \"/without-a-name\", accepted is a path with {call} or {key}",
    ),
    (29, "routes[2].leave_out is [\"/a/~2\"], accepted is"),
    (
        33,
        "routes[3].replayed_headers is [\"connection\"], accepted is a header that does not belong to one connection",
    ),
    (
        36,
        "routes[4].path is \"/refunds\", accepted is one that no route before it has: PUT /refunds is there already",
    ),
    (
        41,
        "routes[5].reconcile is \"/by/{call}\", accepted is none where guarantee is \"rerunnable\"",
    ),
    (
        42,
        "routes[5].reconcile_after is \"1s\", accepted is none where guarantee is \"rerunnable\"",
    ),
    (
        46,
        "routes[6].reconcile_headers is a table, accepted is one beside reconcile",
    ),
    (50, "routes[7].sealed is true, accepted is true only with [seal]"),
    (52, "routes[8].method is \"FETCH\", accepted is \"POST\""),
    (53, "routes[8].path is \"refunds/{id\", accepted is /literal"),
    (54, "a route needs method and path"),
    (55, "routes[9].path is \"refunds\", accepted is /literal"),
    (
        56,
        "routes[9].replayed_headers is [\"connection\", \"te\"], accepted is",
    ),
    (0, ""),
];

#[test]
fn every_mistake_is_told_at_once_with_its_place() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("exactly.toml");
    fs::write(&file, MISTAKEN).unwrap();
    let file = file.display().to_string();
    for arguments in [&["check-config", &file][..], &["serve", "--config", &file]] {
        let ran = exactly(arguments);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
        assert!(!ran.err.contains("hunter2"), "{}", ran.err);
        let told: Vec<_> = ran.err.trim().trim_start_matches("exactly: ").split('\n').collect();
        for (told, (line, what)) in told.iter().zip(TOLD) {
            assert!(
                told.starts_with(&format!("{file}:{line}: {what}")),
                "{told}\n{line}: {what}"
            );
        }
        assert_eq!(told.len(), TOLD.len() - 1, "{}", ran.err);
    }
}

#[test]
fn mistakes_are_told_to_programs_too() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("exactly.toml");
    let check = || exactly(&["check-config", "--json", &file.display().to_string()]);
    let told = |ran: Ran| {
        assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{ran:?}");
        assert!(!ran.out.contains("hunter2"), "{}", ran.out);
        serde_json::from_str::<Value>(&ran.out).unwrap()
    };
    fs::write(&file, MISTAKEN).unwrap();
    let report = told(check());
    assert_eq!((&report["good"], &report["routes"]), (&json!(false), &Value::Null));
    let faults = report["faults"].as_array().unwrap();
    assert_eq!(faults.len(), TOLD.len() - 1, "{report}");
    for (fault, (line, what)) in faults.iter().zip(TOLD) {
        assert_eq!(fault["line"], line, "{fault}");
        assert!(fault["what"].as_str().unwrap().starts_with(what), "{fault}");
    }
    let keys: Vec<_> = faults.iter().filter_map(|fault| fault["key"].as_str()).collect();
    assert_eq!(keys[..4], ["listen", "upstream", "store", "stoer"]);
    assert_eq!((keys.len(), keys[13]), (faults.len(), "routes[1].path"));

    fs::write(&file, "listen = \n").unwrap();
    let fault = told(check())["faults"][0].clone();
    assert_eq!((&fault["line"], &fault["key"]), (&json!(1), &Value::Null));
    fs::remove_file(&file).unwrap();
    assert_eq!(told(check())["faults"][0]["line"], Value::Null);

    fs::write(&file, "[[routes]]\nmethod = \"POST\"\npath = \"/x\"\n").unwrap();
    assert_eq!(check().json(), json!({"good": true, "routes": 1, "faults": []}));
}

/// A good file where events can be kept and the upstream's database is at hand.
const DEMANDING: &str = r#"[inbox]
listen = "127.0.0.1:0"
[inbox.shop]
secrets = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]
forward = "http://127.0.0.1:9/"
[[routes]]
method = "POST"
path = "/refunds"
guarantee = "joined"
"#;

const INBOX: &str = "inbox.listen is \"127.0.0.1:0\", accepted is none";
const JOINED: &str = "routes[0].guarantee is \"joined\", which needs the upstream's PostgreSQL database";

#[test]
fn what_the_store_cannot_do_is_told_with_all_other_mistakes() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("exactly.toml");
    let path = file.display().to_string();
    let settings = |top: &str| fs::write(&file, format!("{top}\n{DEMANDING}")).unwrap();
    let told = |arguments: &[&str], expected: &[(usize, &str)]| {
        let ran = exactly(arguments);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
        let told: Vec<_> = ran.err.trim().trim_start_matches("exactly: ").split('\n').collect();
        assert_eq!(told.len(), expected.len(), "{}", ran.err);
        for (told, (line, what)) in told.iter().zip(expected) {
            assert!(told.starts_with(&format!("{path}:{line}: {what}")), "{told}\n{what}");
        }
    };
    let (check, serve) = (["check-config", &path], ["serve", "--config", &path]);

    settings("listen = \"here\"\nstore = \"redis://cache/0\"");
    for arguments in [&check[..], &serve] {
        told(
            arguments,
            &[
                (1, "listen is \"here\""),
                (4, &format!("{INBOX} on redis://cache/0")),
                (11, JOINED),
            ],
        );
    }
    settings("jobs.enabled = false");
    told(&check, &[(3, &format!("{INBOX} while jobs are off")), (10, JOINED)]);
    settings("store = \"postgres://db/shop\"");
    exactly(&check).ok();

    // Flags count as the file does.
    let off = [&serve[..], &["--no-jobs"]].concat();
    told(&off, &[(3, &format!("{INBOX} while jobs are off"))]);
    let redis = [&serve[..], &["--store", "redis://cache/0"]].concat();
    told(&redis, &[(3, &format!("{INBOX} on redis://cache/0")), (10, JOINED)]);
    settings("store = \"redis://cache/0\"");
    let postgres = [
        "--upstream",
        "http://127.0.0.1:9",
        "--store",
        "postgres://127.0.0.1:1/x",
    ];
    exactly(&[&serve[..], &postgres].concat()).refused(1, "open postgres://127.0.0.1:1/x");
}

#[test]
fn the_documented_configuration_is_good() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/gateway.md");
    let docs = fs::read_to_string(docs).unwrap();
    let (_, block) = docs.split_once("```toml\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("exactly.toml");
    fs::write(&file, block).unwrap();
    let told = exactly(&["check-config", &file.display().to_string()]).ok();
    assert!(told.ends_with("exactly.toml: good, 1 routes\n"), "{told}");
}

#[test]
fn a_server_that_cannot_be_says_why_and_what_to_do() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("bytes.toml"), [0xff, 0xfe]).unwrap();
    fs::write(path("half.toml"), "listen = \"127.0.0.1:0\"\n[timeouts\n").unwrap();
    let store = format!("sqlite:{}", path("exactly.db"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let (upstream, free) = ("http://127.0.0.1:9", "127.0.0.1:0");
    let empty = path("empty.toml");
    fs::write(&empty, "").unwrap();
    let (missing, bytes, half) = (path("missing.toml"), path("bytes.toml"), path("half.toml"));
    let serves = ["--config", &empty, "--upstream", upstream];
    let on_store = [&serves[..], &["--store", &store]].concat();
    let secret = "postgres://ada:hunter2@127.0.0.1:1/x";
    for (arguments, code, why) in [
        (vec!["--config", &missing], 1, "missing.toml: No such file"),
        (
            vec!["--config", &bytes],
            1,
            "bytes.toml: stream did not contain valid UTF-8",
        ),
        (vec!["--config", &half], 1, "half.toml:2: "),
        (
            vec!["--config", &empty, "--listen", free, "--store", &store],
            1,
            "no upstream: give --upstream",
        ),
        (
            [&on_store[..], &["--listen", &taken]].concat(),
            1,
            "choose another with --listen",
        ),
        (
            [&on_store[..], &["--listen", free, "--admin", &taken]].concat(),
            1,
            "choose another with --admin",
        ),
        (vec!["--upstream", "https://127.0.0.1:9"], 2, "must be http://HOST:PORT"),
        (
            vec!["--upstream", "http://127.0.0.1:9/path"],
            2,
            "must be http://HOST:PORT",
        ),
        (vec!["--upstream", "http://:9"], 2, "must be http://HOST:PORT"),
        (vec!["--listen", "nowhere"], 2, "--listen"),
        (
            [&serves[..], &["--store", secret]].concat(),
            1,
            "open postgres://127.0.0.1:1/x",
        ),
        (
            [&serves[..], &["--store", secret]].concat(),
            1,
            "is it running, and is that its address?",
        ),
        (
            [&serves[..], &["--store", "redis://127.0.0.1:1/"]].concat(),
            1,
            "is it running, and is that its address?",
        ),
    ] {
        let ran = exactly(&[&["serve"], &arguments[..]].concat());
        ran.refused(code, why);
        assert_eq!(ran.out, "", "{arguments:?}");
        assert!(!ran.err.contains("hunter2"), "{}", ran.err);
    }
}
