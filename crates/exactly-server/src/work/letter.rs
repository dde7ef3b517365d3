//! What is kept of an event of others.

use std::collections::BTreeMap;

use exactly::Hex;
use exactly::queue::Lane;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Events that came in; their keys are the source and the event's id.
pub(crate) const INBOX_KIND: &str = "exactly.inbox";
/// Those whose id came before with another body; their keys end with a digest of it.
pub(crate) const QUARANTINE_KIND: &str = "exactly.inbox.quarantine";

/// What of the head belongs to the event. Nobody signs it, so it does not tell one event from another: the body does.
const KEPT: [&str; 2] = ["content-type", "x-github-event"];

/// What is kept of an event.
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

    /// The letter that was written so.
    pub(crate) fn read(written: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(written)
    }

    /// Of what was signed.
    pub(crate) fn digest(&self) -> String {
        Hex(&Sha256::digest(&self.body)).to_string()
    }
}

/// The lane of a source, so that one whose service is down holds up no other.
pub(crate) fn lane_of(source: &str) -> Lane {
    Lane::new(format!("{INBOX_KIND}.{source}")).expect("the name of a source is short and plain")
}

/// The source and the event's id.
pub(crate) fn named(key: &str) -> (&str, &str) {
    let mut words = key.split(' ');
    (words.next().unwrap_or_default(), words.next().unwrap_or_default())
}

/// The digest of the body, if it is quarantined.
pub(crate) fn digest_of(key: &str) -> Option<&str> {
    key.split(' ').nth(2)
}
