//! Asking whoever carried out a lost attempt what came of it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, timeout_at};

use super::detached::Detached;
use super::policy::Policy;
use super::{IdempotencyLayer, Settlement, Shared, answer, log};
use crate::gate::Passage;
use crate::once::Ending;
use crate::store::{CallView, Filter, Inspect, Phase};
use crate::{Call, CallId, Claim, Fenced, Key, StoreError, Verdict};

/// How many doubts are asked about at a time.
const ASKED_AT_A_TIME: usize = 8;

/// How long whoever is asked has to answer while a client waits, also where clients do not wait for each other.
const ASKED_FOR_MIN: Duration = Duration::from_secs(1);

/// An attempt of which nobody here knows what it did.
#[derive(Clone, Debug)]
pub struct Doubt {
    /// The key that the client sent.
    pub key: Key,
    /// The lost attempt. Its id is unique to the operation, while two callers may have sent the same key.
    pub claim: Claim,
}

/// The answer to a [`Doubt`]; `None` while it is not known.
pub type Found = Pin<Box<dyn Future<Output = Option<Settlement>> + Send>>;

/// Asks what came of a doubt.
#[derive(Clone)]
pub(super) struct Reconcile(Arc<dyn Fn(Doubt) -> Found + Send + Sync>);

/// What is done about a doubt that has ended, until it is done.
pub type Telling = Pin<Box<dyn Future<Output = ()> + Send>>;

type Tell = dyn Fn(&Doubt, &Settlement) -> Telling + Send + Sync;

/// Hears how a doubt ended.
#[derive(Clone)]
pub(super) struct OnReconciled(Arc<Tell>);

/// What came of asking about every doubt there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// So many happened.
    pub happened: u64,
    /// So many did not happen.
    pub did_not_happen: u64,
    /// So many are still in doubt.
    pub unknown: u64,
}

impl Reconciled {
    fn add(&mut self, answer: &Result<Option<Settlement>, StoreError>) {
        let count = match answer {
            Ok(Some(Settlement::Happened(_))) => &mut self.happened,
            Ok(Some(Settlement::DidNotHappen)) => &mut self.did_not_happen,
            Ok(None) => &mut self.unknown,
            // One that cannot be settled keeps no other from it.
            Err(error) => {
                tracing::warn!(%error, "what was found out about a doubt could not be stored");
                &mut self.unknown
            }
        };
        *count += 1;
    }
}

impl Reconcile {
    pub(super) fn new(ask: impl Fn(Doubt) -> Found + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }
}

impl fmt::Debug for Reconcile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reconcile(…)")
    }
}

impl OnReconciled {
    pub(super) fn new(tell: impl Fn(&Doubt, &Settlement) -> Telling + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }
}

impl fmt::Debug for OnReconciled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnReconciled(…)")
    }
}

impl IdempotencyLayer {
    /// The same layer with the policy of the route that `operation` names, as the scope of its calls does:
    /// `POST /refunds/{id}`.
    #[must_use]
    pub fn for_operation(&self, operation: &str) -> Self {
        let route = self.shared.routes.iter().find(|route| route.name() == operation);
        Self {
            shared: Arc::clone(&self.shared),
            policy: Arc::clone(route.map_or(&self.policy, |route| &route.policy)),
        }
    }

    /// Asks about one call in doubt, by the [`reconcile`](Policy::reconcile) of its route. `None`: it is still in doubt, or
    /// there is nobody to ask.
    pub async fn reconcile(&self, view: &CallView) -> Result<Option<Settlement>, StoreError> {
        let layer = self.for_operation(view.scope.operation());
        let Some(reconcile) = &layer.policy.reconcile else {
            return Ok(None);
        };
        let doubt = Doubt {
            key: view.key.clone(),
            claim: view.claim.clone(),
        };
        let Some(settlement) = (reconcile.0)(doubt.clone()).await else {
            return Ok(None);
        };
        match layer.shared.end(&layer.policy, &doubt, &settlement).await? {
            Fenced::Applied => Ok(Some(settlement)),
            Fenced::Superseded => Ok(None),
        }
    }

    /// Asks about every call in doubt of which somebody can be asked.
    pub async fn reconcile_all(&self, store: &dyn Inspect) -> Result<Reconciled, StoreError> {
        let mut filter = Filter {
            phase: Some(Phase::InDoubt),
            ..Filter::default()
        };
        let mut reconciled = Reconciled::default();
        loop {
            let page = store.list(&filter).await?;
            let mut asked = FuturesUnordered::new();
            for view in &page.calls {
                // One that takes its time takes one place.
                if asked.len() == ASKED_AT_A_TIME
                    && let Some(answer) = asked.next().await
                {
                    reconciled.add(&answer);
                }
                asked.push(self.reconcile(view));
            }
            while let Some(answer) = asked.next().await {
                reconciled.add(&answer);
            }
            filter.after = page.next;
            if filter.after.is_none() {
                return Ok(reconciled);
            }
        }
    }
}

impl Shared {
    /// What is known of a call in doubt once its upstream was asked. Duplicates wait for the one that asks, and nobody much
    /// longer than the route says: what is found later is there for the next one.
    pub(super) async fn reconcile(
        self: &Arc<Self>,
        policy: &Arc<Policy>,
        call: &Call,
        doubt: Claim,
    ) -> Result<Verdict, StoreError> {
        if policy.reconcile.is_none() {
            return Ok(Verdict::InDoubt(doubt));
        }
        let deadline = Instant::now() + policy.wait;
        if let Some(asking) = self.gate.try_enter(call.id()) {
            // The request may be gone before it ends, so it has a call of its own, which begins nothing.
            let call = Call::new(call.scope().clone(), call.key().clone(), *call.fingerprint());
            let asked = ask(Arc::clone(self), Arc::clone(policy), call, doubt.clone(), asking);
            let limit = deadline.max(Instant::now() + ASKED_FOR_MIN);
            let is_known = match timeout_at(limit, Detached::new(asked, &self.tasks)).await {
                Ok(asked) => asked?,
                Err(_) => false,
            };
            if !is_known {
                return Ok(Verdict::InDoubt(doubt));
            }
        } else {
            let Some(_place) = self.once.place() else {
                return Ok(Verdict::InDoubt(doubt));
            };
            if timeout_at(deadline, self.gate.enter(call.id())).await.is_err() {
                return Ok(Verdict::InDoubt(doubt));
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        self.once.turn(call, left).await
    }

    /// Stores what was found, and says so if that is what ended the doubt.
    async fn end(&self, policy: &Policy, doubt: &Doubt, settlement: &Settlement) -> Result<Fenced, StoreError> {
        let ending = encode(policy, &doubt.claim, settlement);
        let fenced = self.once.settle(&doubt.claim, ending, policy.keep).await?;
        if let (Fenced::Applied, Some(tell)) = (fenced, &policy.on_reconciled) {
            (tell.0)(doubt, settlement).await;
        }
        Ok(fenced)
    }
}

/// Asks about a doubt and stores what is found. Whether anything is.
async fn ask(
    shared: Arc<Shared>,
    policy: Arc<Policy>,
    call: Call,
    claim: Claim,
    asking: Passage<CallId>,
) -> Result<bool, StoreError> {
    let Some(reconcile) = &policy.reconcile else {
        return Ok(false);
    };
    let key = call.key().clone();
    let doubt = Doubt { key, claim };
    let Some(settlement) = (reconcile.0)(doubt.clone()).await else {
        return Ok(false);
    };
    // Superseded: someone else settled it. Either way the record has the last word.
    if shared.end(&policy, &doubt, &settlement).await? == Fenced::Applied {
        let status = match &settlement {
            Settlement::Happened(answer) => Some(answer.status()),
            Settlement::DidNotHappen => None,
        };
        log::moved(&call, doubt.claim.attempt, "in doubt", name(&settlement), status);
    }
    drop(asking);
    Ok(true)
}

fn name(settlement: &Settlement) -> &'static str {
    match settlement {
        Settlement::Happened(_) => "done",
        Settlement::DidNotHappen => "absent",
    }
}

/// How an attempt ended that was settled so.
pub(super) fn encode(policy: &Policy, claim: &Claim, settlement: &Settlement) -> Ending {
    match settlement {
        Settlement::DidNotHappen => Ending::DidNotHappen,
        Settlement::Happened(answer) => {
            let kept = (answer.body().len() <= policy.answer_max).then_some(answer.body());
            let outcome = answer::encode(policy, &claim.id, answer.status(), answer.headers(), kept);
            Ending::Happened(outcome)
        }
    }
}
