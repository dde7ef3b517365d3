//! What an answer tells about its key.

use httpdate::parse_http_date;
use serde_json::Value;

use crate::conformance::answer::Answer;
use crate::conformance::preset::Refusal;
use crate::conformance::request::KEY;
use crate::conformance::rule::{Checked, Need, Rule, Stop};
use crate::conformance::setting::Setting;
use crate::conformance::trial::{Trial, fail};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "label-stored",
        statement: "The first answer says Idempotency-Status: stored.",
        sources: "T",
        needs: &[],
        check: |trial| Box::pin(stored(trial)),
    },
    Rule {
        id: "label-replayed",
        statement: "A repeated answer says Idempotency-Status: replayed.",
        sources: "T",
        needs: &[],
        check: |trial| Box::pin(replayed(trial)),
    },
    Rule {
        id: "label-freed",
        statement: "An answer that freed its key says Idempotency-Status: freed.",
        sources: "+",
        needs: &[Need::Switches],
        check: |trial| Box::pin(switched(trial, "503", "freed")),
    },
    Rule {
        id: "label-unknown",
        statement: "At-most-once: an answer that leaves the outcome unknown says Idempotency-Status: unknown.",
        sources: "+",
        needs: &[Need::Switches, Need::AtMostOnce],
        check: |trial| Box::pin(switched(trial, "502", "unknown")),
    },
    Rule {
        id: "label-not-retryable",
        statement: "At-most-once: a stored 500 is marked as not worth repeating, by Idempotency-Retryable: false.",
        sources: "+",
        needs: &[Need::Switches, Need::AtMostOnce],
        check: |trial| Box::pin(not_retryable(trial)),
    },
    Rule {
        id: "label-expires",
        statement: "Every keyed answer says when the key expires, by Idempotency-Expires.",
        sources: "+",
        needs: &[],
        check: |trial| Box::pin(expires(trial)),
    },
    Rule {
        id: "label-exposed",
        statement: "Scripts in browsers may read these headers.",
        sources: "+",
        needs: &[],
        check: |trial| Box::pin(exposed(trial)),
    },
    Rule {
        id: "refusals-are-problems",
        statement: "Refusals are problem+json with type, title, status, code, and whether repeating can help.",
        sources: "P I +",
        needs: &[],
        check: |trial| Box::pin(problems(trial)),
    },
];

fn says(answer: &Answer, name: &str, expected: &str) -> Checked {
    match answer.header(name) {
        Some(value) if value == expected => Ok(()),
        found => fail(format!("{name} is {found:?}, expected {expected:?}")),
    }
}

async fn stored(trial: &Trial<'_>) -> Checked {
    let first = trial.carry_out(&trial.operation()).await?;
    says(&first, "idempotency-status", "stored")
}

async fn replayed(trial: &Trial<'_>) -> Checked {
    let request = trial.operation();
    trial.carry_out(&request).await?;
    let again = trial.send(&request).await?;
    says(&again, "idempotency-status", "replayed")
}

async fn switched(trial: &Trial<'_>, status: &str, expected: &str) -> Checked {
    let answer = trial.send(&trial.switched(&[("status", status)])).await?;
    says(&answer, "idempotency-status", expected)
}

async fn not_retryable(trial: &Trial<'_>) -> Checked {
    let request = trial.switched(&[("status", "500")]);
    for _ in 0..2 {
        let answer = trial.send(&request).await?;
        says(&answer, "idempotency-retryable", "false")?;
    }
    Ok(())
}

async fn expires(trial: &Trial<'_>) -> Checked {
    let request = trial.operation();
    let other = trial.other_content(&request)?;
    for request in [&request, &request, &other] {
        let answer = trial.send(request).await?;
        let Some(value) = answer.header("idempotency-expires") else {
            return fail("the answer has no Idempotency-Expires");
        };
        if value == "never" {
            continue;
        }
        let Ok(expires) = parse_http_date(value) else {
            return fail(format!("Idempotency-Expires is {value:?}, which is no HTTP date"));
        };
        let date = answer.header("date").and_then(|date| parse_http_date(date).ok());
        if date.is_some_and(|date| expires <= date) {
            return fail(format!("Idempotency-Expires is {value:?}, which is past"));
        }
    }
    Ok(())
}

async fn exposed(trial: &Trial<'_>) -> Checked {
    let request = trial.operation().line("Origin", "https://shop.example");
    let answer = trial.carry_out(&request).await?;
    let names: Vec<_> = answer
        .header_lines("access-control-expose-headers")
        .flat_map(|line| line.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    for name in ["idempotency-status", "idempotency-expires"] {
        if !names.iter().any(|found| found == name || found == "*") {
            return fail(format!("Access-Control-Expose-Headers does not name {name}"));
        }
    }
    Ok(())
}

async fn problems(trial: &Trial<'_>) -> Checked {
    let subject = trial.subject;
    if subject.target.code_at.is_some() {
        return Err(Stop::NotApplicable(
            "refusals are rendered otherwise, as --code-at says".to_owned(),
        ));
    }
    let malformed = trial.send(&trial.operation().key("")).await?;
    problem(trial, &malformed, Refusal::KeyInvalid)?;
    let request = trial.operation();
    trial.carry_out(&request).await?;
    let mismatch = trial.send(&trial.other_content(&request)?).await?;
    problem(trial, &mismatch, Refusal::Mismatch)?;
    if subject.target.routes.contains_key(&Setting::Required) {
        let missing = trial.send(&trial.on(Setting::Required).without(KEY)).await?;
        problem(trial, &missing, Refusal::KeyMissing)?;
    }
    if subject.target.routes.contains_key(&Setting::Secret) {
        let request = trial.on(Setting::Secret);
        trial.carry_out(&request).await?;
        problem(trial, &trial.send(&request).await?, Refusal::ReplayUnavailable)?;
    }
    Ok(())
}

/// The refusal is told as RFC 9457 and the contract have it.
fn problem(trial: &Trial<'_>, answer: &Answer, refusal: Refusal) -> Checked {
    let kind = answer.header("content-type").unwrap_or_default();
    if kind.split(';').next() != Some("application/problem+json") {
        return fail(format!("a refusal is {kind:?}, not application/problem+json"));
    }
    let Some(told) = answer.json() else {
        return fail("a problem is no JSON");
    };
    let text = |name: &str| told.get(name).and_then(Value::as_str).unwrap_or_default();
    for name in ["type", "title", "detail"] {
        if text(name).is_empty() {
            return fail(format!("a problem has no {name}"));
        }
    }
    let status = trial.preset().status(refusal);
    let expected = [
        ("status", Value::from(status)),
        ("code", Value::from(refusal.code())),
        ("retryable", Value::from(refusal.is_retryable())),
    ];
    for (name, value) in expected {
        if told.get(name) != Some(&value) {
            return fail(format!("{name} of a problem is {:?}, expected {value}", told.get(name)));
        }
    }
    Ok(())
}
