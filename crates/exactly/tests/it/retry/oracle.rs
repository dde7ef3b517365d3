//! What was decided, written down a second time and in another shape than the engine: words and lists, first fit wins.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Code, whether it is repeated, what it says of the effect, and what the caller is told. A whole code goes before its
/// category.
const TAXONOMY: &str = "
    VALIDATION.*                          | no  | by status | fix the input
    IDEMPOTENCY_KEY_REQUIRED              | no  | by status | fix the input
    IDEMPOTENCY_KEY_INVALID               | no  | by status | fix the input
    AUTH.*                                | no  | by status | sign in again, or ask for permission
    CONFLICT.idempotency.payload_mismatch | no  | by status | use a new key for a new operation
    CONFLICT.idempotency.in_progress      | yes | unknown   | wait, then repeat with the same key
    CONFLICT.*                            | no  | by status | resolve the conflict
    RATE_LIMIT.*                          | yes | by status | wait, then repeat
    DEPENDENCY.timeout                    | yes | unknown   | repeat with the same key
    DEPENDENCY.*                          | yes | by status | repeat later
    TRANSIENT.*                           | yes | by status | repeat
    PROVIDER.duplicate                    | no  | happened  | show the existing result
    OUTCOME.replay_unavailable            | no  | happened  | it happened; its answer cannot be shown again
    OUTCOME.*                             | no  | unknown   | find out before doing it again
    DEADLINE.*                            | no  | by status | allow more time
    BUDGET.*                              | no  | by status | the destination is failing; try later
";

/// One attempt and what is known besides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) phase: &'static str,
    pub(super) status: u16,
    pub(super) code: Option<&'static str>,
    pub(super) word: Option<bool>,
    pub(super) key: Option<&'static str>,
    pub(super) repeatable: bool,
    pub(super) doubt: bool,
}

/// A line of the taxonomy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Meaning {
    pub(super) repeat: bool,
    pub(super) fate: &'static str,
    pub(super) hint: &'static str,
}

pub(super) fn meaning(code: &str) -> Option<&'static Meaning> {
    static LINES: LazyLock<HashMap<&str, Meaning>> = LazyLock::new(|| {
        let lines = TAXONOMY.lines().filter(|line| !line.trim().is_empty());
        let lines = lines.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
        let lines = lines.map(|columns| <[&str; 4]>::try_from(columns).expect("four columns"));
        let meanings = lines.map(|[text, repeat, fate, hint]| {
            let repeat = repeat == "yes";
            (text, Meaning { repeat, fate, hint })
        });
        meanings.collect()
    });
    LINES.get(code).or_else(|| {
        let (category, _) = code.split_once('.')?;
        LINES.get(format!("{category}.*").as_str())
    })
}

impl Question {
    pub(super) fn fate(&self) -> &'static str {
        let kept = matches!(self.key, Some("stored" | "replayed"));
        match self.phase {
            "not_sent" => "did_not_happen",
            // Only what is kept and happened can be believed without its end.
            "cut_off" if kept && self.whole_fate() == "happened" => "happened",
            "sent" | "cut_off" => "unknown",
            _ => self.whole_fate(),
        }
    }

    fn whole_fate(&self) -> &'static str {
        let by_code = self.code.and_then(meaning).map_or("by status", |line| line.fate);
        let status = self.status;
        let rules = [
            (by_code == "happened", "happened"),
            (by_code == "unknown", "unknown"),
            (self.key == Some("unknown"), "unknown"),
            (self.key == Some("freed"), "did_not_happen"),
            (status / 100 == 2 || status == 303, "happened"),
            ([408, 425, 429, 503].contains(&status), "did_not_happen"),
            (status / 100 == 4, "did_not_happen"),
            ([307, 308].contains(&status), "did_not_happen"),
        ];
        let fits = rules.iter().find(|(fits, _)| *fits);
        fits.map_or("unknown", |(_, fate)| fate)
    }

    /// `wait`, or why not, where neither time nor retries nor the budget are short.
    pub(super) fn decision(&self) -> &'static str {
        let by_code = self.code.and_then(meaning).map(|line| line.repeat);
        let by_status = [408, 429, 500, 502, 503, 504].contains(&self.status);
        let helps = self.word.or(by_code).unwrap_or(by_status);
        let rules = [
            (self.phase == "answered" && self.fate() == "happened", "done"),
            (!self.repeatable && self.phase != "not_sent", "unrepeatable"),
            (self.phase != "answered", "wait"),
            (helps, "wait"),
        ];
        let fits = rules.iter().find(|(fits, _)| *fits);
        fits.map_or("final", |(_, decision)| decision)
    }

    pub(super) fn ending(&self) -> &'static str {
        let kept = matches!(self.key, Some("stored" | "replayed")) && self.phase == "answered";
        match (self.fate(), self.doubt, kept) {
            ("happened", _, _) => "applied",
            ("did_not_happen", false, _) | ("did_not_happen", true, true) => "not_applied",
            _ => "unknown",
        }
    }
}

/// Retries and total time of a class, in milliseconds.
pub(super) fn class(name: &str) -> (u32, u64) {
    match name {
        "user-facing" => (3, 10_000),
        "background" => (5, 300_000),
        "webhook" => (9, 86_400_000),
        "scheduled" => (3, 3_600_000),
        other => panic!("no such class: {other}"),
    }
}

/// The wait before a retry in milliseconds, `u` of the way through what is left to chance.
pub(super) fn backoff(class: &str, retry: u32, elapsed: f64, u: f64) -> Option<f64> {
    const MINUTE: f64 = 60_000.0;
    const HOUR: f64 = 60.0 * MINUTE;
    let nth = |list: &[f64]| {
        let place = usize::try_from(retry).unwrap().checked_sub(1)?;
        list.get(place).copied()
    };
    let tenth = |exact: f64| exact * (0.9 + 0.2 * u);
    let doubled = 2_f64.powf(f64::from(retry) - 1.0);
    Some(match class {
        "user-facing" => (100.0 * doubled * (1.0 + u)).min(2000.0),
        "background" => (1000.0 * doubled + u * 1000.0).min(30_000.0),
        "webhook" => {
            let attempts = [
                5000.0,
                30_000.0,
                2.0 * MINUTE,
                10.0 * MINUTE,
                30.0 * MINUTE,
                HOUR,
                6.0 * HOUR,
                12.0 * HOUR,
                24.0 * HOUR,
            ];
            // The last one is spread over the tenth before the window ends.
            let at = match nth(&attempts)? {
                last if retry == 9 => last * (0.9 + 0.1 * u),
                offset => tenth(offset),
            };
            (at - elapsed).max(0.0)
        }
        "scheduled" => tenth(nth(&[30_000.0, 2.0 * MINUTE, 5.0 * MINUTE])?),
        other => panic!("no such class: {other}"),
    })
}
