//! What is dialled, and what is not.

use exactly::webhook::delivery::{Destinations, Fault, Network, Sender, Target, TroubleKind};

use super::hostile::Receiver;
use super::{PATIENT, local, send, standing_for, target};

const PUBLIC: &[&str] = &[
    "1.1.1.1",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "191.255.255.255",
    "192.0.1.0",
    "192.0.3.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "198.51.101.0",
    "203.0.114.0",
    "223.255.255.255",
    "2606:4700::1",
    "2001:200::1",
    "2001:4860:4860::8888",
    "2a00::1",
    "::ffff:1.1.1.1",
    "64:ff9b::1.1.1.1",
    "2002:101:101::1",
];

/// What a private network may want to send to.
const PRIVATE: &[&str] = &[
    "10.0.0.0",
    "10.255.255.255",
    "100.64.0.0",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.255",
    "172.16.0.0",
    "172.31.255.255",
    "192.168.0.0",
    "192.168.255.255",
    "::1",
    "fc00::1",
    "fdff:ffff::1",
    "::ffff:127.0.0.1",
    "::ffff:10.1.2.3",
    "64:ff9b::10.0.0.1",
    "64:ff9b::127.0.0.1",
    "2002:7f00:1::",
    "2002:a00:1::1",
];

/// What nobody may want to.
const NEVER: &[&str] = &[
    "0.0.0.0",
    "0.1.2.3",
    "169.254.0.0",
    "169.254.169.254",
    "192.0.0.0",
    "192.0.0.255",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.0",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::127.0.0.1",
    "::2",
    "100::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:f5ff:fffe",
    "2001:db8::1",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "64:ff9b:1::1",
    "fe80::1",
    "febf::1",
    "fec0::1",
    "ff02::1",
    "::ffff:169.254.169.254",
    "::ffff:0.0.0.0",
    "64:ff9b::169.254.169.254",
    "2002:a9fe:a9fe::",
];

#[test]
fn only_public_addresses_are_dialled_unless_others_are_allowed() {
    let (public, private) = (Destinations::default(), Destinations::default().allow_private());
    let may = |destinations: &Destinations, address: &str| destinations.check(address.parse().unwrap()).is_ok();
    for address in PUBLIC {
        assert!(may(&public, address) && may(&private, address), "{address}");
    }
    for address in PRIVATE {
        assert!(!may(&public, address), "{address}");
        assert!(may(&private, address), "{address}");
    }
    for address in NEVER {
        assert!(!may(&public, address) && !may(&private, address), "{address}");
    }
}

#[test]
fn a_network_that_is_allowed_is_allowed_whatever_it_is() {
    let allow = |network: &str| Destinations::default().allow(network.parse().unwrap());
    for (network, within, without) in [
        ("10.0.0.0/8", "10.255.0.1", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
        ("127.0.0.1/32", "::ffff:127.0.0.1", "::1"),
        ("169.254.169.254", "169.254.169.254", "169.254.169.253"),
        ("fd00::/8", "fd12::1", "fc00::1"),
        ("0.0.0.0/0", "10.0.0.1", "fd00::1"),
        ("::/0", "fd00::1", "10.0.0.1"),
        ("192.168.4.0/22", "192.168.7.255", "192.168.8.0"),
        ("192.168.4.0/22", "64:ff9b::192.168.7.255", "64:ff9b::192.168.8.0"),
    ] {
        let destinations = allow(network);
        destinations.check(within.parse().unwrap()).unwrap();
        destinations.check(without.parse().unwrap()).unwrap_err();
    }
}

#[test]
fn networks_that_may_mean_two_things_are_refused() {
    for text in ["10.0.0.0/8", "10.1.2.3", "0.0.0.0/0", "::/0", "fd00::/8", "::1/128"] {
        text.parse::<Network>().unwrap();
    }
    for text in [
        "",
        "10.0.0.0/33",
        "::/129",
        "10.0.0.0/-1",
        "10.0.0.0/",
        "10.0.0/8",
        "10.0.0.1/8",
        "::ffff:10.0.0.0/104",
        "fd00::1/8",
        "localhost",
        "10.0.0.0/8/8",
        "10.0.0.0/ 8",
    ] {
        text.parse::<Network>().unwrap_err();
    }
}

#[test]
fn urls_that_cannot_be_an_endpoint_are_refused() {
    for text in [
        "http://example.com",
        "https://example.com:8443/a?b=c",
        "http://[2606:4700::1]/",
        "https://b\u{fc}cher.example/",
    ] {
        text.parse::<Target>().unwrap();
    }
    let long = format!("https://example.com/{}", "a".repeat(2048));
    for text in [
        "",
        "/hook",
        "example.com/hook",
        "ftp://example.com/",
        "file:///etc/passwd",
        "http://",
        "http:///",
        "https://user:pass@example.com/",
        "https://user@example.com/",
        "http://example.com:0/",
        "http://example.com:99999/",
        "http://exa mple.com/",
        "javascript:alert(1)",
        "http://[::1%25eth0]/",
        "http://256.1.1.1/",
        &long,
    ] {
        assert!(text.parse::<Target>().is_err(), "{text}");
    }
    let secret = target("https://hooks.example/services/T0/hunter2?token=hunter2");
    let shown = format!("{secret:?}");
    assert!(shown.contains("hooks.example") && !shown.contains("hunter2"), "{shown}");
}

/// Every way to write this machine in a URL.
#[tokio::test]
async fn a_url_that_names_a_private_address_in_any_notation_is_not_dialled() {
    let receiver = Receiver::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let port = receiver.address.port();
    let sender = Sender::builder().deadline(PATIENT).build().unwrap();
    for host in [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "017700000001",
        "127.0.0.1.",
        "%31%32%37.0.0.1",
        "\u{ff11}\u{ff12}\u{ff17}.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::127.0.0.1]",
        "0.0.0.0",
        "0",
        "[::]",
        "localhost",
        "localhost.",
        "LOCALHOST",
    ] {
        let exchange = send(&sender, &format!("http://{host}:{port}/")).await;
        let Err(Fault::NotSent(trouble)) = &exchange.answer else {
            panic!("{host}: {exchange:?}")
        };
        // A system may not know a name that it should; then there is nothing to refuse.
        let unknown = host.starts_with("localhost.") && trouble.kind == TroubleKind::Unreachable;
        assert!(trouble.kind == TroubleKind::Refused || unknown, "{host}: {trouble:?}");
    }
    assert_eq!(receiver.seen.connections(), 0);
}

#[tokio::test]
async fn the_check_is_on_the_address_that_a_name_stands_for() {
    let receiver = Receiver::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let url = format!("http://hooks.example:{}/", receiver.address.port());
    for addresses in [
        &["127.0.0.1"][..],
        &["::ffff:127.0.0.1"],
        &["10.0.0.1", "127.0.0.1"],
        &["64:ff9b::7f00:1"],
    ] {
        let sender = Sender::builder().lookup(standing_for(addresses)).build().unwrap();
        let exchange = send(&sender, &url).await;
        let Err(Fault::NotSent(trouble)) = &exchange.answer else {
            panic!("{exchange:?}")
        };
        assert_eq!(trouble.kind, TroubleKind::Refused, "{trouble:?}");
        assert!(trouble.message.contains("allow its network"), "{trouble:?}");
    }
    assert_eq!(receiver.seen.connections(), 0);

    let sender = local().lookup(standing_for(&["127.0.0.1"])).build().unwrap();
    assert!(
        send(&sender, &url).await.answer.is_ok(),
        "the same, where it is allowed"
    );
    assert_eq!(receiver.seen.posts(), 1);
}

/// One address is allowed and the other is not; both would answer.
#[tokio::test]
async fn of_a_names_addresses_only_those_are_dialled_that_may_be() {
    let receiver = Receiver::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let url = format!("http://hooks.example:{}/", receiver.address.port());
    let build = |allowed: &str| {
        Sender::builder()
            .destinations(Destinations::default().allow(allowed.parse().unwrap()))
            .lookup(standing_for(&["127.0.0.1", "127.0.0.2"]))
            .deadline(PATIENT)
            .build()
            .unwrap()
    };
    // Nobody listens on 127.0.0.2.
    let exchange = send(&build("127.0.0.2"), &url).await;
    assert!(
        matches!(&exchange.answer, Err(Fault::NotSent(trouble)) if trouble.kind == TroubleKind::Unreachable),
        "{exchange:?}"
    );
    assert_eq!(receiver.seen.connections(), 0);
    assert!(send(&build("127.0.0.1"), &url).await.answer.is_ok());
    assert_eq!(receiver.seen.posts(), 1);
}

#[tokio::test]
async fn a_name_that_nobody_knows_is_not_sent_to() {
    for sender in [
        local().lookup(standing_for(&[])).build().unwrap(),
        local()
            .lookup(|_| Box::pin(async { Err(std::io::Error::other("no such name")) }))
            .build()
            .unwrap(),
    ] {
        let exchange = send(&sender, "http://hooks.example/").await;
        assert!(
            matches!(&exchange.answer, Err(Fault::NotSent(trouble)) if trouble.kind == TroubleKind::Unreachable),
            "{exchange:?}"
        );
    }
}

#[tokio::test]
async fn plain_http_is_refused_where_https_is_required() {
    let receiver = Receiver::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let destinations = Destinations::default().allow_private().require_https(true);
    destinations.check_target(&target("https://127.0.0.1/")).unwrap();
    let sender = local().destinations(destinations).build().unwrap();
    let exchange = send(&sender, &receiver.url()).await;
    assert!(
        matches!(&exchange.answer, Err(Fault::NotSent(trouble)) if trouble.kind == TroubleKind::Refused),
        "{exchange:?}"
    );
    assert_eq!(receiver.seen.connections(), 0);
}
