//! What becomes of the key, by how the attempt ended.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::conformance::rule::{Checked, Need, Rule};
use crate::conformance::setting::Setting;
use crate::conformance::trial::{Trial, fail, told, with};

/// How long the upstream's port stays closed.
const DOWN_MS: &str = "1000";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "ending-nothing-happened",
        statement: "408, 425, 429 and 503 say that nothing happened: the key is freed, and a retry runs.",
        sources: "Y T +",
        needs: &[Need::Switches],
        check: |trial| Box::pin(nothing_happened(trial)),
    },
    Rule {
        id: "ending-500-kept",
        statement: "At-most-once: a 500 is an answer and comes back; nothing runs again.",
        sources: "+",
        needs: &[Need::Switches, Need::AtMostOnce],
        check: |trial| Box::pin(kept(trial)),
    },
    Rule {
        id: "ending-5xx-freed",
        statement: "Rerunnable and transactional: every 5xx frees the key, and a retry runs.",
        sources: "Y T",
        needs: &[Need::Switches, Need::Repeatable],
        check: |trial| Box::pin(freed(trial, None)),
    },
    Rule {
        id: "ending-rerunnable",
        statement: "On a rerunnable route a failed or lost attempt is run again by the next request.",
        sources: "Y T +",
        needs: &[Need::Switches, Need::Route(Setting::Rerunnable)],
        check: |trial| Box::pin(rerunnable(trial)),
    },
    Rule {
        id: "ending-not-sent",
        statement: "A service that could not be reached did nothing: the key is freed, and a retry runs.",
        sources: "+",
        needs: &[Need::Switches, Need::Alone],
        check: |trial| Box::pin(not_sent(trial)),
    },
];

async fn nothing_happened(trial: &Trial<'_>) -> Checked {
    for status in [408, 425, 429, 503] {
        let request = trial.switched(&[("status", &format!("{status},201"))]);
        let first = trial.send(&request).await?;
        if first.status != status {
            return fail(format!("{status} of the upstream was passed on as {}", told(&first)));
        }
        trial.carry_out(&request).await?;
        trial.happened(&request, 2).await?;
    }
    Ok(())
}

async fn kept(trial: &Trial<'_>) -> Checked {
    for status in ["500,201", "501,201"] {
        let request = trial.switched(&[("status", status)]);
        let first = trial.send(&request).await?;
        trial.replay(&request, &first).await?;
        trial.happened(&request, 1).await?;
    }
    Ok(())
}

/// Every 5xx frees the key, on the main route or on another.
async fn freed(trial: &Trial<'_>, route: Option<Setting>) -> Checked {
    for status in ["500,201", "502,201", "504,201"] {
        let operation = route.map_or_else(|| trial.operation(), |setting| trial.on(setting));
        let request = with(operation, &[("status", status)]);
        trial.send(&request).await?;
        trial.carry_out(&request).await?;
        trial.happened(&request, 2).await?;
    }
    Ok(())
}

async fn rerunnable(trial: &Trial<'_>) -> Checked {
    freed(trial, Some(Setting::Rerunnable)).await?;
    for cut in ["before,no", "after,no", "answer,no"] {
        let request = with(trial.on(Setting::Rerunnable), &[("cut", cut)]);
        // Whatever is said about a lost attempt, the next one counts.
        let _ = trial.attempt(&request).await;
        let second = trial.settled(&request).await?;
        if !second.is_success() {
            return fail(format!("the next request was answered with {}", told(&second)));
        }
        trial.happened(&request, 2).await?;
    }
    Ok(())
}

async fn not_sent(trial: &Trial<'_>) -> Checked {
    let request = trial.operation();
    trial.control("down", &request.tag, &format!("ms={DOWN_MS}")).await?;
    if let Ok(answer) = trial.attempt(&request).await
        && answer.is_success()
    {
        return fail("it was carried out although the service was down");
    }
    let deadline = Instant::now() + trial.subject.target.limit;
    while trial.counts(&request).await.is_err() {
        if Instant::now() > deadline {
            return fail("the service did not come back");
        }
        sleep(Duration::from_millis(100)).await;
    }
    let answer = trial.settled(&request).await?;
    if !answer.is_success() {
        return fail(format!("the retry was answered with {}", told(&answer)));
    }
    trial.happened(&request, 1).await
}
