//! What was found, for people and for programs.

mod json;
mod junit;
mod list;
mod shown;
mod table;

use std::time::Duration;

use super::rule::Rule;
use super::trial::Seen;

pub(super) use self::json::json;
pub(super) use self::junit::junit;
pub(super) use self::list::{listed, markdown};
pub(super) use self::shown::Redact;
pub(super) use self::table::table;

/// What came of all rules.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) target: String,
    pub(super) preset: String,
    pub(super) guarantee: String,
    pub(super) findings: Vec<Finding>,
    pub(super) redact: Redact,
}

/// What came of one rule.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) rule: &'static Rule,
    pub(super) verdict: Verdict,
    /// Why it failed, or cannot be seen.
    pub(super) reason: Option<String>,
    pub(super) seen: Vec<Seen>,
    pub(super) took: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    Failed,
    NotApplicable,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::NotApplicable => "not-applicable",
        }
    }
}

impl Report {
    pub(super) fn count(&self, verdict: Verdict) -> usize {
        self.findings
            .iter()
            .filter(|finding| finding.verdict == verdict)
            .count()
    }
}

impl Finding {
    /// The exchange that shows it: the last one that was not asked beside the rule.
    fn shows(&self) -> Option<&Seen> {
        self.seen.iter().rev().find(|seen| !seen.is_aside)
    }
}
