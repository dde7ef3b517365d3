//! Events of others, on their way to the service that they are for.

use std::collections::BTreeMap;
use std::sync::Arc;

use exactly::Hex;
use exactly::queue::{End, Failure, FailureKind, Lane, Leased, TaskState};
use exactly::worker::{Handler, Ran, Run};
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::errand::Errand;
use super::run::Runner;
use crate::config::Inbox;
use crate::store::Ledger;

/// Events that came in; their keys are the source and the event's id.
pub(crate) const INBOX_KIND: &str = "exactly.inbox";
/// Those whose id came before with another body; their keys end with a digest of it.
pub(crate) const QUARANTINE_KIND: &str = "exactly.inbox.quarantine";

/// What of the head belongs to the event. Nothing that differs when it is sent again, as a time and a signature do.
const KEPT: [&str; 2] = ["content-type", "x-github-event"];

/// What is kept of an event: the same whenever it is sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Letter {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Letter {
    pub(crate) fn new(headers: &HeaderMap, body: &str) -> Self {
        let kept = KEPT.iter().filter_map(|name| {
            let value = headers.get(*name)?.to_str().ok()?;
            Some(((*name).to_owned(), value.to_owned()))
        });
        Self {
            headers: kept.collect(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn written(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts are always JSON")
    }

    pub(crate) fn digest(&self) -> String {
        Hex(&Sha256::digest(self.written())).to_string()
    }
}

/// The lane of a source, so that one whose service is down holds up no other.
pub(crate) fn lane_of(source: &str) -> Lane {
    Lane::new(format!("{INBOX_KIND}.{source}")).expect("the name of a source is short and plain")
}

/// The source, the event's id, and the digest if it is quarantined.
pub(crate) fn named(key: &str) -> (&str, &str) {
    let mut words = key.split(' ');
    (words.next().unwrap_or_default(), words.next().unwrap_or_default())
}

/// Posts events to their services, as jobs are run.
#[derive(Clone, Debug)]
pub(super) struct Forwarder {
    pub(super) runner: Runner,
    pub(super) queue: Arc<dyn Ledger>,
    pub(super) inbox: Arc<Inbox>,
}

impl Handler for Forwarder {
    fn run<'a>(&'a self, task: &'a Leased) -> Run<'a> {
        Box::pin(async move { Ran::End(self.end(task).await) })
    }
}

impl Forwarder {
    async fn end(&self, task: &Leased) -> End {
        if *task.kind == *QUARANTINE_KIND && !self.was_held(task).await {
            let why = "the id of this event came before with another body; look at both, and requeue this one if its \
                       service is to have it too";
            return End::Hold(Failure::new(FailureKind::Inconsistent, why));
        }
        let letter: Letter = match serde_json::from_slice(&task.payload) {
            Ok(letter) => letter,
            Err(error) => return End::Bury(Failure::new(FailureKind::Unreadable, error.to_string())),
        };
        let (source, id) = named(&task.key);
        let Some(configured) = self.inbox.sources.get(source) else {
            // Another server may know it, and this one may be told of it.
            let why = format!("[inbox.{source}] is not in the settings of this server");
            return self
                .runner
                .again(task, FailureKind::UnknownKind, std::time::Duration::ZERO, why);
        };
        let mut headers = letter.headers;
        headers.insert("webhook-id".to_owned(), id.to_owned());
        let errand = Errand {
            url: configured.forward.clone(),
            method: None,
            headers,
            body: None,
            body_text: Some(letter.body),
            timeout_ms: None,
            repeatable: true,
            kind: None,
            lane: None,
            version: None,
        };
        self.runner.carry_out(task, &errand).await
    }

    /// Whether somebody has looked at it and let it go.
    async fn was_held(&self, task: &Leased) -> bool {
        let attempts = self.queue.attempts(task.lease.id).await;
        attempts.is_ok_and(|attempts| attempts.iter().any(|attempt| attempt.then == TaskState::Held))
    }
}
