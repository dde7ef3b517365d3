//! Duplicates of an operation that still runs.

use std::time::Duration;

use futures_util::future::{join, join_all, try_join_all};
use tokio::time::sleep;

use crate::conformance::answer::Answer;
use crate::conformance::preset::Refusal;
use crate::conformance::request::Request;
use crate::conformance::rule::{Checked, Need, Rule, Stop};
use crate::conformance::setting::Setting;
use crate::conformance::trial::{NOTICE, Trial, fail, same, told, with};

/// How many ask at the same time.
const DUPLICATES: usize = 10;
/// How many wait for one key.
const CROWD: usize = 40;
/// How long a duplicate may wait at most on an impatient route.
const IMPATIENT_MAX: Duration = Duration::from_secs(2);

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "in-flight-one-effect",
        statement: "Of ten concurrent requests with one key one runs, and all get its answer, now or when they ask again.",
        sources: "Y",
        needs: &[],
        check: |trial| Box::pin(one_effect(trial)),
    },
    Rule {
        id: "in-flight-duplicate",
        statement: "A duplicate of a running request waits for its answer; with `ietf` and `stripe` it gets 409 at once.",
        sources: "Y I",
        needs: &[Need::Switches],
        check: |trial| Box::pin(duplicate(trial)),
    },
    Rule {
        id: "in-flight-limit",
        statement: "A duplicate that waited for the route's limit gets 409 in_progress with Retry-After.",
        sources: "Y I",
        needs: &[Need::Waiting, Need::Switches, Need::Route(Setting::Impatient)],
        check: |trial| Box::pin(limit(trial)),
    },
    Rule {
        id: "in-flight-mismatch",
        statement: "Another request with the key of a running one is a mismatch, not in progress.",
        sources: "Y T P +",
        needs: &[Need::Switches],
        check: |trial| Box::pin(mismatch(trial)),
    },
    Rule {
        id: "in-flight-waiter-gone",
        statement: "A duplicate that gives up waiting takes nothing from the one that runs.",
        sources: "+",
        needs: &[Need::Switches],
        check: |trial| Box::pin(waiter_gone(trial)),
    },
    Rule {
        id: "in-flight-crowd",
        statement: "Forty duplicates of one running request hold up neither it nor anybody else.",
        sources: "+",
        needs: &[Need::Switches],
        check: |trial| Box::pin(crowd(trial)),
    },
];

/// Asks for it `count` times at once, while it is held for a moment if it can be.
async fn together(trial: &Trial<'_>, request: &Request, count: usize) -> Result<Vec<Answer>, Stop> {
    let asked = join_all((0..count).map(|_| trial.send(request)));
    let held = async {
        if trial.subject.has_switches {
            trial.until_running(request).await?;
            sleep(NOTICE).await;
            trial.release(request).await?;
        }
        Ok(())
    };
    let (answers, held) = join(asked, held).await;
    held?;
    answers.into_iter().collect()
}

/// Every answer is the operation's, or says that it is in progress where the preset says so.
fn all_same(trial: &Trial<'_>, answers: &[Answer]) -> Result<Answer, Stop> {
    let Some(first) = answers.iter().find(|answer| answer.is_success()) else {
        let told: Vec<_> = answers.iter().map(told).collect();
        return fail(format!("nobody got an answer: {}", told.join(", ")));
    };
    for answer in answers {
        let is_told = !trial.preset().waits() && trial.is_refused(answer, Refusal::InProgress);
        if !is_told {
            same(first, answer)?;
        }
    }
    Ok(first.clone())
}

/// A request that the upstream holds until it is released.
fn held(trial: &Trial<'_>) -> Request {
    if trial.subject.has_switches {
        trial.switched(&[("hold", "1")])
    } else {
        trial.operation()
    }
}

async fn one_effect(trial: &Trial<'_>) -> Checked {
    let request = held(trial);
    let answers = together(trial, &request, DUPLICATES).await?;
    let first = all_same(trial, &answers)?;
    trial.replay(&request, &first).await?;
    trial.happened(&request, 1).await
}

/// The answer says that it is in progress, and when to ask again.
fn in_progress(trial: &Trial<'_>, answer: &Answer) -> Checked {
    trial.refused(answer, Refusal::InProgress)?;
    let seconds = answer.header("retry-after").and_then(|value| value.parse::<u32>().ok());
    if seconds.is_none_or(|seconds| seconds == 0) {
        return fail(format!("Retry-After is {:?}", answer.header("retry-after")));
    }
    Ok(())
}

/// Asks for something while `held` runs, and lets `held` go on after a while whether it was answered or not: a server
/// that makes it wait is not to wait for ever.
async fn meanwhile(trial: &Trial<'_>, held: &Request, asked: &Request, during: Duration) -> Result<Answer, Stop> {
    let open = trial.open(asked).await?;
    let released = async {
        sleep(during).await;
        trial.release(held).await
    };
    let (answer, released) = join(trial.hear(asked, open), released).await;
    released?;
    answer
}

async fn duplicate(trial: &Trial<'_>) -> Checked {
    let request = held(trial);
    let running = trial.open(&request).await?;
    trial.until_running(&request).await?;
    let second = meanwhile(trial, &request, &request, NOTICE * 2).await?;
    let first = trial.hear(&request, running).await?;
    if trial.preset().waits() {
        same(&first, &second)?;
    } else {
        in_progress(trial, &second)?;
        trial.replay(&request, &first).await?;
    }
    trial.happened(&request, 1).await
}

async fn limit(trial: &Trial<'_>) -> Checked {
    let request = with(trial.on(Setting::Impatient), &[("hold", "1")]);
    let running = trial.open(&request).await?;
    trial.until_running(&request).await?;
    let second = meanwhile(trial, &request, &request, IMPATIENT_MAX).await?;
    let first = trial.hear(&request, running).await?;
    in_progress(trial, &second)?;
    trial.replay(&request, &first).await?;
    trial.happened(&request, 1).await
}

async fn mismatch(trial: &Trial<'_>) -> Checked {
    let request = held(trial);
    let other = trial.other_content(&request)?;
    let running = trial.open(&request).await?;
    trial.until_running(&request).await?;
    let answer = meanwhile(trial, &request, &other, NOTICE * 2).await?;
    let first = trial.hear(&request, running).await?;
    trial.refused(&answer, Refusal::Mismatch)?;
    trial.replay(&request, &first).await?;
    trial.happened(&request, 1).await
}

async fn waiter_gone(trial: &Trial<'_>) -> Checked {
    let request = held(trial);
    let running = trial.open(&request).await?;
    trial.until_running(&request).await?;
    let waiting = trial.open(&request).await?;
    sleep(NOTICE).await;
    trial.hang_up(&request, waiting);
    sleep(NOTICE).await;
    trial.release(&request).await?;
    let first = trial.hear(&request, running).await?;
    if !first.is_success() {
        return fail(format!("the one that ran was answered with {}", told(&first)));
    }
    trial.replay(&request, &first).await?;
    trial.happened(&request, 1).await
}

async fn crowd(trial: &Trial<'_>) -> Checked {
    let request = held(trial);
    let running = trial.open(&request).await?;
    trial.until_running(&request).await?;
    let crowd = try_join_all((0..CROWD).map(|_| trial.open(&request))).await?;
    sleep(NOTICE).await;
    let another = trial.carry_out(&trial.operation()).await;
    trial.release(&request).await?;
    another?;
    let first = trial.hear(&request, running).await?;
    let heard = try_join_all(crowd.into_iter().map(|open| trial.hear(&request, open))).await?;
    all_same(trial, &[vec![first], heard].concat())?;
    trial.happened(&request, 1).await
}
