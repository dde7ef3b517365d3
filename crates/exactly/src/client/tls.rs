//! TLS without a choice of its own in the process: rustls on ring, given to reqwest ready made.

use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use super::error::{Error, ErrorKind};

/// Trusts whom the system trusts; where it has no opinion, such as in an empty container, whom browsers trust.
pub(crate) fn by_default() -> ClientConfig {
    // Reading some hundred certificates takes a while, and a program may make many clients.
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    with_roots(Arc::clone(ROOTS.get_or_init(|| Arc::new(system_roots()))))
}

/// Trusts the authorities in a PEM text, and no others.
pub(crate) fn trusting(pem: &[u8]) -> Result<ClientConfig, Error> {
    let context = "read certificate authorities";
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| Error::caused(ErrorKind::Invalid, context, error.to_string()))?;
        let added = roots.add(certificate);
        added.map_err(|error| Error::caused(ErrorKind::Invalid, context, error))?;
    }
    if roots.is_empty() {
        let context = format!("{context}: there is no certificate in PEM form");
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    Ok(with_roots(Arc::new(roots)))
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    // One that cannot be read is one that is not trusted, which is told where it matters.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

fn with_roots(roots: Arc<RootCertStore>) -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has ciphers for the versions that are on by default")
        .with_root_certificates(roots)
        .with_no_client_auth()
}
