//! How many retries a destination is given.
//!
//! A destination that fails gets every call once, and a bounded share of them again: never more retries in all than
//! `ratio × calls + reserve`, however long it stays dead. The reserve, which lets a quiet client retry at all, comes back
//! over the window while the destination answers well, so that retries work again within that time after it recovers.
//! What calls have earned is good for one window, so that a healthy day does not pay for a storm.
//!
//! Unlike one budget for everything, a dead destination takes nothing from a healthy one; unlike a count per second, a
//! slow trickle of calls is not granted more retries than calls.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::policy::Class;

/// How generous a budget is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetLimits {
    /// Retries per hundred calls.
    pub percent: u32,
    /// Retries that need no calls.
    pub reserve: u32,
    /// How long what a call earned is good for, and how long the reserve takes to come back.
    pub window: Duration,
}

impl Default for BudgetLimits {
    fn default() -> Self {
        Self {
            percent: 20,
            reserve: 10,
            window: Duration::from_secs(10),
        }
    }
}

/// The retries of one destination and class. Exact under concurrency: every step is taken under one lock.
///
/// `now` is monotonic time since any fixed moment, the same one in every call.
#[derive(Debug)]
pub struct Budget {
    limits: BudgetLimits,
    state: Mutex<State>,
}

/// Parts of a retry, so that a fifth of one can be counted without rounding.
const PARTS: u64 = 1_000_000_000;
/// Into how many slices the window is cut; what was earned goes slice by slice.
const SLICES: u32 = 10;

#[derive(Debug)]
struct State {
    /// What calls earned, by the slice of the window it was earned in.
    earned: [u64; SLICES as usize],
    /// The slice that `now` was last in, counted from the beginning of time.
    slice: u64,
    reserve: u64,
    /// Up to when the reserve has come back.
    refilled: Duration,
    /// What has come back without making a whole part yet, in parts of the window. Rounded away, it would keep the reserve
    /// of a busy destination from ever coming back whole.
    carried: u128,
    /// Whether the last that was heard from the destination was good.
    well: bool,
}

impl Budget {
    /// A budget with its whole reserve.
    pub fn new(limits: BudgetLimits) -> Self {
        let state = State {
            earned: [0; SLICES as usize],
            slice: 0,
            reserve: limits.whole(),
            refilled: Duration::ZERO,
            carried: 0,
            well: true,
        };
        Self {
            limits,
            state: Mutex::new(state),
        }
    }

    /// Counts a call, which earns its share of a retry.
    pub fn call(&self, now: Duration) {
        let mut state = self.at(now);
        let slot = state.slot();
        let share = u64::from(self.limits.percent) * (PARTS / 100);
        state.earned[slot] = state.earned[slot].saturating_add(share);
    }

    /// Takes in how an attempt ended: well, if the destination answered and repeating would not help.
    pub fn ended(&self, now: Duration, well: bool) {
        self.at(now).well = well;
    }

    /// Takes one retry, if there is one.
    pub fn take(&self, now: Duration) -> bool {
        let mut state = self.at(now);
        if state.left() < PARTS {
            return false;
        }
        let mut owed = PARTS;
        // The oldest first: it is the next to be lost.
        let newest = state.slot();
        for age in 1..=SLICES as usize {
            let slot = (newest + age) % SLICES as usize;
            let part = owed.min(state.earned[slot]);
            state.earned[slot] -= part;
            owed -= part;
        }
        state.reserve -= owed;
        true
    }

    /// How many retries could be taken now.
    pub fn left(&self, now: Duration) -> u64 {
        self.at(now).left() / PARTS
    }

    /// Whether it is as good as a new one.
    fn is_untouched(&self, now: Duration) -> bool {
        self.at(now).reserve == self.limits.whole()
    }

    fn at(&self, now: Duration) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can panic half way.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.advance(now, self.limits);
        state
    }
}

impl State {
    fn advance(&mut self, now: Duration, limits: BudgetLimits) {
        // Callers read their clocks before they have the lock, so time can seem to go back a little.
        let Some(passed) = now.checked_sub(self.refilled) else {
            return;
        };
        self.refilled = now;
        // Most budgets are whole most of the time, and every call comes by here.
        if self.well && self.reserve < limits.whole() {
            self.refill(passed, limits);
        }
        let slice = nanos(now) / (nanos(limits.window) / u64::from(SLICES)).max(1);
        let new = slice.saturating_sub(self.slice).min(u64::from(SLICES));
        for _ in 0..new {
            self.slice = self.slice.saturating_add(1);
            let slot = self.slot();
            self.earned[slot] = 0;
        }
        self.slice = slice;
    }

    fn refill(&mut self, passed: Duration, limits: BudgetLimits) {
        let window = limits.window.as_nanos().max(1);
        let passed = passed.as_nanos().min(window);
        // Only a window of ages times a reserve of billions is too much to count, and then it comes back more slowly.
        let come = u128::from(limits.whole())
            .saturating_mul(passed)
            .saturating_add(self.carried);
        let parts = u64::try_from(come / window).unwrap_or(u64::MAX);
        self.reserve = self.reserve.saturating_add(parts).min(limits.whole());
        let is_whole = self.reserve == limits.whole();
        self.carried = if is_whole { 0 } else { come % window };
    }

    fn slot(&self) -> usize {
        usize::try_from(self.slice % u64::from(SLICES)).expect("a slot is below the number of slices")
    }

    fn left(&self) -> u64 {
        self.earned
            .iter()
            .fold(self.reserve, |sum, part| sum.saturating_add(*part))
    }
}

/// Nanoseconds, as many as a processor divides at once: enough for some centuries.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl BudgetLimits {
    fn whole(self) -> u64 {
        u64::from(self.reserve) * PARTS
    }
}

/// The destinations of one class.
#[derive(Default)]
struct Destinations {
    budgets: HashMap<Box<str>, Arc<Budget>>,
    /// When it was last looked through for some to forget.
    swept: Option<Duration>,
}

/// One budget for each destination and class.
pub struct Budgets {
    limits: BudgetLimits,
    known: Mutex<HashMap<Class, Destinations>>,
    /// Shared by the destinations for which there was no place: less for each of them, never more for all.
    rest: Arc<Budget>,
}

impl Budgets {
    /// Destinations of one class that have a budget of their own.
    pub const DESTINATIONS_MAX: usize = 10_000;

    /// No destination is known yet.
    pub fn new(limits: BudgetLimits) -> Self {
        Self {
            limits,
            known: Mutex::default(),
            rest: Arc::new(Budget::new(limits)),
        }
    }

    /// Whether a budget is the one of those destinations for which there was no place.
    pub fn is_shared(&self, budget: &Arc<Budget>) -> bool {
        Arc::ptr_eq(budget, &self.rest)
    }

    /// The budget of a destination, usually an origin.
    pub fn of(&self, destination: &str, class: Class, now: Duration) -> Arc<Budget> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.entry(class).or_default();
        if let Some(budget) = known.budgets.get(destination) {
            return Arc::clone(budget);
        }
        // Within a window little becomes as good as new, so whoever has many destinations does not pay for a look each time.
        let is_due = known
            .swept
            .is_none_or(|swept| now >= swept.saturating_add(self.limits.window));
        if known.budgets.len() >= Self::DESTINATIONS_MAX && is_due {
            known.swept = Some(now);
            // Only what is as good as new is forgotten: a fresh budget in its place grants nothing more.
            let is_needed = |budget: &Arc<Budget>| Arc::strong_count(budget) > 1 || !budget.is_untouched(now);
            known.budgets.retain(|_, budget| is_needed(budget));
        }
        if known.budgets.len() >= Self::DESTINATIONS_MAX {
            return Arc::clone(&self.rest);
        }
        let budget = Arc::new(Budget::new(self.limits));
        known.budgets.insert(destination.into(), Arc::clone(&budget));
        budget
    }
}

impl Default for Budgets {
    fn default() -> Self {
        Self::new(BudgetLimits::default())
    }
}

impl fmt::Debug for Budgets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budgets")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
