//! Headers that owners of endpoints may set, and the others.

use exactly::webhook::delivery::{CustomHeaders, Parcel};
use http::{HeaderMap, HeaderValue};

use super::hostile::{Receiver, value};
use super::{local, target};

#[test]
fn what_belongs_to_the_delivery_cannot_be_overridden() {
    for name in [
        "webhook-id",
        "Webhook-Timestamp",
        "WEBHOOK-SIGNATURE",
        "webhook-anything",
        "Host",
        "Content-Length",
        "Content-Type",
        "Content-Encoding",
        "Transfer-Encoding",
        "Connection",
        "Keep-Alive",
        "Proxy-Connection",
        "Proxy-Authorization",
        "TE",
        "Trailer",
        "Upgrade",
        "Expect",
        "Accept-Encoding",
        "User-Agent",
    ] {
        let error = CustomHeaders::new([("x-fine", "1"), (name, "x")])
            .unwrap_err()
            .to_string();
        assert!(error.contains(&name.to_lowercase()), "{name}: {error}");
        let mut map = HeaderMap::new();
        map.insert(
            name.to_lowercase().parse::<http::HeaderName>().unwrap(),
            "x".parse().unwrap(),
        );
        assert!(CustomHeaders::try_from(map).is_err(), "{name}");
    }
}

#[test]
fn nothing_can_be_smuggled_in_by_a_line_break() {
    for (name, text) in [
        ("x-a", "1\r\nhost: evil"),
        ("x-a", "1\nwebhook-id: evil"),
        ("x-a", "1\r"),
        ("x-a", "\0"),
        ("x-a", "\u{7f}"),
        ("x-a", "caf\u{e9}"),
        ("x-a\r\nhost", "1"),
        ("x-a: 1", "1"),
        ("x a", "1"),
        ("", "1"),
    ] {
        assert!(CustomHeaders::new([(name, text)]).is_err(), "{name:?}: {text:?}");
    }
}

#[test]
fn there_is_a_limit_on_custom_headers() {
    let names: Vec<String> = (0..=32).map(|n| format!("x-{n}")).collect();
    let pairs = |count: usize| names[..count].iter().map(|name| (name.as_str(), "v"));
    CustomHeaders::new(pairs(32)).unwrap();
    CustomHeaders::new(pairs(33)).unwrap_err();
    // Far beyond what a map of headers holds.
    CustomHeaders::new(std::iter::repeat_n(("x-same", "v"), 100_000)).unwrap_err();
    CustomHeaders::new([("x-long", "v".repeat(8 * 1024 - 6).as_str())]).unwrap();
    CustomHeaders::new([("x-long", "v".repeat(8 * 1024 - 5).as_str())]).unwrap_err();
}

#[test]
fn secrets_in_custom_headers_are_not_shown() {
    let headers = CustomHeaders::new([("authorization", "Bearer hunter2")]).unwrap();
    let shown = format!("{headers:?}");
    assert!(shown.contains("authorization") && !shown.contains("hunter2"), "{shown}");
    let mut map = HeaderMap::new();
    headers.add_to(&mut map);
    assert!(!format!("{map:?}").contains("hunter2"));
}

#[tokio::test]
async fn the_wire_carries_what_was_asked_for_and_what_the_sender_says_of_itself() {
    let receiver = Receiver::answering("HTTP/1.1 204 No Content\r\n\r\n");
    let custom = CustomHeaders::new([("authorization", "Bearer t"), ("x-two", "a"), ("x-three", "")]).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("webhook-id", HeaderValue::from_static("evt_1"));
    custom.add_to(&mut headers);
    // Whoever comes past the check gets no further.
    for (name, text) in [
        ("host", "evil"),
        ("content-length", "3"),
        ("transfer-encoding", "chunked"),
        ("connection", "upgrade"),
        ("expect", "100-continue"),
        ("accept-encoding", "gzip"),
        ("user-agent", "curl"),
        ("content-encoding", "gzip"),
    ] {
        headers.insert(name, HeaderValue::from_static(text));
    }
    let url = target(&receiver.url());
    let body = r#"{"eventId":"evt_1"}"#;
    let parcel = Parcel {
        url: &url,
        headers,
        body: body.into(),
    };
    let exchange = local().build().unwrap().send(parcel).await;
    assert_eq!(exchange.answer.unwrap().status, 204);

    let heads = receiver.seen.heads();
    let [head] = &heads[..] else { panic!("{heads:?}") };
    assert!(head.starts_with("POST /hook HTTP/1.1\r\n"), "{head}");
    for (name, expected) in [
        ("host", Some(receiver.address.to_string())),
        ("webhook-id", Some("evt_1".to_owned())),
        ("authorization", Some("Bearer t".to_owned())),
        ("x-two", Some("a".to_owned())),
        ("x-three", Some(String::new())),
        ("content-type", Some("application/json".to_owned())),
        ("content-length", Some(body.len().to_string())),
        ("accept-encoding", Some("identity".to_owned())),
        (
            "user-agent",
            Some(concat!("exactly/", env!("CARGO_PKG_VERSION")).to_owned()),
        ),
        ("transfer-encoding", None),
        ("content-encoding", None),
        ("connection", None),
        ("expect", None),
        ("cookie", None),
    ] {
        assert_eq!(value(head, name).map(ToOwned::to_owned), expected, "{name} in {head}");
    }
}
