//! The table for people.

use std::fmt::Write as _;

use super::super::trial::{Came, Seen};
use super::shown::Message;
use super::{Finding, Report, Verdict};

/// How many exchanges of a failed rule are shown unless all are asked for.
const SHOWN: usize = 3;

/// One line per rule, with the exchange that shows it; below, those that failed.
pub(in super::super) fn table(report: &Report, is_verbose: bool) -> String {
    let mut text = format!(
        "{}, preset {}, guarantee {}\n\n",
        report.target, report.preset, report.guarantee
    );
    let width = report.findings.iter().map(|finding| finding.rule.id.len()).max();
    let width = width.unwrap_or_default();
    for finding in &report.findings {
        row(&mut text, report, finding, width);
        if is_verbose {
            exchanges(&mut text, report, &finding.seen);
        }
    }
    if !is_verbose {
        for finding in &report.findings {
            if finding.verdict == Verdict::Failed {
                failed(&mut text, report, finding);
            }
        }
    }
    let count = |verdict| report.count(verdict);
    let (passed, failed) = (count(Verdict::Passed), count(Verdict::Failed));
    let not_applicable = count(Verdict::NotApplicable);
    let _ = writeln!(
        text,
        "\n{passed} passed, {failed} failed, {not_applicable} not applicable"
    );
    text
}

fn row(text: &mut String, report: &Report, finding: &Finding, width: usize) {
    let id = finding.rule.id;
    let shows = finding
        .shows()
        .map(|seen| report.redact.brief(seen))
        .unwrap_or_default();
    let reason = finding.reason.as_deref().unwrap_or_default();
    let reason = report.redact.text(reason.as_bytes());
    let _ = match finding.verdict {
        Verdict::Passed => writeln!(text, "pass  {id:width$}  {shows}"),
        Verdict::Failed => writeln!(text, "FAIL  {id:width$}  {reason}"),
        Verdict::NotApplicable => writeln!(text, "n/a   {id:width$}  {reason}"),
    };
}

fn failed(text: &mut String, report: &Report, finding: &Finding) {
    let reason = finding.reason.as_deref().unwrap_or_default();
    let reason = report.redact.text(reason.as_bytes());
    let _ = writeln!(text, "\n{}: {}", finding.rule.id, finding.rule.statement);
    let _ = writeln!(text, "    {reason}");
    let of_rule: Vec<_> = finding.seen.iter().filter(|seen| !seen.is_aside).collect();
    let begin = of_rule.len().saturating_sub(SHOWN);
    if begin > 0 {
        let _ = writeln!(text, "    after {begin} more exchanges, which --verbose shows:");
    }
    exchanges(text, report, of_rule[begin..].iter().copied());
}

fn exchanges<'s>(text: &mut String, report: &Report, seen: impl IntoIterator<Item = &'s Seen>) {
    for seen in seen {
        message(text, '>', &report.redact.request(&seen.request));
        match &seen.came {
            Came::Answer(answer) => message(text, '<', &report.redact.answer(answer)),
            Came::Lost(lost) => drop(writeln!(text, "    < {lost}")),
            Came::HungUp => drop(writeln!(text, "    > (hung up)")),
        }
    }
}

fn message(text: &mut String, mark: char, message: &Message) {
    let _ = writeln!(text, "    {mark} {}", message.line);
    for (name, value) in &message.headers {
        let _ = writeln!(text, "    {mark} {name}: {value}");
    }
    if !message.body.is_empty() {
        let _ = writeln!(text, "    {mark}\n    {mark} {}", message.body);
    }
}
