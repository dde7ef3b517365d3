//! The API's part about endpoints.

pub(crate) mod ask;
pub(crate) mod desk;
pub(crate) mod wire;

use std::sync::Arc;

use axum::extract::State;
use exactly::webhook::EndpointId;
use http::StatusCode;

use self::ask::{EndpointChange, EndpointsQuery, NewEndpoint, Rotate, TestEvent};
use self::desk::Action;
use self::wire::{EndpointMade, EndpointPage, EndpointShown, HealthShown, Tested};
use super::Admin;
use super::extract::{Asked, By, Filtered, Named, Told};
use super::input::Actor;
use super::operators::detached;
use super::problem::{Answer, Problem};
use super::schedules::ask::Because;
use super::schedules::wire::Erased;

/// List endpoints
#[utoipa::path(
    get,
    path = "/v1/endpoints",
    tag = "endpoints",
    operation_id = "listEndpoints",
    params(EndpointsQuery),
    responses((status = 200, description = "One page, by id", body = EndpointPage))
)]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    Filtered(query): Filtered<EndpointsQuery>,
) -> Answer<Told<EndpointPage>> {
    admin.events()?.list_endpoints(&query).await.map(Told)
}

/// Create an endpoint
///
/// It hears of every event that is published from now on. Unless a secret is given, one is made and told in this answer, and
/// never again.
#[utoipa::path(
    post,
    path = "/v1/endpoints",
    tag = "endpoints",
    operation_id = "createEndpoint",
    request_body = NewEndpoint,
    responses((status = 201, description = "The endpoint, with its secret", body = EndpointMade))
)]
pub(super) async fn create(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Asked(asked): Asked<NewEndpoint>,
) -> Answer<(StatusCode, Told<EndpointMade>)> {
    let desk = admin.events()?.clone();
    let made = detached(async move { desk.create_endpoint(asked, &actor).await }).await?;
    Ok((StatusCode::CREATED, made))
}

/// Show an endpoint
///
/// Without its secrets.
#[utoipa::path(
    get,
    path = "/v1/endpoints/{endpoint}",
    tag = "endpoints",
    operation_id = "showEndpoint",
    params(("endpoint" = String, Path, description = "The endpoint's id", pattern = "^[A-Za-z0-9_-]{1,64}$")),
    responses((status = 200, description = "The endpoint", body = EndpointShown))
)]
pub(super) async fn show(State(admin): State<Arc<Admin>>, Named(id): Named) -> Answer<Told<EndpointShown>> {
    admin.events()?.show_endpoint(&endpoint(id)?).await.map(Told)
}

/// Tell how an endpoint is doing
///
/// What waits for it, until when it is left alone, its last success and its last failures.
#[utoipa::path(
    get,
    path = "/v1/endpoints/{endpoint}/health",
    tag = "endpoints",
    operation_id = "showEndpointHealth",
    params(("endpoint" = String, Path, description = "The endpoint's id", pattern = "^[A-Za-z0-9_-]{1,64}$")),
    responses((status = 200, description = "How it is doing", body = HealthShown))
)]
pub(super) async fn health(State(admin): State<Arc<Admin>>, Named(id): Named) -> Answer<Told<HealthShown>> {
    admin.events()?.endpoint_health(&endpoint(id)?).await.map(Told)
}

/// Change an endpoint
///
/// What is not said stays as it is. Whoever sends sees it within a second.
#[utoipa::path(
    patch,
    path = "/v1/endpoints/{endpoint}",
    tag = "endpoints",
    operation_id = "changeEndpoint",
    params(("endpoint" = String, Path, description = "The endpoint's id", pattern = "^[A-Za-z0-9_-]{1,64}$")),
    request_body = EndpointChange,
    responses((status = 200, description = "The endpoint as it is now", body = EndpointShown))
)]
pub(super) async fn change(
    State(admin): State<Arc<Admin>>,
    Named(id): Named,
    By(actor): By,
    Asked(asked): Asked<EndpointChange>,
) -> Answer<Told<EndpointShown>> {
    let (id, desk) = (endpoint(id)?, admin.events()?.clone());
    detached(async move { desk.change_endpoint(&id, asked, &actor).await }).await
}

/// Forget an endpoint
///
/// What still waits for it ends dead.
#[utoipa::path(
    delete,
    path = "/v1/endpoints/{endpoint}",
    tag = "endpoints",
    operation_id = "deleteEndpoint",
    params(("endpoint" = String, Path, description = "The endpoint's id", pattern = "^[A-Za-z0-9_-]{1,64}$"), Because),
    responses((status = 200, description = "It is gone", body = Erased))
)]
pub(super) async fn delete(
    State(admin): State<Arc<Admin>>,
    Named(id): Named,
    Filtered(because): Filtered<Because>,
    By(actor): By,
) -> Answer<Told<Erased>> {
    let (id, desk) = (endpoint(id)?, admin.events()?.clone());
    detached(async move { desk.delete_endpoint(&id, &because, &actor).await }).await
}

/// Pause an endpoint
///
/// Its deliveries wait until it is resumed, and none is dropped.
#[utoipa::path(
    post,
    path = "/v1/endpoints/{endpoint}/pause",
    tag = "endpoints",
    operation_id = "pauseEndpoint",
    params(("endpoint" = String, Path, description = "The endpoint's id", pattern = "^[A-Za-z0-9_-]{1,64}$"), Because),
    responses((status = 200, description = "The endpoint as it is now", body = EndpointShown))
)]
pub(super) async fn pause(
    State(admin): State<Arc<Admin>>,
    Named(id): Named,
    Filtered(because): Filtered<Because>,
    By(actor): By,
) -> Answer<Told<EndpointShown>> {
    act(&admin, id, Action::Pause, because, actor).await
}

/// Resume an endpoint
///
/// Sends what has waited, and what comes. Also one that was disabled, or that is parked because it failed.
#[utoipa::path(
    post,
    path = "/v1/endpoints/{endpoint}/resume",
    tag = "endpoints",
    operation_id = "resumeEndpoint",
    params(("endpoint" = String, Path, description = "The endpoint's id", pattern = "^[A-Za-z0-9_-]{1,64}$"), Because),
    responses((status = 200, description = "The endpoint as it is now", body = EndpointShown))
)]
pub(super) async fn resume(
    State(admin): State<Arc<Admin>>,
    Named(id): Named,
    Filtered(because): Filtered<Because>,
    By(actor): By,
) -> Answer<Told<EndpointShown>> {
    act(&admin, id, Action::Resume, because, actor).await
}

/// Disable an endpoint
///
/// As a pause, with the reason shown.
#[utoipa::path(
    post,
    path = "/v1/endpoints/{endpoint}/disable",
    tag = "endpoints",
    operation_id = "disableEndpoint",
    params(("endpoint" = String, Path, description = "The endpoint's id", pattern = "^[A-Za-z0-9_-]{1,64}$"), Because),
    responses((status = 200, description = "The endpoint as it is now", body = EndpointShown))
)]
pub(super) async fn disable(
    State(admin): State<Arc<Admin>>,
    Named(id): Named,
    Filtered(because): Filtered<Because>,
    By(actor): By,
) -> Answer<Told<EndpointShown>> {
    act(&admin, id, Action::Disable, because, actor).await
}

/// Give up what waits for an endpoint
///
/// None of what was made by now is sent any more; each ends dead, with the reason, when the endpoint is not paused.
#[utoipa::path(
    post,
    path = "/v1/endpoints/{endpoint}/discard",
    tag = "endpoints",
    operation_id = "discardEndpoint",
    params(("endpoint" = String, Path, description = "The endpoint's id", pattern = "^[A-Za-z0-9_-]{1,64}$"), Because),
    responses((status = 200, description = "The endpoint as it is now", body = EndpointShown))
)]
pub(super) async fn discard(
    State(admin): State<Arc<Admin>>,
    Named(id): Named,
    Filtered(because): Filtered<Because>,
    By(actor): By,
) -> Answer<Told<EndpointShown>> {
    act(&admin, id, Action::Discard, because, actor).await
}

/// Replace an endpoint's secret
///
/// The new one signs from now on, and the old ones beside it for as long as they overlap: a day, unless told otherwise. Unless
/// a secret is given, one is made and told in this answer, and never again.
#[utoipa::path(
    post,
    path = "/v1/endpoints/{endpoint}/rotate",
    tag = "endpoints",
    operation_id = "rotateEndpoint",
    params(("endpoint" = String, Path, description = "The endpoint's id", pattern = "^[A-Za-z0-9_-]{1,64}$")),
    request_body = Rotate,
    responses((status = 200, description = "The endpoint, with its new secret", body = EndpointMade))
)]
pub(super) async fn rotate(
    State(admin): State<Arc<Admin>>,
    Named(id): Named,
    By(actor): By,
    Asked(asked): Asked<Rotate>,
) -> Answer<Told<EndpointMade>> {
    let (id, desk) = (endpoint(id)?, admin.events()?.clone());
    detached(async move { desk.rotate_endpoint(&id, asked, &actor).await }).await
}

/// Send a test event to an endpoint
///
/// To this one alone, whatever types it wants. Look at the delivery for what came of it.
#[utoipa::path(
    post,
    path = "/v1/endpoints/{endpoint}/test",
    tag = "endpoints",
    operation_id = "testEndpoint",
    params(("endpoint" = String, Path, description = "The endpoint's id", pattern = "^[A-Za-z0-9_-]{1,64}$")),
    request_body = TestEvent,
    responses((status = 200, description = "It is on its way", body = Tested))
)]
pub(super) async fn test(
    State(admin): State<Arc<Admin>>,
    Named(id): Named,
    By(actor): By,
    Asked(asked): Asked<TestEvent>,
) -> Answer<Told<Tested>> {
    let (id, desk) = (endpoint(id)?, admin.events()?.clone());
    detached(async move { desk.test_endpoint(&id, asked, &actor).await }).await
}

async fn act(admin: &Admin, id: String, action: Action, because: Because, actor: Actor) -> Answer<Told<EndpointShown>> {
    let (id, desk) = (endpoint(id)?, admin.events()?.clone());
    detached(async move { desk.act_on_endpoint(&id, action, &because, &actor).await }).await
}

fn endpoint(id: String) -> Answer<EndpointId> {
    EndpointId::new(id).map_err(|why| Problem::invalid("endpoint", why))
}
