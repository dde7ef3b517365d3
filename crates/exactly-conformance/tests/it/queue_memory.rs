//! The promises of every queue, for the one that comes with the library.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use exactly::clock::{ManualClock, Timestamp};
use exactly::queue::MemoryQueue;
use exactly_conformance::QueueHarness;

use crate::self_test::written_in;

/// One queue for everybody: nothing outside this process can open its tasks.
struct Memory {
    clock: Arc<ManualClock>,
    queue: Arc<MemoryQueue>,
}

impl QueueHarness for Memory {
    type Queue = MemoryQueue;

    async fn fresh() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
        let queue = Arc::new(MemoryQueue::with_clock(Arc::clone(&clock)));
        Self { clock, queue }
    }

    async fn open(&self) -> Arc<MemoryQueue> {
        Arc::clone(&self.queue)
    }

    async fn elapse(&self, by: Duration) {
        self.clock.advance(by);
    }
}

exactly_conformance::queue_suite!(Memory);
exactly_conformance::book_suite!(Memory);
exactly_conformance::registry_suite!(Memory);

#[test]
fn every_promise_of_a_queue_is_listed() {
    let listed = |names: &[&str]| -> BTreeSet<String> { names.iter().map(ToString::to_string).collect() };
    let mut names = exactly_conformance::__queue_promises! { __promise_names, names }.to_vec();
    names.extend(exactly_conformance::__book_promises! { __promise_names, names });
    names.extend(exactly_conformance::__registry_promises! { __promise_names, names });
    assert_eq!(written_in("src/queue"), listed(&names));
    let names = exactly_conformance::__transactional_queue_promises! { __promise_names, names };
    assert_eq!(written_in("src/transactional_queue"), listed(&names));
}
