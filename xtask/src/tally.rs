//! How many tests ran, as those who ran them say it.

use std::fmt;
use std::ops::AddAssign;

/// Tests by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    pub(crate) fn ran(self) -> u64 {
        self.passed + self.failed
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// nextest's last word: `     Summary [   1.2s] 10 tests run: 8 passed (1 slow), 1 failed, 1 timed out, 3 skipped`.
pub(crate) fn of_nextest(line: &str) -> Option<Tally> {
    // What a test printed is further to the right.
    let line = plain(line);
    let (_, told) = line.strip_prefix("     Summary [")?.split_once("run: ")?;
    let mut tally = Tally::default();
    for (count, how) in parts(&without_asides(told), ',')? {
        match how.as_str() {
            "passed" => tally.passed += count,
            "failed" | "timed out" | "exec failed" => tally.failed += count,
            "skipped" => tally.skipped += count,
            _ => return None,
        }
    }
    Some(tally)
}

/// What each crate's doctests end with: `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; …`.
pub(crate) fn of_doctests(line: &str) -> Option<Tally> {
    let line = plain(line);
    let (_, told) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let counts = told.split_once("; finished in").map_or(told, |(counts, _)| counts);
    let mut tally = Tally::default();
    for (count, how) in parts(counts, ';')? {
        match how.as_str() {
            "passed" => tally.passed += count,
            "failed" => tally.failed += count,
            "ignored" => tally.skipped += count,
            _ => {}
        }
    }
    Some(tally)
}

/// One line of what Node's tests end with: `ℹ pass 5`.
pub(crate) fn of_node(line: &str) -> Option<Tally> {
    let line = plain(line);
    let (how, count) = line.strip_prefix("ℹ ")?.trim_end().split_once(' ')?;
    let count = count.parse().ok()?;
    let mut tally = Tally::default();
    match how {
        "pass" => tally.passed = count,
        "fail" | "cancelled" => tally.failed = count,
        "skipped" | "todo" => tally.skipped = count,
        _ => return None,
    }
    Some(tally)
}

/// `3 passed, 1 timed out` as numbers and words.
fn parts(told: &str, between: char) -> Option<Vec<(u64, String)>> {
    let part = |part: &str| {
        let (count, how) = part.trim().split_once(' ')?;
        Some((count.parse().ok()?, how.trim().to_owned()))
    };
    told.split(between).map(part).collect()
}

/// Without what stands in brackets.
fn without_asides(told: &str) -> String {
    let mut depth = 0_u32;
    let kept = told.chars().filter(|character| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => return depth == 0,
        }
        false
    });
    kept.collect()
}

/// The line without its colours.
fn plain(line: &str) -> String {
    let mut pieces = line.split('\u{1b}');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        // `[32;1m`, or the `(B` that some terminals have before it.
        let text = match piece.strip_prefix('[') {
            Some(code) => code
                .split_once(|end: char| end.is_ascii_alphabetic())
                .map(|(_, text)| text),
            None => piece.strip_prefix("(B"),
        };
        plain.push_str(text.unwrap_or_default());
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(passed: u64, failed: u64, skipped: u64) -> Tally {
        Tally {
            passed,
            failed,
            skipped,
        }
    }

    #[test]
    fn what_nextest_says_last_is_counted() {
        for (line, expected) in [
            (
                "     Summary [  12.345s] 1204 tests run: 1204 passed, 7 skipped",
                Some(tally(1204, 0, 7)),
            ),
            (
                "     Summary [   0.010s] 1 test run: 1 passed, 0 skipped\n",
                Some(tally(1, 0, 0)),
            ),
            (
                "     Summary [   0.000s] 0 tests run: 0 passed, 12 skipped",
                Some(tally(0, 0, 12)),
            ),
            (
                "     Summary [   9.9s] 9 tests run: 5 passed (1 slow, 2 flaky), 1 failed (1 due to being leaky), 1 exec failed, 2 timed out, 3 skipped",
                Some(tally(5, 4, 3)),
            ),
            (
                "     Summary [   1.0s] 3/10 tests run: 2 passed, 1 failed, 0 skipped",
                Some(tally(2, 1, 0)),
            ),
            (
                "\u{1b}[32;1m     Summary\u{1b}[0m [   1.0s] \u{1b}[1m4\u{1b}[0m tests run: \u{1b}[1m4\u{1b}[0m \u{1b}[32;1mpassed\u{1b}[0m, \u{1b}[1m1\u{1b}[0m \u{1b}[33;1mskipped\u{1b}[0m",
                Some(tally(4, 0, 1)),
            ),
            ("        PASS [   0.010s] xtask tally::tests::x", None),
            ("             Summary [   1.0s] 4 tests run: 4 passed, 1 skipped", None),
            ("     Summary [   1.0s] a test that prints", None),
        ] {
            assert_eq!(of_nextest(line), expected, "{line}");
        }
    }

    #[test]
    fn what_doctests_end_with_is_counted() {
        for (line, expected) in [
            (
                "test result: ok. 31 passed; 0 failed; 2 ignored; 0 measured; 4 filtered out; finished in 1.20s\n",
                Some(tally(31, 0, 2)),
            ),
            (
                "test result: \u{1b}[31mFAILED\u{1b}(B\u{1b}[m. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out",
                Some(tally(3, 1, 0)),
            ),
            ("test src/lib.rs - (line 3) ... ok", None),
            (
                "all doctests ran in 1.02s; merged doctests compilation took 0.80s",
                None,
            ),
        ] {
            assert_eq!(of_doctests(line), expected, "{line}");
        }
    }

    #[test]
    fn what_node_ends_with_is_counted() {
        let told = "ℹ tests 9\nℹ suites 0\nℹ pass 5\nℹ fail 1\nℹ cancelled 1\n\u{1b}[34mℹ skipped 1\u{1b}[39m\nℹ todo 1\nℹ duration_ms 7.5\n✔ pass 7";
        let mut sum = Tally::default();
        told.lines().filter_map(of_node).for_each(|tally| sum += tally);
        assert_eq!(sum, tally(5, 2, 2));
    }

    #[test]
    fn a_tally_is_one_line_that_programs_can_read() {
        assert_eq!(Tally::default().to_string(), "0 passed, 0 failed, 0 skipped");
        assert_eq!(tally(3, 2, 1).to_string(), "3 passed, 2 failed, 1 skipped");
    }
}
