//! The same faults, met by [`Once`], which repeats, waits and settles by itself.

use std::sync::Arc;
use std::time::Duration;

use exactly::once::{Ended, Ending, Limits, Once, Terms};

use crate::answers::answered;
use crate::request::{KEEP, Request};
use crate::scenario::{Ends, Told, World, assert_settled, insist};
use crate::{Fault, FaultyStore, Plan, StoreHarness};

const SCRIPTS: [&[Ends]; 4] = [&[], &[Ends::DidNotHappen], &[Ends::UnheardDid], &[Ends::UnheardDidNot]];

/// Short, so that a case which needs all of them is soon over.
const LIMITS: Limits = Limits {
    waiters_max: 100,
    poll: Duration::from_millis(5),
    store_patience: Duration::from_secs(5),
    record_patience: Duration::from_millis(200),
    late_patience: Duration::from_secs(5),
    late_max: 100,
};

/// One fault anywhere: `once` makes the effect happen once, and says so.
pub async fn once_survives_any_single_fault<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    for script in SCRIPTS {
        let calls = run(harness, &store, script, Plan::faultless()).await;
        for call in 0..calls {
            for fault in Fault::ALL {
                run(harness, &store, script, Plan::faultless().with(call, fault)).await;
            }
        }
    }
}

/// Two faults anywhere.
pub async fn once_survives_any_two_faults<H: StoreHarness>(_: &H) {
    for script in SCRIPTS {
        let harness = H::fresh().await;
        let store = harness.open().await;
        let calls = run(&harness, &store, script, Plan::faultless()).await;
        for first in 0..calls {
            for second in first + 1..calls + 2 {
                for (one, other) in Fault::ALL
                    .into_iter()
                    .flat_map(|one| Fault::ALL.map(|other| (one, other)))
                {
                    run(
                        &harness,
                        &store,
                        script,
                        Plan::faultless().with(first, one).with(second, other),
                    )
                    .await;
                }
            }
        }
    }
}

/// Ten callers of `once`: one effect, and every one of them is told its outcome.
pub async fn of_ten_callers_of_once_all_get_one_outcome<H: StoreHarness>(harness: &H) {
    let stores = [harness.open().await, harness.open().await];
    let (request, world) = (Request::fresh(), Arc::new(World::new(&[], false)));
    let callers = (0..10).map(|n: usize| {
        let once = Once::new(Arc::clone(&stores[n % 2]) as Arc<dyn exactly::Store>);
        let (call, world) = (request.call(), Arc::clone(&world));
        tokio::spawn(async move {
            once.run(&call, Terms::default(), async |_| Ending::Happened(world.run().1))
                .await
        })
    });
    let callers: Vec<_> = callers.collect();
    let mut runners = 0;
    for caller in callers {
        match answered(caller.await.expect("a caller panicked")) {
            Ended::Happened { outcome, replayed } => {
                assert_eq!(outcome, "after effect 1");
                runners += u32::from(!replayed);
            }
            other => panic!("one of ten callers is told {other:?}"),
        }
    }
    assert_eq!((runners, world.effects()), (1, 1));
}

async fn run<H: StoreHarness>(harness: &H, store: &Arc<H::Store>, script: &'static [Ends], plan: Plan) -> usize {
    let faulty = Arc::new(FaultyStore::new(Arc::clone(store), plan));
    let once = Once::with_limits(Arc::clone(&faulty) as Arc<dyn exactly::Store>, LIMITS);
    let (request, world) = (Request::fresh(), World::new(script, false));
    let serve = async || serve(&once, &request, &world).await;
    insist(harness, &*faulty, &world, serve).await;
    let calls = faulty.calls();
    assert_settled(&**store, &request).await;
    calls
}

async fn serve(once: &Once, request: &Request, world: &World) -> Told {
    let terms = Terms {
        wait: Duration::from_millis(50),
        keep: KEEP,
    };
    let call = request.call();
    let ended = once.run(&call, terms, async |_| match world.run() {
        (Ends::Happened, outcome) => Ending::Happened(outcome),
        (Ends::DidNotHappen, _) => Ending::DidNotHappen,
        (Ends::UnheardDid | Ends::UnheardDidNot, _) => Ending::Unknown,
    });
    match ended.await {
        Ok(Ended::Happened { outcome, .. }) => Told::Success(outcome),
        Ok(Ended::DidNotHappen) | Err(_) => Told::TryAgain,
        Ok(Ended::Unknown(claim)) => Told::InDoubt(claim),
        Ok(Ended::InFlight { .. }) => Told::InFlight,
        Ok(Ended::Mismatch) => panic!("a request mismatches itself"),
    }
}
