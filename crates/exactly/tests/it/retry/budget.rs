//! Retries are bounded for every destination, for every order of events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exactly::retry::{Budget, BudgetLimits, Budgets, Class};
use proptest::prelude::*;
use proptest::sample::select;

const SECOND: Duration = Duration::from_secs(1);
const LIMITS: BudgetLimits = BudgetLimits {
    percent: 20,
    reserve: 10,
    window: Duration::from_secs(10),
};

/// Takes what there is.
fn drain(budget: &Budget, now: Duration) -> u64 {
    let mut taken = 0;
    while budget.take(now) {
        taken += 1;
    }
    taken
}

fn spent(limits: BudgetLimits) -> Budget {
    let budget = Budget::new(limits);
    budget.ended(Duration::ZERO, false);
    drain(&budget, Duration::ZERO);
    budget
}

#[test]
fn the_usual_limits_are_a_fifth_and_ten_in_ten_seconds() {
    assert_eq!(BudgetLimits::default(), LIMITS);
}

#[test]
fn a_destination_dead_for_hours_gets_a_fifth_of_its_calls_and_the_reserve_and_no_more() {
    for calls_per_second in [1, 3, 50] {
        let budget = Budget::new(LIMITS);
        let (mut calls, mut retries) = (0_u64, 0_u64);
        for second in 0..6 * 3600 {
            let now = SECOND * second;
            for _ in 0..calls_per_second {
                budget.call(now);
                calls += 1;
                budget.ended(now, false);
                retries += drain(&budget, now);
                assert!(retries * 5 <= calls + 50, "{retries} retries of {calls} calls");
            }
        }
        assert!(
            (retries + 1) * 5 > calls,
            "{retries} retries of {calls} calls are too few"
        );
    }
}

#[test]
fn calls_that_are_rarer_than_the_window_earn_a_dead_destination_nothing() {
    let budget = Budget::new(LIMITS);
    let mut retries = 0;
    for hour in 0..1000 {
        let now = SECOND * 3600 * hour;
        budget.call(now);
        budget.ended(now, false);
        retries += drain(&budget, now);
    }
    assert_eq!(retries, 10);
}

#[test]
fn what_a_healthy_day_earned_pays_for_no_storm() {
    let budget = Budget::new(LIMITS);
    let now = SECOND * 86_400;
    for second in 0..86_400 {
        for _ in 0..10 {
            budget.call(SECOND * second);
        }
        budget.ended(SECOND * second, true);
    }
    budget.ended(now, false);
    let taken = drain(&budget, now);
    assert!((18 + 10..=20 + 10).contains(&taken), "{taken}");
}

#[test]
fn the_reserve_comes_back_evenly_within_one_window_after_a_good_answer() {
    let budget = spent(LIMITS);
    let back = SECOND * 7200;
    assert_eq!(budget.left(back), 0);
    budget.ended(back, true);
    assert_eq!(budget.left(back), 0);
    for second in 1..=10 {
        let then = back + SECOND * second;
        let just_before = then.saturating_sub(Duration::from_nanos(1));
        assert_eq!(budget.left(just_before), u64::from(second - 1));
        assert_eq!(budget.left(then), u64::from(second));
    }
    assert_eq!(budget.left(back + SECOND * 1000), 10);
}

#[test]
fn the_reserve_stops_coming_back_with_the_next_failure() {
    let budget = spent(LIMITS);
    budget.ended(SECOND, true);
    budget.ended(SECOND * 4, false);
    assert_eq!(budget.left(SECOND * 4), 3);
    assert_eq!(budget.left(SECOND * 4000), 3);
}

#[test]
fn looking_often_loses_nothing_of_what_comes_back() {
    let limits = BudgetLimits {
        percent: 0,
        reserve: 1,
        window: SECOND * 3,
    };
    let budget = spent(limits);
    budget.ended(SECOND, true);
    for look in [2, 3] {
        assert_eq!(budget.left(SECOND * look), 0);
    }
    assert_eq!(budget.left(SECOND * 4), 1);
}

#[test]
fn a_retry_is_granted_when_it_is_whole_and_not_a_moment_before() {
    let tick = Duration::from_nanos(1);
    let budget = spent(LIMITS);
    budget.ended(SECOND, true);
    assert!(!budget.take((SECOND * 2).saturating_sub(tick)));
    assert!(budget.take(SECOND * 2));

    // What came back beyond the whole reserve is not kept for later.
    let limits = BudgetLimits {
        percent: 0,
        reserve: 1,
        window: SECOND * 3,
    };
    let budget = spent(limits);
    budget.ended(Duration::ZERO, true);
    assert_eq!(budget.left(SECOND), 0);
    assert!(budget.take(SECOND * 10));
    assert!(!budget.take((SECOND * 13).saturating_sub(tick)));
    assert!(budget.take(SECOND * 13));
}

#[test]
fn threads_together_get_exactly_what_one_would() {
    const THREADS: u32 = 8;
    const CALLS: u32 = 20_000;
    let budget = spent(LIMITS);
    let granted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (budget, granted) = (&budget, &granted);
            scope.spawn(move || {
                for call in 0..CALLS {
                    budget.call(Duration::ZERO);
                    budget.ended(Duration::ZERO, false);
                    // Some are greedier than others.
                    for _ in 0..(thread + call) % 3 {
                        if budget.take(Duration::ZERO) {
                            granted.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let granted = granted.into_inner() + drain(&budget, Duration::ZERO);
    assert_eq!(granted, u64::from(THREADS * CALLS / 5));
}

#[test]
fn threads_whose_clocks_disagree_never_get_more_than_their_calls_earned() {
    const THREADS: u32 = 8;
    const CALLS: u32 = 10_000;
    let budget = Budget::new(LIMITS);
    budget.ended(Duration::ZERO, false);
    let granted = AtomicU64::new(0);
    let clock = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for late in 0..THREADS {
            let (budget, granted, clock) = (&budget, &granted, &clock);
            scope.spawn(move || {
                for _ in 0..CALLS {
                    let passed = clock.fetch_add(1, Ordering::Relaxed);
                    let now = Duration::from_micros(passed * 100).saturating_sub(Duration::from_millis(late.into()));
                    budget.call(now);
                    budget.ended(now, false);
                    granted.fetch_add(drain(budget, now), Ordering::Relaxed);
                }
            });
        }
    });
    let granted = granted.into_inner();
    let earned = u64::from(THREADS * CALLS / 5);
    assert!(granted <= earned + 10, "{granted} of {earned}");
    assert!(granted > earned / 2, "{granted} of {earned}");
}

#[test]
fn a_dead_destination_takes_nothing_from_a_healthy_one_nor_one_class_from_another() {
    let budgets = Budgets::default();
    let of = |name: &str, class| budgets.of(name, class, Duration::ZERO);
    let dead = of("https://dead.example", Class::UserFacing);
    dead.ended(Duration::ZERO, false);
    assert_eq!(drain(&dead, Duration::ZERO), 10);
    assert_eq!(of("https://dead.example", Class::UserFacing).left(Duration::ZERO), 0);
    for (name, class) in [
        ("https://well.example", Class::UserFacing),
        ("https://dead.example", Class::Background),
        ("https://dead.example", Class::Custom("night")),
        ("https://dead.example:8443", Class::UserFacing),
    ] {
        assert_eq!(drain(&of(name, class), Duration::ZERO), 10, "{name} {class}");
    }
}

fn touch(budgets: &Budgets, name: &str, now: Duration) -> Arc<Budget> {
    let budget = budgets.of(name, Class::Background, now);
    budget.ended(now, false);
    assert!(budget.take(now), "{name}");
    budget
}

#[test]
fn destinations_beyond_the_most_share_one_budget_and_take_none_from_the_known() {
    let budgets = Budgets::default();
    for number in 0..Budgets::DESTINATIONS_MAX {
        touch(&budgets, &format!("known-{number}"), SECOND);
    }
    let mut granted = 0;
    for round in 0..2 {
        for number in 0..50 {
            let now = SECOND * (round + 1);
            let budget = budgets.of(&format!("new-{number}"), Class::Background, now);
            budget.ended(now, false);
            granted += drain(&budget, now);
        }
    }
    assert_eq!(granted, 10);
    for number in [0, 1, 5000, Budgets::DESTINATIONS_MAX - 1] {
        let budget = budgets.of(&format!("known-{number}"), Class::Background, SECOND);
        assert_eq!(drain(&budget, SECOND), 9);
    }
}

#[test]
fn only_what_is_as_good_as_new_and_in_nobodys_hands_is_forgotten() {
    let budgets = Budgets::default();
    let dead = budgets.of("dead", Class::Background, SECOND);
    dead.ended(SECOND, false);
    drain(&dead, SECOND);
    drop(dead);
    let held = budgets.of("held", Class::Background, SECOND);
    for number in 0..3 * Budgets::DESTINATIONS_MAX {
        budgets.of(&format!("quiet-{number}"), Class::Background, SECOND);
    }
    let again = budgets.of("dead", Class::Background, SECOND * 1000);
    assert_eq!(again.left(SECOND * 1000), 0, "a dead destination was forgotten");
    let held_again = budgets.of("held", Class::Background, SECOND);
    assert!(Arc::ptr_eq(&held, &held_again), "two budgets for one destination");
    // A look through all of them is taken once in a window.
    let later = SECOND * 20;
    let fresh = budgets.of("fresh", Class::Background, later);
    let other = budgets.of("other", Class::Background, later);
    assert!(!Arc::ptr_eq(&fresh, &other), "there was a place, but it was not given");
}

#[test]
fn a_dead_destination_that_has_come_back_makes_room_again() {
    let budgets = Budgets::default();
    for number in 0..Budgets::DESTINATIONS_MAX {
        let budget = touch(&budgets, &format!("known-{number}"), SECOND);
        budget.ended(SECOND, true);
    }
    let of = |name, now| budgets.of(name, Class::Background, now);
    assert!(Arc::ptr_eq(&of("one", SECOND), &of("other", SECOND)));
    let later = SECOND * 20;
    assert!(!Arc::ptr_eq(&of("one", later), &of("other", later)));
}

/// What can happen to a budget.
#[derive(Clone, Copy, Debug)]
enum Step {
    Call,
    Ended(bool),
    Take,
}

/// The same without slots or carrying: what every call earned, one by one, and the reserve in exact fractions.
struct Model {
    limits: BudgetLimits,
    now: u128,
    earned: Vec<(u128, u64)>,
    /// In billionths of a retry, times the window.
    reserve: u128,
    well: bool,
    /// How much came back in all, in the same.
    came: u128,
}

const PARTS: u64 = 1_000_000_000;

impl Model {
    fn new(limits: BudgetLimits) -> Self {
        let mut model = Self {
            limits,
            now: 0,
            earned: Vec::new(),
            reserve: 0,
            well: true,
            came: 0,
        };
        model.reserve = model.whole();
        model
    }

    fn window(&self) -> u128 {
        self.limits.window.as_nanos()
    }

    fn whole(&self) -> u128 {
        u128::from(self.limits.reserve) * u128::from(PARTS) * self.window()
    }

    fn slice(&self) -> u128 {
        self.now / (self.window() / 10)
    }

    fn advance(&mut self, now: u128) {
        let passed = now.saturating_sub(self.now);
        self.now = self.now.max(now);
        if self.well {
            let more = u128::from(self.limits.reserve) * u128::from(PARTS) * passed;
            self.came += more;
            self.reserve = (self.reserve + more).min(self.whole());
        }
        let slice = self.slice();
        self.earned.retain(|(earned, _)| earned + 10 > slice);
    }

    fn call(&mut self) {
        let share = u64::from(self.limits.percent) * (PARTS / 100);
        self.earned.push((self.slice(), share));
    }

    fn left(&self) -> u128 {
        let earned: u64 = self.earned.iter().map(|(_, parts)| parts).sum();
        u128::from(earned) + self.reserve / self.window()
    }

    fn take(&mut self) -> bool {
        if self.left() < u128::from(PARTS) {
            return false;
        }
        let mut owed = PARTS;
        for (_, parts) in &mut self.earned {
            let part = owed.min(*parts);
            *parts -= part;
            owed -= part;
        }
        self.reserve -= u128::from(owed) * self.window();
        true
    }
}

/// What happens, and how many nanoseconds after what happened before it.
fn steps() -> impl Strategy<Value = Vec<(Step, i64)>> {
    let step = prop_oneof![
        3 => Just(Step::Call),
        1 => any::<bool>().prop_map(Step::Ended),
        4 => Just(Step::Take),
    ];
    let passed = prop_oneof![
        4 => Just(0_i64),
        2 => -5_000_000_i64..5_000_000,
        3 => 0_i64..1_500_000_000,
        1 => 0_i64..30_000_000_000,
    ];
    proptest::collection::vec((step, passed), 1..200)
}

fn limits() -> impl Strategy<Value = BudgetLimits> {
    let windows = [10, 70, 3_000_000_000, 10_000_000_000, 7_777_777_770].map(Duration::from_nanos);
    (0_u32..=250, 0_u32..=12, select(windows.to_vec())).prop_map(|(percent, reserve, window)| BudgetLimits {
        percent,
        reserve,
        window,
    })
}

/// Where time is after a step; a little back is possible, before the beginning is not.
fn moved(now: i64, passed: i64) -> (i64, Duration) {
    let now = now.saturating_add(passed).max(0);
    (now, Duration::from_nanos(u64::try_from(now).unwrap()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_budget_grants_exactly_what_its_model_does(limits in limits(), steps in steps()) {
        let budget = Budget::new(limits);
        let mut model = Model::new(limits);
        let (mut at, mut calls, mut granted) = (0, 0_u128, 0_u128);
        for (step, passed) in steps {
            let now;
            (at, now) = moved(at, passed);
            model.advance(now.as_nanos());
            match step {
                Step::Call => {
                    budget.call(now);
                    model.call();
                    calls += 1;
                }
                Step::Ended(well) => {
                    budget.ended(now, well);
                    model.well = well;
                }
                Step::Take => {
                    let found = budget.take(now);
                    prop_assert_eq!(found, model.take(), "{:?}", step);
                    granted += u128::from(found);
                }
            }
            prop_assert_eq!(u128::from(budget.left(now)), model.left() / u128::from(PARTS));
            // The bound itself, which the model must not be trusted with: a fifth of the calls, the reserve, and what came
            // back of it while all was well.
            let earned = calls * u128::from(limits.percent) * u128::from(PARTS / 100);
            let whole = u128::from(limits.reserve) * u128::from(PARTS);
            let bound = (earned + whole) * model.window() + model.came;
            prop_assert!(granted * u128::from(PARTS) * model.window() <= bound);
        }
    }

    #[test]
    fn whatever_its_limits_a_budget_never_grants_a_dead_destination_more(
        percent in prop_oneof![0_u32..300, Just(u32::MAX)],
        reserve in prop_oneof![0_u32..20, Just(u32::MAX)],
        window in select(vec![
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_nanos(15),
            SECOND * 10,
            Duration::MAX,
        ]),
        steps in steps(),
        leap in select(vec![Duration::ZERO, SECOND * u32::MAX, Duration::MAX]),
    ) {
        let budget = Budget::new(BudgetLimits { percent, reserve, window });
        budget.ended(Duration::ZERO, false);
        let (mut at, mut calls, mut granted) = (0, 0_u64, 0_u64);
        let half = steps.len() / 2;
        for (place, (step, passed)) in steps.into_iter().enumerate() {
            let now;
            (at, now) = moved(at, passed);
            let now = if place < half { now } else { now.saturating_add(leap) };
            match step {
                Step::Call => {
                    budget.call(now);
                    calls += 1;
                }
                Step::Ended(_) => budget.ended(now, false),
                Step::Take => granted += u64::from(budget.take(now)),
            }
            prop_assert!(granted * 100 <= calls * u64::from(percent) + u64::from(reserve) * 100);
        }
        // A good answer brings the reserve back, and no number is too large for it.
        budget.ended(leap, true);
        prop_assert!(budget.left(Duration::MAX) <= u64::from(reserve) + calls * u64::from(percent) / 100);
    }
}
