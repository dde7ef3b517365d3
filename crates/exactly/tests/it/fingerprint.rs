//! Fingerprints: what counts, and what is one encoding of the same.

use exactly::Fingerprint;

#[cfg(feature = "layer")]
mod form;
#[cfg(feature = "layer")]
mod json;
#[cfg(feature = "layer")]
mod leave_out;
#[cfg(feature = "layer")]
mod multipart;
#[cfg(feature = "layer")]
mod request;

#[test]
fn a_payload_is_told_by_every_byte() {
    let payloads = ["", "a", "b", "ab", "a ", r#"{"a":1}"#, r#"{ "a":1}"#];
    for (at, payload) in payloads.iter().enumerate() {
        let others = payloads[..at].iter().map(Fingerprint::of);
        assert!(
            !others.into_iter().any(|other| other == Fingerprint::of(payload)),
            "{payload}"
        );
    }
}

#[test]
fn a_payload_has_the_same_fingerprint_in_every_release() {
    // Computed apart from this crate, by Python's hashlib. A change here makes every stored key a mismatch.
    let fingerprint = Fingerprint::of("join league 7");
    assert_eq!(
        format!("{fingerprint:?}"),
        "Fingerprint(6f7f30b9c5b3526998be739cc59bdf19a3368d5dddff0cf0390f017b5f2e0307)"
    );
    assert_eq!(Fingerprint::from_bytes(*fingerprint.as_bytes()), fingerprint);
}
