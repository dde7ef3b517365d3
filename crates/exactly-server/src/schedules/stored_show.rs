//! Stored schedules as people read them.

use exactly::queue::TaskState;

use crate::admin::schedules::wire::{Occurrences, ScheduleShown, SchedulesShown};
use crate::calls::{Table, when};

pub(super) fn schedules(shown: &SchedulesShown) -> String {
    let mut table = Table::new(["NAME", "PATTERN", "ZONE", "PAUSED", "NEXT"]);
    for schedule in &shown.schedules {
        let definition = schedule.definition.as_ref();
        let zone = definition.map_or("-", |definition| match &definition.zone {
            Some(zone) => zone,
            None if definition.subjects.is_some() => "(each subject's)",
            None => "-",
        });
        table.row([
            &schedule.name,
            definition.map_or("(a program's own)", |definition| &definition.pattern),
            zone,
            if schedule.paused { "yes" } else { "no" },
            &schedule.next.as_deref().map_or_else(|| "-".to_owned(), when),
        ]);
    }
    if shown.schedules.is_empty() {
        "no schedules\n".to_owned()
    } else {
        table.to_string()
    }
}

pub(super) fn schedule(schedule: &ScheduleShown) -> String {
    let mut table = Table::bare();
    table.row(["name", &schedule.name]);
    table.row(["paused", if schedule.paused { "yes" } else { "no" }]);
    if let Some(definition) = &schedule.definition {
        let text = serde_json::to_string(definition).unwrap_or_default();
        table.row(["pattern", &definition.pattern]);
        table.row(["definition", &text]);
    }
    if let Some(next) = &schedule.next {
        table.row(["next", &when(next)]);
    }
    if let Some(position) = &schedule.position {
        table.row(["made up to", &when(position)]);
    }
    table.row(["changed", &when(&schedule.changed_at)]);
    if let Some(wrong) = &schedule.wrong {
        table.row(["does not fire", wrong]);
    }
    table.to_string()
}

pub(super) fn occurrences(shown: &Occurrences) -> String {
    let mut table = Table::new(["INSTANT", "ZONE", "DATE", "STATE", "ENDED", "NOTE"]);
    for row in &shown.occurrences {
        let note = row.failure.as_ref().map_or("", |failure| &failure.message);
        table.row([
            row.instant.as_deref().unwrap_or("-"),
            &row.zone,
            row.local_date.as_deref().unwrap_or("-"),
            TaskState::from(row.state).as_str(),
            row.ended.as_deref().unwrap_or("-"),
            note,
        ]);
    }
    let mut text = if shown.occurrences.is_empty() {
        "no occurrences yet\n".to_owned()
    } else {
        table.to_string()
    };
    if shown.more {
        text.push_str("there are more: --limit, up to 1000\n");
    }
    text
}
