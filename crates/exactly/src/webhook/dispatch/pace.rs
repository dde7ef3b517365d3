//! How fast deliveries to an endpoint begin.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{Endpoint, EndpointId};

/// Spreads what this process begins for an endpoint evenly over time.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the next one may begin. A std mutex, since it is held for a look and never across an await.
    next: Mutex<HashMap<EndpointId, Instant>>,
}

impl Pace {
    /// Waits for its turn, and tells whether that took any time. Those who wait hold places of the worker, so an endpoint has [few](Endpoint::places) of them.
    pub(super) async fn turn(&self, endpoint: &Endpoint) -> bool {
        let Some(per_second) = endpoint.per_second else {
            return false;
        };
        let now = Instant::now();
        let turn = self.reserve(&endpoint.id, per_second, now);
        sleep_until(turn).await;
        turn > now
    }

    fn reserve(&self, endpoint: &EndpointId, per_second: u32, now: Instant) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let next = next.entry(endpoint.clone()).or_insert(now);
        let turn = (*next).max(now);
        *next = turn + Duration::from_secs(1) / per_second.max(1);
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn turns_are_apart_and_none_is_saved_up() {
        let (pace, endpoint) = (Pace::default(), EndpointId::new("a").unwrap());
        let start = Instant::now();
        let turns: Vec<_> = (0..3).map(|_| pace.reserve(&endpoint, 4, start) - start).collect();
        assert_eq!(turns, [0, 250, 500].map(Duration::from_millis));
        let later = start + Duration::from_mins(1);
        assert_eq!(pace.reserve(&endpoint, 4, later), later);
        assert_eq!(pace.reserve(&endpoint, 4, later) - later, Duration::from_millis(250));
    }
}
