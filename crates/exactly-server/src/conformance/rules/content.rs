//! What makes two requests the same.

use crate::conformance::preset::Refusal;
use crate::conformance::request::Request;
use crate::conformance::rule::{Checked, Need, Rule, Stop};
use crate::conformance::setting::{FIELD_LEFT_OUT, Setting};
use crate::conformance::trial::{Trial, fail, told};

/// The bytes of a body that is too large for most servers to hold on to.
const LARGE: usize = 2 * 1024 * 1024;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "content-other",
        statement: "The same key with another value in the body is refused, and nothing runs.",
        sources: "Y T P I",
        needs: &[],
        check: |trial| Box::pin(other(trial)),
    },
    Rule {
        id: "content-json-spelling",
        statement: "The order of a JSON object's members and white space do not matter.",
        sources: "T",
        needs: &[],
        check: |trial| Box::pin(json_spelling(trial)),
    },
    Rule {
        id: "content-told-apart",
        statement: "Bodies that a handler could tell apart are different: 1, 1.0 and \"1\", null and nothing, members twice.",
        sources: "T",
        needs: &[Need::Switches],
        check: |trial| Box::pin(told_apart(trial)),
    },
    Rule {
        id: "content-type",
        statement: "The same bytes as another content type are another request, and refused.",
        sources: "T",
        needs: &[Need::Switches],
        check: |trial| Box::pin(content_type(trial)),
    },
    Rule {
        id: "content-bytes",
        statement: "A body that is no text is compared byte by byte.",
        sources: "T +",
        needs: &[Need::Switches],
        check: |trial| Box::pin(bytes(trial)),
    },
    Rule {
        id: "content-multipart-boundary",
        statement: "The boundary of a multipart body does not matter, its parts do.",
        sources: "T",
        needs: &[Need::Switches],
        check: |trial| Box::pin(multipart(trial)),
    },
    Rule {
        id: "content-precondition",
        statement: "The same request with another If-Match is another request, and refused.",
        sources: "T",
        needs: &[Need::Switches],
        check: |trial| Box::pin(precondition(trial)),
    },
    Rule {
        id: "content-left-out",
        statement: "Where a field is left out, requests that differ in it alone are the same.",
        sources: "T",
        needs: &[Need::Route(Setting::LeaveOut)],
        check: |trial| Box::pin(left_out(trial)),
    },
    Rule {
        id: "content-too-large",
        statement: "A request body too large to compare is refused, and nothing runs: it never passes unprotected.",
        sources: "+",
        needs: &[Need::Switches],
        check: |trial| Box::pin(too_large(trial)),
    },
];

pub(super) fn not_an_object() -> Stop {
    Stop::NotApplicable("needs a --body that is a JSON object".to_owned())
}

/// The second request is refused as another one than the first.
async fn differ(trial: &Trial<'_>, request: &Request, other: &Request) -> Checked {
    trial.carry_out(request).await?;
    let answer = trial.send(other).await?;
    trial.refused(&answer, Refusal::Mismatch)?;
    trial.happened(request, 1).await
}

async fn other(trial: &Trial<'_>) -> Checked {
    let request = trial.operation();
    let other = trial.other_content(&request)?;
    differ(trial, &request, &other).await
}

async fn json_spelling(trial: &Trial<'_>) -> Checked {
    let request = trial.operation();
    let respelled = str::from_utf8(&request.body).ok().and_then(respell);
    let respelled = respelled.ok_or_else(not_an_object)?;
    let first = trial.carry_out(&request).await?;
    trial.replay(&request.clone().body(respelled), &first).await?;
    trial.happened(&request, 1).await
}

async fn told_apart(trial: &Trial<'_>) -> Checked {
    for (one, other) in [
        (r#"{"a":1}"#, r#"{"a":"1"}"#),
        (r#"{"a":1}"#, r#"{"a":1.0}"#),
        (r#"{"a":1}"#, r#"{"a":1,"b":null}"#),
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
        (r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#),
        (r#"{"a":"x"}"#, r#"{"a":"x "}"#),
    ] {
        let request = trial.operation().header("Content-Type", "application/json").body(one);
        differ(trial, &request, &request.clone().body(other)).await?;
    }
    Ok(())
}

async fn content_type(trial: &Trial<'_>) -> Checked {
    let request = trial.operation().header("Content-Type", "application/json");
    let other = request.clone().header("Content-Type", "text/plain");
    differ(trial, &request, &other).await
}

async fn bytes(trial: &Trial<'_>) -> Checked {
    let one: Vec<u8> = (0..=u8::MAX).collect();
    let mut other = one.clone();
    // Neither is valid text, so whoever reads them as text sees the same replacement character.
    other[200] = 0xff;
    let request = trial
        .operation()
        .header("Content-Type", "application/octet-stream")
        .body(one);
    let first = trial.carry_out(&request).await?;
    trial.replay(&request, &first).await?;
    let answer = trial.send(&request.clone().body(other)).await?;
    trial.refused(&answer, Refusal::Mismatch)?;
    trial.happened(&request, 1).await
}

async fn multipart(trial: &Trial<'_>) -> Checked {
    let operation = trial.operation();
    let form = |boundary: &str, amount: &str| {
        let part = |name: &str, value: &str| {
            format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        let body = format!(
            "{}{}--{boundary}--\r\n",
            part("amount", amount),
            part("currency", "EUR")
        );
        let kind = format!("multipart/form-data; boundary={boundary}");
        operation.clone().header("Content-Type", kind).body(body)
    };
    let request = form("first", "100");
    let first = trial.carry_out(&request).await?;
    trial.replay(&form("second", "100"), &first).await?;
    let answer = trial.send(&form("first", "101")).await?;
    trial.refused(&answer, Refusal::Mismatch)?;
    trial.happened(&request, 1).await
}

async fn precondition(trial: &Trial<'_>) -> Checked {
    let request = trial.operation().method("PUT").line("If-Match", "\"1\"");
    let other = request.clone().header("If-Match", "\"2\"");
    differ(trial, &request, &other).await
}

async fn left_out(trial: &Trial<'_>) -> Checked {
    let operation = trial.on(Setting::LeaveOut);
    let sent_at = |moment: &str| operation.member(FIELD_LEFT_OUT, moment).ok_or_else(not_an_object);
    let request = sent_at("1")?;
    let first = trial.carry_out(&request).await?;
    trial.replay(&sent_at("2")?, &first).await?;
    let other = trial.other_content(&request)?;
    let answer = trial.send(&other).await?;
    trial.refused(&answer, Refusal::Mismatch)?;
    trial.happened(&request, 1).await
}

async fn too_large(trial: &Trial<'_>) -> Checked {
    let body = format!("{{\"note\":\"{}\"}}", "x".repeat(LARGE));
    let request = trial.operation().header("Content-Type", "application/json").body(body);
    // Some servers hang up on what they do not want to read.
    match trial.attempt(&request).await {
        Ok(first) if first.is_success() => {
            trial.replay(&request, &first).await?;
            trial.happened(&request, 1).await
        }
        Ok(answer) if answer.status < 400 => fail(format!("it was answered with {}", told(&answer))),
        Ok(_) | Err(_) => trial.happened(&request, 0).await,
    }
}

/// A JSON object with its members in the opposite order and more white space. The values keep their spelling, which is
/// part of what they are.
fn respell(json: &str) -> Option<String> {
    serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(json).ok()?;
    let inside = json.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut members = Vec::new();
    let (mut depth, mut in_string, mut escaped, mut begin) = (0_u32, false, false, 0);
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                members.push(inside[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    members.push(inside[begin..].trim());
    members.reverse();
    Some(format!("\n{{  {}\t}} ", members.join(" ,\r\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_respelled_object_is_the_same_object() {
        let json = r#"{"a":1.50,"b":"x,\"}{","c":[1,{"d":2,"e":3}],"f":{"g":{}}}"#;
        let respelled = respell(json).unwrap();
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(&respelled), read(json));
        assert!(respelled.trim().starts_with("{  \"f\""), "{respelled}");
        assert!(respelled.contains("1.50"));
        assert_eq!(respell("[1]"), None);
        assert_eq!(respell("a=1"), None);
    }
}
