//! Plans out of stored schedules.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use exactly::client::Client;
use exactly::clock::Timestamp;
use exactly::queue::Entry;
use exactly::scheduler::{Plan, Plans};
use exactly::store::Reply;
use exactly::{StoreError, telemetry};

use super::audience::{AtService, Single};
use super::definition::Definition;
use super::errand::Wrong;
use crate::store::Ledger;

/// The schedules that operators have written, read anew each time.
#[derive(Debug)]
pub(super) struct StoredPlans {
    queue: Arc<dyn Ledger>,
    client: Client,
    /// Which bad definitions were told of, by when they were written.
    told: Mutex<HashMap<Box<str>, Timestamp>>,
}

impl StoredPlans {
    pub(super) fn new(queue: Arc<dyn Ledger>, client: Client) -> Self {
        Self {
            queue,
            client,
            told: Mutex::default(),
        }
    }

    async fn read(&self) -> Result<Vec<Plan>, StoreError> {
        let entries = self.queue.schedules().await?;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|name, _| entries.iter().any(|entry| entry.name == *name));
        let plans = entries.iter().filter(|entry| is_ours(entry)).filter_map(|entry| match self.plan_of(entry) {
            Ok(plan) => {
                telemetry::expect_schedule(plan.name());
                Some(plan)
            }
            Err(wrong) => {
                // Once for each time that it was written, not for each time that it is read.
                if told.insert(entry.name.clone(), entry.changed_at) != Some(entry.changed_at) {
                    tracing::error!(schedule = %entry.name, %wrong, "a schedule cannot be read, so it does not fire");
                }
                None
            }
        });
        Ok(plans.collect())
    }

    fn plan_of(&self, entry: &Entry) -> Result<Plan, Wrong> {
        let definition = Arc::new(Definition::of_bytes(&entry.definition)?);
        let read = definition.read(&entry.name)?;
        let plan = match &read.zone {
            Some(zone) => Plan::new(&entry.name, read.pattern, Single::new(zone, definition)),
            None => Plan::new(
                &entry.name,
                read.pattern,
                AtService::new(self.client.clone(), definition),
            ),
        };
        let plan = plan.map_err(|error| Wrong::new("name", error))?;
        plan.catching_up(read.catch_up)
            .map_err(|error| Wrong::new("catch_up_s", error))
    }
}

/// Whether it was written by operators. A program with a scheduler of its own writes no JSON, and knows its plans itself.
pub(crate) fn is_ours(entry: &Entry) -> bool {
    entry.definition.starts_with(b"{")
}

impl Plans for StoredPlans {
    fn plans(&self) -> Reply<'_, Vec<Plan>> {
        Box::pin(self.read())
    }

    fn plan<'a>(&'a self, name: &'a str) -> Reply<'a, Option<Plan>> {
        Box::pin(async move {
            let Some(entry) = self.queue.read_schedule(name).await?.filter(is_ours) else {
                return Ok(None);
            };
            // One that cannot be read here may be a newer server's, which can. Whoever makes the ticks has told of it.
            Ok(self.plan_of(&entry).ok())
        })
    }
}
