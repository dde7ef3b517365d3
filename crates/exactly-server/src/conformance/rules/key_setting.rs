//! What a key is where a route says otherwise.

use super::content::not_an_object;
use crate::conformance::preset::Refusal;
use crate::conformance::request::KEY;
use crate::conformance::rule::{Checked, Need, Rule};
use crate::conformance::setting::{KEY_ALIAS, KEY_FIELD, Setting};
use crate::conformance::subject::new_key;
use crate::conformance::trial::Trial;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "key-missing",
        statement: "Where a key is required, a request without one is refused, and nothing runs.",
        sources: "P",
        needs: &[Need::Route(Setting::Required)],
        check: |trial| Box::pin(missing(trial)),
    },
    Rule {
        id: "key-in-body",
        statement: "Where a body field may carry the key, it protects like the header; the two must not disagree.",
        sources: "P",
        needs: &[Need::Route(Setting::Field)],
        check: |trial| Box::pin(in_body(trial)),
    },
    Rule {
        id: "key-alias",
        statement: "Where another header may carry the key, it protects like the first; the two must not disagree.",
        sources: "H",
        needs: &[Need::Route(Setting::Alias)],
        check: |trial| Box::pin(alias(trial)),
    },
    Rule {
        id: "key-uuid",
        statement: "Where keys are version 4 UUIDs, anything else is refused, and upper case spells the same key.",
        sources: "Y",
        needs: &[Need::Route(Setting::Uuid)],
        check: |trial| Box::pin(uuid(trial)),
    },
    Rule {
        id: "key-off",
        statement: "Where keys are off, each request is an operation of its own.",
        sources: "+",
        needs: &[Need::Route(Setting::Off)],
        check: |trial| Box::pin(off(trial)),
    },
];

async fn missing(trial: &Trial<'_>) -> Checked {
    let with_key = trial.on(Setting::Required);
    let request = with_key.clone().without(KEY);
    let answer = trial.send(&request).await?;
    trial.refused(&answer, Refusal::KeyMissing)?;
    trial.happened(&request, 0).await?;
    trial.carry_out(&with_key).await?;
    trial.happened(&request, 1).await
}

async fn in_body(trial: &Trial<'_>) -> Checked {
    let plain = trial.on(Setting::Field).without(KEY);
    let request = plain.member(KEY_FIELD, &format!("\"{}\"", new_key()));
    let request = request.ok_or_else(not_an_object)?;
    let first = trial.carry_out(&request).await?;
    trial.replay(&request, &first).await?;
    trial.happened(&request, 1).await?;
    let answer = trial.send(&request.clone().key(new_key())).await?;
    trial.refused(&answer, Refusal::KeyInvalid)?;
    trial.happened(&request, 1).await
}

async fn alias(trial: &Trial<'_>) -> Checked {
    let key = new_key();
    let request = trial.on(Setting::Alias).without(KEY).line(KEY_ALIAS, &key);
    let first = trial.carry_out(&request).await?;
    trial.replay(&request, &first).await?;
    trial
        .replay(&request.clone().without(KEY_ALIAS).key(&key), &first)
        .await?;
    let answer = trial.send(&request.clone().key(new_key())).await?;
    trial.refused(&answer, Refusal::KeyInvalid)?;
    trial.happened(&request, 1).await
}

async fn uuid(trial: &Trial<'_>) -> Checked {
    let key = new_key();
    let request = trial.on(Setting::Uuid).key(&key);
    let version_1 = format!("{}1{}", &key[..14], &key[15..]);
    for other in ["order-17", &key.replace('-', ""), &version_1] {
        let answer = trial.send(&request.clone().key(other)).await?;
        trial.refused(&answer, Refusal::KeyInvalid)?;
    }
    trial.happened(&request, 0).await?;
    let first = trial.carry_out(&request).await?;
    trial.replay(&request.clone().key(key.to_uppercase()), &first).await?;
    trial.happened(&request, 1).await
}

async fn off(trial: &Trial<'_>) -> Checked {
    let request = trial.on(Setting::Off);
    let first = trial.carry_out(&request).await?;
    let again = trial.carry_out(&request).await?;
    trial.own(&first, &again)?;
    trial.happened(&request, 2).await
}
