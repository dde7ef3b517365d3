//! Servers that speak TLS and that nobody has heard of.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// What a server shows to be the one of this name, and the certificate of whoever vouches for it.
pub(crate) fn certified(name: &str) -> (TlsAcceptor, String) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), made.cert.pem())
}

/// Ends TLS in front of `server`, and passes on what comes. Gives its address and the certificate.
pub(crate) async fn before(server: SocketAddr, name: &str) -> (SocketAddr, String) {
    let (acceptor, certificate) = certified(name);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut inner = TcpStream::connect(server).await.unwrap();
                // Whoever hangs up ends both.
                let _ = copy_bidirectional(&mut stream, &mut inner).await;
            });
        }
    });
    (address, certificate)
}
