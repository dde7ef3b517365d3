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
        let config = Config::parse(&format!("store = \"{store}\"\n{route}"));
        config.unwrap().unmet()
    };
    assert_eq!(of("postgres://db/shop"), []);
    let refused = of("sqlite:exactly.db");
    assert_eq!(
        (refused[0].line, refused[0].key.as_deref()),
        (5, Some("routes[0].guarantee"))
    );
    assert!(
        refused[0].what.contains("needs the upstream's PostgreSQL database"),
        "{refused:?}"
    );
    assert_eq!(Config::parse("").unwrap().unmet(), []);
}

#[test]
fn a_route_before_with_the_same_pattern_hides_a_later_one() {
    let of = |first: &str, second: &str| {
        let route = |path: &str| format!("[[routes]]\nmethod = \"POST\"\npath = \"{path}\"\n");
        Config::parse(&format!("{}{}", route(first), route(second))).is_ok()
    };
    for (first, second) in [("/a/{id}", "/a/{name}"), ("/a", "/a"), ("/{*all}", "/{*rest}")] {
        assert!(!of(first, second), "{first} {second}");
    }
    for (first, second) in [("/a", "/a/"), ("/a/b", "/a/{id}"), ("/a/{id}", "/a/{*rest}")] {
        assert!(of(first, second), "{first} {second}");
    }
}

#[test]
fn only_a_route_that_can_be_in_doubt_asks_about_doubts() {
    let of = |before: &str, route: &str| {
        let start = "[[routes]]\nmethod = \"POST\"\npath = \"/x\"\n";
        let config = Config::parse(&format!("{before}\n{start}{route}"));
        config.map_or_else(
            |faults| faults.into_iter().filter_map(|fault| fault.key).collect(),
            |_| vec![],
        )
    };
    let ask = "reconcile = \"/by/{call}\"\n";
    let rerunnable = "[defaults]\nguarantee = \"rerunnable\"";
    assert_eq!(of("", ask), [""; 0]);
    assert_eq!(of(rerunnable, ask), ["routes[0].reconcile"]);
    // Both say so again.
    assert_eq!(of(rerunnable, &format!("{ask}preset = \"ietf\"")), [""; 0]);
    assert_eq!(of(rerunnable, &format!("{ask}guarantee = \"at-most-once\"")), [""; 0]);
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

#[test]
fn a_file_says_how_events_are_sent() {
    let config = Config::parse(
        r#"
        [events]
        source = "shop"
        deadline = "3s"
        connect = "1s"
        allow_private = true
        allow = ["169.254.7.0/24"]
        require_https = true
        attempts = ["0s", "1s", "1m"]
        park_after = 3
        park_for = "1s"
        park_for_max = "1m"
        "#,
    );
    let events = config.unwrap().events;
    assert_eq!(events.source, "shop");
    assert_eq!(
        (events.deadline, events.course.window()),
        (Duration::from_secs(3), Duration::from_mins(1))
    );
    assert_eq!(
        (events.parking.failures, events.parking.most),
        (3, Duration::from_mins(1))
    );
    for (address, allowed) in [("10.0.0.1", true), ("169.254.7.1", true), ("169.254.169.254", false)] {
        let checked = events.destinations.check(address.parse().unwrap());
        assert_eq!(checked.is_ok(), allowed, "{address}");
    }
    let plain = "http://shop.example/".parse().unwrap();
    assert!(events.destinations.check_target(&plain).is_err());
}

#[test]
fn every_mistake_about_events_is_told_at_once() {
    let text = r#"
[events]
source = ""
deadline = "1h"
allow = ["10.1.2.3/8"]
attempts = ["5s", "1s"]
park_after = 100000
park_for = "2h"
park_for_max = "1h"
sauce = "shop"
"#;
    let faults = Config::parse(text).unwrap_err();
    let told: Vec<_> = faults
        .iter()
        .map(|fault| format!("{}: {}", fault.line, fault.what))
        .collect();
    let expected = [
        (2, "events.park_for_max is less than park_for"),
        (3, "events.source is \"\", accepted is a text"),
        (4, "events.deadline is \"1h\", accepted is a number and a unit"),
        (5, "events.allow is [\"10.1.2.3/8\"], accepted is a list of networks"),
        (6, "events.attempts is [\"5s\", \"1s\"], accepted is a list of times"),
        (7, "events.park_after is 100000, accepted is at most 1000"),
        (10, "events.sauce is not a setting; here are: allow, allow_private"),
    ];
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for (told, (line, what)) in told.iter().zip(expected) {
        assert!(told.starts_with(&format!("{line}: {what}")), "{told}");
    }
}

#[test]
fn a_file_says_whose_events_come_in() {
    let config = Config::parse(
        r#"
        [inbox]
        listen = "127.0.0.1:8082"
        [inbox.shop]
        secrets = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "$PATH"]
        style = "github"
        forward = "http://127.0.0.1:3000/hook"
        sign = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
        "#,
    );
    let inbox = config.unwrap().inbox;
    assert_eq!(inbox.listen, Some("127.0.0.1:8082".parse().unwrap()));
    assert_eq!(inbox.sources["shop"].forward.as_str(), "http://127.0.0.1:3000/hook");
    assert!(inbox.sources["shop"].sign.is_some());
}

#[test]
fn every_mistake_about_the_inbox_is_told_at_once_and_no_secret_is() {
    let text = r#"
[inbox]
[inbox.shop]
secrets = "hunter2"
forward = "ftp://shop.example"
style = "stripes"
[inbox."a b"]
secrets = ["whsec_hunter2"]
forward = "http://127.0.0.1:3000/"
[inbox.pay]
secrets = ["$NOBODY_SETS_THIS"]
forward = "http://127.0.0.1:3000/"
[inbox.none]
secrets = []
sign = "hunter2"
"#;
    let faults = Config::parse(text).unwrap_err();
    let told: Vec<_> = faults
        .iter()
        .map(|fault| format!("{}: {}", fault.line, fault.what))
        .collect();
    assert!(!told.iter().any(|told| told.contains("hunter2")), "{told:#?}");
    for expected in [
        "2: inbox needs listen",
        "4: inbox.shop.secrets is something else than a list of texts",
        "5: inbox.shop.forward is \"ftp://shop.example\", accepted is an http or https address",
        "6: inbox.shop.style is \"stripes\", accepted is \"standard\" or \"stripe\" or \"github\"",
        "7: inbox.a b is no name of a source",
        "8: inbox.a b.secrets: ",
        "11: inbox.pay.secrets: NOBODY_SETS_THIS is not in the environment",
        "13: inbox.none needs forward",
        "14: inbox.none.secrets: there are none",
        "15: inbox.none.sign: ",
    ] {
        assert!(
            told.iter().any(|told| told.starts_with(expected)),
            "{expected} is not in {told:#?}"
        );
    }
}

#[test]
fn less_room_than_one_request_may_take_is_refused() {
    let large = "[[routes]]\nmethod = \"POST\"\npath = \"/x\"\nbody_max = \"2MiB\"\n";
    let off = "[defaults]\nbody_max = \"4MiB\"\nkey = \"off\"\n";
    for (text, line, told) in [
        (
            "held_max = 0",
            1,
            "held_max is 0, accepted is at least 1048576, the largest body_max",
        ),
        (
            "\nheld_max = 1048575",
            2,
            "held_max is 1048575, accepted is at least 1048576",
        ),
        (
            &format!("held_max = \"1MiB\"\n{large}"),
            1,
            "held_max is 1048576, accepted is at least 2097152",
        ),
        (
            "[defaults]\nbody_max = \"1GiB\"",
            1,
            "held_max is 268435456, accepted is at least 1073741824",
        ),
        (
            &format!("held_max = 0\n{off}"),
            1,
            "held_max is 0, accepted is at least 1,",
        ),
    ] {
        let faults = Config::parse(text).unwrap_err();
        let [fault] = &faults[..] else { panic!("{faults:#?}") };
        assert_eq!(fault.line, line, "{text}");
        assert!(fault.what.contains(told), "{}", fault.what);
    }
    for text in [
        "held_max = \"1MiB\"",
        &format!("held_max = \"2MiB\"\n{large}"),
        "held_max = \"1GiB\"\n[defaults]\nbody_max = \"1GiB\"",
        &format!("held_max = 1\n{off}"),
    ] {
        assert!(Config::parse(text).is_ok(), "{text}");
    }
}
