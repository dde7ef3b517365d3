//! A recorder of metrics that tests can ask.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Counts by name and labels.
#[derive(Default)]
pub(crate) struct Counts(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Counts {
    pub(crate) fn of(&self, name: &str) -> u64 {
        let counts = self.0.lock().unwrap();
        counts.get(name).map_or(0, |count| count.load(Ordering::SeqCst))
    }

    fn cell(&self, key: &Key) -> Arc<AtomicU64> {
        let labels = key.labels().map(|label| format!("{}={}", label.key(), label.value()));
        let name = std::iter::once(key.name().to_owned()).chain(labels).collect::<Vec<_>>();
        Arc::clone(self.0.lock().unwrap().entry(name.join(" ")).or_default())
    }
}

impl Recorder for Counts {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    /// Counts what was recorded, whatever it was.
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Recorded(self.cell(key))))
    }
}

struct Recorded(Arc<AtomicU64>);

impl HistogramFn for Recorded {
    fn record(&self, _: f64) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
