//! One keyed request, from its claim to its answer.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response, header, response};
use http_body::Body as HttpBody;
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

use super::body::{self, Body, BoxError, Read};
use super::detached::Detached;
use super::fate::{Fate, fate};
use super::policy::Policy;
use super::problem::{RETRY_AFTER_DEFAULT, Refusal, link_header};
use super::reply::{KeyStatus, NothingHappened, OutcomeUnknown, label};
use super::transaction::{OpenTx, Regained, Transactions};
use super::{CallInfo, Guarantee, Shared, answer, log};
use crate::gate::Passage;
use crate::once::Ending;
use crate::{Call, CallId, Claim, Fenced, StoreError, Verdict, telemetry};

/// A request that asks for a call, and the handler that carries it out.
pub(super) struct Exchange<S> {
    pub(super) shared: Arc<Shared>,
    pub(super) policy: Arc<Policy>,
    pub(super) call: Call,
    pub(super) inner: S,
    pub(super) request: Request<Body>,
}

/// What came of running a handler.
pub(super) enum Came<E> {
    Answer(Answer),
    /// The service failed instead of answering.
    Failed(E),
    /// The handler panicked.
    Broke,
    /// Its answer broke off, or it says itself that it does not know what it did.
    Unknown,
}

pub(super) struct Answer {
    pub(super) parts: response::Parts,
    body: Read,
}

impl<S, R> Exchange<S>
where
    S: Service<Request<Body>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    /// Under a lease, which is durable before the handler starts.
    pub(super) async fn leased(self: Box<Self>) -> Result<Response<Body>, S::Error> {
        let Self {
            shared, policy, call, ..
        } = &*self;
        match shared.once.turn(call, policy.wait).await {
            Ok(Verdict::Run(claim)) => self.run(claim).await,
            Ok(Verdict::InDoubt(doubt)) => match shared.reconcile(policy, call, doubt).await {
                Ok(Verdict::Run(claim)) => self.run(claim).await,
                Ok(verdict) => Ok(shared.told(policy, call, verdict)),
                Err(error) => Ok(shared.unavailable(policy, call, &error)),
            },
            Ok(verdict) => Ok(shared.told(policy, call, verdict)),
            Err(error) => Ok(shared.unavailable(policy, call, &error)),
        }
    }

    async fn run(self: Box<Self>, claim: Claim) -> Result<Response<Body>, S::Error> {
        let shared = Arc::clone(&self.shared);
        Detached::new(self.run_leased(claim), &shared.tasks).await
    }

    async fn run_leased(self: Box<Self>, claim: Claim) -> Result<Response<Body>, S::Error> {
        let _running = telemetry::Running::start();
        log::begun(&self.call, claim.attempt);
        let Self {
            shared,
            policy,
            call,
            inner,
            mut request,
        } = *self;
        request.extensions_mut().insert(CallInfo {
            key: call.key().clone(),
            claim: claim.clone(),
            joined: (policy.guarantee == Guarantee::Joined).then_some(policy.keep),
        });
        let handled = handle(inner, request, Arc::clone(&shared), policy.answer_max);
        let came = shared.once.hold(&claim, call.lease(), handled).await;
        if policy.guarantee == Guarantee::Joined {
            return shared.end_joined(&policy, &call, &claim, came).await;
        }
        let answer = match came {
            Came::Answer(answer) => answer,
            Came::Failed(error) => {
                shared.lose(&policy, &call, &claim).await;
                return Err(error);
            }
            broken => {
                shared.lose(&policy, &call, &claim).await;
                let (id, settle) = (call.id(), shared.settle_link(call.id()));
                let refusal = match (policy.guarantee, broken) {
                    (Guarantee::Rerunnable, _) => Refusal::Rerunnable,
                    (_, Came::Unknown) => Refusal::InDoubt { id, settle },
                    _ => Refusal::HandlerFailed { id, settle },
                };
                return Ok(shared.refuse_keyed(&policy, &call, refusal, Some(policy.keep)));
            }
        };
        Ok(match answer.fate(policy.guarantee) {
            Fate::Store => {
                let outcome = answer.encode(&policy, call.id());
                match shared.once.settle(&claim, Ending::Happened(outcome), policy.keep).await {
                    Ok(Fenced::Applied) => {
                        log::moved(&call, claim.attempt, "in flight", "done", Some(answer.parts.status));
                        answer.stored(&policy)
                    }
                    // Someone else owns the key by now, or the store is still being told: this is not the last word.
                    Ok(Fenced::Superseded) | Err(_) => shared.unknown(&policy, &call),
                }
            }
            Fate::Free => match shared.once.settle(&claim, Ending::DidNotHappen, policy.keep).await {
                Ok(Fenced::Applied) => {
                    log::moved(&call, claim.attempt, "in flight", "absent", Some(answer.parts.status));
                    answer.freed()
                }
                // Nothing happened all the same, but the key is not free: nothing is said about it.
                Ok(Fenced::Superseded) | Err(_) => answer.into_response(),
            },
            Fate::Doubt => {
                shared.lose(&policy, &call, &claim).await;
                let mut response = label(answer.into_response(), KeyStatus::Unknown, Some(policy.keep));
                if let Some(link) = shared.settle_link(call.id()).as_deref().and_then(link_header) {
                    response.headers_mut().append(header::LINK, link);
                }
                response
            }
        })
    }

    /// In the handler's own transaction.
    pub(super) async fn transactional(self: Box<Self>) -> Result<Response<Body>, S::Error> {
        let Self {
            shared, policy, call, ..
        } = &*self;
        let deadline = Instant::now() + policy.wait;
        let passage = match shared.pass(call, deadline).await {
            Ok(Ok(passage)) => passage,
            Ok(Err(verdict)) => return Ok(shared.told(policy, call, verdict)),
            Err(error) => return Ok(shared.unavailable(policy, call, &error)),
        };
        let shared = Arc::clone(shared);
        Detached::new(self.run_transactional(passage, deadline), &shared.tasks).await
    }

    async fn run_transactional(
        self: Box<Self>,
        _passage: Passage<CallId>,
        deadline: Instant,
    ) -> Result<Response<Body>, S::Error> {
        let _running = telemetry::Running::start();
        let Self {
            shared,
            policy,
            call,
            inner,
            mut request,
        } = *self;
        let (mut tx, claim) = match shared.open_and_begin(&call, deadline).await {
            Ok((tx, Verdict::Run(claim))) => (tx, claim),
            Ok((tx, verdict)) => {
                shared.recent.insert(*call.id());
                let _ = tx.rollback().await;
                return Ok(shared.told(&policy, &call, verdict));
            }
            Err(error) => return Ok(shared.unavailable(&policy, &call, &error)),
        };
        request.extensions_mut().insert(CallInfo {
            key: call.key().clone(),
            claim: claim.clone(),
            joined: None,
        });
        tx.lend(request.extensions_mut());
        let handled = handle(inner, request, Arc::clone(&shared), policy.answer_max);
        let answer = match handled.await {
            Came::Answer(answer) => answer,
            other => {
                telemetry::count(telemetry::FREED);
                let _ = tx.rollback().await;
                return match other {
                    Came::Failed(error) => Err(error),
                    _ => Ok(shared.refuse_keyed(&policy, &call, Refusal::RolledBack, None)),
                };
            }
        };
        if answer.fate(Guarantee::Transactional) != Fate::Store {
            let _ = tx.rollback().await;
            return Ok(answer.freed());
        }
        if !matches!(tx.regain(), Regained::Open) {
            return Ok(shared.refuse_keyed(&policy, &call, Refusal::TransactionWithheld, None));
        }
        let outcome = answer.encode(&policy, call.id());
        match tx.complete_in(&claim, &outcome, policy.keep).await {
            Ok(Fenced::Applied) => {}
            Ok(Fenced::Superseded) => {
                let _ = tx.rollback().await;
                return Ok(shared.refuse_keyed(&policy, &call, Refusal::StoreUnavailable, None));
            }
            Err(error) => {
                let _ = tx.rollback().await;
                return Ok(shared.unavailable(&policy, &call, &error));
            }
        }
        Ok(match tx.commit().await {
            Ok(()) => {
                log::moved(&call, claim.attempt, "absent", "done", Some(answer.parts.status));
                shared.recent.insert(*call.id());
                answer.stored(&policy)
            }
            Err(error) => shared.after_lost_commit(&policy, &call, answer, outcome, &error).await,
        })
    }
}

impl Shared {
    /// Waits in memory until this process may ask the database for the call, unless its outcome is known before.
    async fn pass(&self, call: &Call, deadline: Instant) -> Result<Result<Passage<CallId>, Verdict>, StoreError> {
        let free = self.gate.try_enter(call.id());
        // Looking first is a round trip in vain for most, who are no duplicates.
        let looks = free.is_none() || self.recent.contains(call.id()) || !self.transactions().locks_by_key();
        if looks && let Some(verdict) = self.look(call).await? {
            return Ok(Err(verdict));
        }
        if let Some(passage) = free {
            return Ok(Ok(passage));
        }
        let in_flight = Verdict::InFlight {
            retry_after: RETRY_AFTER_DEFAULT,
        };
        let Some(_place) = self.once.place() else {
            return Ok(Err(in_flight));
        };
        let passage = timeout_at(deadline, self.gate.enter(call.id())).await;
        // Also after waiting in vain: who holds the passage may be waiting for a call that ended in another process.
        Ok(match (self.look(call).await?, passage) {
            (Some(verdict), _) => Err(verdict),
            (None, Ok(passage)) => Ok(passage),
            (None, Err(_)) => Err(in_flight),
        })
    }

    /// What is known of the call without a transaction. A leased attempt in flight is left to `begin_in`, which knows its
    /// remaining time.
    async fn look(&self, call: &Call) -> Result<Option<Verdict>, StoreError> {
        let verdict = self.once.peek(call).await?;
        Ok(verdict.filter(|verdict| !matches!(verdict, Verdict::InFlight { .. })))
    }

    pub(super) fn transactions(&self) -> &Arc<dyn Transactions> {
        self.transactions
            .as_ref()
            .expect("a transactional policy without a transactional store was refused")
    }

    async fn open_and_begin(&self, call: &Call, deadline: Instant) -> Result<(Box<dyn OpenTx>, Verdict), StoreError> {
        let wait = deadline.saturating_duration_since(Instant::now());
        let mut tx = self
            .transactions()
            .open(wait, self.once.limits().store_patience)
            .await?;
        match tx.begin_in(call).await {
            Ok(verdict) => Ok((tx, verdict)),
            Err(error) => {
                let _ = tx.rollback().await;
                Err(error)
            }
        }
    }

    /// The connection was lost at the commit, so only the database knows. Beginning the call again waits for the lost
    /// commit and tells what came of it.
    async fn after_lost_commit(
        &self,
        policy: &Policy,
        call: &Call,
        answer: Answer,
        outcome: Bytes,
        error: &StoreError,
    ) -> Response<Body> {
        tracing::warn!(call = %call.id(), %error, "commit unanswered; asking the database what came of it");
        let deadline = Instant::now() + self.once.limits().record_patience;
        let Ok((tx, verdict)) = self.open_and_begin(call, deadline).await else {
            return self.unknown(policy, call);
        };
        let _ = tx.rollback().await;
        match verdict {
            // A duplicate may have come after a commit that failed: then the answer that stands is not this one.
            Verdict::Replay(replay) if replay.outcome == outcome && answer.is_kept(policy) => answer.stored(policy),
            Verdict::Replay(_) => self.told(policy, call, verdict),
            Verdict::Run(_) => self.unavailable(policy, call, error),
            _ => self.unknown(policy, call),
        }
    }

    /// Ends an attempt of which nobody knows what it did.
    async fn lose(&self, policy: &Policy, call: &Call, claim: &Claim) {
        let lost = match policy.guarantee {
            Guarantee::Rerunnable | Guarantee::Joined => "lost",
            Guarantee::AtMostOnce | Guarantee::Transactional => {
                telemetry::count(telemetry::IN_DOUBT);
                "in doubt"
            }
        };
        log::moved(call, claim.attempt, "in flight", lost, None);
        // If the store cannot be told, the end of the lease tells it.
        let _ = self.once.settle(claim, Ending::Unknown, policy.keep).await;
    }
}

impl Answer {
    pub(super) fn fate(&self, guarantee: Guarantee) -> Fate {
        if self.parts.extensions.get::<NothingHappened>().is_some() {
            return Fate::Free;
        }
        fate(guarantee, self.parts.status)
    }

    /// Whether duplicates get to see it.
    fn is_kept(&self, policy: &Policy) -> bool {
        policy.store_answer && matches!(self.body, Read::Whole(_))
    }

    pub(super) fn encode(&self, policy: &Policy, id: &CallId) -> Bytes {
        let body = match &self.body {
            Read::Whole(bytes) => Some(bytes),
            Read::TooLong(_) => None,
        };
        answer::encode(policy, id, self.parts.status, &self.parts.headers, body)
    }

    pub(super) fn stored(self, policy: &Policy) -> Response<Body> {
        telemetry::count(telemetry::CREATED);
        label(self.into_response(), KeyStatus::Stored, Some(policy.keep))
    }

    pub(super) fn freed(self) -> Response<Body> {
        telemetry::count(telemetry::FREED);
        label(self.into_response(), KeyStatus::Freed, None)
    }

    pub(super) fn into_response(self) -> Response<Body> {
        let body = match self.body {
            Read::Whole(bytes) => Body::from(bytes),
            Read::TooLong(body) => body,
        };
        Response::from_parts(self.parts, body)
    }
}

async fn handle<S, R>(mut inner: S, request: Request<Body>, shared: Arc<Shared>, answer_max: usize) -> Came<S::Error>
where
    S: Service<Request<Body>, Response = Response<R>>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let run = async move {
        match inner.call(request).await {
            Ok(response) => read(response, &shared, answer_max).await,
            Err(error) => Came::Failed(error),
        }
    };
    // What the handler shared with others stays as the panic left it, just as without the layer.
    AssertUnwindSafe(run).catch_unwind().await.unwrap_or(Came::Broke)
}

/// Reads an answer to its end.
pub(super) async fn read<E, R>(response: Response<R>, shared: &Shared, answer_max: usize) -> Came<E>
where
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let (parts, body) = response.into_parts();
    if parts.extensions.get::<OutcomeUnknown>().is_some() {
        return Came::Unknown;
    }
    match body::read(body, answer_max, shared.patience.answer, shared.held.for_answer()).await {
        Ok(body) => Came::Answer(Answer { parts, body }),
        Err(_) => Came::Unknown,
    }
}
