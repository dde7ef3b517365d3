//! How many calls are in doubt, counted from time to time.
//!
//! Counters say how many came to be in doubt here; only the store knows how many still are, whoever lost them and whoever
//! settled them since.

use std::sync::Arc;
use std::time::Duration;

use exactly::store::{Filter, Phase};
use exactly::{Inspect, Operate, StoreError};
use metrics::{describe_gauge, gauge};
use tokio::time::{Instant, sleep};

/// Calls in doubt in the whole store, as of the last count.
const CALLS_IN_DOUBT: &str = "idempotency_calls_in_doubt";

/// How often they are counted.
const EVERY: Duration = Duration::from_secs(15);
/// Not every store can find them quickly, so counting gets no more than one part in so many of the time…
const SHARE: u32 = 100;
/// …but is not put off for longer than this.
const PAUSE_MAX: Duration = Duration::from_mins(10);
/// Whoever has so many has other worries than how many exactly: then it is at least so many pages.
const PAGES_MAX: usize = 10;

/// Counts for as long as the process lives. With many instances on one store each of them counts all.
pub(super) fn start(store: Arc<dyn Operate>) {
    describe_gauge!(
        CALLS_IN_DOUBT,
        "Calls in the store whose outcome is not known; NaN while the store cannot say."
    );
    tokio::spawn(async move {
        loop {
            let begun = Instant::now();
            let counted = count(&*store).await.map_or_else(|error| unknown(&error), f64::from);
            gauge!(CALLS_IN_DOUBT).set(counted);
            sleep(pause(begun.elapsed())).await;
        }
    });
}

/// What is not known is not zero.
fn unknown(error: &StoreError) -> f64 {
    tracing::warn!(%error, "could not count calls in doubt");
    f64::NAN
}

async fn count(store: &dyn Inspect) -> Result<u32, StoreError> {
    let mut filter = Filter {
        phase: Some(Phase::InDoubt),
        limit: Filter::LIMIT_MAX,
        ..Filter::default()
    };
    let mut count = 0_u32;
    for _ in 0..PAGES_MAX {
        let page = store.list(&filter).await?;
        count = count.saturating_add(u32::try_from(page.calls.len()).unwrap_or(u32::MAX));
        filter.after = page.next;
        if filter.after.is_none() {
            break;
        }
    }
    Ok(count)
}

/// How long to wait after a count that took so long.
fn pause(took: Duration) -> Duration {
    took.saturating_mul(SHARE).clamp(EVERY, PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use exactly::{Call, Fingerprint, Key, MemoryStore, Scope, Store as _, Verdict};

    use super::*;

    #[tokio::test]
    async fn calls_in_doubt_are_counted_and_no_others() {
        let store = MemoryStore::new();
        assert_eq!(count(&store).await.unwrap(), 0);
        for number in 0..2010 {
            let key = Key::new(format!("key-{number}")).unwrap();
            let call = Call::new(Scope::new("ada", "POST /charges"), key, Fingerprint::of("1"));
            let Verdict::Run(claim) = store.begin(&call).await.unwrap() else {
                panic!("the key is fresh");
            };
            if number >= 10 {
                let _ = store.lose(&claim).await.unwrap();
            }
        }
        assert_eq!(count(&store).await.unwrap(), 2000);
    }

    #[test]
    fn a_slow_count_is_made_seldom() {
        assert_eq!(pause(Duration::from_millis(3)), EVERY);
        assert_eq!(pause(Duration::from_secs(1)), Duration::from_secs(100));
        assert_eq!(pause(Duration::from_mins(1)), PAUSE_MAX);
    }
}
