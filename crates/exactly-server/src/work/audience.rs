//! Whom a stored schedule is for: nobody in particular, or those whom a service names.

use std::sync::Arc;
use std::time::Duration;

use exactly::client::{Client, Outcome};
use exactly::queue::Task;
use exactly::schedule::Zone;
use exactly::scheduler::{Audience, Only, Shard, Tick};
use exactly::store::Reply;
use exactly::{StoreError, StoreErrorKind};
use http::header;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use super::definition::{Definition, SubjectsAt};
use super::errand::Wrong;
use super::once;
use crate::call::USER_AGENT;
use crate::cli::chain;

/// How long a service may take to name zones or subjects.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest list: a page of a thousand long names, with room to spare.
const LIST_BYTES_MAX: usize = 4 << 20;

/// What asks services for zones and subjects.
pub(super) fn client() -> Result<Client, exactly::client::Error> {
    Client::builder().answer_bytes_max(LIST_BYTES_MAX).build()
}

/// One job per occurrence.
#[derive(Debug)]
pub(super) struct Single {
    zone: String,
    definition: Arc<Definition>,
}

impl Single {
    pub(super) fn new(zone: &Zone, definition: Arc<Definition>) -> Self {
        let zone = zone.name().to_owned();
        Self { zone, definition }
    }
}

impl Audience for Single {
    fn zones(&self) -> Reply<'_, Vec<String>> {
        Box::pin(async { Ok(vec![self.zone.clone()]) })
    }

    fn page<'a>(&'a self, _: &'a [String], _: Shard, after: Option<&'a str>, _: u32) -> Reply<'a, Vec<String>> {
        Box::pin(async move {
            let only = after.is_none().then(|| Only::SUBJECT.to_owned());
            Ok(only.into_iter().collect())
        })
    }

    fn task(&self, tick: &Tick, _: &str) -> Result<Task, StoreError> {
        self.definition.task(tick, None).map_err(|wrong| refused(&wrong))
    }
}

/// One job per subject and occurrence.
#[derive(Debug)]
pub(super) struct AtService {
    client: Client,
    definition: Arc<Definition>,
}

#[derive(Deserialize)]
struct Zones {
    zones: Vec<String>,
}

#[derive(Deserialize)]
struct Page {
    subjects: Vec<String>,
}

impl AtService {
    pub(super) fn new(client: Client, definition: Arc<Definition>) -> Self {
        Self { client, definition }
    }

    fn at(&self) -> Result<&SubjectsAt, StoreError> {
        let missing = || refused(&Wrong::new("subjects", "there are none"));
        self.definition.subjects.as_ref().ok_or_else(missing)
    }

    async fn ask<T: DeserializeOwned>(&self, pairs: &[(&str, &str)]) -> Result<T, StoreError> {
        let at = self.at()?;
        let unread = |why: String| {
            let place = at.url.split(['?', '#']).next().unwrap_or_default();
            StoreError::new(StoreErrorKind::Unavailable, format!("ask {place} for subjects: {why}"))
        };
        let mut url: Url = at.url.parse().map_err(|error| unread(format!("{error}")))?;
        url.query_pairs_mut().extend_pairs(pairs);
        let mut question = self
            .client
            .get(url)
            .straight()
            .policy(once(PATIENCE))
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, USER_AGENT);
        for (name, value) in &at.headers {
            question = question.header(name.as_str(), value.as_str());
        }
        let answer = match question.send().await {
            Outcome::Applied(applied) => applied.into_answer(),
            other => {
                let failure = other.applied().err().map(|failure| chain(&failure));
                return Err(unread(failure.unwrap_or_default()));
            }
        };
        if !answer.status().is_success() {
            return Err(unread(format!("it answered {}", answer.status())));
        }
        if answer.is_truncated() {
            return Err(unread(format!("its answer has more than {LIST_BYTES_MAX} bytes")));
        }
        answer
            .json()
            .map_err(|error| unread(format!("its answer is not what was asked for: {error}")))
    }
}

impl Audience for AtService {
    fn zones(&self) -> Reply<'_, Vec<String>> {
        Box::pin(async {
            let zones: Zones = self.ask(&[("zones", "1")]).await?;
            Ok(zones.zones)
        })
    }

    fn shards(&self) -> u32 {
        self.definition.subjects.as_ref().and_then(|at| at.shards).unwrap_or(1)
    }

    fn page<'a>(
        &'a self,
        zones: &'a [String],
        shard: Shard,
        after: Option<&'a str>,
        limit: u32,
    ) -> Reply<'a, Vec<String>> {
        Box::pin(async move {
            let (index, of, most) = (shard.index.to_string(), shard.of.to_string(), limit.to_string());
            let mut pairs: Vec<_> = zones.iter().map(|zone| ("zone", zone.as_str())).collect();
            pairs.extend([
                ("shard", index.as_str()),
                ("shards", of.as_str()),
                ("limit", most.as_str()),
            ]);
            pairs.extend(after.map(|after| ("after", after)));
            let mut page: Page = self.ask(&pairs).await?;
            page.subjects.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
            Ok(page.subjects)
        })
    }

    fn task(&self, tick: &Tick, subject: &str) -> Result<Task, StoreError> {
        self.definition
            .task(tick, Some(subject))
            .map_err(|wrong| refused(&wrong))
    }
}

fn refused(wrong: &Wrong) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, format!("make the job of a schedule: {wrong}"))
}
