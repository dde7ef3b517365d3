//! What passes through the gateway, and what changes on the way.

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::PATIENCE;
use crate::client::{ask, get, post};
use crate::server::{Server, until};
use crate::upstream::{Upstream, chunked, reply};
use crate::wire::{Message, Wire};

/// Answers with what it was asked.
async fn mirror() -> Upstream {
    Upstream::answering(|request: Message| async move {
        let body = format!("{} {}", request.start, request.text());
        match request.method() {
            "HEAD" => b"HTTP/1.1 200 Said\r\ncontent-length: 7\r\n\r\n".to_vec(),
            _ => reply(200, &[], &body),
        }
    })
    .await
}

#[tokio::test]
async fn every_method_passes_with_its_query_and_body() {
    let upstream = mirror().await;
    let server = Server::start(upstream.address);
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "TRACE"] {
        let path = "/a/%2e%2F//b;c=1?q=%20&q=ä+z&&x".replace('ä', "%C3%A4");
        let answer = ask(method, &path).body("hello").to(server.listen).await;
        assert_eq!(answer.text(), format!("{method} {path} HTTP/1.1 hello"));
        assert_eq!(answer.key_status(), None);
    }
}

#[tokio::test]
async fn answers_without_a_body_end_where_their_head_does() {
    let upstream = Upstream::answering(|request: Message| async move {
        match request.target() {
            "/head" => b"HTTP/1.1 200 Said\r\ncontent-length: 7\r\n\r\n".to_vec(),
            "/204" => b"HTTP/1.1 204 Said\r\nx-a: b\r\n\r\n".to_vec(),
            "/304" => b"HTTP/1.1 304 Said\r\netag: \"1\"\r\ncontent-length: 7\r\n\r\n".to_vec(),
            _ => reply(200, &[], "whole"),
        }
    })
    .await;
    let server = Server::start(upstream.address);
    let mut wire = Wire::connect(server.listen).await;
    for (method, path, status) in [("HEAD", "/head", 200), ("GET", "/204", 204), ("GET", "/304", 304)] {
        wire.send(ask(method, path).bytes()).await.unwrap();
        let answer = timeout(PATIENCE, wire.head()).await.unwrap().unwrap();
        assert_eq!(answer.status(), status, "{path}");
        // What comes next on the same connection is the next answer, not a body.
        wire.send(get("/whole").bytes()).await.unwrap();
        assert_eq!(wire.answered().await.unwrap().text(), "whole", "{path}");
    }
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let upstream = mirror().await;
    let server = Server::start(upstream.address);
    let mut wire = Wire::connect(server.listen).await;
    let mut all = Vec::new();
    for n in 0..20 {
        all.extend(post(&format!("/{n}")).key(&format!("k{n}")).bytes());
        all.extend(get(&format!("/get/{n}")).bytes());
    }
    wire.send(all).await.unwrap();
    for n in 0..20 {
        let answer = wire.answered().await.unwrap();
        assert!(answer.text().starts_with(&format!("POST /{n} ")), "{answer:?}");
        let answer = wire.answered().await.unwrap();
        assert!(answer.text().starts_with(&format!("GET /get/{n} ")), "{answer:?}");
    }
}

#[tokio::test]
async fn connections_to_the_upstream_are_used_again() {
    let upstream = Upstream::answering(|request: Message| async move {
        match request.target() {
            "/chunked" => chunked(200, &["one", "two"]),
            "/empty" => b"HTTP/1.1 204 Said\r\n\r\n".to_vec(),
            "/long" => reply(200, &[], &"x".repeat(100_000)),
            _ => reply(200, &[], "short"),
        }
    })
    .await;
    let server = Server::start(upstream.address);
    // One client, because each thread of the gateway has connections of its own.
    let mut wire = Wire::connect(server.listen).await;
    for n in 0..5 {
        for path in ["/chunked", "/empty", "/long", "/short"] {
            wire.send(get(path).bytes()).await.unwrap();
            assert!(wire.answered().await.unwrap().status() < 300);
            wire.send(post(path).key(&format!("{path}{n}")).bytes()).await.unwrap();
            assert_eq!(wire.answered().await.unwrap().key_status(), Some("stored"));
        }
    }
    assert_eq!(upstream.requests().len(), 40);
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn an_upstream_that_says_too_much_does_not_answer_the_next_request() {
    let upstream = Upstream::answering(|request: Message| async move {
        let answer = reply(200, &[], request.target());
        // As if another answer came without being asked for.
        [answer, reply(200, &[], "forged")].concat()
    })
    .await;
    let server = Server::start(upstream.address);
    for n in 0..20 {
        let path = format!("/{n}");
        assert_eq!(get(&path).to(server.listen).await.text(), path);
        assert_eq!(post(&path).key(&path).to(server.listen).await.text(), path);
    }
}

#[tokio::test]
async fn what_belongs_to_one_connection_stays_there() {
    let upstream = Upstream::answering(|_| async {
        let headers = [
            ("connection", "X-Private, close"),
            ("x-private", "1"),
            ("keep-alive", "timeout=9"),
            ("proxy-connection", "close"),
            ("x-public", "1"),
        ];
        reply(200, &headers, "")
    })
    .await;
    let server = Server::start(upstream.address);
    let answer = get("/")
        .header("connection", "keep-alive, X-Secret")
        .header("x-secret", "1")
        .header("keep-alive", "timeout=9")
        .header("te", "gzip")
        .header("proxy-connection", "keep-alive")
        .header("proxy-authorization", "Basic YTpi")
        .header("x-open", "1")
        .to(server.listen)
        .await;
    let request = upstream.request();
    for name in [
        "connection",
        "x-secret",
        "keep-alive",
        "te",
        "proxy-connection",
        "proxy-authorization",
        "upgrade",
    ] {
        assert_eq!(request.header(name), None, "{name}");
    }
    assert_eq!(request.header("x-open"), Some("1"));
    for name in ["x-private", "keep-alive", "proxy-connection"] {
        assert_eq!(answer.header(name), None, "{name}");
    }
    assert_ne!(
        answer.header("connection"),
        Some("close"),
        "the client's connection goes on"
    );
    assert_eq!(answer.header("x-public"), Some("1"));
}

#[tokio::test]
async fn the_upstream_learns_who_asked_and_for_which_host() {
    let upstream = mirror().await;
    let server = Server::start(upstream.address);
    get("/")
        .header("x-forwarded-for", "203.0.113.9")
        .to(server.listen)
        .await;
    let request = upstream.request();
    assert_eq!(request.all("x-forwarded-for"), ["203.0.113.9", "127.0.0.1"]);
    assert_eq!(request.header("x-forwarded-proto"), Some("http"));
    assert_eq!(request.header("x-forwarded-host"), Some("shop.example"));
    assert_eq!(
        request.header("forwarded"),
        Some("for=127.0.0.1;proto=http;host=\"shop.example\"")
    );
    assert_eq!(request.header("host"), Some("shop.example"));
}

#[tokio::test]
async fn every_request_to_the_upstream_names_one_host() {
    let upstream = mirror().await;
    let server = Server::start(upstream.address);
    let own = upstream.address.to_string();
    for (request, host) in [
        ("GET / HTTP/1.0\r\n\r\n".to_owned(), own.as_str()),
        // The target has the last word (RFC 9112, section 3.2.2), and its user is nobody's business.
        (
            "GET http://ada:pw@b.example:99/x HTTP/1.1\r\nhost: a.example\r\n\r\n".to_owned(),
            "b.example:99",
        ),
    ] {
        let mut wire = Wire::connect(server.listen).await;
        wire.send(&request).await.unwrap();
        assert_eq!(wire.answered().await.unwrap().status(), 200, "{request:?}");
        let seen = upstream.requests().pop().unwrap();
        assert_eq!(seen.header("host"), Some(host), "{request:?}");
        assert!(seen.target().starts_with('/'), "{seen:?}");
    }
    let mut wire = Wire::connect(server.listen).await;
    wire.send("GET / HTTP/1.1\r\nhost: a.example\r\nhost: b.example\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(wire.answered().await.unwrap().status(), 400);
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn a_client_cannot_name_a_call_or_an_attempt() {
    let upstream = mirror().await;
    let server = Server::start(upstream.address);
    for request in [get("/"), post("/"), post("/").key("k1")] {
        let request = request
            .header("exactly-call", "forged")
            .header("exactly-token", "forged")
            .header("exactly-keep", "1")
            .header("Idempotency-Attempt", "7");
        request.to(server.listen).await;
    }
    let [plain, unkeyed, keyed] = &upstream.requests()[..] else {
        panic!("three requests")
    };
    for request in [plain, unkeyed, keyed] {
        assert_eq!(request.header("exactly-token"), None);
        assert_eq!(request.header("exactly-keep"), None);
    }
    for request in [plain, unkeyed] {
        assert_eq!(request.header("exactly-call"), None);
        assert_eq!(request.header("idempotency-attempt"), None);
    }
    assert_eq!(keyed.header("idempotency-attempt"), Some("1"));
    let call = keyed.header("exactly-call").unwrap();
    assert!(
        call.len() >= 32 && call.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{call}"
    );
    assert_eq!(keyed.header("idempotency-key"), Some("k1"));
}

#[tokio::test]
async fn an_http_1_0_client_is_served_until_the_end_of_its_connection() {
    let upstream = Upstream::answering(|_| async { chunked(200, &["one", "two"]) }).await;
    let server = Server::start(upstream.address);
    let mut wire = Wire::connect(server.listen).await;
    let request = "POST / HTTP/1.0\r\nidempotency-key: k\r\ncontent-length: 2\r\n\r\nab";
    wire.send(request).await.unwrap();
    let all = timeout(PATIENCE, wire.rest()).await.unwrap().unwrap();
    let text = String::from_utf8(all).unwrap();
    assert!(text.starts_with("HTTP/1.0 200"), "{text}");
    assert!(!text.contains("chunked"), "{text}");
    assert!(text.ends_with("\r\n\r\nonetwo"), "{text}");
    assert_eq!(upstream.request().text(), "ab");
}

#[tokio::test]
async fn http_2_clients_are_served_many_at_a_time_and_under_the_same_contract() {
    let upstream = mirror().await;
    let server = Server::start(upstream.address);
    let stream = TcpStream::connect(server.listen).await.unwrap();
    let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let url = format!("http://shop.example:{}/x?y", server.listen.port());
    let sent = (0..50).map(|n| {
        let mut sender = sender.clone();
        let request = Request::post(&url)
            .header("idempotency-key", format!("k{}", n % 10))
            .body(Full::new(Bytes::from(format!("body {}", n % 10))))
            .unwrap();
        tokio::spawn(async move {
            let answer = sender.send_request(request).await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK);
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, format!("POST /x?y HTTP/1.1 body {}", n % 10));
        })
    });
    for sent in sent.collect::<Vec<_>>() {
        timeout(PATIENCE, sent).await.unwrap().unwrap();
    }
    assert_eq!(upstream.effects(), 10);
    let host = format!("shop.example:{}", server.listen.port());
    assert_eq!(upstream.requests()[0].header("host"), Some(host.as_str()));
}

/// Switches protocols when asked to, and then sends everything back in small letters.
async fn switching() -> Upstream {
    Upstream::scripted(|mut wire, upstream| async move {
        while let Some(request) = wire.request().await {
            upstream.note(&request);
            if request.header("upgrade").is_none() {
                wire.send(reply(200, &[], "plain")).await.unwrap();
                continue;
            }
            let switched = "HTTP/1.1 101 Said\r\nconnection: upgrade\r\nupgrade: whisper\r\nx-a: b\r\n\r\nWELCOME";
            wire.send(switched).await.unwrap();
            while let Some(piece) = wire.bytes(1).await {
                wire.send(piece.to_ascii_lowercase()).await.unwrap();
            }
            return;
        }
    })
    .await
}

#[tokio::test]
async fn an_upgraded_connection_passes_bytes_in_both_directions() {
    let upstream = switching().await;
    let server = Server::start(upstream.address);
    let mut wire = Wire::connect(server.listen).await;
    let request = get("/chat")
        .header("connection", "upgrade")
        .header("upgrade", "whisper");
    wire.send(request.bytes()).await.unwrap();
    let answer = wire.answered().await.unwrap();
    assert_eq!(answer.status(), 101);
    assert_eq!(answer.header("upgrade"), Some("whisper"));
    assert_eq!(answer.header("connection"), Some("upgrade"));
    assert_eq!(wire.bytes(7).await.unwrap(), b"WELCOME");
    // It is no HTTP any more, whatever it looks like.
    let said = "POST / HTTP/1.1\r\nHOST: A\r\nCONTENT-LENGTH: 5\r\nTRANSFER-ENCODING: CHUNKED\r\n\r\n\0\u{1}";
    for _ in 0..3 {
        wire.send(said).await.unwrap();
        let heard = timeout(PATIENCE, wire.bytes(said.len())).await.unwrap().unwrap();
        assert_eq!(heard, said.to_ascii_lowercase().as_bytes());
    }
    assert_eq!(upstream.request().header("x-forwarded-for"), Some("127.0.0.1"));
    drop(wire);
    // The upstream's side of it ends too.
    let ended = until(async || (upstream.open() == 0).then_some(()));
    timeout(PATIENCE, ended).await.unwrap();
}

#[tokio::test]
async fn an_upgrade_is_declined_where_requests_would_pass_unseen_or_unrecorded() {
    let upstream = switching().await;
    let server = Server::start(upstream.address);
    let upgrade = |request: crate::client::Ask, protocol: &str| {
        request
            .header("connection", "upgrade, http2-settings")
            .header("upgrade", protocol)
    };
    for (n, request) in [
        // Whatever came after it would not be seen by the gateway.
        upgrade(get("/"), "h2c").header("http2-settings", "AAMAAABkAAQAAP__"),
        upgrade(get("/"), "whisper, H2C"),
        upgrade(get("/"), "HTTP/2.0"),
        // A switch of protocols is nothing that a duplicate could get again.
        upgrade(post("/").key("k"), "whisper"),
    ]
    .iter()
    .enumerate()
    {
        let answer = request.to(server.listen).await;
        assert_eq!(answer.text(), "plain", "{n}");
        let seen = upstream.requests().pop().unwrap();
        assert_eq!(seen.header("upgrade"), None, "{n}");
        assert_eq!(seen.header("http2-settings"), None, "{n}");
    }
}
