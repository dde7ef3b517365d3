//! Clients that hang up.

use tokio::time::sleep;

use crate::conformance::rule::{Checked, Need, Rule};
use crate::conformance::trial::{NOTICE, Trial, fail, told};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "hang-up-cancels-nothing",
        statement: "A client that hangs up does not cancel the work: it is finished, and a repetition gets its answer.",
        sources: "+",
        needs: &[Need::Switches],
        check: |trial| Box::pin(cancels_nothing(trial)),
    },
    Rule {
        id: "hang-up-in-body",
        statement: "A request whose body breaks off claims nothing: the whole request with the same key runs.",
        sources: "+",
        needs: &[],
        check: |trial| Box::pin(in_body(trial)),
    },
];

async fn cancels_nothing(trial: &Trial<'_>) -> Checked {
    let request = trial.switched(&[("hold", "1")]);
    let open = trial.open(&request).await?;
    trial.until_running(&request).await?;
    trial.hang_up(&request, open);
    // Time enough to notice the hang-up and to do the wrong thing.
    sleep(NOTICE * 2).await;
    trial.release(&request).await?;
    let ended = |counts: crate::conformance::counter::Counts| counts.running == Some(0);
    trial.until(&request, ended, "the operation never ended").await?;
    let counts = trial.counts(&request).await?.unwrap_or_default();
    if counts.effects != 1 {
        return fail("the hang-up cancelled the work");
    }
    let answer = trial.settled(&request).await?;
    if !answer.is_success() {
        return fail(format!("the repetition was answered with {}", told(&answer)));
    }
    trial.happened(&request, 1).await
}

async fn in_body(trial: &Trial<'_>) -> Checked {
    let request = trial.operation();
    let open = trial.open_part(&request, request.body.len() / 2).await?;
    sleep(NOTICE).await;
    trial.hang_up(&request, open);
    sleep(NOTICE).await;
    trial.happened(&request, 0).await?;
    trial.carry_out(&request).await?;
    trial.happened(&request, 1).await
}
