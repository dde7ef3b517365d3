//! What is done about events, endpoints and deliveries, wherever somebody asks from.

use std::sync::Arc;

use exactly::queue::{TaskFilter, TaskId, TaskPage, TaskView};
use exactly::webhook::delivery::Destinations;
use exactly::webhook::{DeliveryName, EVENT_KIND, EndpointId, Endpoints, EventId, Stored, TypeFilter};

use super::ask::EventsQuery;
use super::wire::{EventDetail, EventPage, EventShown, FannedOut};
use crate::admin::deliveries::wire::DeliveryShown;
use crate::admin::desk::{Desk, LIMIT_DEFAULT, asked};
use crate::admin::endpoints::desk::kept;
use crate::admin::input::{FilterText, Instant, Limit};
use crate::admin::jobs::ask::JobIdText;
use crate::admin::problem::{Answer, Problem};
use crate::admin::replays::desk::changed;
use crate::store::Ledger;

/// How many rows are looked at in one step, and how many steps there are at most: what people filter by is in the content of
/// tasks, and a page is not to take long however little fits.
const STEP: u32 = 100;
const STEPS_MAX: usize = 20;

/// How many deliveries are shown with their event, copies too…
const DELIVERIES_MAX: usize = 1000;
/// …and how many are looked for, since few replays copy everything that they might.
const LOOKS_MAX: usize = 2000;

/// Works on the events of one queue. Actions are written into the trail of the store beside it.
#[derive(Clone)]
pub(crate) struct EventDesk {
    queue: Arc<dyn Ledger>,
    desk: Desk,
    source: String,
    destinations: Option<Destinations>,
}

impl EventDesk {
    /// `source` is that of events that name none. With `destinations`, endpoints that could never be dialled are refused; who
    /// does not know what the server may dial leaves that to the server.
    pub(crate) fn new(queue: Arc<dyn Ledger>, desk: Desk, source: String, destinations: Option<Destinations>) -> Self {
        Self {
            queue,
            desk,
            source,
            destinations,
        }
    }

    pub(crate) fn queue(&self) -> &Arc<dyn Ledger> {
        &self.queue
    }

    pub(crate) fn desk(&self) -> &Desk {
        &self.desk
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    pub(crate) fn destinations(&self) -> Option<&Destinations> {
        self.destinations.as_ref()
    }

    pub(crate) fn endpoints(&self) -> Endpoints<dyn Ledger> {
        Endpoints::new(Arc::clone(&self.queue))
    }

    pub(crate) async fn events(&self, query: &EventsQuery) -> Answer<EventPage> {
        let wanted = query.event_type.as_ref().map(type_filter).transpose()?;
        let filter = TaskFilter {
            kind: Some(EVENT_KIND.to_owned()),
            state: query.state.map(Into::into),
            ..TaskFilter::default()
        };
        let fits = |view: &TaskView| {
            let stored = Stored::read(&view.payload).ok();
            let is_wanted = wanted.as_ref().is_none_or(|wanted| {
                let stored = stored.as_ref();
                stored.is_some_and(|stored| wanted.takes(&stored.event_type))
            });
            let fits = is_wanted && within(view, query.since, query.until);
            fits.then(|| EventShown::of(view, stored.as_ref()))
        };
        let looked = self.look_through(&filter, query.after, query.limit, fits).await?;
        Ok(EventPage {
            events: looked.found,
            next: looked.next,
        })
    }

    pub(crate) async fn event(&self, id: &EventId) -> Answer<EventDetail> {
        let view = self.event_view(id).await?;
        let view = view.ok_or_else(|| Problem::no_such_event(id.as_str()))?;
        let deliveries = self.deliveries_of(id, Some(&view)).await?;
        Ok(EventDetail::of(
            &view,
            deliveries.iter().map(DeliveryShown::of).collect(),
        ))
    }

    pub(crate) async fn event_view(&self, id: &EventId) -> Answer<Option<TaskView>> {
        let id = TaskId::of(EVENT_KIND, id.as_str());
        asked("read the event", self.queue.show(id)).await
    }

    /// The deliveries of an event, by endpoint, each before the copies that replays have made of it. They are known by all three,
    /// so none has to be looked for: not even among a million.
    pub(crate) async fn deliveries_of(&self, id: &EventId, event: Option<&TaskView>) -> Answer<Vec<TaskView>> {
        let to: Vec<String> = if let Some(fanned) = event.and_then(FannedOut::of) {
            fanned.to
        } else {
            // Not made, or half made, or made for one endpoint alone.
            let endpoints = kept("list endpoints", self.endpoints().list()).await?;
            endpoints.iter().map(|endpoint| endpoint.id.to_string()).collect()
        };
        let copies = changed("list replays", self.replaying().copies()).await?;
        let (mut views, mut looks) = (Vec::new(), 0..LOOKS_MAX);
        for endpoint in to.iter().filter_map(|to| EndpointId::new(to.as_str()).ok()) {
            let name = DeliveryName::new(id.clone(), endpoint);
            let original = asked("read the delivery", self.queue.show(name.task_id())).await?;
            let made_at = original.as_ref().map(|view| view.enqueued_at);
            views.extend(original);
            for copy in copies.of(&name, made_at) {
                views.extend(asked("read the copy", self.queue.show(copy.task_id())).await?);
                looks.next();
            }
            if looks.next().is_none() || views.len() >= DELIVERIES_MAX {
                break;
            }
        }
        views.truncate(DELIVERIES_MAX);
        Ok(views)
    }

    /// Goes through tasks by id until enough of them fit, or enough were looked at.
    pub(crate) async fn look_through<T>(
        &self,
        filter: &TaskFilter,
        after: Option<JobIdText>,
        limit: Option<Limit>,
        fits: impl Fn(&TaskView) -> Option<T>,
    ) -> Answer<Looked<T>> {
        let limit = usize::try_from(limit.map_or(LIMIT_DEFAULT, Limit::get)).unwrap_or(usize::MAX);
        let (mut found, mut after) = (Vec::new(), after.map(JobIdText::id));
        let next = |after: Option<TaskId>| after.map(|id| id.to_string());
        for _ in 0..STEPS_MAX {
            let page = TaskPage { after, limit: STEP };
            let views = asked("list tasks", self.queue.list(filter, page)).await?;
            for view in &views {
                after = Some(view.id);
                found.extend(fits(view));
                if found.len() >= limit {
                    return Ok(Looked {
                        found,
                        next: next(after),
                    });
                }
            }
            if u32::try_from(views.len()).is_ok_and(|len| len < STEP) {
                return Ok(Looked { found, next: None });
            }
        }
        Ok(Looked {
            found,
            next: next(after),
        })
    }
}

/// What was found, and where to go on.
#[derive(Debug)]
pub(crate) struct Looked<T> {
    pub(crate) found: Vec<T>,
    pub(crate) next: Option<String>,
}

pub(crate) fn type_filter(text: &FilterText) -> Answer<TypeFilter> {
    let filter = text.as_ref().parse();
    filter.map_err(|why| Problem::invalid("type", why))
}

/// Whether a task was enqueued between the two.
pub(crate) fn within(view: &TaskView, since: Option<Instant>, until: Option<Instant>) -> bool {
    since.is_none_or(|since| view.enqueued_at >= since.0) && until.is_none_or(|until| view.enqueued_at < until.0)
}
