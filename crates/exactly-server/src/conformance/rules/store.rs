//! A store that cannot answer.

use crate::conformance::preset::Refusal;
use crate::conformance::rule::{Checked, Need, Rule};
use crate::conformance::trial::{Trial, fail};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "store-down",
    statement: "A store that cannot answer fails closed: 503 with Retry-After, and nothing runs.",
    sources: "Y T",
    needs: &[Need::StoreDown],
    check: |trial| Box::pin(down(trial)),
}];

async fn down(trial: &Trial<'_>) -> Checked {
    let request = trial.operation();
    let answer = trial.send(&request).await?;
    trial.refused(&answer, Refusal::StoreUnavailable)?;
    if answer.header("retry-after").is_none() {
        return fail("the answer has no Retry-After");
    }
    trial.happened(&request, 0).await
}
