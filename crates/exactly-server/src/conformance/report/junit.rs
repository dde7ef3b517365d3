//! The report as continuous integration reads it.

use std::fmt::Write as _;

use super::super::trial::Came;
use super::{Finding, Report, Verdict};

/// One test case per rule.
pub(in super::super) fn junit(report: &Report) -> String {
    let seconds: f64 = report.findings.iter().map(|finding| finding.took.as_secs_f64()).sum();
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        text,
        "<testsuites>\n  <testsuite name=\"exactly conformance {}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\" \
         time=\"{seconds:.3}\">",
        escaped(&report.preset),
        report.findings.len(),
        report.count(Verdict::Failed),
        report.count(Verdict::NotApplicable),
    );
    for finding in &report.findings {
        case(&mut text, report, finding);
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

fn case(text: &mut String, report: &Report, finding: &Finding) {
    let id = escaped(finding.rule.id);
    let seconds = finding.took.as_secs_f64();
    let _ = write!(
        text,
        "    <testcase classname=\"conformance\" name=\"{id}\" time=\"{seconds:.3}\""
    );
    let reason = finding.reason.as_deref().unwrap_or_default();
    let reason = escaped(&report.redact.text(reason.as_bytes()));
    let _ = match finding.verdict {
        Verdict::Passed => writeln!(text, "/>"),
        Verdict::NotApplicable => writeln!(text, "><skipped message=\"{reason}\"/></testcase>"),
        Verdict::Failed => {
            let evidence = escaped(&evidence(report, finding));
            writeln!(text, "><failure message=\"{reason}\">{evidence}</failure></testcase>")
        }
    };
}

/// The sentence, and what showed that it does not hold.
fn evidence(report: &Report, finding: &Finding) -> String {
    let mut text = finding.rule.statement.to_owned();
    let Some(seen) = finding.shows() else {
        return text;
    };
    let _ = write!(text, "\n{}", report.redact.brief(seen));
    if let Came::Answer(answer) = &seen.came {
        let _ = write!(text, "\n{}", report.redact.answer(answer).body);
    }
    text
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML has no way to write these.
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c if c.is_control() && c != '\n' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
