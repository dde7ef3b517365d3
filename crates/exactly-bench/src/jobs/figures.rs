//! What our queue has to come to against the others.

use super::standing::{Entry, Standing, fastest};
use super::{BURN, EFFECT, ENQUEUE, handwritten, inserts, ours};
use crate::report::{Finding, Wanted};

/// One comparison.
struct Figure {
    scenario: &'static str,
    what: &'static str,
    against: fn(&str) -> bool,
    at_least: f64,
}

const FIGURES: &[Figure] = &[
    Figure {
        scenario: BURN,
        what: "jobs that do nothing, against graphile-worker on Node with batching on",
        against: |name| name.starts_with("graphile-worker"),
        at_least: 1.0,
    },
    Figure {
        scenario: BURN,
        what: "jobs that do nothing, against the fastest peer in Rust",
        against: |name| !name.starts_with("graphile-worker") && !ours::is_ours(name),
        at_least: 1.5,
    },
    Figure {
        scenario: ENQUEUE,
        what: "keyed jobs taken in, against plain inserts of the same rows",
        against: |name| name == inserts::NAME,
        at_least: 0.6,
    },
    Figure {
        scenario: EFFECT,
        what: "jobs with an effect of one row, against claim, effect and completion by hand",
        against: |name| name == handwritten::NAME,
        at_least: 1.5,
    },
];

/// Every comparison whose sides were both measured.
pub(super) fn findings(standings: &[Standing]) -> Vec<Finding> {
    FIGURES
        .iter()
        .filter_map(|figure| {
            let standing = standings.iter().find(|it| it.scenario == figure.scenario)?;
            let measured = |of: fn(&str) -> bool| {
                let entries = standing.entries.iter().filter(move |entry| of(entry.name));
                entries
                    .filter_map(Entry::course)
                    .filter(|course| !course.turns.is_empty())
            };
            let mut courses: Vec<_> = measured(figure.against).cloned().collect();
            if courses.is_empty() {
                return None;
            }
            courses.push(fastest(measured(ours::is_ours))?.clone());
            let wanted = Wanted::AtLeast(figure.at_least);
            let finding = Finding::throughput(figure.scenario, figure.what, wanted, courses);
            // Its courses are in the table above, and have no latencies to tell of.
            Some(Finding {
                notes: Vec::new(),
                ..finding
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::standing::Outcome;
    use crate::versus::{Course, Turn};

    fn entry(name: &'static str, per_second: f64) -> Entry {
        let turn = Turn {
            per_second,
            cpu_us: 1.0,
            database_cpu_us: 0.5,
            client_cpu_us: 0.0,
            p50_ms: f64::NAN,
            p99_ms: f64::NAN,
            foreign: 0.0,
        };
        let course = Course {
            name: name.to_owned(),
            turns: vec![turn],
        };
        Entry {
            name,
            jobs: 10,
            outcome: Outcome::Measured(course),
        }
    }

    fn burn(entries: Vec<Entry>) -> Vec<Finding> {
        findings(&[Standing {
            scenario: BURN,
            what: String::new(),
            entries,
        }])
    }

    #[test]
    fn our_fastest_is_held_against_the_fastest_of_each_kind() {
        let found = burn(vec![
            entry(ours::NAME, 15.0),
            entry("exactly x2", 30.0),
            entry("graphile-worker", 10.0),
            entry("graphile-worker x2", 20.0),
            entry("apalis", 5.0),
            entry("graphile_worker", 40.0),
        ]);
        let shown: Vec<_> = found
            .iter()
            .map(|it| (it.against.as_str(), it.ratio.median, it.is_met()))
            .collect();
        assert_eq!(
            shown,
            [("graphile-worker x2", 1.5, true), ("graphile_worker", 0.75, false)]
        );
    }

    #[test]
    fn what_was_not_measured_is_no_figure() {
        let mut gone = entry("graphile-worker", 1.0);
        gone.outcome = Outcome::NotMeasured("no node".to_owned());
        assert!(burn(vec![entry(ours::NAME, 30.0), gone]).is_empty());
    }
}
