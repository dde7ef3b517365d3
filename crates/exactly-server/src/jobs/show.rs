//! What people are shown about jobs.

use std::fmt::Write as _;

use exactly::queue::TaskState;

use crate::admin::jobs::wire::{
    EnqueuedRows, Job, JobDetail, JobPage, JobState, LaneShown, LanesShown, Requeued, RequeuedRow, ResolvedJob, Result_,
};
use crate::calls::{Table, when};

fn state(state: JobState) -> &'static str {
    TaskState::from(state).as_str()
}

pub(super) fn page(page: &JobPage) -> String {
    let mut table = Table::new(["ID", "STATE", "KIND", "KEY", "LANE", "FAILED", "ENQUEUED"]);
    for job in &page.jobs {
        table.row([
            &job.id,
            state(job.state),
            &job.kind,
            &job.key,
            &job.lane,
            &job.failures.to_string(),
            &when(&job.enqueued_at),
        ]);
    }
    let mut text = if page.jobs.is_empty() {
        "no jobs\n".to_owned()
    } else {
        table.to_string()
    };
    if let Some(next) = &page.next {
        let _ = writeln!(text, "there are more: --after {next}");
    }
    text
}

pub(super) fn detail(detail: &JobDetail) -> String {
    let job = &detail.job;
    let mut table = Table::bare();
    table.row(["id", &job.id]);
    table.row(["state", state(job.state)]);
    table.row(["kind", &job.kind]);
    table.row(["key", &job.key]);
    table.row(["lane", &job.lane]);
    table.row(["version", &job.version.to_string()]);
    table.row(["failed", &job.failures.to_string()]);
    table.row(["rescued", &job.rescues.to_string()]);
    table.row(["enqueued", &when(&job.enqueued_at)]);
    let due = if job.state == JobState::Running { "lease" } else { "due" };
    for (name, at) in [
        (due, &job.due_at),
        ("started", &job.started_at),
        ("ended", &job.ended_at),
    ] {
        if let Some(at) = at {
            table.row([name, &when(at)]);
        }
    }
    if let Some(worker) = &job.worker {
        table.row(["worker", worker]);
    }
    table.row(["request", detail.request.get()]);
    if let Some(outcome) = &detail.outcome {
        table.row(["outcome", outcome.get()]);
    }
    let mut text = table.to_string();
    if !detail.attempts.is_empty() {
        let mut attempts = Table::new(["FENCE", "WORKER", "ENDED", "THEN", "FAILURE"]);
        for attempt in &detail.attempts {
            attempts.row([
                &attempt.fence.to_string(),
                short(attempt.worker.as_deref()),
                &when(&attempt.ended_at),
                state(attempt.then),
                &format!("{}: {}", attempt.failure.kind, attempt.failure.message),
            ]);
        }
        let _ = write!(text, "\n{attempts}");
    }
    text + &advice(job)
}

/// As much of a process's UUID as tells it from others.
fn short(worker: Option<&str>) -> &str {
    let worker = worker.unwrap_or("-");
    worker.split_once('-').map_or(worker, |(first, _)| first)
}

/// What to do about a job that needs somebody.
fn advice(job: &Job) -> String {
    let id = &job.id;
    match job.state {
        JobState::Dead => {
            format!("\nIt failed for good. Once what was wrong is fixed:\n  exactly jobs requeue {id} --yes\n")
        }
        JobState::Held => {
            format!(
                "\nNobody knows whether it happened. Find out; if it did not:\n  exactly jobs requeue {id} --yes\nIf it did:\n  \
                 exactly jobs resolve {id} --outcome JSON --yes\n"
            )
        }
        _ => String::new(),
    }
}

pub(super) fn enqueued(rows: &EnqueuedRows) -> String {
    let mut table = Table::new(["RESULT", "ID", "KEY", "STATE", "NOTE"]);
    for row in &rows.rows {
        let result = match row.result {
            Result_::New => "new",
            Result_::Found => "found",
            Result_::Invalid => "invalid",
        };
        let differs = (row.differs == Some(true)).then_some("it was enqueued with another request");
        let wrong = row.reason.as_deref().map(|reason| match &row.field {
            Some(field) if !reason.starts_with(field) => format!("{field}: {reason}"),
            _ => reason.to_owned(),
        });
        table.row([
            result,
            row.id.as_deref().unwrap_or("-"),
            row.key.as_deref().unwrap_or("-"),
            row.state.map_or("-", state),
            wrong.as_deref().or(differs).unwrap_or(""),
        ]);
    }
    table.to_string()
}

pub(super) fn requeued_one(row: &RequeuedRow, dry_run: bool) -> String {
    let was = row.was.map_or("nowhere", state);
    match &row.why {
        None if dry_run => format!("{}: is {was}, would wait again\n", row.id),
        None => format!("{}: was {was}, waits again\n", row.id),
        Some(why) => format!("{}: was {was}, left as it is: {why}\n", row.id),
    }
}

pub(super) fn resolved(resolved: &ResolvedJob) -> String {
    let (id, was) = (&resolved.id, state(resolved.was));
    match &resolved.why {
        None => format!("{id}: was {was}, is done\n"),
        Some(why) => format!("{id}: is {was}, left as it is: {why}\n"),
    }
}

pub(super) fn requeued(requeued: &Requeued) -> String {
    let left = requeued.rows.iter().filter(|row| row.why.is_some());
    let mut text: String = left.map(|row| requeued_one(row, requeued.dry_run)).collect();
    let would = if requeued.dry_run { "would wait" } else { "wait" };
    let (some, all) = (requeued.requeued, requeued.rows.len());
    let _ = writeln!(text, "{some} of {all} jobs {would} again");
    text
}

pub(super) fn lanes(lanes: &LanesShown) -> String {
    let mut table = Table::new(["LANE", "PAUSED", "CAP", "WAITING", "RUNNING", "HELD", "DEAD"]);
    for lane in &lanes.lanes {
        table.row([
            &lane.lane,
            if lane.paused { "yes" } else { "no" },
            &lane.cap.map_or_else(|| "-".to_owned(), |cap| cap.to_string()),
            &lane.waiting.to_string(),
            &lane.running.to_string(),
            &lane.held.to_string(),
            &lane.dead.to_string(),
        ]);
    }
    if lanes.lanes.is_empty() {
        "no lanes\n".to_owned()
    } else {
        table.to_string()
    }
}

pub(super) fn lane(lane: &LaneShown) -> String {
    let paused = if lane.paused { "is paused" } else { "runs" };
    let cap = lane
        .cap
        .map_or_else(|| "any number".to_owned(), |cap| format!("at most {cap}"));
    format!("lane {}: {paused}, {cap} at once, {} wait\n", lane.lane, lane.waiting)
}
