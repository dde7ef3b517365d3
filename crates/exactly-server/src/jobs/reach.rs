//! The two ways to the desk for jobs.

use std::fmt::Write as _;

use exactly::queue::{Lane, TaskId};
use serde_json::value::RawValue;

use crate::admin::input::Actor;
use crate::admin::jobs::ask::{JobsQuery, LaneChange, NewJobs, Requeue, RequeueOne, ResolveJob};
use crate::admin::jobs::desk::JobDesk;
use crate::admin::jobs::wire::{
    EnqueuedRows, JobDetail, JobPage, LaneShown, LanesShown, Requeued, RequeuedRow, ResolvedJob,
};
use crate::admin::schedules::ask::{Because, OccurrencesQuery};
use crate::admin::schedules::wire::{Erased, Occurrences, ScheduleShown, SchedulesShown};
use crate::calls::{Client, Refused};
use crate::work::definition::Definition;

/// Through a server, or straight on the store.
pub(crate) enum JobReach {
    Api(Box<Client>),
    Store(Box<JobDesk>, Actor),
}

impl JobReach {
    pub(super) async fn list(&self, query: &JobsQuery) -> Result<JobPage, Refused> {
        match self {
            Self::Api(api) => api.get("/v1/jobs", query).await,
            Self::Store(desk, _) => Ok(desk.list(query).await?),
        }
    }

    pub(super) async fn show(&self, id: TaskId) -> Result<JobDetail, Refused> {
        match self {
            Self::Api(api) => api.get(&format!("/v1/jobs/{id}"), &()).await,
            Self::Store(desk, _) => Ok(desk.show(id).await?),
        }
    }

    pub(super) async fn enqueue(&self, jobs: Vec<Box<RawValue>>) -> Result<EnqueuedRows, Refused> {
        match self {
            Self::Api(api) => api.post("/v1/jobs", &NewJobs { jobs }).await,
            Self::Store(desk, _) => Ok(desk.enqueue(jobs).await?),
        }
    }

    pub(super) async fn requeue_one(&self, id: TaskId, wanted: &RequeueOne) -> Result<RequeuedRow, Refused> {
        match self {
            Self::Api(api) => api.post(&format!("/v1/jobs/{id}/requeue"), wanted).await,
            Self::Store(desk, actor) => Ok(desk.requeue_one(id, wanted, actor).await?),
        }
    }

    pub(super) async fn resolve(&self, id: TaskId, said: &ResolveJob) -> Result<ResolvedJob, Refused> {
        match self {
            Self::Api(api) => api.post(&format!("/v1/jobs/{id}/resolve"), said).await,
            Self::Store(desk, actor) => Ok(desk.resolve(id, said, actor).await?),
        }
    }

    pub(super) async fn requeue(&self, wanted: &Requeue) -> Result<Requeued, Refused> {
        match self {
            Self::Api(api) => api.post("/v1/jobs/requeue", wanted).await,
            Self::Store(desk, actor) => Ok(desk.requeue(wanted, actor).await?),
        }
    }

    pub(super) async fn lanes(&self) -> Result<LanesShown, Refused> {
        match self {
            Self::Api(api) => api.get("/v1/lanes", &()).await,
            Self::Store(desk, _) => Ok(desk.lanes().await?),
        }
    }

    pub(super) async fn change_lane(&self, lane: Lane, change: &LaneChange) -> Result<LaneShown, Refused> {
        match self {
            Self::Api(api) => api.put(&format!("/v1/lanes/{}", segment(lane.as_str())), change).await,
            Self::Store(desk, actor) => Ok(desk.change_lane(lane, change, actor).await?),
        }
    }

    pub(crate) async fn schedules(&self) -> Result<SchedulesShown, Refused> {
        match self {
            Self::Api(api) => api.get("/v1/schedules", &()).await,
            Self::Store(desk, _) => Ok(desk.schedules().await?),
        }
    }

    pub(crate) async fn schedule(&self, name: &str) -> Result<ScheduleShown, Refused> {
        match self {
            Self::Api(api) => api.get(&schedule(name, ""), &()).await,
            Self::Store(desk, _) => Ok(desk.schedule(name).await?),
        }
    }

    pub(crate) async fn put_schedule(&self, name: &str, definition: Definition) -> Result<ScheduleShown, Refused> {
        match self {
            Self::Api(api) => api.put(&schedule(name, ""), &definition).await,
            Self::Store(desk, actor) => Ok(desk.put_schedule(name, definition, actor).await?),
        }
    }

    pub(crate) async fn pause_schedule(
        &self,
        name: &str,
        paused: bool,
        because: &Because,
    ) -> Result<ScheduleShown, Refused> {
        match self {
            Self::Api(api) => {
                let path = schedule(name, if paused { "/pause" } else { "/resume" });
                api.post_query(&path, because).await
            }
            Self::Store(desk, actor) => Ok(desk.pause_schedule(name, paused, because, actor).await?),
        }
    }

    pub(crate) async fn erase_schedule(&self, name: &str, because: &Because) -> Result<Erased, Refused> {
        match self {
            Self::Api(api) => api.delete(&schedule(name, ""), because).await,
            Self::Store(desk, actor) => Ok(desk.erase_schedule(name, because, actor).await?),
        }
    }

    pub(crate) async fn occurrences(&self, name: &str, query: &OccurrencesQuery) -> Result<Occurrences, Refused> {
        match self {
            Self::Api(api) => api.get(&schedule(name, "/occurrences"), query).await,
            Self::Store(desk, _) => Ok(desk.occurrences(name, query).await?),
        }
    }
}

fn schedule(name: &str, below: &str) -> String {
    format!("/v1/schedules/{}{below}", segment(name))
}

/// A name as one part of a path.
pub(crate) fn segment(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}
