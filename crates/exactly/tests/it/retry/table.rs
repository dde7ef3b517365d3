//! The whole table of decisions: the engine against what was decided, and the file against the engine.

use std::path::Path;
use std::time::Duration;

use exactly::retry::{Class, Code, Course, Ended, Policy, Repeat};

use super::oracle::{self, Question};
use super::{Limited, ended, fate_name, file, judged};

pub(super) const PHASES: [&str; 4] = ["not_sent", "sent", "cut_off", "answered"];
pub(super) const STATUSES: [u16; 25] = [
    200, 201, 204, 301, 302, 303, 307, 308, 400, 401, 403, 404, 408, 409, 410, 412, 422, 425, 429, 500, 501, 502, 503,
    504, 507,
];
pub(super) const WORDS: [Option<bool>; 3] = [None, Some(true), Some(false)];
pub(super) const KEYS: [Option<&str>; 5] = [None, Some("stored"), Some("replayed"), Some("freed"), Some("unknown")];

/// Codes that stand for others like them, or for none.
pub(super) const VARIANTS: [&str; 22] = [
    "IDEMPOTENCY_KEY_REQUIRED",
    "IDEMPOTENCY_KEY_INVALID",
    "IDEMPOTENCY_KEY_REQUIRED.header",
    "VALIDATION.amount",
    "VALIDATION.amount.too_large",
    "VALIDATION.",
    "VALIDATION",
    "validation.amount",
    " VALIDATION.amount",
    "AUTH.expired",
    "CONFLICT.idempotency",
    "CONFLICT.idempotency.in_progress.still",
    "RATE_LIMIT.daily",
    "DEPENDENCY.timeout.bank",
    "TRANSIENT.deadlock",
    "PROVIDER.duplicate.old",
    "PROVIDER.declined",
    "OUTCOME.lost",
    "DEADLINE.passed",
    "BUDGET.spent",
    "TEAPOT.short",
    "",
];

pub(super) fn codes() -> impl Iterator<Item = Option<&'static str>> {
    let known = Code::ALL.iter().map(|code| Some(code.as_str()));
    [None].into_iter().chain(known).chain(VARIANTS.map(Some))
}

/// Every answer there is, whole, with a key and without a doubt.
fn answers() -> impl Iterator<Item = Question> {
    let statuses = STATUSES
        .into_iter()
        .chain([100, 199, 206, 299, 300, 304, 399, 499, 505, 599, 0, 999]);
    statuses.flat_map(|status| {
        codes().flat_map(move |code| {
            WORDS.into_iter().flat_map(move |word| {
                KEYS.into_iter().map(move |key| Question {
                    phase: "answered",
                    status,
                    code,
                    word,
                    key,
                    repeatable: true,
                    doubt: false,
                })
            })
        })
    })
}

/// The same for every phase, with and without a key, in doubt and not.
fn questions() -> impl Iterator<Item = Question> {
    answers().flat_map(|answer| {
        PHASES.into_iter().flat_map(move |phase| {
            [(true, false), (true, true), (false, false), (false, true)].map(|(repeatable, doubt)| Question {
                phase,
                repeatable,
                doubt,
                ..answer
            })
        })
    })
}

#[test]
fn every_attempt_is_judged_as_decided() {
    let policies = Class::ALL.map(Policy::of);
    let mut count = 0;
    for question in questions() {
        if let Ended::Answered(heard) = ended(&question) {
            assert_eq!(fate_name(heard.fate()), question.fate(), "{question:?}");
        }
        let expected = (question.decision(), question.ending());
        for policy in &policies {
            let (decision, ending) = judged(&question, policy);
            assert_eq!((decision, ending.as_str()), expected, "{question:?}, {}", policy.class);
            count += 1;
        }
    }
    let codes = 1 + Code::ALL.len() + VARIANTS.len();
    assert_eq!(count, 37 * codes * 3 * 5 * 4 * 4 * 4, "some combination was left out");
}

#[test]
fn every_code_means_what_was_decided_and_is_known_by_its_own_text() {
    for code in Code::ALL {
        assert_eq!(Code::of(code.as_str()), Some(code));
        assert_eq!(code.to_string(), code.as_str());
    }
    for text in codes().flatten() {
        let found = Code::of(text).map(|code| (code.repeat() == Repeat::Helps, code.hint()));
        let expected = oracle::meaning(text).map(|line| (line.repeat, line.hint));
        assert_eq!(found, expected, "{text}");
    }
}

/// Every mixture of what can end a call that is worth repeating.
fn limited(class: Class) -> impl Iterator<Item = Limited> {
    let (retries_max, total) = oracle::class(class.as_str());
    let used = [0, 1, retries_max - 1, retries_max, retries_max + 1];
    let elapsed = [0, total / 2, total - 5000, total - 1, total, total + 1];
    let asked = [
        None,
        Some(0),
        Some(3000),
        Some(5000),
        Some(5001),
        Some(total),
        Some(total + 1),
        Some(u64::MAX),
    ];
    let expires = [
        None,
        Some(0),
        Some(1),
        Some(3000),
        Some(3001),
        Some(5001),
        Some(total + 2),
        Some(u64::MAX),
    ];
    used.into_iter().flat_map(move |retries_used| {
        elapsed.into_iter().flat_map(move |elapsed| {
            asked.into_iter().flat_map(move |retry_after| {
                expires.into_iter().flat_map(move |expires_in| {
                    [true, false].map(|budget| Limited {
                        retries_used,
                        elapsed,
                        retry_after,
                        expires_in,
                        budget,
                    })
                })
            })
        })
    })
}

#[test]
fn every_limit_holds_and_the_first_in_order_is_named() {
    for class in Class::ALL {
        let (retries_max, total) = oracle::class(class.as_str());
        for case in limited(class) {
            let elapsed = Duration::from_millis(case.elapsed).as_secs_f64() * 1e3;
            let backoff = oracle::backoff(class.as_str(), case.retries_used + 1, elapsed, 0.0);
            let backoff = Duration::from_secs_f64(backoff.unwrap_or_default().round() / 1e3);
            let wait = backoff.max(Duration::from_millis(case.retry_after.unwrap_or_default()));
            let left = Duration::from_millis(total).checked_sub(Duration::from_millis(case.elapsed));
            let standing = case.expires_in.map_or(Duration::MAX, Duration::from_millis);
            let expected = [
                (case.retries_used >= retries_max, "attempts", None),
                (wait >= standing, "expired", None),
                (left.is_none_or(|left| wait > left), "deadline", Some(wait)),
                (!case.budget, "budget", None),
                (true, "wait", Some(wait)),
            ];
            let (_, decision, wait) = expected.into_iter().find(|(fits, ..)| *fits).unwrap();
            let found = case.decided(&Policy::of(class));
            assert_eq!(found, (decision, wait), "{class}, {case:?}");
        }
    }
}

#[test]
fn the_budget_is_asked_for_nothing_that_is_not_repeated_anyway() {
    let policy = Policy::of(Class::UserFacing);
    for question in questions() {
        let mut course = Course::new(&policy, question.repeatable);
        let mut asked = 0;
        let _ = course.after(&ended(&question), Duration::ZERO, 0, || {
            asked += 1;
            true
        });
        let expected = u32::from(question.decision() == "wait");
        assert_eq!(asked, expected, "{question:?}");
    }
}

#[test]
fn the_table_that_other_clients_are_held_to_is_the_engines() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/decisions.json");
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let expected = file::text();
    serde_json::from_str::<serde_json::Value>(&expected).expect("the table is JSON");
    if found != expected {
        let fresh = Path::new(env!("CARGO_TARGET_TMPDIR")).join("decisions.json");
        std::fs::write(&fresh, expected).unwrap();
        panic!(
            "clients/decisions.json is not what the engine says: compare it with {fresh}, and if that is what was \
             meant, `cp {fresh} clients/decisions.json`",
            fresh = fresh.display()
        );
    }
}
