//! Whose key it is, and for what.

use crate::conformance::answer::Answer;
use crate::conformance::preset::Refusal;
use crate::conformance::rule::{Checked, Need, Rule};
use crate::conformance::subject::new_key;
use crate::conformance::trial::{Trial, fail, told};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "scope-principal",
        statement: "The same key from another caller is another operation: it neither sees nor meets the first one.",
        sources: "T P H",
        needs: &[Need::OtherCaller],
        check: |trial| Box::pin(principal(trial)),
    },
    Rule {
        id: "scope-method",
        statement: "The same key with another method never gets the first one's answer.",
        sources: "T P H",
        needs: &[Need::Switches],
        check: |trial| Box::pin(method(trial)),
    },
    Rule {
        id: "scope-route",
        statement: "The same key on another path never gets the first one's answer.",
        sources: "T P H",
        needs: &[Need::Switches],
        check: |trial| Box::pin(route(trial)),
    },
    Rule {
        id: "scope-host",
        statement: "The same key for another host never gets the first one's answer.",
        sources: "+",
        needs: &[Need::OtherHost],
        check: |trial| Box::pin(host(trial)),
    },
    Rule {
        id: "scope-query",
        statement: "The same key with another query is another request, and refused.",
        sources: "T",
        needs: &[],
        check: |trial| Box::pin(query(trial)),
    },
    Rule {
        id: "scope-other-key",
        statement: "Another key with the same content is another operation.",
        sources: "Y T +",
        needs: &[],
        check: |trial| Box::pin(other_key(trial)),
    },
];

async fn principal(trial: &Trial<'_>) -> Checked {
    let other_caller = trial.subject.target.other_caller.as_deref().unwrap_or_default();
    let request = trial.operation();
    let first = trial.carry_out(&request).await?;
    let foreign = trial.carry_out(&request.clone().secrets(other_caller)).await?;
    trial.own(&first, &foreign)?;
    trial.happened(&request, 2).await?;
    let request = trial.operation();
    let first = trial.carry_out(&request).await?;
    let foreign = trial.other_content(&request)?.secrets(other_caller);
    trial.carry_out(&foreign).await?;
    trial.replay(&request, &first).await?;
    trial.happened(&request, 2).await
}

/// The second request ran by itself, or was refused as another one.
fn not_foreign(trial: &Trial<'_>, first: &Answer, second: &Answer) -> Checked {
    if trial.is_refused(second, Refusal::Mismatch) {
        return Ok(());
    }
    if !second.is_success() {
        return fail(format!(
            "expected a run of its own or a mismatch, came {}",
            told(second)
        ));
    }
    trial.own(first, second)
}

async fn method(trial: &Trial<'_>) -> Checked {
    let request = trial.operation().method("POST");
    let first = trial.carry_out(&request).await?;
    for method in ["PUT", "PATCH", "DELETE"] {
        let second = trial.send(&request.clone().method(method)).await?;
        not_foreign(trial, &first, &second)?;
    }
    trial.replay(&request, &first).await.map(drop)
}

async fn route(trial: &Trial<'_>) -> Checked {
    let target = &trial.subject.target;
    let request = trial.operation();
    let first = trial.carry_out(&request).await?;
    let path = format!("{}{}/other", target.place.prefix, target.path.trim_end_matches('/'));
    let second = trial.send(&request.clone().path(&path)).await?;
    not_foreign(trial, &first, &second)?;
    trial.replay(&request, &first).await.map(drop)
}

async fn host(trial: &Trial<'_>) -> Checked {
    let other_host = trial.subject.target.other_host.as_deref().unwrap_or_default();
    let request = trial.operation();
    let first = trial.carry_out(&request).await?;
    let second = trial.send(&request.clone().header("Host", other_host)).await?;
    not_foreign(trial, &first, &second)?;
    trial.replay(&request, &first).await.map(drop)
}

async fn query(trial: &Trial<'_>) -> Checked {
    let request = trial.operation().query("item", "1");
    let first = trial.carry_out(&request).await?;
    let second = trial.send(&request.clone().query("item", "2")).await?;
    trial.refused(&second, Refusal::Mismatch)?;
    trial.replay(&request, &first).await?;
    trial.happened(&request, 1).await
}

async fn other_key(trial: &Trial<'_>) -> Checked {
    let request = trial.operation();
    let first = trial.carry_out(&request).await?;
    let second = trial.carry_out(&request.clone().key(new_key())).await?;
    trial.own(&first, &second)?;
    trial.happened(&request, 2).await
}
