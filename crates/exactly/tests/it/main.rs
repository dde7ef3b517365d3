//! The promises of the library, held by tests.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod app;
#[cfg(feature = "client")]
mod client;
mod counts;
#[cfg(feature = "webhook-delivery")]
mod delivery;
#[cfg(feature = "webhook-delivery")]
mod dispatch;
mod fingerprint;
#[cfg(feature = "jobs")]
mod job;
mod key;
mod layer_answers;
mod layer_drips;
mod layer_failures;
mod layer_hosts;
mod layer_joined;
mod layer_keys;
mod layer_reconcile;
mod layer_routers;
mod layer_sockets;
mod layer_telemetry;
mod layer_waiting;
mod retry;
mod rigged;
#[cfg(feature = "schedule")]
mod schedule;
mod scheduler;
#[cfg(feature = "layer")]
mod vectors;
#[cfg(feature = "webhook")]
mod webhook;
mod worker;
