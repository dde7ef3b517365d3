//! What people are shown about events.

use std::fmt::Write as _;

use exactly::queue::TaskState;

use crate::admin::events::wire::{EventDetail, EventPage, PublishResult, PublishedRows};
use crate::admin::jobs::wire::JobState;
use crate::calls::{Table, when};
use crate::deliveries::table;

pub(super) fn published(rows: &PublishedRows) -> String {
    let mut table = Table::new(["RESULT", "ID", "NOTE"]);
    for row in &rows.rows {
        let result = match row.result {
            PublishResult::New => "new",
            PublishResult::Found => "found",
            PublishResult::Conflict => "conflict",
            PublishResult::Invalid => "invalid",
        };
        let wrong = row.reason.as_deref().map(|reason| match &row.field {
            Some(field) if row.result == PublishResult::Invalid && !reason.starts_with(field) => {
                format!("{field}: {reason}")
            }
            _ => reason.to_owned(),
        });
        table.row([result, row.id.as_deref().unwrap_or("-"), wrong.as_deref().unwrap_or("")]);
    }
    table.to_string()
}

pub(super) fn page(page: &EventPage) -> String {
    let mut table = Table::new(["ID", "TYPE", "SOURCE", "DELIVERIES", "PUBLISHED"]);
    for event in &page.events {
        let deliveries = event.deliveries.map(|deliveries| deliveries.to_string());
        table.row([
            &event.id,
            event.event_type.as_deref().unwrap_or("-"),
            event.source.as_deref().unwrap_or("-"),
            deliveries.as_deref().unwrap_or(state(event.state)),
            &when(&event.published_at),
        ]);
    }
    let mut text = if page.events.is_empty() {
        "no events\n".to_owned()
    } else {
        table.to_string()
    };
    if let Some(next) = &page.next {
        let _ = writeln!(text, "there may be more: --after {next}");
    }
    text
}

pub(super) fn detail(detail: &EventDetail) -> String {
    let event = &detail.event;
    let mut facts = Table::bare();
    facts.row(["id", &event.id]);
    facts.row(["type", event.event_type.as_deref().unwrap_or("(unreadable)")]);
    facts.row(["source", event.source.as_deref().unwrap_or("-")]);
    facts.row(["published", &when(&event.published_at)]);
    if let Some(at) = &event.timestamp {
        facts.row(["happened", &when(at)]);
    }
    if let Some(key) = &event.order_key {
        facts.row(["order key", key]);
    }
    facts.row(["state", state(event.state)]);
    if let Some(failure) = &event.failure {
        facts.row(["failure", &format!("{}: {}", failure.kind, failure.message)]);
    }
    facts.row(["data", detail.data.get()]);
    let deliveries = match event.deliveries {
        None => "not yet known who gets it\n".to_owned(),
        Some(0) => "no endpoint wanted it\n".to_owned(),
        Some(_) => table(&detail.deliveries),
    };
    format!("{facts}\n{deliveries}")
}

fn state(state: JobState) -> &'static str {
    TaskState::from(state).as_str()
}
