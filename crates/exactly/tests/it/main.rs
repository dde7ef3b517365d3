//! The promises of the library, held by tests.

mod fingerprint;
mod key;
#[cfg(feature = "layer")]
mod vectors;
