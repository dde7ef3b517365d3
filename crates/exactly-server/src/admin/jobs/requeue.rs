//! Giving dead and held jobs another life.

use exactly::queue::{TaskFilter, TaskId, TaskPage, TaskState};

use super::ask::{JOBS_MAX, JobIdText, Requeue, RequeueOne};
use super::desk::{JobDesk, lane};
use super::wire::{Requeued, RequeuedRow};
use crate::admin::desk::asked;
use crate::admin::desk::audit::Deed;
use crate::admin::input::{Actor, Limit};
use crate::admin::problem::{Answer, Problem};

impl JobDesk {
    /// Requeues one job; refused only if there is none.
    pub(crate) async fn requeue_one(&self, id: TaskId, wanted: &RequeueOne, actor: &Actor) -> Answer<RequeuedRow> {
        let Some(view) = asked("read the job", self.queue().show(id)).await? else {
            return Err(Problem::no_such_job(id));
        };
        if wanted.dry_run {
            return Ok(row(id, Some(view.state)));
        }
        let deed = Deed::new(actor, "requeue", None, format!("requeue job {id}")).because(wanted.reason.as_ref());
        let revive = async {
            let mut rows = self.revive(&[id]).await?;
            rows.pop()
                .ok_or_else(|| Problem::failed("the queue did not say what the job was"))
        };
        self.desk().audited(deed, revive, in_words).await
    }

    /// Requeues those that are named or fit.
    pub(crate) async fn requeue(&self, wanted: &Requeue, actor: &Actor) -> Answer<Requeued> {
        let (ids, next) = self.meant(wanted).await?;
        if wanted.dry_run {
            let mut rows = Vec::with_capacity(ids.len());
            for id in ids {
                let view = asked("read the job", self.queue().show(id)).await?;
                rows.push(row(id, view.map(|view| view.state)));
            }
            return Ok(told(wanted, rows, next));
        }
        let detail = format!("requeue {} jobs{}", ids.len(), which(wanted));
        let deed = Deed::new(actor, "requeue", None, detail).because(wanted.reason.as_ref());
        let revive = async { Ok(told(wanted, self.revive(&ids).await?, next)) };
        let summary = |requeued: &Requeued| format!("{} of {} wait again", requeued.requeued, requeued.rows.len());
        self.desk().audited(deed, revive, summary).await
    }

    async fn revive(&self, ids: &[TaskId]) -> Answer<Vec<RequeuedRow>> {
        let was = asked("requeue jobs", self.queue().revive(ids)).await?;
        Ok(ids.iter().zip(was).map(|(id, was)| row(*id, was)).collect())
    }

    /// The jobs that are meant, and where to go on.
    async fn meant(&self, wanted: &Requeue) -> Answer<(Vec<TaskId>, Option<String>)> {
        let filtered = wanted.kind.is_some() || wanted.lane.is_some() || wanted.version.is_some();
        match (&wanted.ids, wanted.state.map(TaskState::from)) {
            (Some(_), Some(_)) => Err(Problem::invalid("ids", "there is a state too; accepted is one of them")),
            (Some(_), None) if filtered || wanted.after.is_some() => Err(Problem::invalid(
                "ids",
                "there is more that says which; accepted is one of them",
            )),
            (Some(ids), None) if !(1..=JOBS_MAX).contains(&ids.len()) => {
                let why = format!("has {} of them, accepted are 1 to {JOBS_MAX}", ids.len());
                Err(Problem::invalid("ids", why))
            }
            (Some(ids), None) => Ok((ids.iter().copied().map(JobIdText::id).collect(), None)),
            (None, Some(state @ (TaskState::Dead | TaskState::Held))) => self.fitting(wanted, state).await,
            (None, _) => {
                let why = "say which jobs: by ids, or by state = dead or held";
                Err(Problem::invalid("state", why))
            }
        }
    }

    async fn fitting(&self, wanted: &Requeue, state: TaskState) -> Answer<(Vec<TaskId>, Option<String>)> {
        let filter = TaskFilter {
            state: Some(state),
            kind: wanted.kind.as_ref().map(|kind| kind.as_ref().to_owned()),
            lane: wanted.lane.as_ref().map(lane).transpose()?,
            version: wanted.version.map(super::desk::version),
        };
        let limit = wanted
            .limit
            .map_or(u32::try_from(JOBS_MAX).unwrap_or(u32::MAX), Limit::get);
        let page = TaskPage {
            after: wanted.after.map(JobIdText::id),
            limit,
        };
        let views = asked("list jobs", self.queue().list(&filter, page)).await?;
        let ids: Vec<TaskId> = views.iter().map(|view| view.id).collect();
        let full = u32::try_from(ids.len()).is_ok_and(|len| len >= limit);
        let next = ids.last().filter(|_| full).map(ToString::to_string);
        Ok((ids, next))
    }
}

fn told(wanted: &Requeue, rows: Vec<RequeuedRow>, next: Option<String>) -> Requeued {
    let requeued = rows.iter().filter(|row| row.requeued).count();
    Requeued {
        dry_run: wanted.dry_run,
        requeued: u32::try_from(requeued).unwrap_or(u32::MAX),
        rows,
        next,
    }
}

fn row(id: TaskId, was: Option<TaskState>) -> RequeuedRow {
    let why = match was {
        None => Some("there is no such job: it was never enqueued, or was forgotten"),
        Some(TaskState::Dead | TaskState::Held) => None,
        Some(TaskState::Waiting) => Some("it waits already"),
        Some(TaskState::Running) => Some("it runs; wait until its attempt ends, or its lease does"),
        Some(TaskState::Done) => Some("it is done: it happened, and its outcome is stored"),
    };
    RequeuedRow {
        id: id.to_string(),
        requeued: why.is_none(),
        was: was.map(Into::into),
        why: why.map(str::to_owned),
    }
}

fn in_words(row: &RequeuedRow) -> String {
    match &row.why {
        None => "it waits again".to_owned(),
        Some(why) => format!("left as it is: {why}"),
    }
}

fn which(wanted: &Requeue) -> String {
    let mut words = Vec::new();
    if let Some(state) = wanted.state {
        words.push(format!("that are {}", TaskState::from(state)));
    }
    words.extend(wanted.kind.as_ref().map(|kind| format!("of kind {:?}", kind.as_ref())));
    words.extend(wanted.lane.as_ref().map(|lane| format!("in lane {:?}", lane.as_ref())));
    words.extend(wanted.version.map(|version| format!("of version {}", version.get())));
    if words.is_empty() {
        String::new()
    } else {
        format!(" {}", words.join(" "))
    }
}
