//! What operators do about endpoints, wherever they ask from.

use std::time::Duration;

use exactly::clock::{Clock as _, WallClock, millis};
use exactly::webhook::delivery::{CustomHeaders, Target};
use exactly::webhook::{
    Endpoint, EndpointError, EndpointId, EndpointSecret, Event, EventId, EventType, Standing, TypeFilter,
};
use serde_json::json;
use tokio::time::timeout;

use super::ask::{
    Chosen, Concurrency, EndpointChange, EndpointsQuery, NewEndpoint, OverlapMs, PerSecond, Rotate, TestEvent,
};
use super::wire::{EndpointMade, EndpointPage, EndpointShown, HealthShown, Tested};
use crate::admin::desk::audit::Deed;
use crate::admin::desk::{LIMIT_DEFAULT, STORE_PATIENCE};
use crate::admin::events::desk::EventDesk;
use crate::admin::input::{Actor, Limit};
use crate::admin::problem::{Answer, Problem};
use crate::admin::schedules::ask::Because;
use crate::admin::schedules::wire::Erased;

/// For how long an old secret signs beside the new one, unless told otherwise.
const OVERLAP_DEFAULT: Duration = Duration::from_hours(24);

/// What a test event is of, unless told otherwise.
const TEST_TYPE: &str = "exactly.test";

/// No list of types has to be longer: `invoice.*` stands for many.
const TYPES_MAX: usize = 100;

/// What is done to an endpoint by one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Pause,
    Resume,
    Disable,
    Discard,
}

impl Action {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Disable => "disable",
            Self::Discard => "discard",
        }
    }
}

impl EventDesk {
    pub(crate) async fn list_endpoints(&self, query: &EndpointsQuery) -> Answer<EndpointPage> {
        let all = kept("list endpoints", self.endpoints().list()).await?;
        let after = query.after.as_ref().map_or("", AsRef::as_ref);
        let limit = usize::try_from(query.limit.map_or(LIMIT_DEFAULT, Limit::get)).unwrap_or(usize::MAX);
        let mut rest = all.iter().filter(|endpoint| endpoint.id.as_str() > after);
        let endpoints: Vec<EndpointShown> = rest.by_ref().take(limit).map(Into::into).collect();
        let next = rest.next().and(endpoints.last()).map(|last| last.id.clone());
        Ok(EndpointPage { endpoints, next })
    }

    pub(crate) async fn show_endpoint(&self, id: &EndpointId) -> Answer<EndpointShown> {
        Ok((&self.endpoint(id).await?).into())
    }

    pub(crate) async fn endpoint_health(&self, id: &EndpointId) -> Answer<HealthShown> {
        self.endpoint(id).await?;
        let health = kept("read how the endpoint is doing", self.endpoints().health(id)).await?;
        Ok((&health).into())
    }

    async fn endpoint(&self, id: &EndpointId) -> Answer<Endpoint> {
        let endpoint = kept("read the endpoint", self.endpoints().get(id)).await?;
        endpoint.ok_or_else(|| Problem::no_such_endpoint(id.as_str()))
    }

    pub(crate) async fn create_endpoint(&self, asked: NewEndpoint, actor: &Actor) -> Answer<EndpointMade> {
        let id = match asked.id {
            Some(id) => EndpointId::new(id).map_err(|why| Problem::invalid("id", why))?,
            None => EndpointId::random(),
        };
        let target = self.target(&asked.url)?;
        let chosen = Chosen::new(asked.secret, asked.scheme)?;
        let mut endpoint = Endpoint::new(id, asked.url, chosen.secret.0.as_str());
        endpoint.types = types(&asked.types)?;
        check_headers(&asked.headers)?;
        endpoint.headers = asked.headers;
        endpoint.concurrency = asked.concurrency.map_or(endpoint.concurrency, Concurrency::get);
        endpoint.per_second = asked.per_second.map(PerSecond::get);
        if asked.paused {
            endpoint.standing = Standing::Paused;
        }
        // Without the path, which is the password of many.
        let detail = format!("create endpoint {} at {}", endpoint.id, target.origin());
        let deed = Deed::new(actor, "endpoint", None, detail);
        let act = async {
            kept("add the endpoint", self.endpoints().add(&endpoint)).await?;
            Ok(made(&endpoint, chosen))
        };
        self.desk().audited(deed, act, |_| "created".to_owned()).await
    }

    pub(crate) async fn change_endpoint(
        &self,
        id: &EndpointId,
        asked: EndpointChange,
        actor: &Actor,
    ) -> Answer<EndpointShown> {
        let target = asked.url.as_deref().map(|url| self.target(url)).transpose()?;
        let types = asked.types.as_deref().map(types).transpose()?;
        asked.headers.as_ref().map(check_headers).transpose()?;
        let words = changes(&asked, target.as_ref());
        if words.is_empty() {
            let why = "nothing is to be changed; give url, types, headers, concurrency, per_second or discard_before";
            return Err(Problem::invalid("url", why));
        }
        let detail = format!("change endpoint {id}: {}", words.join(", "));
        let deed = Deed::new(actor, "endpoint", None, detail).because(asked.reason.as_ref());
        let change = |endpoint: &mut Endpoint| {
            if let Some(url) = &asked.url {
                endpoint.url.clone_from(url);
            }
            if let Some(types) = &types {
                endpoint.types.clone_from(types);
            }
            if let Some(headers) = &asked.headers {
                endpoint.headers.clone_from(headers);
            }
            if let Some(concurrency) = asked.concurrency {
                endpoint.concurrency = concurrency.get();
            }
            if let Some(per_second) = asked.per_second {
                endpoint.per_second = per_second.map(PerSecond::get);
            }
            if let Some(before) = asked.discard_before {
                endpoint.discard_before_ms = before.map(|before| before.0.as_millis());
            }
        };
        let act = async {
            let changed = kept("change the endpoint", self.endpoints().change(id, change)).await?;
            Ok((&changed).into())
        };
        self.desk().audited(deed, act, |_| "changed".to_owned()).await
    }

    pub(crate) async fn act_on_endpoint(
        &self,
        id: &EndpointId,
        action: Action,
        because: &Because,
        actor: &Actor,
    ) -> Answer<EndpointShown> {
        let detail = format!("{} endpoint {id}", action.word());
        let deed = Deed::new(actor, "endpoint", None, detail).because(because.reason.as_ref());
        let endpoints = self.endpoints();
        let reason = because.reason.as_ref().map_or("an operator disabled it", AsRef::as_ref);
        let act = async {
            let changed = match action {
                Action::Pause => kept("pause the endpoint", endpoints.pause(id)).await?,
                Action::Resume => kept("resume the endpoint", endpoints.resume(id)).await?,
                Action::Disable => kept("disable the endpoint", endpoints.disable(id, reason)).await?,
                Action::Discard => kept("discard what waits", endpoints.discard(id)).await?,
            };
            Ok((&changed).into())
        };
        self.desk().audited(deed, act, |_| "done".to_owned()).await
    }

    pub(crate) async fn delete_endpoint(&self, id: &EndpointId, because: &Because, actor: &Actor) -> Answer<Erased> {
        let detail = format!("delete endpoint {id}");
        let deed = Deed::new(actor, "endpoint", None, detail).because(because.reason.as_ref());
        let act = async {
            kept("delete the endpoint", self.endpoints().remove(id)).await?;
            Ok(Erased { name: id.to_string() })
        };
        self.desk().audited(deed, act, |_| "deleted".to_owned()).await
    }

    pub(crate) async fn rotate_endpoint(&self, id: &EndpointId, asked: Rotate, actor: &Actor) -> Answer<EndpointMade> {
        let chosen = Chosen::new(asked.secret, asked.scheme)?;
        let overlap = asked.overlap_ms.map_or(OVERLAP_DEFAULT, OverlapMs::duration);
        let detail = format!(
            "rotate the secret of endpoint {id}; the old one signs for {} s",
            overlap.as_secs()
        );
        let deed = Deed::new(actor, "endpoint", None, detail).because(asked.reason.as_ref());
        let now = WallClock.now().as_millis();
        let rotate = |endpoint: &mut Endpoint| rotate(endpoint, &chosen.secret.0, now, overlap);
        let act = async {
            let mut after = self.endpoint(id).await?;
            rotate(&mut after);
            if after.secrets.len() > Endpoint::SECRETS_MAX {
                let most = Endpoint::SECRETS_MAX;
                let why =
                    format!("{most} secrets sign at once already; make it shorter, or wait until one has run out");
                return Err(Problem::invalid("overlap_ms", why));
            }
            let changed = kept("change the endpoint", self.endpoints().change(id, rotate)).await?;
            Ok(changed)
        };
        let changed = self.desk().audited(deed, act, |_| "rotated".to_owned()).await?;
        Ok(made(&changed, chosen))
    }

    pub(crate) async fn test_endpoint(&self, id: &EndpointId, asked: TestEvent, actor: &Actor) -> Answer<Tested> {
        let event_type = EventType::new(asked.event_type.unwrap_or_else(|| TEST_TYPE.to_owned()));
        let event_type = event_type.map_err(|why| Problem::invalid("type", why))?;
        let event_id = EventId::random();
        let event = match &asked.data {
            Some(data) => Event::with_id(event_id, event_type, data),
            None => Event::with_id(event_id, event_type, &json!({"test": true})),
        };
        let event = event.map_err(|why| Problem::invalid("data", why))?;
        let deed = Deed::new(actor, "endpoint", None, format!("test endpoint {id}"));
        let act = async {
            if !self.endpoint(id).await?.standing.is_active() {
                let why = "the endpoint is paused or disabled, so a test would wait: resume it first";
                return Err(Problem::endpoint_closed(why));
            }
            let sending = self.endpoints();
            let delivery = kept("send the test", sending.try_out(id, self.source(), &event)).await?;
            Ok(Tested {
                event: event.id().to_string(),
                endpoint: id.to_string(),
                delivery: delivery.to_string(),
            })
        };
        let told = |tested: &Tested| format!("delivery {}", tested.delivery);
        self.desk().audited(deed, act, told).await
    }

    /// Refuses an address that could never be dialled, while somebody is there to be told.
    fn target(&self, url: &str) -> Answer<Target> {
        let target: Target = url.parse().map_err(|why| Problem::invalid("url", why))?;
        if let Some(destinations) = self.destinations() {
            let checked = destinations.check_target(&target);
            checked
                .map_err(|why| Problem::invalid("url", format!("{why} ([events] allow, in the server's settings)")))?;
        }
        Ok(target)
    }
}

fn made(endpoint: &Endpoint, chosen: Chosen) -> EndpointMade {
    EndpointMade {
        endpoint: endpoint.into(),
        secret: chosen.is_made.then_some(chosen.secret.0),
    }
}

/// The new secret first; the others as long as they overlap, and no longer than they had.
fn rotate(endpoint: &mut Endpoint, secret: &str, now_ms: u64, overlap: Duration) {
    let until = now_ms.saturating_add(millis(overlap));
    endpoint.secrets.retain_mut(|old| {
        let ends = old.until_ms.map_or(until, |ends| ends.min(until));
        old.until_ms = Some(ends);
        old.secret != secret && ends > now_ms
    });
    let newest = EndpointSecret {
        secret: secret.to_owned(),
        until_ms: None,
    };
    endpoint.secrets.insert(0, newest);
}

fn types(given: &[String]) -> Answer<Vec<TypeFilter>> {
    if given.len() > TYPES_MAX {
        let why = format!("has {} of them, and {TYPES_MAX} are the most", given.len());
        return Err(Problem::invalid("types", why));
    }
    let numbered = given.iter().enumerate();
    let read = numbered.map(|(n, text)| text.parse().map_err(|why| Problem::invalid(format!("types[{n}]"), why)));
    read.collect()
}

fn check_headers(headers: &std::collections::BTreeMap<String, String>) -> Answer<()> {
    let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let read = CustomHeaders::new(pairs);
    read.map(drop).map_err(|why| Problem::invalid("headers", why))
}

/// What is changed, without anything that opens a door.
fn changes(asked: &EndpointChange, target: Option<&Target>) -> Vec<String> {
    let mut words = Vec::new();
    words.extend(target.map(|target| format!("url at {}", target.origin())));
    words.extend(asked.types.as_ref().map(|types| format!("types {types:?}")));
    words.extend(asked.headers.as_ref().map(|headers| {
        let names: Vec<_> = headers.keys().map(String::as_str).collect();
        format!("headers {names:?}")
    }));
    words.extend(asked.concurrency.map(|most| format!("concurrency {}", most.get())));
    words.extend(asked.per_second.map(|most| match most {
        Some(most) => format!("{} per second", most.get()),
        None => "no limit per second".to_owned(),
    }));
    words.extend(asked.discard_before.map(|before| match before {
        Some(before) => format!("discard what was made before {}", String::from(before)),
        None => "discard nothing".to_owned(),
    }));
    words
}

/// One bounded change of what is kept.
pub(crate) async fn kept<T>(what: &str, change: impl Future<Output = Result<T, EndpointError>>) -> Answer<T> {
    match timeout(STORE_PATIENCE, change).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(refused(error)),
        Err(_) => Err(Problem::no_answer(what, STORE_PATIENCE)),
    }
}

fn refused(error: EndpointError) -> Problem {
    match error {
        EndpointError::Invalid(why) => Problem::invalid("endpoint", why),
        EndpointError::Gone(id) => Problem::no_such_endpoint(id.as_str()),
        EndpointError::Store(error) => error.into(),
        EndpointError::Taken(_) => Problem::endpoint_taken(error),
        other => Problem::contended(other),
    }
}
