//! Sends a job's request, once per lease.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use exactly::client::{Client, ErrorKind, Outcome, RequestBuilder};
use exactly::queue::{End, Failure, FailureKind, Leased, TaskState};
use exactly::retry::{Ended, Schedule};
use exactly::worker::{Handler, Ran, Run};
use http::{HeaderName, HeaderValue, header};

use super::errand::{ATTEMPT, Errand, FENCE, HTTP_KIND, JOB_KEY};
use super::verdict::{self, Verdict};
use super::{once, outcome};
use crate::call::USER_AGENT;
use crate::cli::chain;
use crate::config::Jobs;
use crate::store::Ledger;

/// How much of a refusal a failure's message quotes.
const QUOTED_MAX: usize = 500;

/// Runs jobs by HTTP.
#[derive(Clone, Debug)]
pub(super) struct Runner {
    client: Client,
    queue: Arc<dyn Ledger>,
    schedule: Schedule,
    time_limit: Duration,
}

impl Handler for Runner {
    fn run<'a>(&'a self, task: &'a Leased) -> Run<'a> {
        Box::pin(async move { Ran::End(self.end(task).await) })
    }
}

impl Runner {
    pub(super) fn new(client: Client, queue: Arc<dyn Ledger>, jobs: &Jobs) -> Self {
        Self {
            client,
            queue,
            schedule: Schedule::Delays(jobs.retries.clone().into()),
            time_limit: jobs.time_limit,
        }
    }

    async fn end(&self, task: &Leased) -> End {
        let errand: Errand = match serde_json::from_slice(&task.payload) {
            Ok(errand) => errand,
            Err(error) if *task.kind == *HTTP_KIND => {
                return End::Bury(Failure::new(FailureKind::Unreadable, error.to_string()));
            }
            Err(_) => {
                let message = format!(
                    "tasks of the kind {:?} are no requests, and this server knows no others; \
                     a worker that does needs a table of its own",
                    task.kind
                );
                return End::Bury(Failure::new(FailureKind::UnknownKind, message));
            }
        };
        self.carry_out(task, &errand).await
    }

    /// Makes this request for a task.
    async fn carry_out(&self, task: &Leased, errand: &Errand) -> End {
        // Not only from the second attempt on: one that its worker has stopped does not count.
        if !errand.repeatable {
            match self.may_have_happened(task).await {
                Ok(None) => {}
                Ok(Some(why)) => return End::Hold(Failure::new(FailureKind::Unknown, why)),
                Err(error) => return self.again(task, FailureKind::Transient, Duration::ZERO, error.to_string()),
            }
        }
        match self.request(task, errand) {
            Ok(request) => self.judged(task, errand, &request.send().await),
            Err(why) => End::Bury(Failure::new(FailureKind::Unreadable, why)),
        }
    }

    /// Whether an attempt since the job was last revived ended without a word, so that it may have been carried out.
    async fn may_have_happened(&self, task: &Leased) -> Result<Option<String>, exactly::StoreError> {
        let attempts = self.queue.attempts(task.lease.id).await?;
        let this_life = attempts
            .iter()
            .rev()
            .take_while(|attempt| attempt.then == TaskState::Waiting);
        let open = this_life
            .into_iter()
            .find(|attempt| matches!(attempt.failure.kind, FailureKind::Lost | FailureKind::Stopped));
        Ok(open.map(|attempt| {
            format!(
                "an attempt was stopped on the way (fence {}: {}), and the job is not repeatable: \
                 find out what came of it, then requeue it if it did not happen",
                attempt.fence, attempt.failure.message
            )
        }))
    }

    fn request(&self, task: &Leased, errand: &Errand) -> Result<RequestBuilder, String> {
        errand.check().map_err(|wrong| wrong.to_string())?;
        let method = errand.method().map_err(|wrong| wrong.to_string())?;
        let time = errand.timeout().unwrap_or(self.time_limit);
        let mut request = self
            .client
            .request(method, errand.url.as_str())
            .straight()
            .policy(once(time))
            .key(task.lease.id.to_string())
            .header(JOB_KEY, spelled(&task.key))
            .header(FENCE, HeaderValue::from(task.lease.fence.get()))
            .header(ATTEMPT, HeaderValue::from(task.attempt()));
        let gives = |name: &HeaderName| errand.headers.keys().any(|given| name == given.as_str());
        for (name, value) in &errand.headers {
            request = request.header(name.as_str(), value.as_str());
        }
        if !gives(&header::USER_AGENT) {
            request = request.header(header::USER_AGENT, USER_AGENT);
        }
        if let Some((bytes, content_type)) = errand.content() {
            if let Some(content_type) = content_type.filter(|_| !gives(&header::CONTENT_TYPE)) {
                request = request.header(header::CONTENT_TYPE, content_type);
            }
            request = request.body(bytes);
        }
        Ok(request)
    }

    fn judged(&self, task: &Leased, errand: &Errand, outcome: &Outcome) -> End {
        let error = match outcome {
            Outcome::Applied(_) => None,
            Outcome::NotApplied(not) => not.error(),
            Outcome::Unknown(unknown) => unknown.error(),
        };
        let Some(attempt) = outcome.account().attempts().last() else {
            let why = error.map_or_else(|| "nothing was sent".to_owned(), |error| chain(error));
            return End::Bury(Failure::new(FailureKind::Logic, why));
        };
        let in_time = attempt.error != Some(ErrorKind::Timeout);
        let told = || told(&attempt.ended, outcome, error.map(|error| chain(error)));
        match verdict::of(&attempt.ended, in_time, errand.repeatable) {
            Verdict::Done => match outcome.answer() {
                Some(answer) => End::Done(outcome::of(answer).into()),
                None => self.again(task, FailureKind::Transient, Duration::ZERO, told()),
            },
            Verdict::Again(kind, asked) => self.again(task, kind, asked, told()),
            Verdict::Bury => End::Bury(Failure::new(FailureKind::Logic, told())),
            Verdict::Hold => End::Hold(Failure::new(FailureKind::Unknown, told())),
        }
    }

    /// By the table, and never earlier than asked; after its end, dead.
    fn again(&self, task: &Leased, kind: FailureKind, asked: Duration, message: String) -> End {
        let failure = Failure::new(kind, message);
        let retry = task.failures.saturating_add(1);
        match self
            .schedule
            .wait(retry, Duration::ZERO, Duration::MAX, fastrand::u64(..))
        {
            Some(wait) => End::Retry {
                after: wait.max(asked),
                failure,
            },
            None => End::Bury(failure),
        }
    }
}

/// What to tell people of an attempt that brought no outcome.
fn told(ended: &Ended, outcome: &Outcome, error: Option<String>) -> String {
    let error = error.map(|error| format!(": {error}")).unwrap_or_default();
    match (ended, outcome.answer()) {
        (Ended::NotSent, _) => format!("nothing was sent{error}"),
        (Ended::Sent, _) => format!("it was sent, and no answer came{error}"),
        (Ended::CutOff(heard), _) => format!("an answer with status {} began, and broke off{error}", heard.status),
        (Ended::Answered(heard), answer) => {
            let mut text = format!("answered with status {}", heard.status);
            if (300..=399).contains(&heard.status) {
                text.push_str("; redirects are not followed, so give the address that it points to");
            }
            let said = answer.map(|answer| answer.text()).unwrap_or_default();
            let said = said.trim();
            if !said.is_empty() {
                let quoted = &said[..said.floor_char_boundary(QUOTED_MAX)];
                text.push_str(": ");
                text.push_str(quoted);
            }
            text
        }
    }
}

/// A job's key as a header carries it: what is not visible ASCII, and the percent sign, as `%XX` of its UTF-8.
fn spelled(key: &str) -> String {
    let mut text = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => text.push(char::from(byte)),
            _ => {
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_can_stand_in_a_header_whatever_is_in_it() {
        for (key, header) in [
            ("2026-02-19:user-7", "2026-02-19:user-7"),
            ("two words", "two words"),
            ("100%", "100%25"),
            ("grüße", "gr%C3%BC%C3%9Fe"),
        ] {
            assert_eq!(spelled(key), header);
            assert!(HeaderValue::from_str(&spelled(key)).is_ok());
        }
    }
}
