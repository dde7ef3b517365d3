//! Where an operator settles a call in doubt.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use bytes::Bytes;
use exactly::store::Phase;
use exactly::{CallId, Fenced, Inspect, Keep, StoreError};
use serde::{Deserialize, Serialize};

pub(crate) const SETTLE_PATH: &str = "/settle";

/// What an operator found out about a call.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SettleOrder {
    pub(crate) call: String,
    /// The execution that made the effect; none if there is no effect.
    pub(crate) nonce: Option<String>,
}

/// Whether the store took it. It does not if the owner came back first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SettleAnswer {
    pub(crate) applied: bool,
}

pub(super) async fn settle<S: Inspect>(
    State(store): State<Arc<S>>,
    Json(order): Json<SettleOrder>,
) -> Result<Json<SettleAnswer>, StatusCode> {
    let id: CallId = order.call.parse().map_err(|_| StatusCode::BAD_REQUEST)?;
    let applied = apply(&*store, &id, order.nonce).await;
    let applied = applied.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    Ok(Json(SettleAnswer { applied }))
}

async fn apply(store: &dyn Inspect, id: &CallId, nonce: Option<String>) -> Result<bool, StoreError> {
    let Some(view) = store.get(id).await? else {
        return Ok(false);
    };
    let fenced = match (nonce, view.phase) {
        // Also where it is done, since the answer to an earlier try may have been lost: the same words again are
        // accepted, others are not.
        (Some(nonce), Phase::InDoubt | Phase::Done) => {
            let outcome = Bytes::from(format!("found in the ledger: {nonce}"));
            let keep = Keep::For(Duration::from_hours(1));
            store.complete(&view.claim, &outcome, keep).await?
        }
        (None, Phase::InDoubt) => store.abandon(&view.claim).await?,
        _ => Fenced::Superseded,
    };
    Ok(fenced == Fenced::Applied)
}
