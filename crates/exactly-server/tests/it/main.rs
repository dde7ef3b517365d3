//! The server, as a process and in its parts, asked over real sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod binary;
mod call;
mod calls;
mod client;
mod completions;
mod conformance;
mod demo;
mod doctor;
mod drain;
mod events;
mod gateway;
mod gateway_bodies;
mod gateway_config;
mod gateway_hosts;
mod gateway_policy;
mod hostile;
mod inbox;
mod jobs;
mod joined;
mod migrate;
mod reconcile;
mod schedules;
mod seal;
mod server;
mod servers;
mod telemetry;
mod tls;
mod truth;
mod upstream;
mod wire;

use std::time::Duration;

/// How long anything may take that is certain to come. Far above what it takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Long enough for something that may go wrong to go wrong.
const SHORT: Duration = Duration::from_millis(100);
