//! What operators do about schedules, wherever they ask from.

use exactly::clock::Timestamp;
use exactly::queue::{Lane, TaskFilter, TaskPage};
use exactly::scheduler::TICK_KIND;

use super::ask::{Because, OccurrencesQuery};
use super::wire::{Erased, OccurrenceShown, Occurrences, ScheduleShown, SchedulesShown};
use crate::admin::desk::audit::Deed;
use crate::admin::desk::{LIMIT_DEFAULT, asked};
use crate::admin::input::{Actor, Limit};
use crate::admin::jobs::desk::JobDesk;
use crate::admin::jobs::wire::JobState;
use crate::admin::problem::{Answer, Problem};
use crate::work::definition::{self, Definition};

/// How many rows of occurrences are looked at in one step, and how many steps there are at most.
const PAGE: u32 = 1000;
const PAGES_MAX: usize = 10;

impl JobDesk {
    pub(crate) async fn schedules(&self) -> Answer<SchedulesShown> {
        let now = self.now().await?;
        let entries = asked("list schedules", self.queue().schedules()).await?;
        Ok(SchedulesShown {
            schedules: entries.iter().map(|entry| ScheduleShown::of(entry, now)).collect(),
        })
    }

    pub(crate) async fn schedule(&self, name: &str) -> Answer<ScheduleShown> {
        let now = self.now().await?;
        let entry = asked("read the schedule", self.queue().read_schedule(name)).await?;
        let entry = entry.ok_or_else(|| Problem::no_such_schedule(name))?;
        Ok(ScheduleShown::of(&entry, now))
    }

    pub(crate) async fn put_schedule(
        &self,
        name: &str,
        mut definition: Definition,
        actor: &Actor,
    ) -> Answer<ScheduleShown> {
        let wrong = |wrong: crate::work::errand::Wrong| Problem::invalid(wrong.field, wrong.why);
        definition::check_name(name).map_err(wrong)?;
        definition.check(name).map_err(wrong)?;
        let paused = definition.paused.take();
        let detail = format!("write schedule {name}: {}", definition.pattern);
        let deed = Deed::new(actor, "schedule", None, detail);
        let act = async {
            let was = asked("read the schedule", self.queue().read_schedule(name)).await?;
            let bytes = definition.to_bytes();
            asked("write the schedule", self.queue().write_schedule(name, &bytes, paused)).await?;
            if was.is_none_or(|was| was.position.is_none()) {
                // It begins now, and not when a scheduler first sees it.
                let now = self.now().await?;
                asked("begin the schedule", self.queue().advance_schedule(name, now)).await?;
            }
            self.nudge();
            self.schedule(name).await
        };
        self.desk().audited(deed, act, |_| "written".to_owned()).await
    }

    pub(crate) async fn pause_schedule(
        &self,
        name: &str,
        paused: bool,
        because: &Because,
        actor: &Actor,
    ) -> Answer<ScheduleShown> {
        let (verb, done) = if paused {
            ("pause", "paused")
        } else {
            ("resume", "resumed")
        };
        let deed = Deed::new(actor, "schedule", None, format!("{verb} schedule {name}"));
        let act = async {
            let entry = asked("read the schedule", self.queue().read_schedule(name)).await?;
            let entry = entry.ok_or_else(|| Problem::no_such_schedule(name))?;
            if entry.paused != paused {
                if entry.paused {
                    // What fell into the pause is left out, also if no scheduler has looked at it since.
                    let now = self.now().await?;
                    asked("pass over the pause", self.queue().advance_schedule(name, now)).await?;
                }
                let pausing = self.queue().pause_schedule(name, paused);
                if !asked("pause the schedule", pausing).await? {
                    return Err(Problem::no_such_schedule(name));
                }
                self.nudge();
            }
            self.schedule(name).await
        };
        let deed = deed.because(because.reason.as_ref());
        self.desk().audited(deed, act, |_| done.to_owned()).await
    }

    pub(crate) async fn erase_schedule(&self, name: &str, because: &Because, actor: &Actor) -> Answer<Erased> {
        let deed = Deed::new(actor, "schedule", None, format!("delete schedule {name}"));
        let act = async {
            let was_there = asked("delete the schedule", self.queue().erase_schedule(name)).await?;
            if !was_there {
                return Err(Problem::no_such_schedule(name));
            }
            Ok(Erased { name: name.to_owned() })
        };
        let deed = deed.because(because.reason.as_ref());
        self.desk().audited(deed, act, |_| "deleted".to_owned()).await
    }

    /// The latest occurrences that are due. Rows are found by id, which says nothing of time, so a bounded number is looked through.
    pub(crate) async fn occurrences(&self, name: &str, query: &OccurrencesQuery) -> Answer<Occurrences> {
        definition::check_name(name).map_err(|wrong| Problem::invalid(wrong.field, wrong.why))?;
        let filter = TaskFilter {
            kind: Some(TICK_KIND.to_owned()),
            lane: Some(lane(name)?),
            ..TaskFilter::default()
        };
        let (mut found, mut after, mut more): (Vec<OccurrenceShown>, _, _) = (Vec::new(), None, true);
        for _ in 0..PAGES_MAX {
            let page = TaskPage { after, limit: PAGE };
            let views = asked("list occurrences", self.queue().list(&filter, page)).await?;
            after = views.last().map(|view| view.id);
            more = u32::try_from(views.len()).is_ok_and(|len| len >= PAGE);
            found.extend(views.iter().map(Into::into));
            if !more {
                break;
            }
        }
        if found.is_empty() {
            // Nothing yet, or no such schedule.
            self.schedule(name).await?;
        }
        // What is made ahead has come to nothing yet.
        let now = jiff_now(self.now().await?);
        found.retain(|row| row.state != JobState::Waiting || row.instant.as_deref().is_none_or(|at| is_past(at, now)));
        found.sort_by(|one, other| (&other.instant, &one.zone).cmp(&(&one.instant, &other.zone)));
        let limit = usize::try_from(query.limit.map_or(LIMIT_DEFAULT, Limit::get)).unwrap_or(usize::MAX);
        more |= found.len() > limit;
        found.truncate(limit);
        Ok(Occurrences {
            occurrences: found,
            more,
        })
    }
}

fn jiff_now(now: Timestamp) -> jiff::Timestamp {
    let ms = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX)
}

fn is_past(instant: &str, now: jiff::Timestamp) -> bool {
    instant.parse::<jiff::Timestamp>().is_ok_and(|at| at <= now)
}

/// The lane in which a schedule's ticks wait.
fn lane(name: &str) -> Answer<Lane> {
    Lane::new(format!("exactly.schedule.{name}")).map_err(|why| Problem::invalid("name", why))
}
