//! When an endpoint is left alone for a while.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::EndpointId;

/// When an endpoint that fails is parked, and for how long: its deliveries then wait, and take no place of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parking {
    /// So many attempts in a row fail before. Fewer would park an endpoint for a hiccup.
    pub failures: u32,
    /// How long the first time. Each time that it fails right after, twice as long.
    pub first: Duration,
    /// The longest.
    pub most: Duration,
}

impl Default for Parking {
    fn default() -> Self {
        Self {
            failures: 5,
            first: Duration::from_secs(10),
            most: Duration::from_mins(10),
        }
    }
}

/// However it is set: for longer, somebody pauses it.
const PARKED_FOR_MAX: Duration = Duration::from_hours(24);

/// Counts the failures in a row of each endpoint, as this process sees them.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    parking: Parking,
    // A std mutex, since it is held for a look and never across an await. Endpoints that do well are not in it.
    failing: Mutex<HashMap<EndpointId, Failing>>,
}

#[derive(Debug, Default)]
struct Failing {
    in_a_row: u32,
    parked: u32,
    parked_at: Option<Instant>,
}

impl Breaker {
    pub(super) fn new(parking: Parking) -> Self {
        Self {
            parking,
            failing: Mutex::default(),
        }
    }

    /// The endpoint has answered well.
    pub(super) fn worked(&self, endpoint: &EndpointId) {
        self.with(|failing| failing.remove(endpoint));
    }

    /// An attempt failed that began then. Tells for how long the endpoint is to be parked, if that is due to this one.
    pub(super) fn failed(&self, endpoint: &EndpointId, began: Instant, now: Instant) -> Option<Duration> {
        self.with(|failing| {
            let failing = failing.entry(endpoint.clone()).or_default();
            // What was under way when it was parked says nothing new.
            if failing.parked_at.is_some_and(|parked_at| began <= parked_at) {
                return None;
            }
            failing.in_a_row += 1;
            if failing.in_a_row < self.parking.failures && failing.parked == 0 {
                return None;
            }
            let doubled = self.parking.first.saturating_mul(1 << failing.parked.min(16));
            let parked_for = doubled.min(self.parking.most).min(PARKED_FOR_MAX);
            failing.parked += 1;
            failing.parked_at = Some(now);
            Some(parked_for)
        })
    }

    fn with<T>(&self, change: impl FnOnce(&mut HashMap<EndpointId, Failing>) -> T) -> T {
        change(&mut self.failing.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_is_parked_longer_each_time_until_it_works() {
        let (breaker, endpoint) = (Breaker::default(), EndpointId::new("a").unwrap());
        let start = Instant::now();
        for _ in 1..Parking::default().failures {
            assert_eq!(breaker.failed(&endpoint, start, start), None);
        }
        assert_eq!(breaker.failed(&endpoint, start, start), Some(Parking::default().first));
        // Those that were under way.
        assert_eq!(breaker.failed(&endpoint, start, start), None);
        let mut now = start + Parking::default().first;
        for times in [2, 4, 8, 16, 32] {
            assert_eq!(
                breaker.failed(&endpoint, now, now),
                Some(Parking::default().first * times)
            );
            now += Parking::default().first * times;
        }
        assert_eq!(breaker.failed(&endpoint, now, now), Some(Parking::default().most));
        breaker.worked(&endpoint);
        assert_eq!(breaker.failed(&endpoint, now, now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_that_are_not_in_a_row_park_nobody() {
        let (breaker, endpoint) = (Breaker::default(), EndpointId::new("a").unwrap());
        for _ in 0..10 * Parking::default().failures {
            assert_eq!(breaker.failed(&endpoint, Instant::now(), Instant::now()), None);
            breaker.worked(&endpoint);
        }
    }
}
