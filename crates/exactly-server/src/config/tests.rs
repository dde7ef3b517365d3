//! What a file can say, and what is told of its mistakes.

use super::*;

#[test]
fn a_file_says_it_all() {
    let config = Config::parse(
        r#"
        listen = "0.0.0.0:80"
        upstream = "http://10.0.0.7:3000"
        store = "postgres://db/exactly"

        [admin]
        listen = "127.0.0.1:9000"

        [principal]
        headers = ["authorization", "x-api-key"]
        cookies = ["session"]

        [timeouts]
        connect = "1s"
        response = "20s"

        [defaults]
        keep = "72h"

        [[routes]]
        method = "POST"
        path = "/refunds/{id}"
        key = "required"
        wait = "5s"
        "#,
    )
    .unwrap();
    assert_eq!(config.listen.to_string(), "0.0.0.0:80");
    assert_eq!(config.admin.to_string(), "127.0.0.1:9000");
    assert_eq!(config.upstream.unwrap().to_string(), "http://10.0.0.7:3000");
    assert_eq!(config.credentials.headers.len(), 2);
    assert_eq!(config.timeouts.connect, Duration::from_secs(1));
    assert_eq!(config.timeouts.drain, Duration::from_secs(30));
    assert_eq!(config.routes.len(), 1);
    assert_eq!(config.routes[0].path, "/refunds/{id}");
}

#[test]
fn an_upstream_can_join_only_the_database_that_it_has() {
    let route = "[[routes]]\nmethod = \"POST\"\npath = \"/x\"\nguarantee = \"joined\"";
    let of = |store: &str| {
        Config::parse(&format!("store = \"{store}\"\n{route}"))
            .unwrap()
            .check_store()
    };
    assert!(of("postgres://db/shop").is_ok());
    let refused = of("sqlite:exactly.db").unwrap_err().to_string();
    assert!(
        refused.contains("needs the upstream's PostgreSQL database"),
        "{refused}"
    );
    assert!(Config::parse("").unwrap().check_store().is_ok());
}

#[test]
fn an_empty_file_is_the_defaults() {
    let config = Config::parse("").unwrap();
    assert_eq!(config.listen.to_string(), LISTEN_DEFAULT);
    assert!(config.admin.ip().is_loopback());
    assert_eq!(config.store, StoreUrl::new(STORE_DEFAULT));
}

#[test]
fn every_mistake_is_told_at_once_with_its_line() {
    let text = r#"
listen = "here"
upstream = "https://user@example.com/path"
stroe = "sqlite:x.db"
[principal]
headers = []
[[routes]]
method = "POST"
path = "/refunds"
keep = "1 fortnight"
guarantee = "exactly-once"
[[routes]]
path = "/x"
"#;
    let faults = Config::parse(text).unwrap_err();
    let told: Vec<_> = faults
        .iter()
        .map(|fault| format!("{}: {}", fault.line, fault.what))
        .collect();
    let expected = [
        (2, "listen is \"here\", accepted is an address"),
        (
            3,
            "upstream is \"https://user@example.com/path\", accepted is http://HOST:PORT",
        ),
        (4, "stroe is not a setting; here are: accept, admin, authorize"),
        (5, "principal names neither headers nor cookies"),
        (10, "routes[0].keep is \"1 fortnight\", accepted is a number and a unit"),
        (
            11,
            "routes[0].guarantee is \"exactly-once\", accepted is \"at-most-once\" or \"rerunnable\" or \"joined\"",
        ),
        (12, "a route needs method and path"),
    ];
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for (told, (line, what)) in told.iter().zip(expected) {
        assert!(told.starts_with(&format!("{line}: {what}")), "{told}");
    }
}

#[test]
fn what_is_no_toml_is_told_with_its_line() {
    let faults = Config::parse("listen = \"127.0.0.1:1\"\nstore = \n").unwrap_err();
    assert_eq!(faults[0].line, 2);
}
