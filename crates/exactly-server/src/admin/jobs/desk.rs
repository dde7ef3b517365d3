//! What operators do about jobs and lanes, wherever they ask from.

use std::collections::BTreeMap;
use std::sync::Arc;

use exactly::clock::Timestamp;
use exactly::queue::{Lane, TaskFilter, TaskId, TaskPage, TaskState};

use super::ask::{JobIdText, JobsQuery, LaneChange, Version};
use super::wire::{JobDetail, JobPage, LaneShown, LanesShown};
use crate::admin::desk::audit::Deed;
use crate::admin::desk::{Desk, LIMIT_DEFAULT, asked};
use crate::admin::input::{Actor, FilterText, Limit};
use crate::admin::problem::{Answer, Problem};
use crate::store::Ledger;
use crate::work::Nudge;

/// Works on the tasks of one queue. Its actions are written into the trail of the store beside it.
#[derive(Clone)]
pub(crate) struct JobDesk {
    queue: Arc<dyn Ledger>,
    desk: Desk,
    nudge: Nudge,
}

impl JobDesk {
    /// `nudge` tells the scheduler of this process that schedules have changed.
    pub(crate) fn new(queue: Arc<dyn Ledger>, desk: Desk, nudge: Nudge) -> Self {
        Self { queue, desk, nudge }
    }

    pub(crate) fn queue(&self) -> &dyn Ledger {
        &*self.queue
    }

    pub(crate) fn desk(&self) -> &Desk {
        &self.desk
    }

    pub(crate) fn nudge(&self) {
        self.nudge.give();
    }

    /// The present instant, as people reckon it.
    pub(crate) async fn now(&self) -> Answer<Timestamp> {
        asked("read the calendar", self.queue.calendar()).await
    }

    pub(crate) async fn list(&self, query: &JobsQuery) -> Answer<JobPage> {
        let filter = TaskFilter {
            state: query.state.map(Into::into),
            kind: query.kind.as_ref().map(|kind| kind.as_ref().to_owned()),
            lane: query.lane.as_ref().map(lane).transpose()?,
            version: query.version.map(version),
        };
        let limit = query.limit.map_or(LIMIT_DEFAULT, Limit::get);
        let page = TaskPage {
            after: query.after.map(JobIdText::id),
            limit,
        };
        let views = asked("list jobs", self.queue.list(&filter, page)).await?;
        let full = u32::try_from(views.len()).is_ok_and(|len| len >= limit);
        Ok(JobPage {
            next: views.last().filter(|_| full).map(|last| last.id.to_string()),
            jobs: views.iter().map(Into::into).collect(),
        })
    }

    pub(crate) async fn show(&self, id: TaskId) -> Answer<JobDetail> {
        let view = asked("read the job", self.queue.show(id)).await?;
        let view = view.ok_or_else(|| Problem::no_such_job(id))?;
        let attempts = asked("read the job's attempts", self.queue.attempts(id)).await?;
        Ok(JobDetail::of(&view, &attempts))
    }

    pub(crate) async fn lanes(&self) -> Answer<LanesShown> {
        let mut lanes: BTreeMap<String, LaneShown> = BTreeMap::new();
        for depth in asked("count the tasks", self.queue.depths()).await? {
            let shown = named(&mut lanes, depth.lane.as_str());
            match depth.state {
                TaskState::Waiting => shown.waiting = depth.tasks,
                TaskState::Running => shown.running = depth.tasks,
                TaskState::Held => shown.held = depth.tasks,
                TaskState::Dead => shown.dead = depth.tasks,
                TaskState::Done => {}
            }
        }
        for view in asked("list lanes", self.queue.lanes()).await? {
            let shown = named(&mut lanes, view.lane.as_str());
            (shown.paused, shown.cap) = (view.paused, view.cap);
        }
        Ok(LanesShown {
            lanes: lanes.into_values().collect(),
        })
    }

    pub(crate) async fn change_lane(&self, lane: Lane, change: &LaneChange, actor: &Actor) -> Answer<LaneShown> {
        if change.paused.is_none() && change.cap.is_none() {
            return Err(Problem::invalid(
                "paused",
                "nothing is to be changed; give paused, cap or both",
            ));
        }
        let deed = Deed::new(actor, "lane", None, in_words(&lane, change)).because(change.reason.as_ref());
        let act = async {
            match change.paused {
                Some(true) => asked("pause the lane", self.queue.pause_lane(&lane)).await?,
                Some(false) => asked("resume the lane", self.queue.resume_lane(&lane)).await?,
                None => {}
            }
            if let Some(cap) = change.cap {
                let cap = cap.map(u32::from);
                asked("cap the lane", self.queue.cap_lane(&lane, cap)).await?;
            }
            let lanes = self.lanes().await?.lanes;
            let found = lanes.into_iter().find(|shown| shown.lane == lane.as_str());
            // One that is neither paused nor capped, and empty, is nowhere written down.
            Ok(found.unwrap_or_else(|| LaneShown {
                lane: lane.to_string(),
                ..LaneShown::default()
            }))
        };
        self.desk.audited(deed, act, |_| "changed".to_owned()).await
    }
}

fn named<'a>(lanes: &'a mut BTreeMap<String, LaneShown>, lane: &str) -> &'a mut LaneShown {
    lanes.entry(lane.to_owned()).or_insert_with(|| LaneShown {
        lane: lane.to_owned(),
        ..LaneShown::default()
    })
}

fn in_words(lane: &Lane, change: &LaneChange) -> String {
    let mut words = Vec::new();
    words.extend(
        change
            .paused
            .map(|paused| if paused { "pause" } else { "resume" }.to_owned()),
    );
    words.extend(change.cap.map(|cap| match cap {
        Some(cap) => format!("cap at {}", cap.get()),
        None => "uncap".to_owned(),
    }));
    format!("{} lane {:?}", words.join(" and "), lane.as_str())
}

pub(super) fn lane(text: &FilterText) -> Answer<Lane> {
    Lane::new(text.as_ref()).map_err(|why| Problem::invalid("lane", why))
}

pub(super) fn version(version: Version) -> u32 {
    u32::try_from(version.get()).unwrap_or(u32::MAX)
}
