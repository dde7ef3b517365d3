//! One keyed request, from its claim to its answer.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response, response};
use http_body::Body as HttpBody;
use tokio::task::JoinError;
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

use super::body::{self, Body, BoxError, Read};
use super::policy::{Fate, Policy, fate};
use super::problem::Refusal;
use super::reply::{KeyStatus, NothingHappened, label};
use super::transaction::{OpenTx, Transactions};
use super::{CallInfo, Guarantee, Shared, answer};
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
enum Came<E> {
    Answer(Answer),
    /// The service failed instead of answering.
    Failed(E),
    /// The handler panicked, or its answer broke off.
    Broke,
}

struct Answer {
    parts: response::Parts,
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
    pub(super) async fn leased(self) -> Result<Response<Body>, S::Error> {
        let Self {
            shared, policy, call, ..
        } = &self;
        match shared.once.turn(call, policy.wait).await {
            Ok(Verdict::Run(claim)) => {
                let shared = Arc::clone(shared);
                let policy = Arc::clone(policy);
                let ran = shared.tasks.spawn(self.run_leased(claim)).await;
                landed(ran, &shared, &policy)
            }
            Ok(verdict) => Ok(shared.told(policy, call, verdict)),
            Err(error) => Ok(shared.unavailable(policy, call, &error)),
        }
    }

    async fn run_leased(self, claim: Claim) -> Result<Response<Body>, S::Error> {
        let _running = telemetry::Running::start();
        let Self {
            shared,
            policy,
            call,
            inner,
            mut request,
        } = self;
        request.extensions_mut().insert(CallInfo {
            key: call.key().clone(),
            claim: claim.clone(),
        });
        let handled = handle(inner, request, policy.answer_max);
        let came = shared.once.hold(&claim, call.lease(), handled).await;
        let Came::Answer(answer) = came else {
            let ending = match policy.guarantee {
                Guarantee::Rerunnable => Ending::DidNotHappen,
                Guarantee::AtMostOnce | Guarantee::Transactional => Ending::Unknown,
            };
            let freed = matches!(ending, Ending::DidNotHappen);
            telemetry::count(if freed { telemetry::FREED } else { telemetry::IN_DOUBT });
            telemetry::transition(
                &call,
                claim.attempt,
                "in flight",
                if freed { "absent" } else { "in doubt" },
            );
            let _ = shared.once.settle(&claim, ending, policy.keep).await;
            return match came {
                Came::Failed(error) => Err(error),
                _ => Ok(shared.refuse_keyed(&policy, Refusal::Panicked { rolled_back: freed }, None)),
            };
        };
        Ok(match answer.fate(policy.guarantee) {
            Fate::Store => {
                let outcome = answer.encode(&policy, call.id());
                match shared.once.settle(&claim, Ending::Happened(outcome), policy.keep).await {
                    Ok(Fenced::Applied) => {
                        telemetry::transition(&call, claim.attempt, "in flight", "done");
                        answer.stored(&policy)
                    }
                    // Someone else owns the key by now, or the store is still being told: this is not the last word.
                    Ok(Fenced::Superseded) | Err(_) => {
                        telemetry::count(telemetry::IN_DOUBT);
                        shared.refuse_keyed(&policy, Refusal::Unknown { id: Some(call.id()) }, None)
                    }
                }
            }
            Fate::Free => {
                telemetry::transition(&call, claim.attempt, "in flight", "absent");
                let _ = shared.once.settle(&claim, Ending::DidNotHappen, policy.keep).await;
                answer.freed()
            }
            Fate::Doubt => {
                telemetry::count(telemetry::IN_DOUBT);
                telemetry::transition(&call, claim.attempt, "in flight", "in doubt");
                let _ = shared.once.settle(&claim, Ending::Unknown, policy.keep).await;
                label(answer.into_response(), KeyStatus::Unknown, Some(policy.keep))
            }
        })
    }

    /// In the handler's own transaction.
    pub(super) async fn transactional(self) -> Result<Response<Body>, S::Error> {
        let Self {
            shared, policy, call, ..
        } = &self;
        let deadline = Instant::now() + policy.wait;
        let passage = match shared.pass(call, deadline).await {
            Ok(Ok(passage)) => passage,
            Ok(Err(verdict)) => return Ok(shared.told(policy, call, verdict)),
            Err(error) => return Ok(shared.unavailable(policy, call, &error)),
        };
        let shared = Arc::clone(shared);
        let policy = Arc::clone(policy);
        let ran = shared.tasks.spawn(self.run_transactional(passage, deadline)).await;
        landed(ran, &shared, &policy)
    }

    async fn run_transactional(self, _passage: Passage<CallId>, deadline: Instant) -> Result<Response<Body>, S::Error> {
        let _running = telemetry::Running::start();
        let Self {
            shared,
            policy,
            call,
            inner,
            mut request,
        } = self;
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
        });
        tx.lend(request.extensions_mut());
        let answer = match handle(inner, request, policy.answer_max).await {
            Came::Answer(answer) => answer,
            other => {
                telemetry::count(telemetry::FREED);
                let _ = tx.rollback().await;
                return match other {
                    Came::Failed(error) => Err(error),
                    _ => Ok(shared.refuse_keyed(&policy, Refusal::Panicked { rolled_back: true }, None)),
                };
            }
        };
        if answer.fate(Guarantee::Transactional) != Fate::Store {
            let _ = tx.rollback().await;
            return Ok(answer.freed());
        }
        if !tx.regain() {
            return Ok(shared.refuse_keyed(&policy, Refusal::TransactionWithheld, None));
        }
        let outcome = answer.encode(&policy, call.id());
        match tx.complete_in(&claim, &outcome, policy.keep).await {
            Ok(Fenced::Applied) => {}
            Ok(Fenced::Superseded) => {
                let _ = tx.rollback().await;
                return Ok(shared.refuse_keyed(&policy, Refusal::StoreUnavailable, None));
            }
            Err(error) => {
                let _ = tx.rollback().await;
                return Ok(shared.unavailable(&policy, &call, &error));
            }
        }
        Ok(match tx.commit().await {
            Ok(()) => {
                telemetry::transition(&call, claim.attempt, "absent", "done");
                shared.recent.insert(*call.id());
                answer.stored(&policy)
            }
            Err(error) => shared.after_lost_commit(&policy, &call, answer, &error).await,
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
            retry_after: Duration::from_secs(1),
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

    fn transactions(&self) -> &Arc<dyn Transactions> {
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
        error: &StoreError,
    ) -> Response<Body> {
        tracing::warn!(call = %call.id(), %error, "commit unanswered; asking the database what came of it");
        let deadline = Instant::now() + self.once.limits().record_patience;
        let Ok((tx, verdict)) = self.open_and_begin(call, deadline).await else {
            telemetry::count(telemetry::IN_DOUBT);
            return self.refuse_keyed(policy, Refusal::Unknown { id: Some(call.id()) }, None);
        };
        let _ = tx.rollback().await;
        match verdict {
            Verdict::Replay(_) => answer.stored(policy),
            Verdict::Run(_) => self.unavailable(policy, call, error),
            _ => self.refuse_keyed(policy, Refusal::Unknown { id: Some(call.id()) }, None),
        }
    }
}

/// A request without a key: passed on as it is. On a transactional route its handler gets a transaction all the same,
/// without a record.
pub(super) async fn unkeyed<S, R>(
    shared: Arc<Shared>,
    policy: Arc<Policy>,
    mut inner: S,
    request: Request<Body>,
) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    if policy.guarantee != Guarantee::Transactional {
        return Ok(inner.call(request).await?.map(Body::stream));
    }
    let run = run_unkeyed(Arc::clone(&shared), Arc::clone(&policy), inner, request);
    landed(shared.tasks.spawn(run).await, &shared, &policy)
}

async fn run_unkeyed<S, R>(
    shared: Arc<Shared>,
    policy: Arc<Policy>,
    inner: S,
    mut request: Request<Body>,
) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<R>>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let refuse = |refusal: Refusal<'_>| Ok(shared.render.render(&refusal.problem(&policy)));
    let patience = shared.once.limits().store_patience;
    let Ok(mut tx) = shared.transactions().open(patience, patience).await else {
        return refuse(Refusal::StoreUnavailable);
    };
    tx.lend(request.extensions_mut());
    let answer = match handle(inner, request, policy.answer_max).await {
        Came::Answer(answer) => answer,
        other => {
            let _ = tx.rollback().await;
            return match other {
                Came::Failed(error) => Err(error),
                _ => refuse(Refusal::Panicked { rolled_back: true }),
            };
        }
    };
    if answer.fate(Guarantee::Transactional) != Fate::Store {
        let _ = tx.rollback().await;
        return Ok(answer.into_response());
    }
    if !tx.regain() {
        return refuse(Refusal::TransactionWithheld);
    }
    match tx.commit().await {
        Ok(()) => Ok(answer.into_response()),
        Err(_) => refuse(Refusal::Unknown { id: None }),
    }
}

impl Answer {
    fn fate(&self, guarantee: Guarantee) -> Fate {
        if self.parts.extensions.get::<NothingHappened>().is_some() {
            return Fate::Free;
        }
        fate(guarantee, self.parts.status)
    }

    fn encode(&self, policy: &Policy, id: &CallId) -> Bytes {
        let body = match &self.body {
            Read::Whole(bytes) => Some(bytes),
            Read::TooLong(_) => None,
        };
        answer::encode(policy, id, self.parts.status, &self.parts.headers, body)
    }

    fn stored(self, policy: &Policy) -> Response<Body> {
        telemetry::count(telemetry::CREATED);
        label(self.into_response(), KeyStatus::Stored, Some(policy.keep))
    }

    fn freed(self) -> Response<Body> {
        telemetry::count(telemetry::FREED);
        label(self.into_response(), KeyStatus::Freed, None)
    }

    fn into_response(self) -> Response<Body> {
        let body = match self.body {
            Read::Whole(bytes) => Body::from(bytes),
            Read::TooLong(body) => body,
        };
        Response::from_parts(self.parts, body)
    }
}

async fn handle<S, R>(mut inner: S, request: Request<Body>, answer_max: usize) -> Came<S::Error>
where
    S: Service<Request<Body>, Response = Response<R>>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let run = async move {
        let response = match inner.call(request).await {
            Ok(response) => response,
            Err(error) => return Came::Failed(error),
        };
        let (parts, body) = response.into_parts();
        match body::read(body, answer_max).await {
            Ok(body) => Came::Answer(Answer { parts, body }),
            Err(_) => Came::Broke,
        }
    };
    // What the handler shared with others stays as the panic left it, just as without the layer.
    AssertUnwindSafe(run).catch_unwind().await.unwrap_or(Came::Broke)
}

/// The task's answer. It fails only when the runtime is shut down around it.
fn landed<E>(
    ran: Result<Result<Response<Body>, E>, JoinError>,
    shared: &Shared,
    policy: &Policy,
) -> Result<Response<Body>, E> {
    ran.unwrap_or_else(|_| Ok(shared.refuse_keyed(policy, Refusal::Unknown { id: None }, None)))
}
