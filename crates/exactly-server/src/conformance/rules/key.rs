//! What a key is.

use crate::conformance::preset::Refusal;
use crate::conformance::request::{KEY, Request};
use crate::conformance::rule::{Checked, Need, Rule, Stop};
use crate::conformance::subject::new_key;
use crate::conformance::trial::{Trial, fail};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "key-optional",
        statement: "Where no key is required, a request without one passes, and each is an operation of its own.",
        sources: "T +",
        needs: &[],
        check: |trial| Box::pin(optional(trial)),
    },
    Rule {
        id: "key-empty",
        statement: "An empty key, bare or quoted, is refused, and nothing runs.",
        sources: "P I",
        needs: &[],
        check: |trial| Box::pin(refused(trial, |_| vec![Vec::new(), b"\"\"".to_vec()])),
    },
    Rule {
        id: "key-too-long",
        statement: "A key of 256 bytes is refused, and nothing runs.",
        sources: "P +",
        needs: &[],
        check: |trial| Box::pin(refused(trial, |key| vec![padded(key, 256)])),
    },
    Rule {
        id: "key-longest",
        statement: "A key of 255 bytes is a key like any other.",
        sources: "P +",
        needs: &[],
        check: |trial| Box::pin(longest(trial)),
    },
    Rule {
        id: "key-control-character",
        statement: "A key with a control character is refused, and nothing runs.",
        sources: "P +",
        needs: &[],
        check: |trial| Box::pin(control_character(trial)),
    },
    Rule {
        id: "key-not-ascii",
        statement: "A key with bytes beyond visible ASCII is refused, and nothing runs.",
        sources: "I +",
        needs: &[],
        check: |trial| Box::pin(refused(trial, |key| vec![[key, b"\xe9"].concat()])),
    },
    Rule {
        id: "key-comma",
        statement: "A bare key with a comma, which may be two lines that a proxy joined, is refused, and nothing runs.",
        sources: "I +",
        needs: &[],
        check: |trial| Box::pin(refused(trial, |key| vec![[key, b", ", key].concat()])),
    },
    Rule {
        id: "key-broken-quotes",
        statement: "A key that opens with a quote and is no well-formed string is refused, and nothing runs.",
        sources: "I",
        needs: &[],
        check: |trial| Box::pin(refused(trial, |key| vec![[b"\"", key].concat()])),
    },
    Rule {
        id: "key-sent-twice",
        statement: "Two key headers are refused, even equal ones, and nothing runs.",
        sources: "+",
        needs: &[],
        check: |trial| Box::pin(sent_twice(trial)),
    },
    Rule {
        id: "key-quoted-is-bare",
        statement: "A quoted structured-field string and the bare form are the same key.",
        sources: "I +",
        needs: &[],
        check: |trial| Box::pin(quoted(trial)),
    },
    Rule {
        id: "key-ignored-on-reads",
        statement: "A key on GET, HEAD or OPTIONS is ignored: every request is carried out, and the key stays free.",
        sources: "T +",
        needs: &[],
        check: |trial| Box::pin(reads(trial)),
    },
    Rule {
        id: "key-on-every-write",
        statement: "A POST, PUT, PATCH or DELETE that carries a key is protected.",
        sources: "T +",
        needs: &[Need::Switches],
        check: |trial| Box::pin(writes(trial)),
    },
];

async fn optional(trial: &Trial<'_>) -> Checked {
    let request = trial.operation().without(KEY);
    let one = trial.send(&request).await?;
    if trial.is_refused(&one, Refusal::KeyMissing) {
        return Err(Stop::NotApplicable("a key is required here".to_owned()));
    }
    if !one.is_success() {
        return fail(format!("a request without a key was answered with {}", one.status));
    }
    let other = trial.carry_out(&request).await?;
    trial.own(&one, &other)?;
    trial.happened(&request, 2).await
}

/// Each of the spellings is refused as a malformed key.
async fn refused(trial: &Trial<'_>, spell: fn(&[u8]) -> Vec<Vec<u8>>) -> Checked {
    for key in spell(new_key().as_bytes()) {
        malformed(trial, &trial.operation().key(key)).await?;
    }
    Ok(())
}

async fn malformed(trial: &Trial<'_>, request: &Request) -> Checked {
    let answer = trial.send(request).await?;
    trial.refused(&answer, Refusal::KeyInvalid)?;
    trial.happened(request, 0).await
}

fn padded(key: &[u8], len: usize) -> Vec<u8> {
    let mut key = key.to_vec();
    key.resize(len, b'k');
    key
}

async fn longest(trial: &Trial<'_>) -> Checked {
    let request = trial.operation().key(padded(new_key().as_bytes(), 255));
    let first = trial.carry_out(&request).await?;
    trial.replay(&request, &first).await?;
    trial.happened(&request, 1).await
}

async fn control_character(trial: &Trial<'_>) -> Checked {
    // Most servers refuse this as no HTTP at all, before anybody looks for a key.
    let request = trial.operation().key(b"a\x01b");
    if let Ok(answer) = trial.attempt(&request).await
        && !(400..500).contains(&answer.status)
    {
        return fail(format!("a key with the byte 1 was answered with {}", answer.status));
    }
    trial.happened(&request, 0).await?;
    // A tab is good HTTP, but no good key.
    malformed(trial, &trial.operation().key(format!("{}\tb", new_key()))).await
}

async fn sent_twice(trial: &Trial<'_>) -> Checked {
    let (key, other) = (new_key(), new_key());
    malformed(trial, &trial.operation().key(&key).line(KEY, &key)).await?;
    malformed(trial, &trial.operation().key(&key).line(KEY, &other)).await
}

async fn quoted(trial: &Trial<'_>) -> Checked {
    let key = new_key();
    let bare = trial.operation().key(&key);
    let first = trial.carry_out(&bare).await?;
    let quoted = bare.clone().key(format!("\"{key}\""));
    trial.replay(&quoted, &first).await?;
    trial.happened(&bare, 1).await
}

async fn reads(trial: &Trial<'_>) -> Checked {
    let write = trial.operation();
    for method in ["GET", "HEAD", "OPTIONS"] {
        let read = write.clone().method(method).body("");
        for _ in 0..2 {
            let answer = trial.send(&read).await?;
            if let Some(status) = answer.header("idempotency-status") {
                return fail(format!("{method} was answered as {status}"));
            }
        }
    }
    let reads = trial.counts(&write).await?.and_then(|counts| counts.reads);
    if let Some(reads) = reads.filter(|reads| trial.subject.has_switches && *reads != 6) {
        return fail(format!("{reads} of 6 reads were carried out"));
    }
    trial.carry_out(&write).await?;
    trial.happened(&write, 1).await
}

async fn writes(trial: &Trial<'_>) -> Checked {
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let request = trial.operation().method(method);
        let first = trial.carry_out(&request).await?;
        trial.replay(&request, &first).await?;
        trial.happened(&request, 1).await?;
    }
    Ok(())
}
