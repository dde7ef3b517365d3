//! Endpoints as they are kept.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use super::{Endpoint, EndpointId, InvalidEndpoint, Standing, health};
use crate::queue::{Card, InspectQueue, Registry, Revision, Task};
use crate::webhook::Signer;
use crate::webhook::delivery::{CustomHeaders, Target};
use crate::{Fenced, StoreError, StoreErrorKind};

/// What the names of endpoints begin with among what a queue remembers.
const PREFIX: &str = "endpoint/";

/// How many are read at once.
const PAGE: u32 = 500;

/// The kind of the task that makes an endpoint's lane what the endpoint says.
pub(super) const MEND_KIND: &str = "exactly.mend";

/// When that is done, if whoever changes an endpoint is stopped before it has changed the lane too.
const MEND_AFTER: Duration = Duration::from_secs(10);

/// How often a change is made again because somebody else's came first.
const ROUNDS_MAX: u32 = 16;

/// Who wants to hear of events, kept beside the tasks that tell them.
#[derive(Debug)]
pub struct Endpoints<Q: ?Sized>(Arc<Q>);

impl<Q: ?Sized> Clone for Endpoints<Q> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<Q: ?Sized> Endpoints<Q> {
    /// Those that this queue remembers.
    pub fn new(queue: Arc<Q>) -> Self {
        Self(queue)
    }

    pub(super) fn queue(&self) -> &Arc<Q> {
        &self.0
    }
}

impl<Q: Registry + ?Sized> Endpoints<Q> {
    /// Adds an endpoint. It hears of every event that is published from now on. One that is there and [cannot be
    /// read](Self::unreadable) is replaced, and gets what has waited for it.
    pub async fn add(&self, endpoint: &Endpoint) -> Result<(), EndpointError> {
        check(endpoint)?;
        self.mend_later(&endpoint.id, MEND_AFTER).await?;
        let (name, value) = (name(&endpoint.id), written(endpoint));
        let mut added = self.0.write_card(&name, &value, None).await?;
        if added.is_none()
            && let Some(card) = self.0.read_card(&name).await?
            && read(&card.value).is_err()
        {
            added = self.0.write_card(&name, &value, Some(card.revision)).await?;
        }
        if added.is_none() {
            return Err(EndpointError::Taken(endpoint.id.clone()));
        }
        self.mend_lane(&endpoint.id).await
    }

    /// The endpoint of this id.
    pub async fn get(&self, id: &EndpointId) -> Result<Option<Endpoint>, EndpointError> {
        Ok(self.found(id).await?.map(|(endpoint, _)| endpoint))
    }

    /// All endpoints that can be read, by id.
    pub async fn list(&self) -> Result<Vec<Endpoint>, EndpointError> {
        Ok(self.all().await?.0)
    }

    /// Those that are there and cannot be read, because something else has written them. They are told of every event, and get
    /// nothing for now; [add](Self::add) such a one anew.
    pub async fn unreadable(&self) -> Result<Vec<EndpointId>, EndpointError> {
        Ok(self.all().await?.1)
    }

    /// Those that can be read, and those that cannot.
    pub(super) async fn all(&self) -> Result<(Vec<Endpoint>, Vec<EndpointId>), EndpointError> {
        let (mut endpoints, mut unreadable) = (Vec::new(), Vec::new());
        let mut after = Box::from("");
        loop {
            let cards = self.0.cards(PREFIX, &after, PAGE).await?;
            for card in &cards {
                match (read(&card.value), card.name.strip_prefix(PREFIX).map(EndpointId::new)) {
                    (Ok(endpoint), _) => endpoints.push(endpoint),
                    (Err(_), Some(Ok(id))) => unreadable.push(id),
                    // Nothing has ever been sent to it.
                    (Err(_), _) => {}
                }
            }
            match cards.last() {
                Some(last) if cards.len() >= PAGE as usize => after = last.name.clone(),
                _ => return Ok((endpoints, unreadable)),
            }
        }
    }

    /// Changes an endpoint. If somebody else changes it meanwhile, theirs comes first and this one after it.
    pub async fn change(
        &self,
        id: &EndpointId,
        change: impl Fn(&mut Endpoint) + Send,
    ) -> Result<Endpoint, EndpointError> {
        for _ in 0..ROUNDS_MAX {
            let (mut endpoint, revision) = self.found(id).await?.ok_or_else(|| EndpointError::Gone(id.clone()))?;
            let was = endpoint.clone();
            change(&mut endpoint);
            endpoint.id = id.clone();
            check(&endpoint)?;
            if endpoint != was {
                self.mend_later(id, MEND_AFTER).await?;
                let value = written(&endpoint);
                if self.0.write_card(&name(id), &value, Some(revision)).await?.is_none() {
                    continue;
                }
            }
            // Also where nothing was changed: whoever changed it before may have ended just here.
            self.mend_lane(id).await?;
            return Ok(endpoint);
        }
        Err(EndpointError::Busy(id.clone()))
    }

    /// Forgets an endpoint. What still waits for it ends dead, by name.
    pub async fn remove(&self, id: &EndpointId) -> Result<(), EndpointError> {
        for _ in 0..ROUNDS_MAX {
            // Also one that cannot be read.
            let card = self.0.read_card(&name(id)).await?;
            let card = card.ok_or_else(|| EndpointError::Gone(id.clone()))?;
            self.mend_later(id, MEND_AFTER).await?;
            if self.0.erase_card(&name(id), card.revision).await? == Fenced::Applied {
                // Another one of this id starts anew.
                if let Some(note) = self.0.read_card(&health::name(id)).await? {
                    let _ = self.0.erase_card(&note.name, note.revision).await?;
                }
                return self.mend_lane(id).await;
            }
        }
        Err(EndpointError::Busy(id.clone()))
    }

    /// Mends its lane, if not at once then soon.
    pub(super) async fn mend_surely(&self, id: &EndpointId) -> Result<(), EndpointError> {
        self.mend_later(id, MEND_AFTER).await?;
        self.mend_lane(id).await
    }

    /// Has a worker mend its lane after this time, whatever happens to this process.
    pub(super) async fn mend_later(&self, id: &EndpointId, after: Duration) -> Result<(), StoreError> {
        let key = format!("{id} {}", Uuid::new_v4().simple());
        let mend = Task::new(MEND_KIND, key, id.as_str().to_owned()).expect("an id is short and visible");
        self.0.enqueue(&[mend.after(after)]).await.map(drop)
    }

    /// Makes its lane what the endpoint says, and looks again whether it still says so: of two who do this at once, the last
    /// one to touch the lane has seen the other's change.
    pub(super) async fn mend_lane(&self, id: &EndpointId) -> Result<(), EndpointError> {
        let (lane, name) = (id.lane(), name(id));
        let mut card = self.0.read_card(&name).await?;
        for _ in 0..ROUNDS_MAX {
            match card.as_ref().map(|card| read(&card.value)) {
                Some(Ok(endpoint)) => {
                    self.0.cap_lane(&lane, Some(endpoint.places())).await?;
                    if endpoint.standing.is_active() {
                        self.0.resume_lane(&lane).await?;
                    } else {
                        self.0.pause_lane(&lane).await?;
                    }
                }
                // What it gets has to wait until somebody can tell where to.
                Some(Err(_)) => self.0.pause_lane(&lane).await?,
                // What still waits is to be told that there is nobody.
                None => {
                    self.0.cap_lane(&lane, None).await?;
                    self.0.resume_lane(&lane).await?;
                }
            }
            let again = self.0.read_card(&name).await?;
            let revision = |card: &Option<Card>| card.as_ref().map(|card| card.revision);
            if revision(&again) == revision(&card) {
                return Ok(());
            }
            card = again;
        }
        Err(EndpointError::Busy(id.clone()))
    }

    async fn found(&self, id: &EndpointId) -> Result<Option<(Endpoint, Revision)>, EndpointError> {
        let card = self.0.read_card(&name(id)).await?;
        card.map(|card| Ok((read(&card.value)?, card.revision))).transpose()
    }
}

impl<Q: Registry + ?Sized> Endpoints<Q> {
    /// Nothing more is sent to it until it is [resumed](Self::resume). What is under way ends.
    pub async fn pause(&self, id: &EndpointId) -> Result<Endpoint, EndpointError> {
        self.change(id, |endpoint| endpoint.standing = Standing::Paused).await
    }

    /// Sends what has waited, and what comes.
    pub async fn resume(&self, id: &EndpointId) -> Result<Endpoint, EndpointError> {
        self.change(id, |endpoint| endpoint.standing = Standing::Active).await
    }

    /// As a pause, with a reason.
    pub async fn disable(&self, id: &EndpointId, reason: &str) -> Result<Endpoint, EndpointError> {
        self.change(id, |endpoint| {
            endpoint.standing = Standing::Disabled {
                reason: reason.to_owned(),
            };
        })
        .await
    }
}

impl<Q: Registry + InspectQueue + ?Sized> Endpoints<Q> {
    /// Gives up what waits for it by now: none of it is sent, and each ends dead, with the reason. While the endpoint is
    /// paused or disabled that waits too.
    pub async fn discard(&self, id: &EndpointId) -> Result<Endpoint, EndpointError> {
        let now = self.0.now().await?.as_millis();
        self.change(id, |endpoint| {
            endpoint.discard_before_ms = endpoint.discard_before_ms.max(Some(now));
        })
        .await
    }
}

fn name(id: &EndpointId) -> String {
    format!("{PREFIX}{id}")
}

fn written(endpoint: &Endpoint) -> Bytes {
    serde_json::to_vec(endpoint)
        .expect("an endpoint is made of texts and numbers")
        .into()
}

fn read(value: &[u8]) -> Result<Endpoint, StoreError> {
    serde_json::from_slice(value)
        // Not as serde tells it, which quotes what it cannot read, and that may be a secret.
        .map_err(|error| {
            let place = format!("stored endpoint: unreadable at column {}", error.column());
            StoreError::new(StoreErrorKind::Corrupt, place)
        })
}

fn check(endpoint: &Endpoint) -> Result<(), InvalidEndpoint> {
    let mut faults = Vec::new();
    if let Err(error) = endpoint.url.parse::<Target>() {
        faults.push(format!("url: {error}"));
    }
    if !(1..=Endpoint::CONCURRENCY_MAX).contains(&endpoint.concurrency) {
        let (most, said) = (Endpoint::CONCURRENCY_MAX, endpoint.concurrency);
        faults.push(format!("concurrency is {said}: use 1 to {most}"));
    }
    if endpoint.per_second == Some(0) {
        faults.push("per_second is 0: use 1 or more, or pause the endpoint".to_owned());
    }
    if !(1..=Endpoint::SECRETS_MAX).contains(&endpoint.secrets.len()) {
        let (most, said) = (Endpoint::SECRETS_MAX, endpoint.secrets.len());
        faults.push(format!("there are {said} secrets: use 1 to {most}"));
    }
    for (n, secret) in endpoint.secrets.iter().enumerate() {
        if let Err(error) = secret.secret.parse::<Signer>() {
            faults.push(format!("secret {}: {error}", n + 1));
        }
    }
    let headers = endpoint
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    if let Err(error) = CustomHeaders::new(headers) {
        faults.push(format!("headers: {error}"));
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(InvalidEndpoint(faults.join("; ")))
    }
}

/// Why an endpoint was not changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum EndpointError {
    /// It cannot be one.
    Invalid(InvalidEndpoint),
    /// There is one of this id.
    Taken(EndpointId),
    /// There is none of this id.
    Gone(EndpointId),
    /// Others changed it each time.
    Busy(EndpointId),
    /// The queue could not answer.
    Store(StoreError),
}

impl From<InvalidEndpoint> for EndpointError {
    fn from(error: InvalidEndpoint) -> Self {
        Self::Invalid(error)
    }
}

impl From<StoreError> for EndpointError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(error) => error.fmt(f),
            Self::Taken(id) => write!(
                f,
                "add endpoint: {id} is there already; change it, or choose another id"
            ),
            Self::Gone(id) => write!(f, "find endpoint: there is no {id}"),
            Self::Busy(id) => write!(f, "change endpoint: others change {id} all the time; try again"),
            Self::Store(error) => write!(f, "change endpoint: {error}"),
        }
    }
}

impl std::error::Error for EndpointError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Invalid(error) => Some(error),
            Self::Store(error) => Some(error),
            Self::Taken(_) | Self::Gone(_) | Self::Busy(_) => None,
        }
    }
}
