//! Leases of many tasks that are one row.

mod unbundling;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use exactly::queue::{Lane, Lease};
use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::spot::Spot;

/// How many tasks may be in bundles of all processes for each one that is asked for, and at all: whoever leases passes over those
/// in its lanes.
const PASSED_OVER_MAX: i64 = 8;
const TASKS_MAX: i64 = 16_384;

/// How often it is looked whether transactions have committed that settled what was in bundles.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The bundles of this process. What it does not know of, such as those of another process whose tasks are settled here, is
/// found in the table.
#[derive(Debug)]
pub(super) struct Bundles {
    /// How many tasks a lease is for, at least, that becomes one.
    from: u32,
    // A std mutex, since it is never held across an await.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bundles: HashMap<i64, Bundle, RandomState>,
    /// In which bundle a lease is. Looked for several times for each task, so not by std's hash, which costs more than the rest of it.
    places: HashMap<Lease, Place, RandomState>,
    /// How many tasks are in bundles of all processes, as far as is known.
    tasks: i64,
    looked_at: Option<Instant>,
}

/// A lease that has become a bundle, and is committed.
#[derive(Debug)]
pub(super) struct Bundled {
    pub(super) number: i64,
    pub(super) leases: Vec<InBundle>,
    /// When it ends; never, if that is too far away to be told.
    pub(super) until: Option<Instant>,
}

/// A lease in one.
#[derive(Debug)]
pub(super) struct InBundle {
    pub(super) lease: Lease,
    /// Its lane, if that has a cap.
    pub(super) lane: Option<Lane>,
    pub(super) spot: Spot,
}

#[derive(Debug)]
struct Place {
    number: i64,
    lane: Option<Lane>,
    spot: Spot,
}

#[derive(Debug)]
struct Bundle {
    until: Option<Instant>,
    /// How many of its leases have not ended.
    left: usize,
    /// Whether all those that have ended are known to be committed.
    sure: bool,
    /// How many have not ended of each lane; nothing if its lanes have no caps.
    by_lane: HashMap<Lane, i64, RandomState>,
}

/// What this process knows of bundles that lanes with caps are in, a row for each bundle and lane.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) numbers: Vec<i64>,
    pub(super) lanes: Vec<Lane>,
    /// How many leases have not ended, or it is not known yet that they have.
    pub(super) leases: Vec<i64>,
}

/// Bundles of which nothing is left.
#[derive(Debug, Default)]
struct Empty {
    surely: Vec<i64>,
    maybe: Vec<i64>,
}

impl Bundles {
    pub(super) fn new(from: u32) -> Self {
        Self {
            from,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many tasks have to be found, at least, for a lease of so many to become one.
    pub(super) fn from(&self, most: i64) -> i64 {
        let tasks_max = TASKS_MAX.min(most.saturating_mul(PASSED_OVER_MAX));
        if most <= TASKS_MAX && self.state().tasks <= tasks_max {
            self.from.into()
        } else {
            i64::MAX
        }
    }

    /// So many tasks were in all of them.
    pub(super) fn count(&self, tasks: i64) {
        self.state().tasks = tasks;
    }

    fn empty(&self) -> Empty {
        let now = Instant::now();
        let mut state = self.state();
        state.expire(now);
        let looks = state.looked_at.is_none_or(|at| at + LOOK_EVERY <= now);
        let mut empty = Empty::default();
        for (number, bundle) in state.bundles.iter().filter(|(_, bundle)| bundle.left == 0) {
            if bundle.sure {
                empty.surely.push(*number);
            } else if looks {
                empty.maybe.push(*number);
            }
        }
        if !empty.maybe.is_empty() {
            state.looked_at = Some(now);
        }
        empty
    }

    fn forget(&self, numbers: impl Iterator<Item = i64>) {
        let mut state = self.state();
        for number in numbers {
            state.bundles.remove(&number);
        }
    }

    pub(super) fn add(&self, bundled: Bundled) {
        let mut state = self.state();
        let Bundled { number, leases, until } = bundled;
        let mut bundle = Bundle {
            until,
            left: leases.len(),
            sure: true,
            by_lane: HashMap::default(),
        };
        for InBundle { lease, lane, spot } in leases {
            if let Some(lane) = &lane {
                *bundle.by_lane.entry(lane.clone()).or_default() += 1;
            }
            state.places.insert(lease, Place { number, lane, spot });
        }
        state.bundles.insert(number, bundle);
    }

    /// What is leased of lanes with caps, as far as the table need not be asked: what was settled in a transaction may come back, and of
    /// other processes nothing is known. What others did about these leases is not in it.
    pub(super) fn known(&self) -> Known {
        let state = self.state();
        let mut known = Known::default();
        let sure = state
            .bundles
            .iter()
            .filter(|(_, bundle)| bundle.sure && !bundle.by_lane.is_empty());
        for (number, bundle) in sure {
            for (lane, leases) in &bundle.by_lane {
                known.numbers.push(*number);
                known.lanes.push(lane.clone());
                known.leases.push(*leases);
            }
        }
        known
    }

    /// The numbers of the bundles in which these are.
    pub(super) fn numbers(&self, leases: impl Iterator<Item = Lease>) -> Vec<Option<i64>> {
        let state = self.state();
        leases
            .map(|lease| state.places.get(&lease).map(|place| place.number))
            .collect()
    }

    /// The same, with where their rows are; nothing unless all of them are in bundles.
    pub(super) fn spots(&self, leases: impl Iterator<Item = Lease>) -> Option<(Vec<i64>, Vec<Spot>)> {
        let state = self.state();
        leases
            .map(|lease| state.places.get(&lease).map(|place| (place.number, place.spot)))
            .collect()
    }

    /// These have ended, or were written into the rows of their tasks: surely, or if the transaction in which that was commits.
    pub(super) fn ended(&self, leases: impl Iterator<Item = Lease>, surely: bool) {
        let mut state = self.state();
        for lease in leases {
            let Some(Place { number, lane, .. }) = state.places.remove(&lease) else {
                continue;
            };
            if let Some(bundle) = state.bundles.get_mut(&number) {
                bundle.left -= 1;
                bundle.sure &= surely;
                if let Some(leases) = lane.and_then(|lane| bundle.by_lane.get_mut(&lane)) {
                    *leases -= 1;
                }
            }
        }
    }
}

impl State {
    /// What is left of bundles whose time has ended is found in the table, if it is still asked for.
    fn expire(&mut self, now: Instant) {
        let before = self.bundles.len();
        self.bundles
            .retain(|_, bundle| bundle.until.is_none_or(|until| until > now));
        if self.bundles.len() < before {
            let Self { bundles, places, .. } = self;
            places.retain(|_, place| bundles.contains_key(&place.number));
        }
    }
}

#[cfg(test)]
mod tests {
    use exactly::queue::{Fence, TaskId};

    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn leases(count: u64) -> Vec<Lease> {
        let id = |n: u64| TaskId::from_uuid(uuid::Uuid::from_u64_pair(0, n));
        let lease = |n| Lease {
            id: id(n),
            fence: Fence::new(7),
        };
        (0..count).map(lease).collect()
    }

    fn in_bundle(lease: Lease, lane: Option<Lane>) -> InBundle {
        let spot = Spot::nth(1);
        InBundle { lease, lane, spot }
    }

    fn bundled(number: i64, leases: &[Lease], until: Option<Instant>) -> Bundled {
        Bundled {
            number,
            leases: leases.iter().map(|lease| in_bundle(*lease, None)).collect(),
            until,
        }
    }

    fn with(leases: &[Lease]) -> Bundles {
        let bundles = Bundles::new(1);
        bundles.add(bundled(1, leases, Some(Instant::now() + MINUTE)));
        bundles
    }

    #[test]
    fn a_bundle_is_empty_when_all_its_leases_have_ended() {
        let leases = leases(3);
        let bundles = with(&leases);
        bundles.ended(leases[..2].iter().copied(), true);
        // Said twice, it is one.
        bundles.ended(leases[..2].iter().copied(), true);
        assert!(bundles.empty().surely.is_empty());
        assert_eq!(bundles.numbers(leases.iter().copied()), [None, None, Some(1)]);
        bundles.ended(leases.iter().copied(), true);
        assert_eq!(bundles.empty().surely, [1]);
        bundles.forget([1].into_iter());
        assert!(bundles.empty().surely.is_empty());
    }

    #[test]
    fn what_a_transaction_has_ended_may_come_back() {
        let leases = leases(2);
        let bundles = with(&leases);
        bundles.ended(leases[..1].iter().copied(), false);
        bundles.ended(leases[1..].iter().copied(), true);
        let empty = bundles.empty();
        assert_eq!((empty.surely, empty.maybe), (vec![], vec![1]));
    }

    #[test]
    fn a_bundle_that_is_not_empty_stays_if_its_leases_were_in_another() {
        let leases = leases(2);
        let bundles = with(&leases);
        bundles.add(bundled(2, &leases, None));
        assert!(bundles.empty().surely.is_empty());
        bundles.ended(leases[..1].iter().copied(), true);
        assert!(bundles.empty().surely.is_empty());
        bundles.ended(leases.iter().copied(), true);
        assert_eq!(bundles.empty().surely, [2]);
    }

    /// Of a lane with a cap it is known how much of it is leased, but not where what was settled may come back.
    #[test]
    fn what_is_leased_of_lanes_with_caps_is_known() {
        let (a, b) = (Lane::new("a").unwrap(), Lane::new("b").unwrap());
        let leases = leases(5);
        let lanes = [Some(&a), Some(&a), Some(&b)].map(Option::<&Lane>::cloned);
        let capped = Bundled {
            number: 7,
            leases: leases
                .iter()
                .zip(lanes)
                .map(|(lease, lane)| in_bundle(*lease, lane))
                .collect(),
            until: None,
        };
        let bundles = Bundles::new(1);
        bundles.add(capped);
        bundles.add(bundled(8, &leases[3..], None));
        let known = || {
            let Known { numbers, lanes, leases } = bundles.known();
            let mut rows: Vec<_> = lanes.into_iter().zip(numbers.into_iter().zip(leases)).collect();
            rows.sort_unstable();
            rows
        };
        // The other bundle is not of lanes with caps: whoever counts one of those looks into it.
        assert_eq!(known(), [(a.clone(), (7, 2)), (b.clone(), (7, 1))]);
        bundles.ended([leases[0], leases[2]].into_iter(), true);
        assert_eq!(known(), [(a, (7, 1)), (b, (7, 0))]);
        bundles.ended([leases[1]].into_iter(), false);
        assert_eq!(known(), []);
    }

    #[test]
    fn what_has_ended_by_the_clock_is_not_remembered() {
        let leases = leases(4);
        let bundles = Bundles::new(1);
        bundles.add(bundled(1, &leases[..2], Some(Instant::now())));
        bundles.add(bundled(2, &leases[2..], None));
        assert!(bundles.empty().surely.is_empty());
        assert_eq!(bundles.numbers(leases.iter().copied()), [None, None, Some(2), Some(2)]);
    }

    #[test]
    fn there_are_no_new_ones_behind_many_tasks() {
        let bundles = Bundles::new(100);
        assert_eq!(bundles.from(100), 100);
        bundles.count(801);
        assert_eq!([100, 101].map(|most| bundles.from(most)), [i64::MAX, 100]);
        bundles.count(TASKS_MAX + 1);
        assert_eq!(bundles.from(TASKS_MAX), i64::MAX);
        bundles.count(0);
        assert_eq!(bundles.from(TASKS_MAX + 1), i64::MAX);
    }
}
