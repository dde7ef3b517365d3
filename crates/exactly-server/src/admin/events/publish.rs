//! Publishing, row by row.

use std::collections::BTreeMap;
use std::sync::Arc;

use exactly::webhook::{Event, Outbox, PublishError, Published};
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::ask::{EVENTS_MAX, NewEvent, NewEvents};
use super::desk::EventDesk;
use super::wire::{PublishResult, PublishedRow, PublishedRows};
use crate::admin::desk::STORE_PATIENCE;
use crate::admin::extract::parse_json;
use crate::admin::problem::{Answer, Problem};
use crate::store::Ledger;

/// What was asked for.
pub(super) enum Asking {
    One(Box<NewEvent>),
    Many(Vec<Box<RawValue>>),
}

impl Asking {
    pub(super) fn read(body: &RawValue) -> Answer<Self> {
        let members: Option<BTreeMap<String, &RawValue>> = serde_json::from_str(body.get()).ok();
        if !members.is_some_and(|members| members.contains_key("events")) {
            return parse_json(body.get().as_bytes()).map(|event| Self::One(Box::new(event)));
        }
        let NewEvents { events } = parse_json(body.get().as_bytes())?;
        if !(1..=EVENTS_MAX).contains(&events.len()) {
            let why = format!("has {} of them, accepted are 1 to {EVENTS_MAX}", events.len());
            return Err(Problem::invalid("events", why));
        }
        Ok(Self::Many(events))
    }
}

impl EventDesk {
    /// Publishes one event, or says what is wrong with it.
    pub(super) async fn publish_one(&self, event: NewEvent) -> Answer<PublishedRow> {
        let (event, source) = event.read().map_err(|wrong| Problem::invalid(wrong.field, wrong.why))?;
        let published = published(self.outbox(source)?.publish(&event)).await?;
        match row(&event, published)? {
            row if row.result == PublishResult::Conflict => Err(Problem::other_event(row.reason.unwrap_or_default())),
            row => Ok(row),
        }
    }

    /// Publishes those that are right, and says of each what became of it.
    pub(crate) async fn publish(&self, rows: Vec<Box<RawValue>>) -> Answer<PublishedRows> {
        let read: Vec<_> = rows.iter().map(|row| read_row(row)).collect();
        // Those of one source in one step.
        let mut by_source: BTreeMap<Option<String>, Vec<(usize, Event)>> = BTreeMap::new();
        let mut rows: Vec<Option<PublishedRow>> = Vec::with_capacity(read.len());
        for (place, read) in read.into_iter().enumerate() {
            match read {
                Ok((event, source)) => {
                    by_source.entry(source).or_default().push((place, event));
                    rows.push(None);
                }
                Err(invalid) => rows.push(Some(invalid)),
            }
        }
        for (source, events) in by_source {
            let (places, events): (Vec<usize>, Vec<Event>) = events.into_iter().unzip();
            let answers = published(self.outbox(source)?.publish_all(&events)).await?;
            let answers = answers.map_err(refused)?;
            for ((place, event), answer) in places.into_iter().zip(&events).zip(answers) {
                rows[place] = Some(row(event, answer)?);
            }
        }
        let Some(rows) = rows.into_iter().collect::<Option<Vec<_>>>() else {
            return Err(Problem::failed("the queue did not say what became of every event"));
        };
        let count = |result| {
            let count = rows.iter().filter(|row| row.result == result).count();
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        Ok(PublishedRows {
            new: count(PublishResult::New),
            found: count(PublishResult::Found),
            conflicts: count(PublishResult::Conflict),
            invalid: count(PublishResult::Invalid),
            rows,
        })
    }

    fn outbox(&self, source: Option<String>) -> Answer<Outbox<dyn Ledger>> {
        let source = source.unwrap_or_else(|| self.source().to_owned());
        Outbox::new(Arc::clone(self.queue()), source).map_err(|why| Problem::invalid("source", why))
    }
}

/// One bounded step.
async fn published<T>(publishing: impl Future<Output = Result<T, PublishError>>) -> Answer<Result<T, PublishError>> {
    let late = |_| Problem::no_answer("publish", STORE_PATIENCE);
    timeout(STORE_PATIENCE, publishing).await.map_err(late)
}

fn read_row(raw: &RawValue) -> Result<(Event, Option<String>), PublishedRow> {
    let event: NewEvent = parse_json(raw.get().as_bytes()).map_err(|problem| {
        let field = problem.field.map(Into::into);
        invalid(None, field, problem.detail)
    })?;
    let read = event.read();
    read.map_err(|wrong| invalid(event.id, Some(wrong.field), wrong.why))
}

fn invalid(id: Option<String>, field: Option<String>, reason: String) -> PublishedRow {
    PublishedRow {
        result: PublishResult::Invalid,
        id,
        field,
        reason: Some(reason),
    }
}

fn row(event: &Event, published: Result<Published, PublishError>) -> Answer<PublishedRow> {
    let (result, reason) = match published {
        Ok(Published::New) => (PublishResult::New, None),
        Ok(Published::Before) => (PublishResult::Found, None),
        Err(error @ PublishError::OtherContent(_)) => (PublishResult::Conflict, Some(error.to_string())),
        Err(error) => return Err(refused(error)),
    };
    Ok(PublishedRow {
        result,
        id: Some(event.id().to_string()),
        field: reason.is_some().then(|| "id".to_owned()),
        reason,
    })
}

fn refused(error: PublishError) -> Problem {
    match error {
        PublishError::Store(error) => error.into(),
        PublishError::Invalid(why) => Problem::invalid("data", why),
        other => Problem::other_event(other),
    }
}
