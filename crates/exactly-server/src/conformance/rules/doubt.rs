//! Attempts of which nobody knows what they did.

use crate::conformance::preset::Refusal;
use crate::conformance::request::Request;
use crate::conformance::rule::{Checked, Need, Rule};
use crate::conformance::trial::{Trial, fail};

const NEEDS: &[Need] = &[Need::Switches, Need::AtMostOnce];

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "doubt-bad-gateway",
        statement: "At-most-once: after 502 or 504 the outcome is unknown; a repetition gets 409, and nothing runs again.",
        sources: "+",
        needs: NEEDS,
        check: |trial| Box::pin(bad_gateway(trial)),
    },
    Rule {
        id: "doubt-cut-before-effect",
        statement: "At-most-once: a connection that breaks before the effect leaves it unknown; nothing is sent again.",
        sources: "+",
        needs: NEEDS,
        check: |trial| Box::pin(cut(trial, "before,no")),
    },
    Rule {
        id: "doubt-cut-after-effect",
        statement: "At-most-once: a connection that breaks after the effect leaves it unknown; nothing is sent again.",
        sources: "+",
        needs: NEEDS,
        check: |trial| Box::pin(cut(trial, "after,no")),
    },
    Rule {
        id: "doubt-cut-in-answer",
        statement: "At-most-once: an answer that breaks off is no success; the outcome is unknown, and nothing is sent again.",
        sources: "+",
        needs: NEEDS,
        check: |trial| Box::pin(cut(trial, "answer,no")),
    },
    Rule {
        id: "doubt-mismatch",
        statement: "Another request with the key of one in doubt is a mismatch.",
        sources: "Y T P +",
        needs: NEEDS,
        check: |trial| Box::pin(mismatch(trial)),
    },
    Rule {
        id: "doubt-link",
        statement: "Whoever meets a doubt is told where it is settled, by a link.",
        sources: "+",
        needs: NEEDS,
        check: |trial| Box::pin(link(trial)),
    },
];

async fn bad_gateway(trial: &Trial<'_>) -> Checked {
    for status in ["502,201", "504,201"] {
        let request = trial.switched(&[("status", status)]);
        trial.send(&request).await?;
        unknown(trial, &request).await?;
    }
    Ok(())
}

/// A repetition is told that the outcome is unknown, again and again, and nothing runs.
async fn unknown(trial: &Trial<'_>, request: &Request) -> Checked {
    for _ in 0..2 {
        let again = trial.settled(request).await?;
        trial.refused(&again, Refusal::Unknown)?;
    }
    trial.happened(request, 1).await
}

async fn cut(trial: &Trial<'_>, cut: &str) -> Checked {
    let request = trial.switched(&[("cut", cut)]);
    if let Ok(answer) = trial.attempt(&request).await
        && answer.is_success()
    {
        return fail("a lost attempt was told as a success");
    }
    unknown(trial, &request).await
}

async fn mismatch(trial: &Trial<'_>) -> Checked {
    let request = trial.switched(&[("status", "502,201")]);
    trial.send(&request).await?;
    let answer = trial.send(&trial.other_content(&request)?).await?;
    trial.refused(&answer, Refusal::Mismatch)?;
    trial.happened(&request, 1).await
}

async fn link(trial: &Trial<'_>) -> Checked {
    let request = trial.switched(&[("status", "502,201")]);
    trial.send(&request).await?;
    let answer = trial.settled(&request).await?;
    if answer.header("link").is_some() {
        return Ok(());
    }
    fail("the answer to a repetition has no Link")
}
