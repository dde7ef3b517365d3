//! Who handles what, and how it is counted.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use metrics::{Counter, Histogram, counter, histogram};

use super::Handler;
use crate::queue::{End, FailureKind};
use crate::telemetry;

/// What tasks of a kind that has no handler here are counted under, so that nobody who can enqueue can make up labels.
pub(super) const UNKNOWN: &str = "unknown";

/// The same where a handler does all other kinds.
pub(super) const OTHER: &str = "other";

/// A handler with its counters, which are looked up once and not for each task.
pub(super) struct Kind {
    pub(super) handler: Box<dyn Handler>,
    meters: Meters,
}

#[derive(Debug)]
pub(super) struct Kinds {
    known: HashMap<Box<str>, Arc<Kind>, RandomState>,
    otherwise: Option<Arc<Kind>>,
    unknown: Meters,
}

struct Meters {
    ends: [Counter; telemetry::JOB_ENDS.len()],
    took: Histogram,
}

impl Kinds {
    pub(super) fn new(handlers: Vec<(Box<str>, Box<dyn Handler>)>, otherwise: Option<Box<dyn Handler>>) -> Self {
        let known = handlers.into_iter().map(|(name, handler)| {
            let meters = Meters::new(&name);
            (name, Arc::new(Kind { handler, meters }))
        });
        Self {
            known: known.collect(),
            otherwise: otherwise.map(|handler| {
                let meters = Meters::new(OTHER);
                Arc::new(Kind { handler, meters })
            }),
            unknown: Meters::new(UNKNOWN),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<Kind>> {
        self.known.get(name).or(self.otherwise.as_ref())
    }

    /// The kind as it is shown in labels.
    pub(super) fn label<'a>(&self, name: &'a str) -> &'a str {
        match &self.otherwise {
            _ if self.known.contains_key(name) => name,
            Some(_) => OTHER,
            None => UNKNOWN,
        }
    }

    fn meters(&self, name: &str) -> &Meters {
        self.get(name).map_or(&self.unknown, |kind| &kind.meters)
    }

    /// Counts an attempt that has ended so.
    pub(super) fn count(&self, name: &str, end: &End) {
        let position = match end {
            End::Done(_) => 0,
            End::Retry { .. } => 1,
            End::Bury(_) => 2,
            End::Hold(_) => 3,
            End::Release => 4,
            End::Defer { .. } => 5,
        };
        self.meters(name).ends[position].increment(1);
    }

    pub(super) fn took(&self, name: &str, took: Duration) {
        self.meters(name).took.record(took.as_secs_f64());
    }
}

impl Meters {
    fn new(kind: &str) -> Self {
        let end = |end| {
            let counter = counter!(telemetry::JOBS, "kind" => kind.to_owned(), "end" => end);
            counter.increment(0);
            counter
        };
        for reason in FailureKind::ALL {
            counter!(telemetry::JOBS_BURIED, "kind" => kind.to_owned(), "reason" => reason.as_str()).increment(0);
        }
        Self {
            ends: telemetry::JOB_ENDS.map(end),
            took: histogram!(telemetry::JOB_DURATION, "kind" => kind.to_owned()),
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kind(…)")
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meters(…)")
    }
}
