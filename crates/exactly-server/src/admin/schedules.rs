//! The API's part about schedules.

pub(crate) mod ask;
mod desk;
pub(crate) mod wire;

use std::sync::Arc;

use axum::extract::State;

use self::ask::{Because, OccurrencesQuery};
use self::wire::{Erased, Occurrences, ScheduleShown, SchedulesShown};
use super::Admin;
use super::extract::{Asked, By, Filtered, Named, Told};
use super::input::Actor;
use super::operators::detached;
use super::problem::Answer;
use crate::work::definition::Definition;

/// List schedules
#[utoipa::path(
    get,
    path = "/v1/schedules",
    tag = "schedules",
    operation_id = "listSchedules",
    responses((status = 200, description = "All of them, by name", body = SchedulesShown))
)]
pub(super) async fn list(State(admin): State<Arc<Admin>>) -> Answer<Told<SchedulesShown>> {
    admin.jobs()?.schedules().await.map(Told)
}

/// Show a schedule
#[utoipa::path(
    get,
    path = "/v1/schedules/{name}",
    tag = "schedules",
    operation_id = "showSchedule",
    params(("name" = String, Path, description = "The schedule's name", pattern = "^[A-Za-z0-9._-]{1,64}$")),
    responses((status = 200, description = "The schedule", body = ScheduleShown))
)]
pub(super) async fn show(State(admin): State<Arc<Admin>>, Named(name): Named) -> Answer<Told<ScheduleShown>> {
    admin.jobs()?.schedule(&name).await.map(Told)
}

/// Write a schedule
///
/// New, or in place of the one of that name. What it has fired for stays so, and what was before it was written is none of
/// its business. Unless `paused` is given, it stays paused or not, as it was.
#[utoipa::path(
    put,
    path = "/v1/schedules/{name}",
    tag = "schedules",
    operation_id = "putSchedule",
    params(("name" = String, Path, description = "Letters, digits, `.`, `_` and `-`; at most 64", pattern = "^[A-Za-z0-9._-]{1,64}$")),
    request_body = Definition,
    responses((status = 200, description = "The schedule as it is now", body = ScheduleShown))
)]
pub(super) async fn put(
    State(admin): State<Arc<Admin>>,
    Named(name): Named,
    By(actor): By,
    Asked(definition): Asked<Definition>,
) -> Answer<Told<ScheduleShown>> {
    let desk = admin.jobs()?.clone();
    detached(async move { desk.put_schedule(&name, definition, &actor).await }).await
}

/// Pause a schedule
///
/// It makes no jobs until it is resumed, and what falls into the pause is left out. Jobs that it has made stay.
#[utoipa::path(
    post,
    path = "/v1/schedules/{name}/pause",
    tag = "schedules",
    operation_id = "pauseSchedule",
    params(("name" = String, Path, description = "The schedule's name", pattern = "^[A-Za-z0-9._-]{1,64}$"), Because),
    responses((status = 200, description = "The schedule as it is now", body = ScheduleShown))
)]
pub(super) async fn pause(
    State(admin): State<Arc<Admin>>,
    Named(name): Named,
    Filtered(because): Filtered<Because>,
    By(actor): By,
) -> Answer<Told<ScheduleShown>> {
    set_paused(&admin, name, true, because, actor).await
}

/// Resume a schedule
#[utoipa::path(
    post,
    path = "/v1/schedules/{name}/resume",
    tag = "schedules",
    operation_id = "resumeSchedule",
    params(("name" = String, Path, description = "The schedule's name", pattern = "^[A-Za-z0-9._-]{1,64}$"), Because),
    responses((status = 200, description = "The schedule as it is now", body = ScheduleShown))
)]
pub(super) async fn resume(
    State(admin): State<Arc<Admin>>,
    Named(name): Named,
    Filtered(because): Filtered<Because>,
    By(actor): By,
) -> Answer<Told<ScheduleShown>> {
    set_paused(&admin, name, false, because, actor).await
}

async fn set_paused(
    admin: &Admin,
    name: String,
    paused: bool,
    because: Because,
    actor: Actor,
) -> Answer<Told<ScheduleShown>> {
    let desk = admin.jobs()?.clone();
    detached(async move { desk.pause_schedule(&name, paused, &because, &actor).await }).await
}

/// Forget a schedule
///
/// Jobs that it has made stay.
#[utoipa::path(
    delete,
    path = "/v1/schedules/{name}",
    tag = "schedules",
    operation_id = "deleteSchedule",
    params(("name" = String, Path, description = "The schedule's name", pattern = "^[A-Za-z0-9._-]{1,64}$"), Because),
    responses((status = 200, description = "It is gone", body = Erased))
)]
pub(super) async fn delete(
    State(admin): State<Arc<Admin>>,
    Named(name): Named,
    Filtered(because): Filtered<Because>,
    By(actor): By,
) -> Answer<Told<Erased>> {
    let desk = admin.jobs()?.clone();
    detached(async move { desk.erase_schedule(&name, &because, &actor).await }).await
}

/// List occurrences of a schedule
///
/// Those that were due, the latest first, with what became of each. Looks at a bounded number of them, and says if there are more.
#[utoipa::path(
    get,
    path = "/v1/schedules/{name}/occurrences",
    tag = "schedules",
    operation_id = "listOccurrences",
    params(("name" = String, Path, description = "The schedule's name", pattern = "^[A-Za-z0-9._-]{1,64}$"), OccurrencesQuery),
    responses((status = 200, description = "The latest", body = Occurrences))
)]
pub(super) async fn occurrences(
    State(admin): State<Arc<Admin>>,
    Named(name): Named,
    Filtered(query): Filtered<OccurrencesQuery>,
) -> Answer<Told<Occurrences>> {
    admin.jobs()?.occurrences(&name, &query).await.map(Told)
}
