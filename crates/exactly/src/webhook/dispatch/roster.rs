//! The endpoints as a process last read them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::letter::Addressee;
use super::{EndpointError, EndpointId, Endpoints};
use crate::queue::Registry;
use crate::webhook::EventType;

/// All endpoints at one time.
#[derive(Debug)]
pub(super) struct List {
    /// By id, because deliveries ask for one.
    endpoints: HashMap<EndpointId, Arc<Addressee>>,
    /// Those that cannot be read, of which nobody knows what they want and where they are.
    unreadable: HashSet<EndpointId>,
    /// When reading it was begun: whatever was written before is in it.
    since: Instant,
}

impl List {
    pub(super) fn get(&self, id: &EndpointId) -> Option<Known> {
        match self.endpoints.get(id) {
            Some(addressee) => Some(Known::Endpoint(Arc::clone(addressee))),
            None => self.unreadable.contains(id).then_some(Known::Unreadable),
        }
    }

    /// Whether there is one of this id.
    pub(super) fn has(&self, id: &EndpointId) -> bool {
        self.endpoints.contains_key(id) || self.unreadable.contains(id)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &EndpointId> {
        self.endpoints.keys().chain(&self.unreadable)
    }

    /// Who is to get events of this type: also whoever might want them.
    pub(super) fn wanting(&self, event_type: &EventType) -> impl Iterator<Item = &EndpointId> {
        let endpoints = self.endpoints.values().map(|addressee| &addressee.endpoint);
        let wanting = endpoints.filter(|endpoint| endpoint.wants(event_type));
        wanting.map(|endpoint| &endpoint.id).chain(&self.unreadable)
    }
}

/// What is known of an endpoint that is there.
#[derive(Debug)]
pub(super) enum Known {
    Endpoint(Arc<Addressee>),
    Unreadable,
}

/// Reads endpoints for many at once: those who ask while somebody reads share what is read next.
#[derive(Debug)]
pub(super) struct Roster<Q: ?Sized> {
    kept: Endpoints<Q>,
    // Tokio's, since it is held while the list is read, so that others wait for the same one.
    latest: Mutex<Option<Arc<List>>>,
}

impl<Q: Registry + ?Sized> Roster<Q> {
    pub(super) fn new(kept: Endpoints<Q>) -> Self {
        Self {
            kept,
            latest: Mutex::new(None),
        }
    }

    /// A list with everything in it that was written before this was called.
    pub(super) async fn fresh(&self) -> Result<Arc<List>, EndpointError> {
        self.since(Instant::now()).await
    }

    /// A list that may lack what was written within this time.
    pub(super) async fn recent(&self, age: Duration) -> Result<Arc<List>, EndpointError> {
        let now = Instant::now();
        self.since(now.checked_sub(age).unwrap_or(now)).await
    }

    async fn since(&self, earliest: Instant) -> Result<Arc<List>, EndpointError> {
        let mut latest = self.latest.lock().await;
        if let Some(list) = &*latest
            && list.since >= earliest
        {
            return Ok(Arc::clone(list));
        }
        let since = Instant::now();
        let (endpoints, unreadable) = self.kept.all().await?;
        let endpoints = endpoints
            .into_iter()
            .map(|endpoint| (endpoint.id.clone(), Arc::new(Addressee::new(endpoint))));
        let list = Arc::new(List {
            endpoints: endpoints.collect(),
            unreadable: unreadable.into_iter().collect(),
            since,
        });
        // Once, though it is read every second.
        let known = |id: &&EndpointId| latest.as_ref().is_some_and(|latest| latest.unreadable.contains(*id));
        for endpoint in list.unreadable.iter().filter(|id| !known(id)) {
            tracing::error!(%endpoint, "stored endpoint: unreadable; what it gets waits until it is added anew");
        }
        *latest = Some(Arc::clone(&list));
        Ok(list)
    }
}
