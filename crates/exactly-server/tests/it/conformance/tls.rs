//! Over TLS.

use std::fs;

use exactly::layer::Policy;

use super::EVERYTHING;
use super::process::{Upstream, check_at, exactly};
use super::protector::{Setup, protect};
use crate::tls;

#[tokio::test]
async fn a_server_is_checked_over_tls_as_it_is_without() {
    let upstream = Upstream::start();
    let target = protect(upstream.address, Setup::of(Policy::playbook())).await;
    let (address, certificate) = tls::before(target, "localhost").await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    fs::write(&file, certificate).unwrap();
    let file = file.display().to_string();

    let target = format!("https://localhost:{}", address.port());
    let run = check_at(&target, &[EVERYTHING, &["--cacert", &file]].concat()).await;
    assert_eq!(run.ids("failed"), [""; 0], "{}", run.failures());
    assert_eq!(run.ids("not-applicable"), ["ending-5xx-freed", "store-down"]);
    assert_eq!((run.code, run.report["target"].as_str()), (0, Some(target.as_str())));
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_not_checked() {
    let upstream = Upstream::start();
    let (address, certificate) = tls::before(upstream.address, "localhost").await;
    let (other, _) = tls::before(upstream.address, "localhost").await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    fs::write(&file, certificate).unwrap();
    let file = file.display().to_string();
    let known = ["--cacert", file.as_str()];
    for (host, port, arguments) in [
        // By nobody, by somebody for another server, and for another name.
        ("localhost", address.port(), &[][..]),
        ("localhost", other.port(), &known),
        ("127.0.0.1", address.port(), &known),
    ] {
        let target = format!("https://{host}:{port}");
        let ended = exactly(&[&["conformance", "--target", &target], arguments].concat()).await;
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{said}");
        assert!(
            said.contains(&format!("reach {target}")) && said.contains("certificate"),
            "{said}"
        );
    }
    fs::write(&file, "no certificate").unwrap();
    let ended = exactly(&["conformance", "--target", "https://localhost", "--cacert", &file]).await;
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(
        said.contains("--cacert") && said.contains("no certificate in PEM form"),
        "{said}"
    );
}
