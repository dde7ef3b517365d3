//! Requests without a key.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body::Body as HttpBody;
use tower_service::Service;

use super::body::{Body, BoxError};
use super::detached::Detached;
use super::exchange::{self, Came};
use super::fate::Fate;
use super::policy::Policy;
use super::problem::Refusal;
use super::transaction::Regained;
use super::{Guarantee, Shared, request};
use crate::{StoreError, telemetry};

/// Passes the request on as it is. On a transactional route its handler can have a transaction all the same, without a
/// record.
pub(super) async fn pass_on<S, R>(
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
    let only_reads = !request::is_protected(request.method());
    let run = run(Arc::clone(&shared), policy, inner, request);
    if only_reads {
        return run.await;
    }
    Detached::new(run, &shared.tasks).await
}

async fn run<S, R>(
    shared: Arc<Shared>,
    policy: Arc<Policy>,
    mut inner: S,
    mut request: Request<Body>,
) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<R>>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let patience = shared.once.limits().store_patience;
    let mut tx = shared.transactions().promise(patience, request.extensions_mut());
    // What the handler shared with others stays as the panic left it, just as without the layer.
    let called = AssertUnwindSafe(async { inner.call(request).await })
        .catch_unwind()
        .await;
    let came = match called {
        Ok(Ok(response)) if tx.is_unopened() => return Ok(response.map(Body::stream)),
        Err(panic) if tx.is_unopened() => resume_unwind(panic),
        Ok(Ok(response)) => exchange::read(response, &shared, policy.answer_max).await,
        Ok(Err(error)) => Came::Failed(error),
        Err(_) => Came::Broke,
    };
    let answer = match came {
        Came::Answer(answer) => answer,
        Came::Failed(error) => {
            let _ = tx.rollback().await;
            return Err(error);
        }
        Came::Broke | Came::Unknown => {
            let _ = tx.rollback().await;
            return Ok(shared.refuse(&policy, Refusal::RolledBack));
        }
    };
    match tx.regain() {
        Regained::Open => {}
        Regained::Withheld => return Ok(shared.refuse(&policy, Refusal::TransactionWithheld)),
        Regained::Failed(error) => return Ok(unavailable(&shared, &policy, &error)),
    }
    if answer.fate(Guarantee::Transactional) != Fate::Store {
        let _ = tx.rollback().await;
        return Ok(answer.into_response());
    }
    match tx.commit().await {
        Ok(()) => Ok(answer.into_response()),
        Err(error) => {
            tracing::error!(%error, "commit unanswered, and no key to ask by");
            Ok(shared.refuse(&policy, Refusal::CommitUnknown))
        }
    }
}

fn unavailable(shared: &Shared, policy: &Policy, error: &StoreError) -> Response<Body> {
    telemetry::count(telemetry::STORE_UNAVAILABLE);
    tracing::error!(%error, "request without a key turned away");
    shared.refuse(policy, Refusal::StoreUnavailable)
}
