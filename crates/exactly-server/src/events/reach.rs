//! The two ways to the desk for events.

use exactly::queue::TaskId;
use exactly::webhook::{EndpointId, EventId, ReplayId};
use serde_json::value::RawValue;

use crate::admin::deliveries::ask::DeliveriesQuery;
use crate::admin::deliveries::wire::{DeliveryDetail, DeliveryPage, Retried};
use crate::admin::endpoints::ask::{EndpointChange, EndpointsQuery, NewEndpoint, Rotate, TestEvent};
use crate::admin::endpoints::desk::Action;
use crate::admin::endpoints::wire::{EndpointMade, EndpointPage, EndpointShown, HealthShown, Tested};
use crate::admin::events::ask::{EventsQuery, NewEvents};
use crate::admin::events::desk::EventDesk;
use crate::admin::events::wire::{EventDetail, EventPage, PublishedRows};
use crate::admin::inbox::ask::{InboxQuery, WhichBody};
use crate::admin::inbox::wire::{InboxDetail, InboxPage};
use crate::admin::input::Actor;
use crate::admin::jobs::ask::RequeueOne;
use crate::admin::replays::ask::{NewReplay, ReplaysQuery};
use crate::admin::replays::desk::ReplayAction;
use crate::admin::replays::wire::{ReplayPage, ReplayShown};
use crate::admin::schedules::ask::Because;
use crate::admin::schedules::wire::Erased;
use crate::calls::{Client, Refused};
use crate::jobs::reach::segment;

/// Through a server, or straight on the store.
pub(crate) enum EventReach {
    Api(Box<Client>),
    Store(Box<EventDesk>, Actor),
}

impl EventReach {
    pub(super) async fn publish(&self, events: Vec<Box<RawValue>>) -> Result<PublishedRows, Refused> {
        match self {
            Self::Api(api) => api.post("/v1/events", &NewEvents { events }).await,
            Self::Store(desk, _) => Ok(desk.publish(events).await?),
        }
    }

    pub(super) async fn events(&self, query: &EventsQuery) -> Result<EventPage, Refused> {
        match self {
            Self::Api(api) => api.get("/v1/events", query).await,
            Self::Store(desk, _) => Ok(desk.events(query).await?),
        }
    }

    pub(super) async fn event(&self, id: &EventId) -> Result<EventDetail, Refused> {
        match self {
            Self::Api(api) => api.get(&format!("/v1/events/{}", segment(id.as_str())), &()).await,
            Self::Store(desk, _) => Ok(desk.event(id).await?),
        }
    }

    pub(crate) async fn endpoints(&self, query: &EndpointsQuery) -> Result<EndpointPage, Refused> {
        match self {
            Self::Api(api) => api.get("/v1/endpoints", query).await,
            Self::Store(desk, _) => Ok(desk.list_endpoints(query).await?),
        }
    }

    pub(crate) async fn endpoint(&self, id: &EndpointId) -> Result<EndpointShown, Refused> {
        match self {
            Self::Api(api) => api.get(&endpoint(id, ""), &()).await,
            Self::Store(desk, _) => Ok(desk.show_endpoint(id).await?),
        }
    }

    pub(crate) async fn endpoint_health(&self, id: &EndpointId) -> Result<HealthShown, Refused> {
        match self {
            Self::Api(api) => api.get(&endpoint(id, "/health"), &()).await,
            Self::Store(desk, _) => Ok(desk.endpoint_health(id).await?),
        }
    }

    pub(crate) async fn create_endpoint(&self, asked: NewEndpoint) -> Result<EndpointMade, Refused> {
        match self {
            Self::Api(api) => api.post("/v1/endpoints", &asked).await,
            Self::Store(desk, actor) => Ok(desk.create_endpoint(asked, actor).await?),
        }
    }

    pub(crate) async fn change_endpoint(
        &self,
        id: &EndpointId,
        asked: EndpointChange,
    ) -> Result<EndpointShown, Refused> {
        match self {
            Self::Api(api) => api.patch(&endpoint(id, ""), &asked).await,
            Self::Store(desk, actor) => Ok(desk.change_endpoint(id, asked, actor).await?),
        }
    }

    pub(crate) async fn act_on_endpoint(
        &self,
        id: &EndpointId,
        action: Action,
        because: &Because,
    ) -> Result<EndpointShown, Refused> {
        match self {
            Self::Api(api) => {
                let path = endpoint(id, &format!("/{}", action.word()));
                api.post_query(&path, because).await
            }
            Self::Store(desk, actor) => Ok(desk.act_on_endpoint(id, action, because, actor).await?),
        }
    }

    pub(crate) async fn delete_endpoint(&self, id: &EndpointId, because: &Because) -> Result<Erased, Refused> {
        match self {
            Self::Api(api) => api.delete(&endpoint(id, ""), because).await,
            Self::Store(desk, actor) => Ok(desk.delete_endpoint(id, because, actor).await?),
        }
    }

    pub(crate) async fn rotate_endpoint(&self, id: &EndpointId, asked: Rotate) -> Result<EndpointMade, Refused> {
        match self {
            Self::Api(api) => api.post(&endpoint(id, "/rotate"), &asked).await,
            Self::Store(desk, actor) => Ok(desk.rotate_endpoint(id, asked, actor).await?),
        }
    }

    pub(crate) async fn test_endpoint(&self, id: &EndpointId, asked: TestEvent) -> Result<Tested, Refused> {
        match self {
            Self::Api(api) => api.post(&endpoint(id, "/test"), &asked).await,
            Self::Store(desk, actor) => Ok(desk.test_endpoint(id, asked, actor).await?),
        }
    }

    pub(crate) async fn deliveries(&self, query: &DeliveriesQuery) -> Result<DeliveryPage, Refused> {
        match self {
            Self::Api(api) => api.get("/v1/deliveries", query).await,
            Self::Store(desk, _) => Ok(desk.deliveries(query).await?),
        }
    }

    pub(crate) async fn delivery(&self, id: TaskId) -> Result<DeliveryDetail, Refused> {
        match self {
            Self::Api(api) => api.get(&format!("/v1/deliveries/{id}"), &()).await,
            Self::Store(desk, _) => Ok(desk.delivery(id).await?),
        }
    }

    pub(crate) async fn retry(&self, id: TaskId, wanted: &RequeueOne) -> Result<Retried, Refused> {
        match self {
            Self::Api(api) => api.post(&format!("/v1/deliveries/{id}/retry"), wanted).await,
            Self::Store(desk, actor) => Ok(desk.retry(id, wanted, actor).await?),
        }
    }

    pub(crate) async fn inbox(&self, query: &InboxQuery) -> Result<InboxPage, Refused> {
        match self {
            Self::Api(api) => api.get("/v1/inbox", query).await,
            Self::Store(desk, _) => Ok(desk.inbox(query).await?),
        }
    }

    pub(crate) async fn received(&self, source: &str, event: &str, which: &WhichBody) -> Result<InboxDetail, Refused> {
        match self {
            Self::Api(api) => {
                let path = format!("/v1/inbox/{}/{}", segment(source), segment(event));
                api.get(&path, which).await
            }
            Self::Store(desk, _) => Ok(desk.received(source, event, which).await?),
        }
    }

    pub(crate) async fn replays(&self, query: &ReplaysQuery) -> Result<ReplayPage, Refused> {
        match self {
            Self::Api(api) => api.get("/v1/replays", query).await,
            Self::Store(desk, _) => Ok(desk.replays(query).await?),
        }
    }

    pub(crate) async fn replay(&self, id: &ReplayId) -> Result<ReplayShown, Refused> {
        match self {
            Self::Api(api) => api.get(&format!("/v1/replays/{id}"), &()).await,
            Self::Store(desk, _) => Ok(desk.replay(id).await?),
        }
    }

    pub(crate) async fn start_replay(&self, asked: NewReplay) -> Result<ReplayShown, Refused> {
        match self {
            Self::Api(api) => api.post("/v1/replays", &asked).await,
            Self::Store(desk, actor) => Ok(desk.start_replay(asked, actor).await?.replay),
        }
    }

    pub(crate) async fn act_on_replay(
        &self,
        id: &ReplayId,
        action: ReplayAction,
        because: &Because,
    ) -> Result<ReplayShown, Refused> {
        match self {
            Self::Api(api) => {
                let path = format!("/v1/replays/{id}/{}", action.word());
                api.post_query(&path, because).await
            }
            Self::Store(desk, actor) => Ok(desk.act_on_replay(id, action, because, actor).await?),
        }
    }
}

fn endpoint(id: &EndpointId, below: &str) -> String {
    format!("/v1/endpoints/{id}{below}")
}
