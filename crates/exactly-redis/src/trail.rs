//! The trail of what operators did.

use std::collections::HashMap;

use bytes::Bytes;
use exactly::clock::{Timestamp, millis};
use exactly::store::{Note, Noted, TrailFilter};
use exactly::{CallId, StoreError};

use crate::error::Fault;
use crate::records::Records;

/// How many entries Redis is asked for at once: enough to be quick, few enough to let others in between.
const LOOK_COUNT: u32 = 1000;

/// An entry of the stream: its id and its fields.
type Entry = (String, HashMap<String, Bytes>);

impl Records {
    pub(crate) async fn note(&self, note: &Note) -> Result<(), StoreError> {
        let mut request = self.scripts.note.key(self.trail_name());
        request.arg(note.call.map(|call| call.to_string()).unwrap_or_default());
        request.arg(&note.actor).arg(&note.action).arg(&note.detail);
        request.arg(millis(Noted::KEEP)).arg(Noted::DROPPED_MAX);
        self.connections.run("add to the trail", &request).await
    }

    /// Redis has no index of whom an entry is about, so the trail of one call is found by reading the whole, in portions.
    pub(crate) async fn trail(&self, filter: &TrailFilter) -> Result<Vec<Noted>, StoreError> {
        const WHAT: &str = "read the trail";
        let limit = usize::try_from(filter.limit.clamp(1, TrailFilter::LIMIT_MAX)).unwrap_or(1);
        let count = match filter.call {
            Some(_) => LOOK_COUNT,
            None => u32::try_from(limit).unwrap_or(LOOK_COUNT),
        };
        let mut found = Vec::new();
        let mut after = filter.after.unwrap_or(0);
        loop {
            let Some(from) = after.checked_add(1) else {
                return Ok(found);
            };
            let mut request = redis::cmd("XRANGE");
            request.arg(self.trail_name()).arg(format!("{from}-0")).arg("+");
            request.arg("COUNT").arg(count);
            let entries: Vec<Entry> = self.connections.run(WHAT, &request).await?;
            let is_last = entries.len() < usize::try_from(count).unwrap_or(usize::MAX);
            for entry in &entries {
                let noted = noted(entry).ok_or_else(|| {
                    let why = format!("fields of entry {} are missing or not ours", entry.0);
                    Fault::corrupt(WHAT, &why).error
                })?;
                after = noted.number;
                if filter.call.is_none_or(|call| noted.note.call == Some(call)) {
                    found.push(noted);
                }
                if found.len() == limit {
                    return Ok(found);
                }
            }
            if is_last {
                return Ok(found);
            }
        }
    }

    pub(crate) async fn now(&self) -> Result<Timestamp, StoreError> {
        let (seconds, micros): (u64, u64) = self
            .connections
            .run("read the server's clock", &redis::cmd("TIME"))
            .await?;
        Ok(Timestamp::from_millis(seconds * 1000 + micros / 1000))
    }

    fn trail_name(&self) -> String {
        format!("{}:trail", self.prefix())
    }
}

fn noted((id, fields): &Entry) -> Option<Noted> {
    let text = |name: &str| std::str::from_utf8(fields.get(name)?).ok();
    Some(Noted {
        number: id.split_once('-')?.0.parse().ok()?,
        at: Timestamp::from_millis(text("noted_at")?.parse().ok()?),
        note: Note {
            call: match text("call")? {
                "" => None,
                call => Some(call.parse::<CallId>().ok()?),
            },
            actor: text("actor")?.to_owned(),
            action: text("action")?.to_owned(),
            detail: text("detail")?.to_owned(),
        },
    })
}
