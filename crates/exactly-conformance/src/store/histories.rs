//! What many callers saw together is what some sequence of atomic steps would have shown them.

use std::sync::Arc;

use crate::StoreHarness;
use crate::history::check::check;
use crate::history::workload::Workload;

const SEEDS: std::ops::Range<u64> = 0..12;

/// Callers that see every step through.
pub async fn contended_histories_are_explained_by_the_model<H: StoreHarness>(_: &H) {
    explained::<H>(Workload {
        callers: 4,
        keys: 2,
        steps: 25,
        gives_up: false,
    })
    .await;
}

/// Callers that give up now and then.
pub async fn histories_with_cancelled_steps_are_explained_by_the_model<H: StoreHarness>(_: &H) {
    explained::<H>(Workload {
        callers: 4,
        keys: 3,
        steps: 20,
        gives_up: true,
    })
    .await;
}

/// Everybody at one key.
pub async fn histories_of_one_key_are_explained_by_the_model<H: StoreHarness>(_: &H) {
    explained::<H>(Workload {
        callers: 8,
        keys: 1,
        steps: 10,
        gives_up: false,
    })
    .await;
}

async fn explained<H: StoreHarness>(workload: Workload) {
    let harness = Arc::new(H::fresh().await);
    for seed in SEEDS {
        let history = workload.run(&harness, seed, None).await;
        if let Err(report) = check(&history) {
            panic!("seed {seed} of {workload:?}: {report}");
        }
    }
}
