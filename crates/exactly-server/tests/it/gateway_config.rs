//! Configurations that cannot be, told before anything is served.

use std::fs;
use std::net::TcpListener;

use tempfile::TempDir;

use crate::binary::exactly;

/// One mistake a line, except where a line is a good one.
const MISTAKEN: &str = r#"listen = "somewhere"
upstream = "http://127.0.0.1:99999"
store = "mysql://ada:hunter2@db/shop"
stoer = "sqlite:x.db"
reconcile_every = "0s"
connections_max = 0
settle_link = "no url"
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
"#;

const TOLD: [(usize, &str); 22] = [
    (1, "listen is \"somewhere\", accepted is an address"),
    (
        2,
        "upstream is \"http://127.0.0.1:99999\", accepted is http://HOST:PORT",
    ),
    (
        3,
        "read the store's address: its scheme is \"mysql\"; accepted is sqlite:FILE",
    ),
    (4, "stoer is not a setting; here are: accept, admin"),
    (5, "reconcile_every is \"0s\", accepted is a number and a unit"),
    (6, "connections_max is 0, accepted is a number that is at least 1"),
    (7, "settle_link is \"no url\", accepted is a URL"),
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
    (18, "POST refunds: pattern is refunds, accepted is /literal"),
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
    (30, "PUT /refunds: replayed_header is connection, accepted is"),
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
    ] {
        let ran = exactly(&[&["serve"], &arguments[..]].concat());
        ran.refused(code, why);
        assert_eq!(ran.out, "", "{arguments:?}");
        assert!(!ran.err.contains("hunter2"), "{}", ran.err);
    }
}
