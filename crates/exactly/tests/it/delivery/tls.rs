//! Over TLS, to whom it should be.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use exactly::webhook::delivery::{Fault, TroubleKind};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::{local, send, standing_for};

/// A receiver with a certificate of its own making.
struct Stranger {
    address: SocketAddr,
    certificate: String,
    requests: Arc<AtomicUsize>,
    server: tokio::task::JoinHandle<()>,
}

impl Stranger {
    async fn start(name: &str) -> Self {
        Self::with(&CertificateParams::new([name.to_owned()]).unwrap()).await
    }

    async fn with(certificate: &CertificateParams) -> Self {
        let own = KeyPair::generate().unwrap();
        let certificate = certificate.self_signed(&own).unwrap();
        let key = PrivateKeyDer::try_from(own.serialize_der()).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        // It would rather speak HTTP/2, and is not asked to.
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let arrived = Arc::clone(&requests);
        let server = tokio::spawn(async move {
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
                arrived.fetch_add(usize::from(head.starts_with(b"POST ")), Ordering::SeqCst);
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\nconnection: close\r\n\r\nover TLS")
                    .await;
                let _ = stream.shutdown().await;
            }
        });
        Self {
            address,
            certificate: certificate.pem(),
            requests,
            server,
        }
    }

    fn url(&self, name: &str) -> String {
        format!("https://{name}:{}/", self.address.port())
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[tokio::test]
async fn only_whoever_the_certificate_is_for_gets_the_event() {
    let stranger = Stranger::start("hooks.example").await;
    let here = || local().lookup(standing_for(&["127.0.0.1"]));
    let unknown = here().build().unwrap();
    let trusting = here()
        .authorities(stranger.certificate.as_bytes())
        .unwrap()
        .build()
        .unwrap();
    for (sender, url) in [
        (&unknown, stranger.url("hooks.example")),
        (&trusting, stranger.url("other.example")),
        (&trusting, stranger.url("127.0.0.1")),
    ] {
        let exchange = send(sender, &url).await;
        let Err(Fault::NotSent(trouble)) = &exchange.answer else {
            panic!("{url}: {exchange:?}")
        };
        assert_eq!(trouble.kind, TroubleKind::Unreachable, "{url}: {trouble:?}");
        assert!(trouble.message.contains("certificate"), "{url}: {trouble:?}");
    }
    assert_eq!(stranger.requests(), 0);

    let answer = send(&trusting, &stranger.url("hooks.example")).await.answer.unwrap();
    assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, &b"over TLS"[..]));
    assert_eq!(stranger.requests(), 1);
}

/// The same receiver under the same name, which is trusted while its certificate lasts.
#[tokio::test]
async fn whose_certificate_has_expired_gets_nothing() {
    for (until, is_over) in [(2021, true), (4000, false)] {
        let mut certificate = CertificateParams::new(["hooks.example".to_owned()]).unwrap();
        certificate.not_before = date_time_ymd(2020, 1, 1);
        certificate.not_after = date_time_ymd(until, 1, 1);
        let stranger = Stranger::with(&certificate).await;
        let sender = local().lookup(standing_for(&["127.0.0.1"]));
        let sender = sender.authorities(stranger.certificate.as_bytes()).unwrap().build();
        let exchange = send(&sender.unwrap(), &stranger.url("hooks.example")).await;
        match exchange.answer {
            Err(Fault::NotSent(trouble)) if is_over => assert!(trouble.message.contains("xpired"), "{trouble:?}"),
            Ok(answer) if !is_over => assert_eq!(answer.status.as_u16(), 200),
            other => panic!("{until}: {other:?}"),
        }
        assert_eq!(stranger.requests(), usize::from(!is_over));
    }
}

#[tokio::test]
async fn who_does_not_speak_tls_gets_nothing() {
    let receiver = super::hostile::Receiver::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let url = format!("https://{}/", receiver.address);
    let sender = local().deadline(std::time::Duration::from_millis(500)).build().unwrap();
    let exchange = send(&sender, &url).await;
    assert!(matches!(&exchange.answer, Err(Fault::NotSent(_))), "{exchange:?}");
    assert_eq!(receiver.seen.posts(), 0);
}

#[test]
fn authorities_that_cannot_be_read_are_told() {
    for pem in [
        "",
        "no certificate",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        let error = local().authorities(pem.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("certificate"), "{error}");
    }
}
