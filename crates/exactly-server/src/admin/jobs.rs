//! The API's part about jobs and the lanes that they wait in.

pub(crate) mod ask;
pub(crate) mod desk;
mod enqueue;
mod requeue;
mod resolve;
pub(crate) mod wire;

use std::sync::Arc;

use axum::extract::State;
use exactly::queue::Lane;
use http::StatusCode;
use serde_json::value::RawValue;

use self::ask::{JobIdText, JobsQuery, LaneChange, NewJobsBody, Requeue, RequeueOne, ResolveJob};
use self::desk::JobDesk;
use self::enqueue::Asking;
use self::wire::{Enqueued, JobDetail, JobPage, LaneShown, LanesShown, Requeued, RequeuedRow, ResolvedJob, Result_};
use super::Admin;
use super::extract::{Asked, By, Filtered, JobNamed, Named, Told};
use super::operators::detached;
use super::problem::{Answer, Problem};

/// Enqueue jobs
///
/// One job, or up to 1000 of them under `jobs` with a result for each: one that is wrong does not keep others out. A key
/// that was used before finds its job, with what came of it.
#[utoipa::path(
    post,
    path = "/v1/jobs",
    tag = "jobs",
    operation_id = "enqueueJobs",
    request_body = NewJobsBody,
    responses(
        (status = 200, description = "It was there already; or what became of each", body = Enqueued),
        (status = 201, description = "It is new, and waits", body = Enqueued),
        (status = 207, description = "Some of them are wrong, and were left out", body = Enqueued),
    )
)]
pub(super) async fn enqueue(
    State(admin): State<Arc<Admin>>,
    Asked(body): Asked<Box<RawValue>>,
) -> Answer<(StatusCode, Told<Enqueued>)> {
    let desk = admin.jobs()?;
    match Asking::read(&body)? {
        Asking::One(job) => {
            let row = desk.enqueue_one(&job).await?;
            let status = match row.result {
                Result_::New => StatusCode::CREATED,
                _ => StatusCode::OK,
            };
            Ok((status, Told(Enqueued::One(Box::new(row)))))
        }
        Asking::Many(rows) => {
            let rows = desk.enqueue(rows).await?;
            let status = if rows.invalid > 0 {
                StatusCode::MULTI_STATUS
            } else {
                StatusCode::OK
            };
            Ok((status, Told(Enqueued::Many(rows))))
        }
    }
}

/// List jobs
///
/// By id, which is not the order in which they were enqueued.
#[utoipa::path(
    get,
    path = "/v1/jobs",
    tag = "jobs",
    operation_id = "listJobs",
    params(JobsQuery),
    responses((status = 200, description = "One page", body = JobPage))
)]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    Filtered(query): Filtered<JobsQuery>,
) -> Answer<Told<JobPage>> {
    admin.jobs()?.list(&query).await.map(Told)
}

/// Show a job, its attempts and its outcome
#[utoipa::path(
    get,
    path = "/v1/jobs/{job}",
    tag = "jobs",
    operation_id = "showJob",
    params(("job" = JobIdText, Path, description = "The job's id: a UUID")),
    responses((status = 200, description = "The job", body = JobDetail))
)]
pub(super) async fn show(State(admin): State<Arc<Admin>>, JobNamed(id): JobNamed) -> Answer<Told<JobDetail>> {
    admin.jobs()?.show(id).await.map(Told)
}

/// Requeue a job
///
/// Dead or held: it waits again, with its attempts to run anew and its history kept. Otherwise nothing is changed, and the
/// answer says why. Repeating it changes nothing.
#[utoipa::path(
    post,
    path = "/v1/jobs/{job}/requeue",
    tag = "jobs",
    operation_id = "requeueJob",
    params(("job" = JobIdText, Path, description = "The job's id: a UUID")),
    request_body = RequeueOne,
    responses((status = 200, description = "What became of it", body = RequeuedRow))
)]
pub(super) async fn requeue_one(
    State(admin): State<Arc<Admin>>,
    JobNamed(id): JobNamed,
    By(actor): By,
    Asked(asked): Asked<RequeueOne>,
) -> Answer<Told<RequeuedRow>> {
    let desk = admin.jobs()?.clone();
    detached(async move { desk.requeue_one(id, &asked, &actor).await }).await
}

/// Say that a job has happened
///
/// Held or dead: it is done, with the outcome that is given, and never runs again. Otherwise nothing is changed, and the
/// answer says why. Repeating it changes nothing.
#[utoipa::path(
    post,
    path = "/v1/jobs/{job}/resolve",
    tag = "jobs",
    operation_id = "resolveJob",
    params(("job" = JobIdText, Path, description = "The job's id: a UUID")),
    request_body = ResolveJob,
    responses((status = 200, description = "What became of it", body = ResolvedJob))
)]
pub(super) async fn resolve(
    State(admin): State<Arc<Admin>>,
    JobNamed(id): JobNamed,
    By(actor): By,
    Asked(asked): Asked<ResolveJob>,
) -> Answer<Told<ResolvedJob>> {
    let desk = admin.jobs()?.clone();
    detached(async move { desk.resolve(id, &asked, &actor).await }).await
}

/// Requeue many jobs
///
/// Those that are named, or a page of those that are dead or held and fit.
#[utoipa::path(
    post,
    path = "/v1/jobs/requeue",
    tag = "jobs",
    operation_id = "requeueJobs",
    request_body = Requeue,
    responses((status = 200, description = "What became of each", body = Requeued))
)]
pub(super) async fn requeue(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Asked(asked): Asked<Requeue>,
) -> Answer<Told<Requeued>> {
    let desk = admin.jobs()?.clone();
    detached(async move { desk.requeue(&asked, &actor).await }).await
}

/// List lanes
///
/// Those in which something waits, runs, is held or dead, and those that are paused or capped.
#[utoipa::path(
    get,
    path = "/v1/lanes",
    tag = "jobs",
    operation_id = "listLanes",
    responses((status = 200, description = "All of them, by name", body = LanesShown))
)]
pub(super) async fn lanes(State(admin): State<Arc<Admin>>) -> Answer<Told<LanesShown>> {
    admin.jobs()?.lanes().await.map(Told)
}

/// Pause, resume or cap a lane
///
/// What is not said stays as it is. The tasks of a paused lane stay where they are; running ones run on.
#[utoipa::path(
    put,
    path = "/v1/lanes/{lane}",
    tag = "jobs",
    operation_id = "changeLane",
    params(("lane" = String, Path, description = "The lane's name", max_length = 255)),
    request_body = LaneChange,
    responses((status = 200, description = "The lane as it is now", body = LaneShown))
)]
pub(super) async fn change_lane(
    State(admin): State<Arc<Admin>>,
    Named(name): Named,
    By(actor): By,
    Asked(asked): Asked<LaneChange>,
) -> Answer<Told<LaneShown>> {
    let lane = Lane::new(name).map_err(|why| Problem::invalid("lane", why))?;
    let desk = admin.jobs()?.clone();
    detached(async move { desk.change_lane(lane, &asked, &actor).await }).await
}

impl Admin {
    /// The desk for jobs, or why there is none.
    pub(super) fn jobs(&self) -> Answer<&JobDesk> {
        self.jobs.as_ref().map_err(Clone::clone)
    }
}
