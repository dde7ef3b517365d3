//! What goes in, and what comes out.

use std::fs;

use serde_json::Value;

use super::{Act, STORED, call, call_with, key_of, script, url};
use crate::upstream::reply;

#[tokio::test]
async fn attempts_are_told_as_csv() {
    let odd = reply(503, &[("error-code", "TRANSIENT.a, \"b\"")], "busy");
    let done = reply(201, &[STORED], "rf_1");
    let server = script([Act::Answer(odd), Act::Cut, Act::Answer(done)]).await;
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("answer");
    fs::write(&output, "something longer that was there before").unwrap();
    let ran = call(&["POST", &url(&server), "--csv", "--output", output.to_str().unwrap()]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let lines: Vec<_> = ran.out.lines().collect();
    let [head, one, two, three] = lines[..] else {
        panic!("{ran:?}")
    };
    assert_eq!(head, "attempt,delay_ms,status,code,notes");
    assert_eq!(one, r#"1,0,503,"TRANSIENT.a, ""b""","#);
    let (delay, rest) = two.strip_prefix("2,").unwrap().split_once(',').unwrap();
    assert!((100..=200).contains(&delay.parse::<u32>().unwrap()), "{two}");
    assert!(rest.starts_with("cut,,exchange"), "{two}");
    assert!(three.starts_with("3,") && three.ends_with(",201,,stored"), "{three}");
    assert_eq!(fs::read_to_string(output).unwrap(), "rf_1");
    assert!(!ran.err.contains("attempt 1"), "they are told once: {ran:?}");

    let server = script([Act::Silence]).await;
    let ran = call(&["POST", &url(&server), "--csv", "--within", "200ms"]).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(
        ran.out.ends_with("\n1,0,timeout,,no answer before the time was up\n"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn a_silent_attempt_is_given_up_in_time_for_another_one() {
    let server = script([Act::Silence, Act::Answer(reply(201, &[STORED], ""))]).await;
    let ran = call(&["POST", &url(&server), "--csv", "--attempt", "200ms", "--within", "4s"]).await;
    assert_eq!((ran.code, server.effects()), (0, 2), "{ran:?}");
    let lines: Vec<_> = ran.out.lines().collect();
    let [_, one, two] = lines[..] else { panic!("{ran:?}") };
    assert_eq!(one, "1,0,timeout,,no answer before the time was up");
    assert!(two.starts_with("2,") && two.ends_with(",201,,stored"), "{two}");
    let keys: Vec<_> = server.requests().iter().map(key_of).collect();
    assert_eq!(keys[0], keys[1]);
}

#[tokio::test]
async fn the_whole_outcome_is_told_as_json() {
    let problem = r#"{"code":"RATE_LIMIT.exceeded","retryAfter":3600}"#;
    let json = ("content-type", "application/json");
    let server = script([Act::Answer(reply(429, &[json, ("x-a", "1"), ("x-a", "2")], problem))]).await;
    let ran = call(&["POST", &url(&server), "--json"]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    let told: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(told["outcome"], "not_applied");
    assert_eq!(told["key"], key_of(&server.request()));
    assert_eq!(
        (&told["stop"], &told["ready_in_ms"]),
        (&"deadline".into(), &3_600_000.into())
    );
    assert_eq!(told["hint"], "wait, then repeat");
    let attempt = &told["attempts"][0];
    assert_eq!(
        (&attempt["attempt"], &attempt["delay_ms"], &attempt["status"]),
        (&1.into(), &0.into(), &"429".into())
    );
    assert_eq!(attempt["code"], "RATE_LIMIT.exceeded");
    assert_eq!(told["answer"]["status"], 429);
    assert_eq!(told["answer"]["body"], problem);
    assert_eq!(told["answer"]["headers"]["x-a"], "1, 2");
    assert!(ran.err.contains("attempt 1: 429"), "people are told as well: {ran:?}");

    let mut answer = reply(200, &[], "12");
    answer.splice(answer.len() - 2.., [0xff, 0]);
    let server = script([Act::Answer(answer)]).await;
    let ran = call(&["GET", &url(&server), "--json"]).await;
    let told: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(told["outcome"], "applied");
    assert_eq!(told["answer"]["body_base64"], "/wA=");
    assert_eq!(told["key"], Value::Null, "what changes nothing needs no key");
    assert_eq!(server.requests()[0].header("idempotency-key"), None);
}

#[tokio::test]
async fn a_body_comes_from_a_text_a_file_or_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("body");
    fs::write(&file, b"{ \"b\": 1,\n \"a\": 1.50 }").unwrap();
    let at_file = format!("@{}", file.display());
    for (flag, body, input, sent, kind) in [
        ("--data", "a=b", "", "a=b", None),
        ("--data", &at_file, "", "{ \"b\": 1,\n \"a\": 1.50 }", None),
        (
            "--data-json",
            &at_file,
            "",
            "{ \"b\": 1,\n \"a\": 1.50 }",
            Some("application/json"),
        ),
        ("--data", "-", "from a pipe", "from a pipe", None),
        ("--data-json", "-", "[1, 2]", "[1, 2]", Some("application/json")),
    ] {
        let server = script([Act::Answer(reply(201, &[STORED], ""))]).await;
        let ran = call_with(&["POST", &url(&server), flag, body], input.as_bytes()).await;
        assert_eq!(ran.code, 0, "{ran:?}");
        let request = server.request();
        assert_eq!(
            (request.text().as_str(), request.header("content-type")),
            (sent, kind),
            "{flag} {body}"
        );
    }
}

#[tokio::test]
async fn headers_come_from_the_command_line_and_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("headers");
    fs::write(
        &file,
        "# who we are\nAuthorization: Bearer secret-token\n\nIdempotency-Key: k-from-file\n",
    )
    .unwrap();
    let file = file.to_str().unwrap();
    let server = script([Act::Answer(reply(201, &[STORED], ""))]).await;
    let arguments = [
        "POST",
        &url(&server),
        "-H",
        "X-Tenant: acme",
        "-H",
        "Content-Type: text/csv",
        "--header-file",
        file,
    ];
    let ran = call(&[&arguments[..], &["--data-json", "1"]].concat()).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let request = server.request();
    assert_eq!(request.header("x-tenant"), Some("acme"));
    assert_eq!(request.header("authorization"), Some("Bearer secret-token"));
    assert_eq!(request.header("content-type"), Some("text/csv"));
    assert_eq!(key_of(&request), "k-from-file");
    assert!(ran.err.starts_with("key k-from-file\n"), "{ran:?}");
    assert!(!ran.err.contains("secret"), "{ran:?}");

    // What is in a file stays with the server that it was meant for.
    let elsewhere = script([Act::Answer(reply(201, &[], ""))]).await;
    fs::write(file, "X-Api-Key: secret-too\n").unwrap();
    let server = script([Act::Answer(reply(307, &[("location", &url(&elsewhere))], ""))]).await;
    let ran = call(&["POST", &url(&server), "-H", "X-Tenant: acme", "--header-file", file]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(server.request().header("x-api-key"), Some("secret-too"));
    let request = elsewhere.request();
    assert_eq!(
        (request.header("x-api-key"), request.header("x-tenant")),
        (None, Some("acme"))
    );

    let server = script([Act::Answer(reply(201, &[], ""))]).await;
    let ran = call(&["PUT", &url(&server), "--key-header", "X-Request-Key", "--key", "k2"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(server.request().header("x-request-key"), Some("k2"));
    assert_eq!(server.request().header("idempotency-key"), None);
}

#[tokio::test]
async fn it_says_who_is_calling() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("headers");
    fs::write(&file, "User-Agent: from-a-file/1\n").unwrap();
    let own = concat!("exactly/", env!("CARGO_PKG_VERSION"));
    for (more, agent) in [
        (&[][..], own),
        (&["-H", "user-agent: shop/7"], "shop/7"),
        (&["--header-file", file.to_str().unwrap()], "from-a-file/1"),
    ] {
        let server = script([Act::Answer(reply(201, &[STORED], ""))]).await;
        let ran = call(&[&["POST", &url(&server)][..], more].concat()).await;
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_eq!(server.request().header("user-agent"), Some(agent));
    }
}

#[tokio::test]
async fn what_is_told_wrongly_is_said_and_not_sent() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("headers");
    fs::write(&file, "X-Good: yes\nsecret without a colon\n").unwrap();
    let file = file.to_str().unwrap();
    let server = script([Act::Answer(reply(201, &[], ""))]).await;
    let good = url(&server);
    for (arguments, why) in [
        (&["POST", "refunds"][..], "accepted are http://HOST/"),
        (&["POST", "ftp://example.org/"], "accepted are http://HOST/"),
        (&["POST", "https://"], "accepted are http://HOST/"),
        (&["POST", &good, "--ask", "refunds/by-key"], "accepted are http://HOST/"),
        (&["POST", &good, "--ask", "http://[::1/by-key"], "IPv6"),
        (&["POST", "http://[::1/refunds"], "IPv6"),
        (&["PO ST", &good], "accepted is a word such as POST"),
        (&["POST", &good, "-H", "no colon"], "accepted is NAME: VALUE"),
        (&["POST", &good, "-H", "X Y: z"], "no name of a header"),
        (
            &["POST", &good, "--header-file", file],
            "line 2: accepted is NAME: VALUE",
        ),
        (
            &["POST", &good, "--header-file", "/no/such/file"],
            "--header-file /no/such/file",
        ),
        (&["POST", &good, "--within", "10"], "accepted are a number and a unit"),
        (&["POST", &good, "--within", "0s"], "accepted are a number and a unit"),
        (&["POST", &good, "--attempt", "0ms"], "accepted are a number and a unit"),
        (&["POST", &good, "--retries", "many"], "invalid"),
        (
            &["POST", &good, "--class", "important"],
            "user-facing, background, webhook, scheduled",
        ),
        (&["POST", &good, "--data", "@/no/such/file"], "/no/such/file"),
        (&["POST", &good, "--data-json", "{1}"], "this is no JSON"),
        (
            &["POST", &good, "--data", "1", "--data-json", "1"],
            "cannot be used with",
        ),
        (&["POST", &good, "--key", ""], "--key"),
        (&["POST", &good, "--key", "schlüssel"], "visible ASCII"),
        (&["POST", &good, "--resume", "schlüssel"], "visible ASCII"),
        (
            &["POST", &good, "--key", "a", "-H", "Idempotency-Key: b"],
            "more than one key",
        ),
        (
            &["POST", &good, "-H", "Idempotency-Key: a", "-H", "idempotency-key: a"],
            "more than one key",
        ),
        (
            &["POST", &good, "--resume", "a", "-H", "Idempotency-Key: a"],
            "more than one key",
        ),
        (&["POST", &good, "--key", "a", "--resume", "a"], "cannot be used with"),
        (&["POST", &good, "--operation", "x"], "--journal"),
        (&["POST", &good, "--cacert", "/no/such/file"], "--cacert /no/such/file"),
        (&["POST", &good, "--cacert", file], "no certificate"),
        (&["POST", &good, "--output", "/no/such/folder/file"], "--output"),
    ] {
        let ran = call(arguments).await;
        ran.refused(2, why);
        assert!(!ran.err.contains("secret"), "{ran:?}");
    }
    assert_eq!(server.connections(), 0, "nothing was sent");
}
