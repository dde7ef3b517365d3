//! What operators do about deliveries, wherever they ask from.

use exactly::queue::{TaskFilter, TaskId, TaskState, TaskView};
use exactly::webhook::{DELIVERY_KIND, DeliveryName, Enclosed, Endpoint, EndpointId, EventId, EventType, Standing};

use super::ask::DeliveriesQuery;
use super::wire::{DeliveryDetail, DeliveryPage, DeliveryShown, Named, Retried};
use crate::admin::desk::asked;
use crate::admin::desk::audit::Deed;
use crate::admin::endpoints::desk::kept;
use crate::admin::events::desk::{EventDesk, Looked, type_filter, within};
use crate::admin::input::Actor;
use crate::admin::jobs::ask::RequeueOne;
use crate::admin::problem::{Answer, Problem};
use crate::admin::replays::desk::changed;

impl EventDesk {
    pub(crate) async fn deliveries(&self, query: &DeliveriesQuery) -> Answer<DeliveryPage> {
        let endpoint = query
            .endpoint
            .as_ref()
            .map(|id| EndpointId::new(id.as_ref()))
            .transpose();
        let endpoint = endpoint.map_err(|why| Problem::invalid("endpoint", why))?;
        let event = query.event.as_ref().map(|id| EventId::new(id.as_ref())).transpose();
        let event = event.map_err(|why| Problem::invalid("event", why))?;
        let wanted = query.event_type.as_ref().map(type_filter).transpose()?;
        let state = query.state.map(TaskState::from);
        let fits = |view: &TaskView| {
            let is_wanted = wanted
                .as_ref()
                .is_none_or(|wanted| type_of(view).is_some_and(|of| wanted.takes(&of)));
            let is_there = endpoint
                .as_ref()
                .is_none_or(|endpoint| Named::of(view).endpoint == endpoint.as_str());
            let is_so = state.is_none_or(|state| view.state == state);
            let fits = is_wanted && is_there && is_so && within(view, query.since, query.until);
            fits.then(|| DeliveryShown::of(view))
        };
        let looked = if let Some(event) = &event {
            let view = self.event_view(event).await?;
            let views = self.deliveries_of(event, view.as_ref()).await?;
            Looked {
                found: views.iter().filter_map(fits).collect(),
                next: None,
            }
        } else {
            let filter = TaskFilter {
                kind: Some(DELIVERY_KIND.to_owned()),
                lane: endpoint.as_ref().map(EndpointId::lane),
                state,
                ..TaskFilter::default()
            };
            self.look_through(&filter, query.after, query.limit, fits).await?
        };
        Ok(DeliveryPage {
            deliveries: looked.found,
            next: looked.next,
        })
    }

    pub(crate) async fn delivery(&self, id: TaskId) -> Answer<DeliveryDetail> {
        let view = self.delivery_view(id).await?;
        let attempts = asked("read the delivery's attempts", self.queue().attempts(id)).await?;
        Ok(DeliveryDetail::of(&view, &attempts))
    }

    async fn delivery_view(&self, id: TaskId) -> Answer<TaskView> {
        let view = asked("read the delivery", self.queue().show(id)).await?;
        view.filter(|view| *view.kind == *DELIVERY_KIND)
            .ok_or_else(|| Problem::no_such_delivery(id))
    }

    /// Makes the next attempt of a delivery now. It is the attempt that would have come anyway, so there are never two.
    pub(crate) async fn retry(&self, id: TaskId, wanted: &RequeueOne, actor: &Actor) -> Answer<Retried> {
        let view = self.delivery_view(id).await?;
        let name = DeliveryName::of_key(&view.key).ok_or_else(|| Problem::no_such_delivery(id))?;
        let DeliveryName { event, endpoint, .. } = &name;
        let kept_as = kept("read the endpoint", self.endpoints().get(endpoint)).await?;
        let behind = self.behind(&view, &name).await?;
        if wanted.dry_run {
            self.check_alone(&view, &name).await?;
            return Ok(told(&view, view.state, kept_as.as_ref(), behind));
        }
        let detail = format!("retry delivery {id} of event {event} to {endpoint}");
        let deed = Deed::new(actor, "delivery", None, detail).because(wanted.reason.as_ref());
        let act = async {
            self.check_alone(&view, &name).await?;
            let revived = asked("retry the delivery", self.queue().revive(&[id])).await?;
            let was = revived.into_iter().next().flatten();
            let was = was.ok_or_else(|| Problem::no_such_delivery(id))?;
            if was == TaskState::Waiting {
                asked("retry the delivery now", self.queue().hasten(&[id])).await?;
            }
            Ok(told(&view, was, kept_as.as_ref(), behind))
        };
        self.desk().audited(deed, act, in_words).await
    }

    /// What a delivery waits for all the same, if it is in order behind one that is not over.
    async fn behind(&self, view: &TaskView, name: &DeliveryName) -> Answer<Option<String>> {
        let was_sent = view.state == TaskState::Waiting && view.failures > 0;
        let enclosed = Enclosed::read(&view.payload).ok();
        let Some(first) = enclosed.as_ref().and_then(Enclosed::after).filter(|_| !was_sent) else {
            return Ok(None);
        };
        let task = DeliveryName::new(first.clone(), name.endpoint.clone()).task_id();
        let view = asked("read the delivery before it", self.queue().show(task)).await?;
        let is_over = view.is_none_or(|view| matches!(view.state, TaskState::Done | TaskState::Dead));
        Ok((!is_over).then(|| format!("it goes after event {first}, which is neither delivered nor dead yet")))
    }

    /// Refuses to send a delivery beside a copy of it, as a replay would leave it alone.
    async fn check_alone(&self, view: &TaskView, name: &DeliveryName) -> Answer<()> {
        if matches!(view.state, TaskState::Done | TaskState::Running) {
            return Ok(());
        }
        match changed("look for copies", self.replaying().under_way(name)).await? {
            Some(other) => Err(Problem::under_way(&other)),
            None => Ok(()),
        }
    }
}

fn type_of(view: &TaskView) -> Option<EventType> {
    Enclosed::read(&view.payload).ok()?.event_type()
}

fn told(view: &TaskView, was: TaskState, endpoint: Option<&Endpoint>, behind: Option<String>) -> Retried {
    let left = match was {
        TaskState::Waiting | TaskState::Dead | TaskState::Held => None,
        TaskState::Running => Some("an attempt is under way; wait until it ends"),
        TaskState::Done => Some("it is delivered: the endpoint has it"),
    };
    let waits = match endpoint {
        None => Some("its endpoint was deleted, so it will end dead again"),
        Some(endpoint) if endpoint.discards(view.enqueued_at) => Some(
            "what waited for its endpoint was discarded, so it will end dead again; set discard_before to null first",
        ),
        Some(endpoint) => match &endpoint.standing {
            Standing::Active => None,
            Standing::Paused => Some("its endpoint is paused, so it waits until that is resumed"),
            Standing::Disabled { .. } => Some("its endpoint is disabled, so it waits until that is resumed"),
        },
    };
    Retried {
        id: view.id.to_string(),
        retried: left.is_none(),
        was: was.into(),
        why: left.or(waits).map(str::to_owned).or(behind),
    }
}

fn in_words(retried: &Retried) -> String {
    match &retried.why {
        None => "its next attempt is due now".to_owned(),
        Some(why) if retried.retried => format!("its next attempt is due now, and {why}"),
        Some(why) => format!("left as it is: {why}"),
    }
}
