//! The report for programs.

use serde_json::{Value, json};

use super::super::trial::{Came, Seen};
use super::shown::{Message, Redact};
use super::{Finding, Report, Verdict};

/// Everything, with every exchange.
pub(in super::super) fn json(report: &Report) -> String {
    let findings: Vec<_> = report
        .findings
        .iter()
        .map(|finding| of_finding(report, finding))
        .collect();
    let value = json!({
        "target": report.target,
        "preset": report.preset,
        "guarantee": report.guarantee,
        "passed": report.count(Verdict::Passed),
        "failed": report.count(Verdict::Failed),
        "notApplicable": report.count(Verdict::NotApplicable),
        "rules": findings,
    });
    format!("{value:#}\n")
}

fn of_finding(report: &Report, finding: &Finding) -> Value {
    let rule = finding.rule;
    let sources: Vec<_> = rule.sources.split(' ').collect();
    let exchanges: Vec<_> = finding
        .seen
        .iter()
        .map(|seen| of_exchange(&report.redact, seen))
        .collect();
    let reason = finding
        .reason
        .as_deref()
        .map(|reason| report.redact.text(reason.as_bytes()));
    json!({
        "id": rule.id,
        "statement": rule.statement,
        "sources": sources,
        "verdict": finding.verdict.as_str(),
        "reason": reason,
        "shownBy": finding.shows().map(|seen| report.redact.brief(seen)),
        "milliseconds": u64::try_from(finding.took.as_millis()).unwrap_or(u64::MAX),
        "exchanges": exchanges,
    })
}

fn of_exchange(redact: &Redact, seen: &Seen) -> Value {
    let request = redact.request(&seen.request);
    let (answer, lost) = match &seen.came {
        Came::Answer(answer) => {
            let status = answer.status;
            let mut value = of_message(&redact.answer(answer));
            value["status"] = Value::from(status);
            (Some(value), None)
        }
        Came::Lost(lost) => (None, Some(lost.to_string())),
        Came::HungUp => (None, Some("hung up".to_owned())),
    };
    json!({ "request": of_message(&request), "answer": answer, "lost": lost, "aside": seen.is_aside })
}

fn of_message(message: &Message) -> Value {
    let headers: Vec<_> = message
        .headers
        .iter()
        .map(|(name, value)| json!([name, value]))
        .collect();
    json!({ "line": message.line, "headers": headers, "body": message.body })
}
