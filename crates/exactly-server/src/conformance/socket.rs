//! A connection to a server, plain or over TLS.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::place::Place;

/// Whose word is taken for who a server is.
#[derive(Clone)]
pub(super) struct Trust(Arc<ClientConfig>);

/// An open connection.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Trust {
    /// Those whom the system trusts; where it has no opinion, such as in an empty container, those whom browsers trust.
    pub(super) fn by_default() -> Self {
        static TRUST: OnceLock<Trust> = OnceLock::new();
        let trust = TRUST.get_or_init(|| {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            }
            Self::in_roots(roots)
        });
        trust.clone()
    }

    /// The authorities in a PEM file, and no others.
    pub(super) fn of_file(path: &Path) -> Result<Self, String> {
        let refused = |why: String| format!("--cacert {}: {why}", path.display());
        let pem = std::fs::read(path).map_err(|error| refused(error.to_string()))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| refused(error.to_string()))?;
            roots.add(certificate).map_err(|error| refused(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(refused("there is no certificate in PEM form".to_owned()));
        }
        Ok(Self::in_roots(roots))
    }

    fn in_roots(roots: RootCertStore) -> Self {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring has ciphers for the versions that are on by default")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self(Arc::new(config))
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trust(…)")
    }
}

impl Stream {
    pub(super) async fn connect(place: &Place) -> io::Result<Self> {
        let stream = TcpStream::connect((place.host.as_str(), place.port)).await?;
        let _ = stream.set_nodelay(true);
        let Some(Trust(config)) = &place.tls else {
            return Ok(Self::Plain(stream));
        };
        let name = ServerName::try_from(place.host.clone()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::clone(config));
        Ok(Self::Tls(Box::new(connector.connect(name, stream).await?)))
    }

    pub(super) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(bytes).await,
            Self::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }

    pub(super) async fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(piece).await,
            Self::Tls(stream) => stream.read(piece).await,
        }
    }

    /// Ends it with a reset, as of a process that was killed: nobody stays to read.
    pub(super) fn reset(self) -> io::Result<()> {
        match &self {
            Self::Plain(stream) => stream.set_zero_linger(),
            Self::Tls(stream) => stream.get_ref().0.set_zero_linger(),
        }
    }
}
