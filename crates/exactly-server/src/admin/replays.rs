//! The API's part about replays.

pub(crate) mod ask;
pub(crate) mod desk;
pub(crate) mod wire;

use std::sync::Arc;

use axum::extract::State;
use exactly::webhook::ReplayId;
use http::StatusCode;

use self::ask::{NewReplay, ReplaysQuery};
use self::desk::ReplayAction;
use self::wire::{ReplayPage, ReplayShown};
use super::Admin;
use super::extract::{Asked, By, Filtered, Named, Told};
use super::input::Actor;
use super::operators::detached;
use super::problem::{Answer, Problem};
use super::schedules::ask::Because;

/// List replays
#[utoipa::path(
    get,
    path = "/v1/replays",
    tag = "replays",
    operation_id = "listReplays",
    params(ReplaysQuery),
    responses((status = 200, description = "One page, by id", body = ReplayPage))
)]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    Filtered(query): Filtered<ReplaysQuery>,
) -> Answer<Told<ReplayPage>> {
    admin.events()?.replays(&query).await.map(Told)
}

/// Start a replay
///
/// What has failed, or all, is sent again in parts, by whichever servers there are. What waits or runs is left alone. Starting
/// the same replay again tells how it stands.
#[utoipa::path(
    post,
    path = "/v1/replays",
    tag = "replays",
    operation_id = "startReplay",
    request_body = NewReplay,
    responses(
        (status = 200, description = "It was started before, and stands like this", body = ReplayShown),
        (status = 201, description = "It goes on from now", body = ReplayShown),
    )
)]
pub(super) async fn start(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Asked(asked): Asked<NewReplay>,
) -> Answer<(StatusCode, Told<ReplayShown>)> {
    let desk = admin.events()?.clone();
    let Told(started) = detached(async move { desk.start_replay(asked, &actor).await }).await?;
    let status = if started.is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, Told(started.replay)))
}

/// Show a replay and how far it has come
#[utoipa::path(
    get,
    path = "/v1/replays/{replay}",
    tag = "replays",
    operation_id = "showReplay",
    params(("replay" = String, Path, description = "The replay's id", pattern = "^[A-Za-z0-9_-]{1,64}$")),
    responses((status = 200, description = "The replay", body = ReplayShown))
)]
pub(super) async fn show(State(admin): State<Arc<Admin>>, Named(id): Named) -> Answer<Told<ReplayShown>> {
    admin.events()?.replay(&replay(id)?).await.map(Told)
}

/// Pause a replay
///
/// It rests after the part that is under way. One that has ended stays as it is.
#[utoipa::path(
    post,
    path = "/v1/replays/{replay}/pause",
    tag = "replays",
    operation_id = "pauseReplay",
    params(("replay" = String, Path, description = "The replay's id", pattern = "^[A-Za-z0-9_-]{1,64}$"), Because),
    responses((status = 200, description = "The replay as it is now", body = ReplayShown))
)]
pub(super) async fn pause(
    State(admin): State<Arc<Admin>>,
    Named(id): Named,
    Filtered(because): Filtered<Because>,
    By(actor): By,
) -> Answer<Told<ReplayShown>> {
    act(&admin, id, ReplayAction::Pause, because, actor).await
}

/// Resume a replay
///
/// It goes on where it rested. One that has ended stays as it is.
#[utoipa::path(
    post,
    path = "/v1/replays/{replay}/resume",
    tag = "replays",
    operation_id = "resumeReplay",
    params(("replay" = String, Path, description = "The replay's id", pattern = "^[A-Za-z0-9_-]{1,64}$"), Because),
    responses((status = 200, description = "The replay as it is now", body = ReplayShown))
)]
pub(super) async fn resume(
    State(admin): State<Arc<Admin>>,
    Named(id): Named,
    Filtered(because): Filtered<Because>,
    By(actor): By,
) -> Answer<Told<ReplayShown>> {
    act(&admin, id, ReplayAction::Resume, because, actor).await
}

/// Give up a replay
///
/// What it has set off by now is sent all the same. One that has ended stays as it is.
#[utoipa::path(
    post,
    path = "/v1/replays/{replay}/cancel",
    tag = "replays",
    operation_id = "cancelReplay",
    params(("replay" = String, Path, description = "The replay's id", pattern = "^[A-Za-z0-9_-]{1,64}$"), Because),
    responses((status = 200, description = "The replay as it is now", body = ReplayShown))
)]
pub(super) async fn cancel(
    State(admin): State<Arc<Admin>>,
    Named(id): Named,
    Filtered(because): Filtered<Because>,
    By(actor): By,
) -> Answer<Told<ReplayShown>> {
    act(&admin, id, ReplayAction::Cancel, because, actor).await
}

async fn act(
    admin: &Admin,
    id: String,
    action: ReplayAction,
    because: Because,
    actor: Actor,
) -> Answer<Told<ReplayShown>> {
    let (id, desk) = (replay(id)?, admin.events()?.clone());
    detached(async move { desk.act_on_replay(&id, action, &because, &actor).await }).await
}

fn replay(id: String) -> Answer<ReplayId> {
    ReplayId::new(id).map_err(|why| Problem::invalid("replay", why))
}
