//! Over TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::call;
use crate::tls::certified;
use crate::upstream::reply;

/// A server that nobody has heard of.
struct Stranger {
    address: SocketAddr,
    certificate: String,
    requests: Arc<AtomicUsize>,
}

impl Stranger {
    async fn start(name: &str) -> Self {
        let (acceptor, certificate) = certified(name);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let arrived = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => break,
                    }
                }
                arrived.fetch_add(usize::from(!head.is_empty()), Ordering::SeqCst);
                let _ = stream
                    .write_all(&reply(201, &[("connection", "close")], "over TLS"))
                    .await;
                let _ = stream.shutdown().await;
            }
        });
        Self {
            address,
            certificate,
            requests,
        }
    }

    fn url(&self) -> String {
        format!("https://localhost:{}/refunds", self.address.port())
    }
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_sent_nothing() {
    let server = Stranger::start("localhost").await;
    let ran = call(&["POST", &server.url(), "--retries", "0"]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.err.contains("attempt 1: not sent") && ran.err.contains("certificate"),
        "{ran:?}"
    );
    assert_eq!(server.requests.load(Ordering::SeqCst), 0);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, &server.certificate).unwrap();
    let ran = call(&["POST", &server.url(), "--cacert", file.to_str().unwrap()]).await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "over TLS"), "{ran:?}");

    // Somebody vouches for another name.
    let other = Stranger::start("elsewhere.example").await;
    std::fs::write(&file, &other.certificate).unwrap();
    let ran = call(&[
        "POST",
        &other.url(),
        "--retries",
        "0",
        "--cacert",
        file.to_str().unwrap(),
    ])
    .await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(other.requests.load(Ordering::SeqCst), 0);
}
