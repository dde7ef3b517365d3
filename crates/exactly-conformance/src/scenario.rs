//! A client that insists, a server that serves it, and a world in which effects can be counted.

use std::sync::Mutex;
use std::sync::PoisonError;

use bytes::Bytes;
use exactly::{Claim, Store};

use crate::StoreHarness;
use crate::answers::{FencedExt as _, VerdictExt as _};
use crate::request::{KEEP, LEASE_AND_A_BIT, Request};

/// The most requests a client needs: a fault or two, a lease that ends, a doubt that is settled, and some to spare.
const REQUESTS_MAX: usize = 12;

/// How one run of the effect goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// It happens, and the server knows.
    Happened,
    /// It does not happen, and the server knows.
    DidNotHappen,
    /// It happens, and the server does not know.
    UnheardDid,
    /// It does not happen, and the server does not know.
    UnheardDidNot,
}

/// What one request was answered.
#[derive(Debug)]
pub(crate) enum Told {
    /// It happened, with this outcome.
    Success(Bytes),
    /// Nothing is known to have happened: send it again.
    TryAgain,
    /// Someone else is at it.
    InFlight,
    /// Nobody knows; whoever can find out settles it with this claim.
    InDoubt(Claim),
    /// The server lost track of its own attempt.
    Unknown,
}

/// Where effects happen. Panics when one happens that must not.
#[derive(Debug)]
pub(crate) struct World {
    /// Whether the operation may be repeated, so that more than one effect is no fault.
    repeatable: bool,
    // A std mutex, since it guards counters and is never held across an await.
    past: Mutex<Past>,
}

#[derive(Debug, Default)]
struct Past {
    script: Vec<Ends>,
    runs: usize,
    effects: u32,
    in_doubt: bool,
}

impl World {
    /// Runs end as `script` says, and happen after its end.
    pub(crate) fn new(script: &[Ends], repeatable: bool) -> Self {
        let past = Past {
            script: script.to_vec(),
            ..Past::default()
        };
        Self {
            repeatable,
            past: Mutex::new(past),
        }
    }

    /// Runs the effect.
    pub(crate) fn run(&self) -> (Ends, Bytes) {
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.repeatable {
            assert_eq!(past.effects, 0, "the effect happened, and is run once more");
            assert!(!past.in_doubt, "the effect may have happened, and is run once more");
        }
        let ends = past.script.get(past.runs).copied().unwrap_or(Ends::Happened);
        past.runs += 1;
        if matches!(ends, Ends::Happened | Ends::UnheardDid) {
            past.effects += 1;
        }
        past.in_doubt = matches!(ends, Ends::UnheardDid | Ends::UnheardDidNot);
        (ends, Self::outcome(past.effects))
    }

    /// How many effects happened.
    pub(crate) fn effects(&self) -> u32 {
        self.past.lock().unwrap_or_else(PoisonError::into_inner).effects
    }

    /// Looks whether the effect happened, as a reconcile probe would, and settles the doubt.
    async fn settle(&self, store: &impl Store, claim: &Claim) {
        let effects = {
            let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
            past.in_doubt = false;
            past.effects
        };
        // The probe may lose its replies like everybody else, and tries once more.
        for _ in 0..3 {
            let settled = match effects {
                0 => store.abandon(claim).await,
                n => store.complete(claim, &Self::outcome(n), KEEP).await,
            };
            if settled.is_ok() {
                return;
            }
        }
    }

    fn outcome(effects: u32) -> Bytes {
        format!("after effect {effects}").into()
    }
}

/// Sends `request` until it is told success, and holds every answer against the world. Gives back the number of requests
/// that it took.
pub(crate) async fn insist<H: StoreHarness>(
    harness: &H,
    store: &impl Store,
    world: &World,
    serve: impl AsyncFn() -> Told,
) -> usize {
    for sent in 1..=REQUESTS_MAX {
        match serve().await {
            Told::Success(outcome) => {
                assert!(world.effects() >= 1, "told success, and nothing happened");
                if !world.repeatable {
                    assert_eq!(world.effects(), 1, "the effect happened more than once");
                    assert_eq!(outcome, World::outcome(1), "told an outcome that is not the effect's");
                }
                return sent;
            }
            Told::TryAgain => {}
            Told::InFlight | Told::Unknown => harness.elapse(LEASE_AND_A_BIT).await,
            Told::InDoubt(claim) => world.settle(store, &claim).await,
        }
    }
    panic!("after {REQUESTS_MAX} requests the client still knows nothing")
}

/// Nothing that is told success is taken back: the record replays and takes no other outcome.
pub(crate) async fn assert_settled(store: &impl Store, request: &Request) {
    let replay = store.begin(&request.call()).await.must_replay();
    store.begin(&request.tampered().call()).await.must_mismatch();
    store.begin(&request.call()).await.must_replay_exactly(&replay.outcome);
    let stranger = request.call().claim(exactly::Attempt::FIRST);
    store
        .complete(&stranger, &"stranger's".into(), KEEP)
        .await
        .must_be_superseded();
}
