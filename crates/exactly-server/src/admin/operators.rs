//! The operators' part of the API: look, settle, free, purge.
//!
//! Actions run in tasks of their own: whoever asked may hang up, and the trail still says how it ended.

use std::future::Future;
use std::sync::Arc;

use axum::extract::State;

use super::Admin;
use super::ask::{FreeQuery, ListQuery, Purge, Resolve, ShowQuery, TrailQuery};
use super::extract::{Asked, By, Filtered, Id, Told};
use super::problem::{Answer, Problem};
use super::wire::{CallDetail, CallPage, Purged, Settled, Trail};

/// List calls
#[utoipa::path(
    get,
    path = "/v1/calls",
    tag = "operators",
    operation_id = "listCalls",
    params(ListQuery),
    responses((status = 200, description = "One page", body = CallPage))
)]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    Filtered(query): Filtered<ListQuery>,
) -> Answer<Told<CallPage>> {
    admin.desk.list(&query).await.map(Told)
}

/// Show a call and its history
#[utoipa::path(
    get,
    path = "/v1/calls/{id}",
    tag = "operators",
    operation_id = "showCall",
    params(ShowQuery),
    responses((status = 200, description = "The call", body = CallDetail))
)]
pub(super) async fn show(
    State(admin): State<Arc<Admin>>,
    Id(id): Id,
    Filtered(query): Filtered<ShowQuery>,
    By(actor): By,
) -> Answer<Told<CallDetail>> {
    detached(async move { admin.desk.show(id, query.reveal, &actor).await }).await
}

/// Settle a doubt
///
/// Somebody found out what came of an attempt that was lost. Refused if the call is not in doubt.
#[utoipa::path(
    post,
    path = "/v1/calls/{id}/resolve",
    tag = "operators",
    operation_id = "resolveCall",
    request_body = Resolve,
    responses((status = 200, description = "The doubt has ended", body = Settled))
)]
pub(super) async fn resolve(
    State(admin): State<Arc<Admin>>,
    Id(id): Id,
    By(actor): By,
    Asked(resolve): Asked<Resolve>,
) -> Answer<Told<Settled>> {
    detached(async move { admin.desk.resolve(id, resolve, &actor).await }).await
}

/// Free a key
///
/// In doubt or lost: it did not happen, and the next request runs. Done: the outcome is forgotten, and the next request is
/// a new operation. In flight: refused.
#[utoipa::path(
    delete,
    path = "/v1/calls/{id}",
    tag = "operators",
    operation_id = "freeCall",
    params(FreeQuery),
    responses((status = 200, description = "The key is free", body = Settled))
)]
pub(super) async fn free(
    State(admin): State<Arc<Admin>>,
    Id(id): Id,
    Filtered(query): Filtered<FreeQuery>,
    By(actor): By,
) -> Answer<Told<Settled>> {
    detached(async move { admin.desk.free(id, query, &actor).await }).await
}

/// Forget finished calls
///
/// Counts only, unless `dry_run` is false. Looks at a bounded number of records; go on with `next`.
#[utoipa::path(
    post,
    path = "/v1/purge",
    tag = "operators",
    operation_id = "purgeCalls",
    request_body = Purge,
    responses((status = 200, description = "What is gone, or would be", body = Purged))
)]
pub(super) async fn purge(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Asked(purge): Asked<Purge>,
) -> Answer<Told<Purged>> {
    detached(async move { admin.desk.purge(&purge, &actor).await }).await
}

/// Read the trail of what operators did
#[utoipa::path(
    get,
    path = "/v1/trail",
    tag = "operators",
    operation_id = "readTrail",
    params(TrailQuery),
    responses((status = 200, description = "Entries, oldest first", body = Trail))
)]
pub(super) async fn trail(
    State(admin): State<Arc<Admin>>,
    Filtered(query): Filtered<TrailQuery>,
) -> Answer<Told<Trail>> {
    admin.desk.trail(&query).await.map(Told)
}

pub(super) async fn detached<T: Send + 'static>(
    action: impl Future<Output = Answer<T>> + Send + 'static,
) -> Answer<Told<T>> {
    let ended = tokio::spawn(action).await;
    ended
        .unwrap_or_else(|_| Err(Problem::failed("the action broke off; see the log and the trail")))
        .map(Told)
}
