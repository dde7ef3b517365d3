//! The layer behind a real server, and clients that do not behave.

use std::net::SocketAddr;

use exactly::layer::Policy;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::app::{Gated, gated, layer, memory};

/// A server whose handler says that it has started and waits for leave to end.
struct Served {
    address: SocketAddr,
    gated: Gated,
}

async fn serve(policy: Policy) -> Served {
    let gated = gated(layer(memory(), policy));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = gated.app.clone();
    tokio::spawn(async move { axum::serve(listener, app).await });
    Served { address, gated }
}

impl Served {
    async fn connect(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// The whole answer to a request that asks for the connection to be closed.
    async fn ask(&self, request: &str) -> String {
        let mut stream = self.connect(request).await;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

fn refund(headers: &str, body: &str) -> String {
    format!("POST /refunds HTTP/1.1\r\nhost: shop\r\nconnection: close\r\nidempotency-key: k1\r\n{headers}\r\n{body}")
}

#[tokio::test]
async fn a_connection_that_is_cut_cancels_nothing() {
    let served = serve(Policy::playbook()).await;
    let request = refund("content-length: 2\r\n", "{}");
    let cut = served.connect(&request).await;
    served.gated.until_started().await;
    // With a reset, not only a goodbye.
    cut.set_zero_linger().unwrap();
    drop(cut);
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    served.gated.leave.notify_one();
    served.gated.layer.drain().await;
    let answer = served.ask(&request).await;
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert!(answer.contains("idempotency-status: replayed"), "{answer}");
    assert!(answer.ends_with("run 1"), "{answer}");
    assert_eq!(served.gated.runs.get(), 1);
}

#[tokio::test]
async fn a_body_that_breaks_off_claims_nothing() {
    let served = serve(Policy::playbook()).await;
    let broken = served.connect(&refund("content-length: 100\r\n", "{\"amount\":")).await;
    drop(broken);
    let chunked = refund("transfer-encoding: chunked\r\n", "5\r\n{\"amo\r\n");
    drop(served.connect(&chunked).await);
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert_eq!(served.gated.runs.get(), 0);
    served.gated.leave.notify_one();
    let whole = served.ask(&refund("content-length: 2\r\n", "{}")).await;
    assert!(whole.contains("idempotency-status: stored"), "{whole}");
}

#[tokio::test]
async fn a_body_that_says_it_is_too_long_is_not_waited_for() {
    let served = serve(Policy::playbook().body_max(1024)).await;
    let answer = served.ask(&refund("content-length: 1000000000000\r\n", "")).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    // One that does not say so is read only as far as the limit.
    let endless = format!("{:x}\r\n{}\r\n", 2048, "x".repeat(2048));
    let answer = served.ask(&refund("transfer-encoding: chunked\r\n", &endless)).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(served.gated.runs.get(), 0);
}

#[tokio::test]
async fn two_connections_with_one_key_share_one_run() {
    let served = serve(Policy::playbook()).await;
    let chunked = refund("transfer-encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n");
    let request = refund("content-length: 2\r\n", "{}");
    let both = async { tokio::join!(served.ask(&request), served.ask(&chunked)) };
    let leave = async {
        served.gated.until_started().await;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        served.gated.leave.notify_one();
    };
    let ((one, other), ()) = tokio::join!(both, leave);
    assert!(one.ends_with("run 1") && other.ends_with("run 1"), "{one} {other}");
    let replayed = |answer: &str| answer.contains("idempotency-status: replayed");
    assert!(replayed(&one) != replayed(&other), "{one} {other}");
    assert_eq!(served.gated.runs.get(), 1);
}
