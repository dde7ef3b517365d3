//! The first answer, again.

use crate::conformance::preset::Refusal;
use crate::conformance::request::KEY;
use crate::conformance::rule::{Checked, Need, Rule};
use crate::conformance::setting::Setting;
use crate::conformance::subject::new_key;
use crate::conformance::trial::{Trial, fail, same};

/// How often a request is repeated in the very moment of its answer.
const MOMENTS: usize = 20;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "replay-byte-for-byte",
        statement: "A finished operation that is asked for again answers with the first answer, and runs once.",
        sources: "Y T P H I",
        needs: &[],
        check: |trial| Box::pin(byte_for_byte(trial)),
    },
    Rule {
        id: "replay-at-once",
        statement: "The outcome is recorded before the answer goes out: a repetition in the same moment gets it too.",
        sources: "+",
        needs: &[],
        check: |trial| Box::pin(at_once(trial)),
    },
    Rule {
        id: "replay-after-refusal",
        statement: "A refused request changes nothing: the first answer still comes back.",
        sources: "+",
        needs: &[],
        check: |trial| Box::pin(after_refusal(trial)),
    },
    Rule {
        id: "replay-any-status",
        statement: "An answer is kept whatever its status, a redirect, a 404 or a 412 like a 200.",
        sources: "T I +",
        needs: &[Need::Switches],
        check: |trial| Box::pin(any_status(trial)),
    },
    Rule {
        id: "replay-empty",
        statement: "An empty answer, also a 204, is an answer: it comes back, and nothing runs again.",
        sources: "+",
        needs: &[Need::Switches],
        check: |trial| Box::pin(empty(trial)),
    },
    Rule {
        id: "replay-binary",
        statement: "A body that is no text comes back byte for byte.",
        sources: "+",
        needs: &[Need::Switches],
        check: |trial| Box::pin(of_body(trial, ("body", "binary"))),
    },
    Rule {
        id: "replay-streamed",
        statement: "An answer that came in pieces comes back whole, and nothing runs again.",
        sources: "+",
        needs: &[Need::Switches],
        check: |trial| Box::pin(of_body(trial, ("body", "streamed"))),
    },
    Rule {
        id: "replay-no-store",
        statement: "An answer with Cache-Control: no-store is protected like any other.",
        sources: "+",
        needs: &[Need::Switches],
        check: |trial| Box::pin(of_body(trial, ("with", "no-store"))),
    },
    Rule {
        id: "replay-too-large",
        statement: "An answer too large to keep leaves the key consumed: it comes back whole or as 409, and never runs again.",
        sources: "+",
        needs: &[Need::Switches],
        check: |trial| Box::pin(too_large(trial)),
    },
    Rule {
        id: "replay-secret",
        statement: "Where answers are never kept, a repetition gets 409 replay_unavailable, and nothing runs again.",
        sources: "P",
        needs: &[Need::Route(Setting::Secret)],
        check: |trial| Box::pin(secret(trial)),
    },
];

async fn byte_for_byte(trial: &Trial<'_>) -> Checked {
    let request = trial.operation();
    let first = trial.carry_out(&request).await?;
    for _ in 0..3 {
        trial.replay(&request, &first).await?;
    }
    trial.happened(&request, 1).await
}

async fn at_once(trial: &Trial<'_>) -> Checked {
    for _ in 0..MOMENTS {
        let request = trial.operation();
        let first = trial.carry_out(&request).await?;
        trial.replay(&request, &first).await?;
    }
    Ok(())
}

async fn after_refusal(trial: &Trial<'_>) -> Checked {
    let request = trial.operation();
    let first = trial.carry_out(&request).await?;
    let refused = [
        trial.other_content(&request)?,
        request.clone().line(KEY, new_key()),
        request.clone().query("item", "2"),
    ];
    for refused in refused {
        trial.send(&refused).await?;
        trial.replay(&request, &first).await?;
    }
    trial.happened(&request, 1).await
}

async fn any_status(trial: &Trial<'_>) -> Checked {
    for status in [200, 202, 303, 400, 402, 404, 409, 410, 412, 422] {
        let request = trial.switched(&[("status", &status.to_string())]);
        let first = trial.send(&request).await?;
        if first.status != status {
            return fail(format!("{status} of the upstream was passed on as {}", first.status));
        }
        trial.replay(&request, &first).await?;
        trial.happened(&request, 1).await?;
    }
    Ok(())
}

async fn empty(trial: &Trial<'_>) -> Checked {
    for status in ["204", "200"] {
        let request = trial.switched(&[("status", status), ("body", "empty")]);
        let first = trial.carry_out(&request).await?;
        trial.replay(&request, &first).await?;
        trial.happened(&request, 1).await?;
    }
    Ok(())
}

/// What the upstream answers with this switch comes back.
async fn of_body(trial: &Trial<'_>, switch: (&str, &str)) -> Checked {
    let request = trial.switched(&[switch]);
    let first = trial.carry_out(&request).await?;
    trial.replay(&request, &first).await?;
    trial.happened(&request, 1).await
}

async fn too_large(trial: &Trial<'_>) -> Checked {
    let request = trial.switched(&[("body", "large")]);
    let first = trial.carry_out(&request).await?;
    let again = trial.send(&request).await?;
    if !trial.is_refused(&again, Refusal::ReplayUnavailable) {
        same(&first, &again)?;
    }
    trial.happened(&request, 1).await
}

async fn secret(trial: &Trial<'_>) -> Checked {
    let request = trial.on(Setting::Secret);
    trial.carry_out(&request).await?;
    let again = trial.send(&request).await?;
    trial.refused(&again, Refusal::ReplayUnavailable)?;
    trial.happened(&request, 1).await
}
