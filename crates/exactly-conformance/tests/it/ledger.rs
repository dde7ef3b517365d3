//! Records and effects behind one writer at a time, with one flaw.
//!
//! A transaction works on a copy of everything, which takes the place of the original when it commits.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use exactly::clock::Timestamp;
use exactly::store::{CallView, Filter, Note, Noted, Operate, Page, Reply, TrailFilter, Watch};
use exactly::{
    Call, CallId, Claim, Fenced, Inspect, Keep, Store, StoreError, StoreErrorKind, TransactionalStore, Verdict,
};
use exactly_conformance::{StoreHarness, TransactionalHarness};
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use crate::flaw::Flaw;
use crate::flawed::{Flawed, FlawedPlace};

/// How long a leased step waits for an open transaction.
const BUSY_WAIT: Duration = Duration::from_secs(1);

type Effects = BTreeMap<String, u64>;

/// A place for records and effects. It has one writer at a time, and may boast of more.
pub(crate) struct LedgerPlace<const BOASTS: bool = false> {
    records: FlawedPlace,
    effects: Arc<Mutex<Effects>>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl<const BOASTS: bool> StoreHarness for LedgerPlace<BOASTS> {
    type Store = Ledger;

    async fn fresh() -> Self {
        Self {
            records: FlawedPlace::fresh().await,
            effects: Arc::default(),
            turn: Arc::default(),
        }
    }

    async fn open(&self) -> Arc<Ledger> {
        let records = self.records.open().await;
        Arc::new(Ledger {
            records,
            effects: Arc::clone(&self.effects),
            turn: Arc::clone(&self.turn),
        })
    }

    async fn elapse(&self, by: Duration) {
        self.records.elapse(by).await;
    }

    async fn rewind(&self, by: Duration) {
        self.records.rewind(by).await;
    }
}

impl<const BOASTS: bool> TransactionalHarness for LedgerPlace<BOASTS> {
    const WRITES_IN_PARALLEL: bool = BOASTS;

    async fn effect(&self, tx: &mut LedgerTx, name: &str) {
        let effects = match Flaw::present() {
            Flaw::EffectsOutsideTransactions => &mut *self.effects.lock().unwrap(),
            _ => &mut tx.effects,
        };
        *effects.entry(name.to_owned()).or_default() += 1;
    }

    async fn effects(&self, name: &str) -> u64 {
        self.effects.lock().unwrap().get(name).copied().unwrap_or_default()
    }
}

#[derive(Debug)]
pub(crate) struct Ledger {
    records: Arc<Flawed>,
    effects: Arc<Mutex<Effects>>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
pub(crate) struct LedgerTx {
    records: Arc<Flawed>,
    effects: Effects,
    original: (Arc<Flawed>, Arc<Mutex<Effects>>),
    settled: Vec<CallId>,
    _turn: Option<OwnedMutexGuard<()>>,
}

impl LedgerTx {
    fn apply(&mut self) {
        let (records, effects) = &self.original;
        if records.flaw != Flaw::CommitsEffectsOnly {
            let copy = self.records.entries().clone();
            *records.entries() = copy;
        }
        if records.flaw != Flaw::CommitsRecordsOnly {
            *effects.lock().unwrap() = mem::take(&mut self.effects);
        }
        if records.flaw != Flaw::CommitsQuietly {
            self.settled.iter().for_each(|id| records.wakeups.wake(id));
        }
    }
}

impl Drop for LedgerTx {
    fn drop(&mut self) {
        if self.records.flaw == Flaw::DroppingCommits {
            self.apply();
        }
    }
}

impl Ledger {
    async fn turn(&self, wait: Duration) -> Result<Option<OwnedMutexGuard<()>>, StoreError> {
        let wait = match self.records.flaw {
            Flaw::TransactionsDoNotWait => return Ok(None),
            Flaw::WaitsWithoutEnd => Duration::from_hours(1),
            Flaw::NeverWaits => Duration::ZERO,
            _ => wait,
        };
        let busy = |_| StoreError::new(StoreErrorKind::Unavailable, "open transaction: another one is open");
        timeout(wait, Arc::clone(&self.turn).lock_owned())
            .await
            .map(Some)
            .map_err(busy)
    }
}

impl TransactionalStore for Ledger {
    type Tx = LedgerTx;

    fn open(&self, lock_wait: Duration) -> Reply<'_, LedgerTx> {
        Box::pin(async move {
            let turn = self.turn(lock_wait).await?;
            if self.records.flaw == Flaw::TransactionsRunOut {
                mem::forget(turn);
                return Err(StoreError::new(
                    StoreErrorKind::Unavailable,
                    "open transaction: none left",
                ));
            }
            let records = match self.records.flaw {
                Flaw::RecordsOutsideTransactions => Arc::clone(&self.records),
                _ => Arc::new(self.records.copy()),
            };
            let effects = self.effects.lock().unwrap().clone();
            let original = (Arc::clone(&self.records), Arc::clone(&self.effects));
            Ok(LedgerTx {
                records,
                effects,
                original,
                settled: Vec::new(),
                _turn: turn,
            })
        })
    }

    fn begin_in<'a>(&'a self, tx: &'a mut LedgerTx, call: &'a Call) -> Reply<'a, Verdict> {
        Box::pin(async move {
            let verdict = tx.records.begin(call).await?;
            if self.records.flaw == Flaw::VerdictsEndTransactions && !matches!(verdict, Verdict::Run(_)) {
                tx.records.entries().clear();
            }
            Ok(verdict)
        })
    }

    fn complete_in<'a>(
        &'a self,
        tx: &'a mut LedgerTx,
        claim: &'a Claim,
        outcome: &'a Bytes,
        keep: Keep,
    ) -> Reply<'a, Fenced> {
        tx.settled.push(claim.id);
        tx.records.complete(claim, outcome, keep)
    }

    fn commit(&self, mut tx: LedgerTx) -> Reply<'_, ()> {
        Box::pin(async move {
            if self.records.flaw == Flaw::CommitsInTwoSteps {
                *self.effects.lock().unwrap() = tx.effects.clone();
                tokio::task::yield_now().await;
            }
            tx.apply();
            Ok(())
        })
    }

    fn rollback(&self, tx: LedgerTx) -> Reply<'_, ()> {
        Box::pin(async move {
            drop(tx);
            Ok(())
        })
    }
}

impl Store for Ledger {
    fn begin<'a>(&'a self, call: &'a Call) -> Reply<'a, Verdict> {
        Box::pin(async move {
            let _turn = match self.records.flaw {
                Flaw::LeasesIgnoreTransactions => None,
                _ => self.turn(BUSY_WAIT).await?,
            };
            self.records.begin(call).await
        })
    }

    fn peek<'a>(&'a self, call: &'a Call) -> Reply<'a, Option<Verdict>> {
        self.records.peek(call)
    }

    fn renew<'a>(&'a self, claim: &'a Claim, lease: Duration) -> Reply<'a, Fenced> {
        Box::pin(async move {
            let _turn = self.turn(BUSY_WAIT).await?;
            self.records.renew(claim, lease).await
        })
    }

    fn complete<'a>(&'a self, claim: &'a Claim, outcome: &'a Bytes, keep: Keep) -> Reply<'a, Fenced> {
        Box::pin(async move {
            let _turn = self.turn(BUSY_WAIT).await?;
            self.records.complete(claim, outcome, keep).await
        })
    }

    fn abandon<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        Box::pin(async move {
            let _turn = self.turn(BUSY_WAIT).await?;
            self.records.abandon(claim).await
        })
    }

    fn lose<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        Box::pin(async move {
            let _turn = self.turn(BUSY_WAIT).await?;
            self.records.lose(claim).await
        })
    }

    fn sweep(&self, limit: u32) -> Reply<'_, u32> {
        self.records.sweep(limit)
    }

    fn watch(&self, id: &CallId) -> Watch {
        self.records.watch(id)
    }
}

impl Inspect for Ledger {
    fn get<'a>(&'a self, id: &'a CallId) -> Reply<'a, Option<CallView>> {
        self.records.get(id)
    }

    fn list<'a>(&'a self, filter: &'a Filter) -> Reply<'a, Page> {
        self.records.list(filter)
    }
}

impl Operate for Ledger {
    fn forget<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        Box::pin(async move {
            let _turn = self.turn(BUSY_WAIT).await?;
            self.records.forget(claim).await
        })
    }

    fn note<'a>(&'a self, note: &'a Note) -> Reply<'a, ()> {
        self.records.note(note)
    }

    fn trail<'a>(&'a self, filter: &'a TrailFilter) -> Reply<'a, Vec<Noted>> {
        self.records.trail(filter)
    }

    fn now(&self) -> Reply<'_, Timestamp> {
        self.records.now()
    }
}

exactly_conformance::transactional_suite!(LedgerPlace);
