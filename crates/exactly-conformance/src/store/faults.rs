//! Every fault between a caller and its store, one after another.
//!
//! Each scenario is run once without faults to count its calls of the store, and then once per call and way to fail.
//! The caller cannot tell a step that was not taken from one whose reply was lost; the promises hold all the same.

use std::sync::Arc;

use exactly::store::Reply;
use exactly::{Fenced, OnLost, Store, StoreError, Verdict};

use crate::request::{KEEP, Request};
use crate::scenario::{Ends, Told, World, assert_settled, insist};
use crate::{Fault, FaultyStore, Plan, StoreHarness};

/// How runs of the effect go, before one of them happens for sure.
const SCRIPTS: [&[Ends]; 5] = [
    &[],
    &[Ends::DidNotHappen],
    &[Ends::UnheardDid],
    &[Ends::UnheardDidNot],
    &[Ends::DidNotHappen, Ends::UnheardDidNot],
];

/// How a server deals with a store that could not answer: how often it asks the same once more.
const REPEATS: [u32; 3] = [0, 1, 2];

/// One fault anywhere: the effect happens once, and the client learns so.
pub async fn any_single_fault_leaves_one_effect<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    for script in SCRIPTS {
        for repeats in REPEATS {
            let case = Case {
                script,
                repeats,
                on_lost: OnLost::Doubt,
            };
            let (calls, _) = case.run(harness, &store, Plan::faultless()).await;
            for plan in single_faults(calls) {
                case.run(harness, &store, plan).await;
            }
        }
    }
}

/// Two faults anywhere, the second possibly in what the first one made necessary.
pub async fn any_two_faults_leave_one_effect<H: StoreHarness>(_: &H) {
    // Pairs multiply: the longest script adds as many cases as all others, and no situation that they lack.
    for script in &SCRIPTS[..4] {
        // Time passes for every record of a place at once, so few of them make for quick cases.
        let harness = H::fresh().await;
        let store = harness.open().await;
        let case = Case {
            script,
            repeats: 1,
            on_lost: OnLost::Doubt,
        };
        let (calls, _) = case.run(&harness, &store, Plan::faultless()).await;
        for first in 0..calls {
            for second in first + 1..calls + 3 {
                for (one, other) in Fault::ALL
                    .into_iter()
                    .flat_map(|one| Fault::ALL.map(|other| (one, other)))
                {
                    case.run(&harness, &store, Plan::faultless().with(first, one).with(second, other))
                        .await;
                }
            }
        }
    }
}

/// A server that asks once more hides any single fault: the client's first request is answered.
pub async fn a_repeated_question_hides_a_single_fault<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let case = Case {
        script: &[],
        repeats: 1,
        on_lost: OnLost::Doubt,
    };
    let (calls, requests) = case.run(harness, &store, Plan::faultless()).await;
    assert_eq!((calls, requests), (2, 1), "begin and complete, in one request");
    for plan in single_faults(calls) {
        let (_, requests) = case.run(harness, &store, plan.clone()).await;
        assert_eq!(requests, 1, "the client had to ask again with {plan:?}");
    }
}

/// An effect that may be repeated is repeated at most as often as attempts were lost, and ends in one outcome.
pub async fn any_single_fault_leaves_a_rerunnable_with_one_outcome<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    for script in SCRIPTS {
        for repeats in REPEATS {
            let case = Case {
                script,
                repeats,
                on_lost: OnLost::Rerun,
            };
            let (calls, _) = case.run(harness, &store, Plan::faultless()).await;
            for plan in single_faults(calls) {
                case.run(harness, &store, plan).await;
            }
        }
    }
}

fn single_faults(calls: usize) -> impl Iterator<Item = Plan> {
    (0..calls).flat_map(|call| Fault::ALL.map(|fault| Plan::faultless().with(call, fault)))
}

/// One way for things to go, apart from the faults.
struct Case {
    script: &'static [Ends],
    repeats: u32,
    on_lost: OnLost,
}

impl Case {
    /// Gives back how many calls of the store and how many requests it took.
    async fn run<H: StoreHarness>(&self, harness: &H, store: &Arc<H::Store>, plan: Plan) -> (usize, usize) {
        let faulty = FaultyStore::new(Arc::clone(store), plan);
        let (request, world) = (Request::fresh(), World::new(self.script, self.on_lost == OnLost::Rerun));
        let serve = async || self.serve(&faulty, &request, &world).await;
        let requests = insist(harness, &faulty, &world, serve).await;
        let calls = faulty.calls();
        // Whoever asks again later is told the same, by a store without faults.
        assert_settled(&**store, &request).await;
        (calls, requests)
    }

    /// What a server does with one request, by the verbs of the store alone.
    async fn serve(&self, store: &impl Store, request: &Request, world: &World) -> Told {
        let call = request.call().with_on_lost(self.on_lost);
        let claim = match self.ask(|| store.begin(&call)).await {
            Ok(Verdict::Run(claim)) => claim,
            Ok(Verdict::Replay(replay)) => return Told::Success(replay.outcome),
            Ok(Verdict::InFlight { .. }) => return Told::InFlight,
            Ok(Verdict::InDoubt(claim)) => return Told::InDoubt(claim),
            Ok(Verdict::Mismatch { .. }) => panic!("a request mismatches itself"),
            // Nothing runs. A claim that may have been made is found by nobody, and its lease decides.
            Err(_) => return Told::TryAgain,
        };
        let (ends, outcome) = world.run();
        match ends {
            Ends::Happened => match self.ask(|| store.complete(&claim, &outcome, KEEP)).await {
                Ok(Fenced::Applied) => Told::Success(outcome),
                Ok(Fenced::Superseded) => panic!("a claim was taken from its live owner"),
                Err(_) => Told::Unknown,
            },
            Ends::DidNotHappen => match self.ask(|| store.abandon(&claim)).await {
                Ok(Fenced::Applied) => Told::TryAgain,
                Ok(Fenced::Superseded) => panic!("a claim was taken from its live owner"),
                Err(_) => Told::Unknown,
            },
            Ends::UnheardDid | Ends::UnheardDidNot => {
                // Even if nobody takes note, the lease ends.
                let _ = self.ask(|| store.lose(&claim)).await;
                Told::Unknown
            }
        }
    }

    async fn ask<'a, T>(&self, question: impl Fn() -> Reply<'a, T>) -> Result<T, StoreError> {
        let mut answer = question().await;
        for _ in 0..self.repeats {
            if answer.is_ok() {
                break;
            }
            answer = question().await;
        }
        answer
    }
}
