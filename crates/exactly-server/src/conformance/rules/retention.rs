//! How long a key stands.

use std::time::Duration;

use httpdate::parse_http_date;
use tokio::time::{Instant, sleep};

use crate::conformance::answer::Answer;
use crate::conformance::rule::{Checked, Need, Rule, Stop};
use crate::conformance::setting::Setting;
use crate::conformance::trial::{Trial, fail, same};

/// The longest retention that is waited for.
const SHORT_MAX: Duration = Duration::from_secs(30);
/// Dates are in whole seconds, at both ends.
const ROUNDING: Duration = Duration::from_secs(2);
/// How much later than told a key may still stand.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) const RULES: &[Rule] = &[Rule {
    id: "retention-ends",
    statement: "A key stands from the first answer until it expires, however often it is used; then it is a new operation.",
    sources: "Y T",
    needs: &[Need::Route(Setting::Short)],
    check: |trial| Box::pin(ends(trial)),
}];

/// How long the key stands from this answer on.
fn retention(answer: &Answer) -> Option<Duration> {
    let date = |name| answer.header(name).and_then(|value| parse_http_date(value).ok());
    date("idempotency-expires")?.duration_since(date("date")?).ok()
}

async fn ends(trial: &Trial<'_>) -> Checked {
    let request = trial.on(Setting::Short);
    let first = trial.carry_out(&request).await?;
    let stored = Instant::now();
    let Some(retention) = retention(&first) else {
        return fail("the first answer does not say when the key expires");
    };
    if retention > SHORT_MAX {
        let seconds = retention.as_secs();
        let why = format!("keys on the route `short` stand for {seconds} s, and at most 30 s are waited for");
        return Err(Stop::NotApplicable(why));
    }
    loop {
        let again = trial.send(&request).await?;
        let elapsed = stored.elapsed();
        if !trial.subject.has_switches && again.header("idempotency-status").is_none() {
            let why = "nothing tells a repeated answer from a new one here".to_owned();
            return Err(Stop::NotApplicable(why));
        }
        if trial.own(&first, &again).is_ok() && again.is_success() {
            if elapsed + ROUNDING < retention {
                return fail(format!(
                    "the key was forgotten after {elapsed:.0?}, {retention:?} were told"
                ));
            }
            return trial.happened(&request, 2).await;
        }
        same(&first, &again)?;
        if elapsed > retention + PATIENCE {
            return fail(format!(
                "the key still stands after {elapsed:.0?}, {retention:?} were told"
            ));
        }
        sleep(Duration::from_millis(200)).await;
    }
}
