//! What the gateway counts.
//!
//! The recorder is the process's, so the counters are too: they are looked up once, not by every request and in every clone
//! of the gateway.

use std::sync::LazyLock;

use http::StatusCode;
use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};

/// Requests that clients sent, by the class of the answer's status.
const REQUESTS: &str = "gateway_requests_total";
/// Requests that wait for the head of their answer.
const IN_FLIGHT: &str = "gateway_requests_in_flight";
/// Requests that were passed on, by what is known of them.
const UPSTREAM: &str = "gateway_upstream_total";

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

static METER: LazyLock<Meter> = LazyLock::new(Meter::register);

struct Meter {
    in_flight: Gauge,
    by_class: [Counter; CLASSES.len()],
    answered: Counter,
    unreached: Counter,
    unknown: Counter,
}

/// Tells the recorder what is counted here. Call it after the recorder is installed and before the first request.
pub(crate) fn describe() {
    describe_counter!(
        REQUESTS,
        "Requests of clients, by the class of the status they were answered with."
    );
    describe_gauge!(IN_FLIGHT, "Requests of clients that wait for the head of their answer.");
    describe_counter!(
        UPSTREAM,
        "Requests passed on: answered, unreached (nothing was sent) or unknown (sent, and no answer came)."
    );
    LazyLock::force(&METER);
}

impl Meter {
    fn register() -> Self {
        let upstream = |outcome| counter!(UPSTREAM, "outcome" => outcome);
        let meter = Self {
            in_flight: gauge!(IN_FLIGHT),
            by_class: CLASSES.map(|class| counter!(REQUESTS, "status" => class)),
            answered: upstream("answered"),
            unreached: upstream("unreached"),
            unknown: upstream("unknown"),
        };
        meter.in_flight.increment(0);
        meter
    }
}

/// A request that waits for its answer, until it is dropped.
#[derive(Debug)]
pub(super) struct InFlight;

impl InFlight {
    pub(super) fn start() -> Self {
        METER.in_flight.increment(1);
        Self
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        METER.in_flight.decrement(1);
    }
}

/// A client has its answer.
pub(super) fn answer(status: StatusCode) {
    let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES.len());
    METER.by_class[class - 1].increment(1);
}

/// The upstream answered.
pub(super) fn answered() {
    METER.answered.increment(1);
}

/// The upstream got nothing.
pub(super) fn unreached() {
    METER.unreached.increment(1);
}

/// The upstream may have got it.
pub(super) fn unknown() {
    METER.unknown.increment(1);
}
