//! Asking the upstream what it did for a call that is in doubt.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exactly::Operate;
use exactly::layer::{Body, Doubt, Policy, Settlement};
use exactly::store::Note;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use tokio::time::timeout;

use super::proxy::Proxy;
use crate::config::Probe;

/// The longest answer that is taken over.
const ANSWER_MAX: usize = 16 * 1024 * 1024;

/// How long a probe may take, head and body together, unless its route says otherwise; or less, as upstreams have.
const LIMIT_DEFAULT: Duration = Duration::from_secs(10);

/// `policy`, with `probe` to settle its doubts.
pub(super) fn asking(policy: Policy, probe: Probe, proxy: Proxy, store: Arc<dyn Operate>) -> Policy {
    let limit = probe
        .limit
        .unwrap_or_else(|| proxy.response_timeout().min(LIMIT_DEFAULT));
    let (probe, trail) = (Arc::new(probe), Arc::clone(&store));
    let policy = policy.reconcile(move |doubt| {
        let (probe, proxy, store) = (Arc::clone(&probe), proxy.clone(), Arc::clone(&store));
        Box::pin(async move {
            let Ok(found) = timeout(limit, ask(&probe, &proxy, &doubt)).await else {
                tracing::warn!(call = %doubt.claim.id, ?limit, "still in doubt: no whole answer in time");
                return None;
            };
            let settlement = found?;
            if matches!(settlement, Settlement::DidNotHappen) && !is_old(&*store, &doubt, probe.after).await {
                return None;
            }
            Some(settlement)
        })
    });
    policy.on_reconciled(move |doubt, settlement| {
        let (trail, call, note) = (Arc::clone(&trail), doubt.claim.id, note(doubt, settlement));
        Box::pin(async move {
            if let Err(error) = trail.note(&note).await {
                tracing::error!(%call, %error, "trail not written");
            }
        })
    })
}

/// Whether the attempt was lost long enough ago for "I know nothing of it" to mean that it did not happen: what was sent may
/// lie in a queue for a while before anyone reads it.
async fn is_old(store: &dyn Operate, doubt: &Doubt, after: Duration) -> bool {
    let (Ok(Some(view)), Ok(now)) = (store.get(&doubt.claim.id).await, store.now().await) else {
        return false;
    };
    view.until.is_some_and(|lost_at| now.since(lost_at) >= after)
}

/// 2xx: it happened, and this is the answer. 404: it did not happen. Anything else: still unknown.
async fn ask(probe: &Probe, proxy: &Proxy, doubt: &Doubt) -> Option<Settlement> {
    let mut question = Request::get(probe.path(&doubt.key, &doubt.claim.id))
        .body(Body::default())
        .expect("a template that was checked makes a path");
    question.headers_mut().extend(probe.headers.clone());
    let answer = match proxy.ask(question).await {
        Ok(answer) => answer,
        Err(no_answer) => {
            tracing::warn!(call = %doubt.claim.id, cause = no_answer.cause, "still in doubt: nobody answered");
            return None;
        }
    };
    match answer.status() {
        StatusCode::NOT_FOUND => Some(Settlement::DidNotHappen),
        status if status.is_success() => {
            let (parts, body) = proxy.pass_back(answer).into_parts();
            let body: Bytes = match Limited::new(body, ANSWER_MAX).collect().await {
                Ok(body) => body.to_bytes(),
                Err(error) => {
                    tracing::warn!(call = %doubt.claim.id, %error, "still in doubt: the answer broke off");
                    return None;
                }
            };
            Some(Settlement::Happened(Response::from_parts(parts, body)))
        }
        status => {
            tracing::warn!(call = %doubt.claim.id, %status, "still in doubt: the upstream does not know either");
            None
        }
    }
}

/// A line in the trail, for whoever asks later why the doubt ended so.
fn note(doubt: &Doubt, settlement: &Settlement) -> Note {
    let detail = match settlement {
        Settlement::Happened(answer) => format!("asked; the upstream answered {}: it happened", answer.status()),
        Settlement::DidNotHappen => "asked; the upstream answered 404: it did not happen".to_owned(),
    };
    Note {
        call: Some(doubt.claim.id),
        actor: "gateway".to_owned(),
        action: "reconcile".to_owned(),
        detail,
    }
}
