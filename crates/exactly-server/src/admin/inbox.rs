//! The API's part about events that came in.

pub(crate) mod ask;
pub(crate) mod desk;
pub(crate) mod wire;

use std::sync::Arc;

use axum::extract::{Path, State};

use self::ask::{InboxQuery, WhichBody};
use self::wire::{InboxDetail, InboxPage};
use super::Admin;
use super::extract::{Filtered, Told};
use super::problem::Answer;

/// List events that came in
///
/// By a digest of their ids, which is not the order in which they came.
#[utoipa::path(
    get,
    path = "/v1/inbox",
    tag = "inbox",
    operation_id = "listInbox",
    params(InboxQuery),
    responses((status = 200, description = "One page", body = InboxPage))
)]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    Filtered(query): Filtered<InboxQuery>,
) -> Answer<Told<InboxPage>> {
    admin.events()?.inbox(&query).await.map(Told)
}

/// Show an event that came in
///
/// The first of its id, or a quarantined one by the digest of its body.
#[utoipa::path(
    get,
    path = "/v1/inbox/{source}/{event}",
    tag = "inbox",
    operation_id = "showInbox",
    params(
        ("source" = String, Path, description = "Who has sent it", pattern = "^[A-Za-z0-9_-]{1,64}$"),
        ("event" = String, Path, description = "The event's id, as its sender has it", pattern = "^[!-~]{1,256}$"),
        WhichBody,
    ),
    responses((status = 200, description = "The event", body = InboxDetail))
)]
pub(super) async fn show(
    State(admin): State<Arc<Admin>>,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
    Filtered(which): Filtered<WhichBody>,
) -> Answer<Told<InboxDetail>> {
    let Path((source, event)) = path.map_err(|error| super::Problem::unreadable(error.body_text()))?;
    admin.events()?.received(&source, &event, &which).await.map(Told)
}
