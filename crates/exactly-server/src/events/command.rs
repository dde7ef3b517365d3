//! The commands about events.

use std::path::PathBuf;

use clap::ArgGroup;
use exactly::webhook::EventId;
use serde_json::value::{RawValue, to_raw_value};

use super::reach::EventReach;
use super::show;
use crate::admin::events::ask::{EVENTS_MAX, EventsQuery, NewEvent};
use crate::admin::events::wire::PublishedRows;
use crate::admin::input::{FilterText, Instant, Limit};
use crate::admin::jobs::ask::JobIdText;
use crate::admin::jobs::wire::JobState;
use crate::calls::{Refused, counted, parsed, print, read_text};
use crate::jobs::{json_lines, steps};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Publish an event, or as many as a file has.
    Publish(Box<Publish>),
    /// List events.
    List(List),
    /// Show an event and its deliveries.
    Show(Show),
}

/// What publishing looks like.
const PUBLISH_HELP: &str = r#"Examples:
  exactly events publish --id inv-17-paid --type invoice.paid --data '{"invoice": 17}'
  echo '{"id": "inv-18-paid", "type": "invoice.paid", "data": {"invoice": 18}}' | exactly events publish --file -"#;

#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("what").required(true).args(["event_type", "file"])), after_help = PUBLISH_HELP)]
pub(super) struct Publish {
    /// What kind of thing happened, such as invoice.paid.
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Events as the API takes them, one JSON object per line; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// What it is known by; published again with the same content, it is the same event [default: a random one]
    #[arg(long, conflicts_with = "file")]
    id: Option<String>,
    /// What there is to tell, as JSON.
    #[arg(long, value_name = "JSON", conflicts_with_all = ["file", "data_file"])]
    data: Option<String>,
    /// The same out of a file; `-` for standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    data_file: Option<PathBuf>,
    /// When it happened, such as 2026-01-31T12:00:00Z [default: when it is published]
    #[arg(long, value_name = "INSTANT", conflicts_with = "file", value_parser = parsed::<Instant>)]
    timestamp: Option<Instant>,
    /// Who tells of it [default: as configured]
    #[arg(long, conflicts_with = "file")]
    source: Option<String>,
    /// Sent to each endpoint after what was published before it with the same key
    #[arg(long, value_name = "KEY", conflicts_with = "file")]
    order_key: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// Only those of this type; `invoice.*` for all below a word.
    #[arg(long = "type", value_name = "TYPE", value_parser = parsed::<FilterText>)]
    event_type: Option<FilterText>,
    /// Only those in this state: `done` once it is known who gets them.
    #[arg(long, value_enum)]
    state: Option<JobState>,
    /// Only those that were published then or later.
    #[arg(long, value_name = "INSTANT", value_parser = parsed::<Instant>)]
    since: Option<Instant>,
    /// Only those that were published before then.
    #[arg(long, value_name = "INSTANT", value_parser = parsed::<Instant>)]
    until: Option<Instant>,
    /// At most so many, up to 1000.
    #[arg(long, default_value = "100", value_parser = counted::<1000>)]
    limit: Limit,
    /// Go on after this id.
    #[arg(long, value_name = "ID", value_parser = parsed::<JobIdText>)]
    after: Option<JobIdText>,
}

#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// The event's id.
    id: EventId,
}

impl Command {
    pub(super) async fn run(self, reach: &EventReach, json: bool) -> Result<(), Refused> {
        match self {
            Self::Publish(publish) => publish.run(reach, json).await,
            Self::List(list) => print(json, &reach.events(&list.query()).await?, show::page),
            Self::Show(Show { id }) => print(json, &reach.event(&id).await?, show::detail),
        }
    }
}

impl List {
    fn query(self) -> EventsQuery {
        EventsQuery {
            event_type: self.event_type,
            state: self.state,
            since: self.since,
            until: self.until,
            limit: Some(self.limit),
            after: self.after,
        }
    }
}

impl Publish {
    async fn run(self, reach: &EventReach, json: bool) -> Result<(), Refused> {
        let events = match &self.file {
            Some(path) => json_lines(path, "event")?,
            None => vec![self.event()?],
        };
        let mut total = PublishedRows {
            new: 0,
            found: 0,
            conflicts: 0,
            invalid: 0,
            rows: Vec::new(),
        };
        // Step by step, so that no request is too large; what is published stays so if one fails.
        for chunk in steps(&events, EVENTS_MAX) {
            let step = reach.publish(chunk.to_vec()).await?;
            total.new = total.new.saturating_add(step.new);
            total.found = total.found.saturating_add(step.found);
            total.conflicts = total.conflicts.saturating_add(step.conflicts);
            total.invalid = total.invalid.saturating_add(step.invalid);
            total.rows.extend(step.rows);
        }
        print(json, &total, show::published)?;
        match total.invalid.saturating_add(total.conflicts) {
            0 => Ok(()),
            wrong => Err(Refused::Failed(format!(
                "{wrong} of {} events were not published",
                total.rows.len()
            ))),
        }
    }

    fn event(self) -> Result<Box<RawValue>, Refused> {
        let data = match (&self.data, &self.data_file) {
            (Some(data), _) => data.clone(),
            (None, Some(path)) => read_text(path)?,
            (None, None) => {
                let why = "say what there is to tell: --data JSON or --data-file FILE";
                return Err(Refused::Usage(why.to_owned()));
            }
        };
        let data = RawValue::from_string(data.trim().to_owned());
        let event = NewEvent {
            id: self.id,
            event_type: self.event_type.unwrap_or_default(),
            data: data.map_err(|error| Refused::Usage(format!("--data is not JSON: {error}")))?,
            timestamp: self.timestamp,
            source: self.source,
            order_key: self.order_key,
        };
        to_raw_value(&event).map_err(Refused::failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_in_the_help_is_an_event() {
        let example = PUBLISH_HELP.split('\'').nth(3).unwrap();
        let event: NewEvent = serde_json::from_str(example).unwrap();
        assert_eq!(event.event_type, "invoice.paid");
    }
}
