//! The API's part about events.

pub(crate) mod ask;
pub(crate) mod desk;
mod publish;
pub(crate) mod wire;

use std::sync::Arc;

use axum::extract::State;
use exactly::webhook::EventId;
use http::StatusCode;
use serde_json::value::RawValue;

use self::ask::{EventsQuery, NewEventsBody};
use self::desk::EventDesk;
use self::publish::Asking;
use self::wire::{EventDetail, EventPage, PublishResult, PublishedEvents};
use super::Admin;
use super::extract::{Asked, Filtered, Named, Told};
use super::problem::{Answer, Problem};

/// Publish events
///
/// One event, or up to 1000 of them under `events` with a result for each: one that is wrong does not keep others out. An
/// event with an id of your own can be published again: with the same content it is the same event, with another one it is
/// refused.
#[utoipa::path(
    post,
    path = "/v1/events",
    tag = "events",
    operation_id = "publishEvents",
    request_body = NewEventsBody,
    responses(
        (status = 200, description = "It was published before; or what became of each", body = PublishedEvents),
        (status = 201, description = "It is new, and will be delivered", body = PublishedEvents),
        (status = 207, description = "Some of them are wrong, and were left out", body = PublishedEvents),
    )
)]
pub(super) async fn publish(
    State(admin): State<Arc<Admin>>,
    Asked(body): Asked<Box<RawValue>>,
) -> Answer<(StatusCode, Told<PublishedEvents>)> {
    let desk = admin.events()?;
    match Asking::read(&body)? {
        Asking::One(event) => {
            let row = desk.publish_one(*event).await?;
            let status = match row.result {
                PublishResult::New => StatusCode::CREATED,
                _ => StatusCode::OK,
            };
            Ok((status, Told(PublishedEvents::One(Box::new(row)))))
        }
        Asking::Many(rows) => {
            let rows = desk.publish(rows).await?;
            let status = if rows.invalid + rows.conflicts > 0 {
                StatusCode::MULTI_STATUS
            } else {
                StatusCode::OK
            };
            Ok((status, Told(PublishedEvents::Many(rows))))
        }
    }
}

/// List events
///
/// By a digest of their ids, which is not the order in which they were published. Looks at a bounded number of them: a page
/// with few rows, or none, is the last one only if `next` is null.
#[utoipa::path(
    get,
    path = "/v1/events",
    tag = "events",
    operation_id = "listEvents",
    params(EventsQuery),
    responses((status = 200, description = "One page", body = EventPage))
)]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    Filtered(query): Filtered<EventsQuery>,
) -> Answer<Told<EventPage>> {
    admin.events()?.events(&query).await.map(Told)
}

/// Show an event and its deliveries
#[utoipa::path(
    get,
    path = "/v1/events/{event}",
    tag = "events",
    operation_id = "showEvent",
    params(("event" = String, Path, description = "The event's id", pattern = "^[!-\\-/-~]{1,128}$")),
    responses((status = 200, description = "The event", body = EventDetail))
)]
pub(super) async fn show(State(admin): State<Arc<Admin>>, Named(id): Named) -> Answer<Told<EventDetail>> {
    let id = EventId::new(id).map_err(|why| Problem::invalid("event", why))?;
    admin.events()?.event(&id).await.map(Told)
}

impl Admin {
    /// The desk for events, or why there is none.
    pub(super) fn events(&self) -> Answer<&EventDesk> {
        self.events.as_ref().map_err(Clone::clone)
    }
}
