//! One gateway in front of a service that answers for several hosts.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::client::post;
use crate::server::Server;
use crate::upstream::{Upstream, reply};
use crate::wire::{Message, Wire};

const BODY: &str = "{\"amount\":7}";

/// How a request names its host.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// HTTP/1.1, as everybody does.
    Header,
    /// HTTP/1.1, as to a proxy. What the header says beside it does not count.
    Target,
    Http2,
}

const WAYS: [Way; 3] = [Way::Header, Way::Target, Way::Http2];

/// Sends one and the same request, for `host`.
async fn refund(server: &Server, way: Way, host: &str, key: &str) -> Message {
    let (target, header) = match way {
        Way::Header => ("/refunds".to_owned(), host),
        Way::Target => (format!("http://{host}/refunds"), "nobody.example"),
        Way::Http2 => return refund_over_http_2(server, host, key).await,
    };
    let mut wire = Wire::connect(server.listen).await;
    let head = format!("POST {target} HTTP/1.1\r\nhost: {header}\r\nidempotency-key: {key}\r\n");
    let length = BODY.len();
    let rest = format!("content-type: application/json\r\ncontent-length: {length}\r\n\r\n{BODY}");
    wire.send(head + &rest).await.unwrap();
    wire.answered().await.unwrap()
}

async fn refund_over_http_2(server: &Server, host: &str, key: &str) -> Message {
    let stream = TcpStream::connect(server.listen).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::post(format!("http://{host}/refunds"))
        .header("idempotency-key", key)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(BODY)))
        .unwrap();
    let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
    let headers = parts.headers.iter();
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    let answer = Message {
        start: format!("HTTP/2 {}", parts.status.as_u16()),
        headers: headers.collect(),
        body: body.collect().await.unwrap().to_bytes().to_vec(),
        ..Message::default()
    };
    connection.abort();
    answer
}

#[tokio::test]
async fn the_answer_for_one_host_is_never_given_for_another() {
    let upstream = Upstream::counting().await;
    let server = Server::start(upstream.address);
    for way in WAYS {
        let key = format!("{way:?}");
        let first = refund(&server, way, "a.example", &key).await;
        assert_eq!(first.key_status(), Some("stored"), "{way:?}");
        for again in WAYS {
            let other = refund(&server, again, "b.example", &key).await;
            assert_eq!(
                (other.status(), other.code().as_str()),
                (409, "CONFLICT.idempotency.payload_mismatch"),
                "{way:?}, {again:?}"
            );
            for same in ["a.example", "A.example:80"] {
                let same = refund(&server, again, same, &key).await;
                assert_eq!(same.key_status(), Some("replayed"), "{way:?}, {again:?}");
                assert_eq!(same.text(), first.text());
            }
        }
    }
    assert_eq!(upstream.effects(), WAYS.len());
}

#[tokio::test]
async fn a_service_with_several_names_shares_its_answers() {
    let upstream = Upstream::counting().await;
    let route = "[[routes]]\nmethod = \"POST\"\npath = \"/refunds\"\ncompare_host = false\n";
    let server = Server::with(upstream.address, route);
    assert_eq!(refund(&server, Way::Header, "a.example", "k").await.text(), "effect 1");
    for way in WAYS {
        for host in ["a.example", "b.example:8080"] {
            let again = refund(&server, way, host, "k").await;
            assert_eq!(again.key_status(), Some("replayed"), "{way:?} {host}");
        }
    }
    assert_eq!(upstream.effects(), 1);
}

#[tokio::test]
async fn leave_is_asked_for_the_host_that_the_request_is_for() {
    let upstream = Upstream::answering(|request: Message| async move { reply(200, &[], request.target()) }).await;
    let server = Server::with(upstream.address, "authorize = \"/auth\"\n");
    for way in WAYS {
        let before = upstream.requests().len();
        let answer = refund(&server, way, "b.example", &format!("{way:?}")).await;
        assert_eq!(answer.text(), "/refunds", "{way:?}");
        let asked = upstream.requests().split_off(before);
        let hosts: Vec<_> = asked.iter().map(|it| (it.target(), it.header("host"))).collect();
        let expected = [("/auth", Some("b.example")), ("/refunds", Some("b.example"))];
        assert_eq!(hosts, expected, "{way:?}");
    }
}

#[tokio::test]
async fn leave_is_asked_without_what_belongs_to_the_request() {
    let of_request = [
        ("if-match", "\"a\""),
        ("if-none-match", "\"a\""),
        ("if-modified-since", "Tue, 15 Nov 1994 12:45:26 GMT"),
        ("if-unmodified-since", "Tue, 15 Nov 1994 12:45:26 GMT"),
        ("if-range", "\"a\""),
        ("range", "bytes=0-1"),
        ("te", "trailers"),
    ];
    let upstream = Upstream::answering(|request: Message| async move { reply(200, &[], request.target()) }).await;
    let server = Server::with(upstream.address, "authorize = \"/auth\"\n");
    let request = post("/refunds").key("k").header("x-other", "1");
    let request = of_request
        .iter()
        .fold(request, |it, (name, value)| it.header(name, value));
    assert_eq!(request.to(server.listen).await.text(), "/refunds");
    let asked = upstream.requests();
    let [question, passed_on] = &asked[..] else {
        panic!("{asked:#?}")
    };
    assert_eq!((question.target(), question.header("x-other")), ("/auth", Some("1")));
    for (name, _) in of_request {
        assert_eq!(question.header(name), None, "{name}");
    }
    assert_eq!(passed_on.header("if-match"), Some("\"a\""));
}
