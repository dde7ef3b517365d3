//! The server, as a process and in its parts.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod binary;
mod calls;
mod conformance;
mod doctor;
mod migrate;
mod servers;
