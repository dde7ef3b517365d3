//! The API's part about deliveries.

pub(crate) mod ask;
mod desk;
pub(crate) mod wire;

use std::sync::Arc;

use axum::extract::State;

use self::ask::DeliveriesQuery;
use self::wire::{DeliveryDetail, DeliveryPage, Retried};
use super::Admin;
use super::extract::{Asked, By, Filtered, JobNamed, Told};
use super::jobs::ask::{JobIdText, RequeueOne};
use super::operators::detached;
use super::problem::Answer;

/// List deliveries
///
/// By id, which is not the order in which they were made. Looks at a bounded number of them: a page with few rows, or none, is
/// the last one only if `next` is null.
#[utoipa::path(
    get,
    path = "/v1/deliveries",
    tag = "events",
    operation_id = "listDeliveries",
    params(DeliveriesQuery),
    responses((status = 200, description = "One page", body = DeliveryPage))
)]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    Filtered(query): Filtered<DeliveriesQuery>,
) -> Answer<Told<DeliveryPage>> {
    admin.events()?.deliveries(&query).await.map(Told)
}

/// Show a delivery and its attempts
#[utoipa::path(
    get,
    path = "/v1/deliveries/{delivery}",
    tag = "events",
    operation_id = "showDelivery",
    params(("delivery" = JobIdText, Path, description = "The delivery's id: a UUID")),
    responses((status = 200, description = "The delivery", body = DeliveryDetail))
)]
pub(super) async fn show(State(admin): State<Arc<Admin>>, JobNamed(id): JobNamed) -> Answer<Told<DeliveryDetail>> {
    admin.events()?.delivery(id).await.map(Told)
}

/// Retry a delivery
///
/// Dead: it waits again, with its attempts to run anew and its history kept. Waiting: its next attempt is due now, instead of
/// when it was to be. Otherwise nothing is changed, and the answer says why. Repeating it changes nothing, and there is never
/// more than one attempt under way: while a copy of it that a replay has made waits or runs, it is refused.
#[utoipa::path(
    post,
    path = "/v1/deliveries/{delivery}/retry",
    tag = "events",
    operation_id = "retryDelivery",
    params(("delivery" = JobIdText, Path, description = "The delivery's id: a UUID")),
    request_body = RequeueOne,
    responses((status = 200, description = "What became of it", body = Retried))
)]
pub(super) async fn retry(
    State(admin): State<Arc<Admin>>,
    JobNamed(id): JobNamed,
    By(actor): By,
    Asked(asked): Asked<RequeueOne>,
) -> Answer<Told<Retried>> {
    let desk = admin.events()?.clone();
    detached(async move { desk.retry(id, &asked, &actor).await }).await
}
