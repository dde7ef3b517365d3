//! Records as people see them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use exactly::clock::Timestamp;
use exactly::store::record::{self, Record, State};
use exactly::store::{CallView, Filter, Page};
use exactly::{Attempt, CallId, Claim, Fingerprint, Key, OnLost, Scope, StoreError, Token};
use redis::{FromRedisValue, Pipeline, Value};

use crate::error::Fault;
use crate::records::Records;

/// How many keys Redis looks at per `SCAN`: enough to be quick, few enough to let others in between.
const SCAN_COUNT: u32 = 1000;

const FIELDS: [&str; 11] = [
    "fingerprint",
    "token",
    "attempt",
    "lease",
    "lease_until",
    "on_lost",
    "expires_at",
    "created_at",
    "operation",
    "key",
    "principal",
];

/// What Redis keeps of a record, without the outcome.
struct Row {
    id: CallId,
    fields: HashMap<&'static str, Bytes>,
    outcome_len: u64,
}

impl Records {
    pub(crate) async fn get(&self, id: &CallId) -> Result<Option<CallView>, StoreError> {
        const WHAT: &str = "get record";
        let answers = self.connections.run(WHAT, &self.questions(&[*id])).await?;
        Ok(views(WHAT, &[*id], answers)?.pop())
    }

    /// One pass over the whole key space, in which the page's records are kept and nothing else is.
    ///
    /// It stays on one connection: after a restart of the server a cursor means nothing, and going on with it could miss
    /// records.
    pub(crate) async fn list(&self, filter: &Filter) -> Result<Page, StoreError> {
        const WHAT: &str = "list records";
        let limit = usize::try_from(filter.limit.clamp(1, Filter::LIMIT_MAX)).unwrap_or(1);
        let mut used = None;
        let (mut cursor, mut names): (u64, Vec<String>) =
            self.connections.run_and_tell(WHAT, &self.scan(0), &mut used).await?;
        let connection = used.ok_or_else(|| Fault::corrupt(WHAT, "an answer without a connection").error)?;
        // One more than asked for, to know whether another page follows.
        let mut found: BTreeMap<CallId, CallView> = BTreeMap::new();
        loop {
            let last = if found.len() > limit {
                found.keys().next_back().copied()
            } else {
                None
            };
            let mut ids: Vec<CallId> = names
                .iter()
                .filter_map(|name| self.id(name))
                .filter(|id| filter.after.is_none_or(|after| *id > after) && last.is_none_or(|last| *id < last))
                .collect();
            // A scan may show a key more than once.
            ids.sort_unstable();
            ids.dedup();
            let answers = self.connections.send(&connection, WHAT, &self.questions(&ids)).await?;
            for view in views(WHAT, &ids, answers)? {
                if filter.matches(&view) {
                    found.insert(view.claim.id, view);
                }
            }
            while found.len() > limit + 1 {
                found.pop_last();
            }
            if cursor == 0 {
                break;
            }
            (cursor, names) = self.connections.send(&connection, WHAT, &self.scan(cursor)).await?;
        }
        let more = found.len() > limit;
        let calls: Vec<_> = found.into_values().take(limit).collect();
        let next = if more {
            calls.last().map(|view| view.claim.id)
        } else {
            None
        };
        Ok(Page { calls, next })
    }

    fn scan(&self, cursor: u64) -> redis::Cmd {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor)
            .arg("MATCH")
            .arg(format!("{}:*", self.prefix()))
            .arg("COUNT")
            .arg(SCAN_COUNT);
        scan.arg("TYPE").arg("hash");
        scan
    }

    fn id(&self, name: &str) -> Option<CallId> {
        name.strip_prefix(self.prefix())?.strip_prefix(':')?.parse().ok()
    }

    /// Outcomes stay where they are; only their size is asked for.
    fn questions(&self, ids: &[CallId]) -> Pipeline {
        let mut questions = redis::pipe();
        questions.cmd("TIME");
        for id in ids {
            let name = self.name(id);
            questions.cmd("HMGET").arg(&name).arg(&FIELDS);
            questions.cmd("HSTRLEN").arg(&name).arg("outcome");
        }
        questions
    }
}

/// Those of the records that exist.
fn views(what: &str, ids: &[CallId], answers: Vec<Value>) -> Result<Vec<CallView>, StoreError> {
    let unreadable = |why: &str| Fault::corrupt(what, why).error;
    let mut answers = answers.into_iter();
    let (seconds, micros): (u64, u64) = next(&mut answers).ok_or_else(|| unreadable("not a time"))?;
    let now = Timestamp::from_millis(seconds * 1000 + micros / 1000);
    let mut views = Vec::with_capacity(ids.len());
    for id in ids {
        let fields: Vec<Option<Bytes>> = next(&mut answers).ok_or_else(|| unreadable("not a record"))?;
        let outcome_len = next(&mut answers).ok_or_else(|| unreadable("not the size of an outcome"))?;
        let named = FIELDS
            .into_iter()
            .zip(fields)
            .filter_map(|(name, value)| Some((name, value?)));
        let row = Row {
            id: *id,
            fields: named.collect(),
            outcome_len,
        };
        if !row.fields.is_empty() {
            let view = row.view(now);
            views.push(view.ok_or_else(|| unreadable(&format!("fields of {id} are missing or not ours")))?);
        }
    }
    Ok(views)
}

impl Row {
    fn view(&self, now: Timestamp) -> Option<CallView> {
        let record = Record {
            fingerprint: Fingerprint::from_bytes(self.bytes("fingerprint")?),
            attempt: Attempt::new(u32::try_from(self.number("attempt")?).ok()?)?,
            token: Token::from_bytes(self.bytes("token")?),
            state: self.state()?,
        };
        let (until, outcome_len) = match record.state {
            State::InFlight { lease_until, .. } => (Some(lease_until), None),
            State::Done { expires_at, .. } => (expires_at, Some(self.outcome_len)),
        };
        let operation = self.text("operation")?;
        Some(CallView {
            scope: match self.fields.get("principal") {
                Some(_) => Scope::new(self.text("principal")?, operation),
                None => Scope::global(operation),
            },
            key: Key::new(self.text("key")?).ok()?,
            fingerprint: record.fingerprint,
            phase: record::phase(&record, now),
            claim: Claim {
                id: self.id,
                token: record.token,
                attempt: record.attempt,
            },
            created_at: Timestamp::from_millis(self.number("created_at")?),
            until,
            outcome_len,
        })
    }

    fn state(&self) -> Option<State> {
        match self.text("expires_at") {
            Some("never") => Some(State::Done {
                outcome: Bytes::new(),
                expires_at: None,
            }),
            Some(_) => Some(State::Done {
                // How a record looks does not depend on what is in its outcome.
                outcome: Bytes::new(),
                expires_at: Some(Timestamp::from_millis(self.number("expires_at")?)),
            }),
            None => Some(State::InFlight {
                lease: Duration::from_millis(self.number("lease")?),
                lease_until: Timestamp::from_millis(self.number("lease_until")?),
                on_lost: match self.text("on_lost")? {
                    "rerun" => OnLost::Rerun,
                    "doubt" => OnLost::Doubt,
                    _ => return None,
                },
            }),
        }
    }

    fn text(&self, field: &str) -> Option<&str> {
        std::str::from_utf8(self.fields.get(field)?).ok()
    }

    fn number(&self, field: &str) -> Option<u64> {
        self.text(field)?.parse().ok()
    }

    fn bytes<const N: usize>(&self, field: &str) -> Option<[u8; N]> {
        self.fields.get(field)?.as_ref().try_into().ok()
    }
}

fn next<T: FromRedisValue>(answers: &mut impl Iterator<Item = Value>) -> Option<T> {
    redis::from_redis_value(answers.next()?).ok()
}
