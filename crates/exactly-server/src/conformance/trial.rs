//! What a rule works with: sending, counting, judging. Everything that is sent is written down.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::answer::Answer;
use super::counter::Counts;
use super::exchange::{Lost, Open, exchange};
use super::preset::{Preset, Refusal};
use super::request::Request;
use super::rule::{Checked, Stop};
use super::setting::Setting;
use super::subject::{self, Subject, new_key};

/// Between two looks at something that is awaited.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long a server has to notice a hang-up, or a request that came in.
pub(super) const NOTICE: Duration = Duration::from_millis(300);

/// One rule on one target.
#[derive(Debug)]
pub(super) struct Trial<'t> {
    pub(super) subject: &'t Subject,
    seen: Mutex<Vec<Seen>>,
}

/// One exchange, written down.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) request: Request,
    pub(super) came: Came,
    /// Asked beside the rule: counts, releases.
    pub(super) is_aside: bool,
}

/// What came of a request.
#[derive(Clone, Debug)]
pub(super) enum Came {
    Answer(Answer),
    Lost(Lost),
    /// The rule hung up.
    HungUp,
}

impl<'t> Trial<'t> {
    pub(super) fn new(subject: &'t Subject) -> Self {
        Self {
            subject,
            seen: Mutex::default(),
        }
    }

    /// Everything that was sent, in the order in which it was answered.
    pub(super) fn into_seen(self) -> Vec<Seen> {
        self.seen.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn preset(&self) -> Preset {
        self.subject.target.preset
    }

    /// An operation that nobody asked for before.
    pub(super) fn operation(&self) -> Request {
        self.tagged(self.subject.target.operation())
    }

    /// An operation that the shipped upstream carries out as the switches say: `status=503&hold`.
    pub(super) fn switched(&self, switches: &[(&str, &str)]) -> Request {
        with(self.operation(), switches)
    }

    /// An operation on a route with this setting.
    pub(super) fn on(&self, setting: Setting) -> Request {
        let target = &self.subject.target;
        let path = target.routes.get(&setting).unwrap_or(&target.path);
        self.tagged(target.operation_at(path))
    }

    fn tagged(&self, request: Request) -> Request {
        if self.subject.is_shipped {
            subject::with_tag(request)
        } else {
            request
        }
    }

    /// The operation with the same key and other content.
    pub(super) fn other_content(&self, request: &Request) -> Result<Request, Stop> {
        let other = self.subject.target.with_other_content(request);
        other.ok_or_else(|| Stop::NotApplicable("needs {n} in --body, or a second --body".to_owned()))
    }

    /// Sends it, whatever comes.
    pub(super) async fn attempt(&self, request: &Request) -> Result<Answer, Lost> {
        let target = &self.subject.target;
        let came = exchange(&target.place, request, target.limit).await;
        self.note(request, &came, false);
        came
    }

    /// Sends it; there has to be an answer.
    pub(super) async fn send(&self, request: &Request) -> Result<Answer, Stop> {
        let came = self.attempt(request).await;
        came.map_err(|lost| Stop::Failed(format!("no answer: {lost}")))
    }

    /// Sends it; it has to be carried out.
    pub(super) async fn carry_out(&self, request: &Request) -> Result<Answer, Stop> {
        let answer = self.send(request).await?;
        if answer.is_success() {
            return Ok(answer);
        }
        fail(format!("the operation was answered with {}", told(&answer)))
    }

    /// Sends it again; the first answer has to come back.
    pub(super) async fn replay(&self, request: &Request, first: &Answer) -> Result<Answer, Stop> {
        let again = self.send(request).await?;
        same(first, &again)?;
        Ok(again)
    }

    /// Sends it until it is no longer in progress.
    pub(super) async fn settled(&self, request: &Request) -> Result<Answer, Stop> {
        let deadline = Instant::now() + self.subject.target.limit;
        loop {
            let answer = self.send(request).await?;
            // Without a code, only the wish to be asked again tells it from the other conflicts.
            let says_so = self.code(&answer).is_some() || answer.header("retry-after").is_some();
            if !(says_so && self.is_refused(&answer, Refusal::InProgress)) || Instant::now() > deadline {
                return Ok(answer);
            }
            sleep(LOOK_AGAIN * 5).await;
        }
    }

    /// Sends it and leaves the line open.
    pub(super) async fn open(&self, request: &Request) -> Result<Open, Stop> {
        let target = &self.subject.target;
        let open = Open::send(&target.place, request, target.limit).await;
        open.map_err(|lost| Stop::Failed(format!("no answer: {lost}")))
    }

    /// Sends it with only the first bytes of its body.
    pub(super) async fn open_part(&self, request: &Request, len: usize) -> Result<Open, Stop> {
        let target = &self.subject.target;
        let open = Open::send_part(&target.place, request, len, target.limit).await;
        open.map_err(|lost| Stop::Failed(format!("no answer: {lost}")))
    }

    /// Hangs up on a request that was opened.
    pub(super) fn hang_up(&self, request: &Request, open: Open) {
        let _ = open.hang_up();
        self.note_came(request, Came::HungUp, false);
    }

    /// The answer to a request that was opened.
    pub(super) async fn hear(&self, request: &Request, open: Open) -> Result<Answer, Stop> {
        let came = open.answer().await;
        self.note(request, &came, false);
        came.map_err(|lost| Stop::Failed(format!("no answer: {lost}")))
    }

    /// How often it happened; none if nobody counts.
    pub(super) async fn counts(&self, request: &Request) -> Result<Option<Counts>, Stop> {
        let Some(counter) = &self.subject.counter else {
            return Ok(None);
        };
        let path = counter.path(&request.tag);
        let answer = self.aside("GET", &path, &request.tag).await?;
        match Counts::read(&answer) {
            Some(counts) => Ok(Some(counts)),
            None => fail(format!("effects cannot be counted: {}", told(&answer))),
        }
    }

    /// It happened this often, as far as anybody counts.
    pub(super) async fn happened(&self, request: &Request, times: u64) -> Checked {
        let Some(counts) = self.counts(request).await? else {
            return Ok(());
        };
        let found = counts.runs.unwrap_or(counts.effects);
        if found == times {
            return Ok(());
        }
        fail(format!("it ran {found} times instead of {times}"))
    }

    /// Waits until a held operation has begun.
    pub(super) async fn until_running(&self, request: &Request) -> Checked {
        let begun = |counts: Counts| counts.running.is_some_and(|running| running > 0);
        self.until(request, begun, "the operation never began").await
    }

    /// Waits until the counts are as wanted.
    pub(super) async fn until(&self, request: &Request, is_there: impl Fn(Counts) -> bool, otherwise: &str) -> Checked {
        let deadline = Instant::now() + self.subject.target.limit;
        loop {
            if self.counts(request).await?.is_none_or(&is_there) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return fail(otherwise);
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Lets a held operation go on.
    pub(super) async fn release(&self, request: &Request) -> Checked {
        self.control("release", &request.tag, &format!("tag={}", request.tag))
            .await
    }

    /// Tells the shipped upstream something.
    pub(super) async fn control(&self, what: &str, tag: &str, query: &str) -> Checked {
        let counter = self.subject.counter.as_ref();
        let Some(path) = counter.and_then(|counter| counter.control(what, query)) else {
            return Ok(());
        };
        let answer = self.aside("POST", &path, tag).await?;
        if answer.is_success() {
            return Ok(());
        }
        fail(format!("{path} was answered with {}", told(&answer)))
    }

    async fn aside(&self, method: &str, path: &str, tag: &str) -> Result<Answer, Stop> {
        let target = &self.subject.target;
        let counter = self.subject.counter.as_ref();
        let counter = counter.ok_or_else(|| Stop::NotApplicable("nobody counts effects".to_owned()))?;
        let mut request = subject::question(target, counter, method, path, tag);
        if method == "POST" {
            // The target may want one everywhere.
            request = request.key(new_key());
        }
        let came = exchange(&counter.place, &request, target.limit).await;
        self.note(&request, &came, true);
        came.map_err(|lost| Stop::Failed(format!("effects cannot be counted: {lost}")))
    }

    /// The second answer is not the first one again, but one of a run of its own.
    pub(super) fn own(&self, first: &Answer, second: &Answer) -> Checked {
        let is_same = self.subject.has_switches && first.body == second.body && !first.body.is_empty();
        if is_same || second.header("idempotency-status") == Some("replayed") {
            return fail(format!(
                "it was answered with another operation's answer: {}",
                told(second)
            ));
        }
        Ok(())
    }

    /// The answer refuses the request in this way.
    pub(super) fn refused(&self, answer: &Answer, refusal: Refusal) -> Checked {
        if self.is_refused(answer, refusal) {
            return Ok(());
        }
        let status = self.preset().status(refusal);
        fail(format!("expected {status} {}, came {}", refusal.code(), told(answer)))
    }

    pub(super) fn is_refused(&self, answer: &Answer, refusal: Refusal) -> bool {
        let code = self.code(answer);
        let is_code = match code.as_deref() {
            Some(code) => code == refusal.code(),
            None => !self.preset().names_codes(),
        };
        answer.status == self.preset().status(refusal) && is_code
    }

    /// The code of a refusal.
    fn code(&self, answer: &Answer) -> Option<String> {
        let pointer = self.subject.target.code_at.as_deref().unwrap_or("/code");
        let code = answer.json()?.pointer(pointer)?.as_str()?.to_owned();
        Some(code)
    }

    fn note(&self, request: &Request, came: &Result<Answer, Lost>, is_aside: bool) {
        let came = match came {
            Ok(answer) => Came::Answer(answer.clone()),
            Err(lost) => Came::Lost(lost.clone()),
        };
        self.note_came(request, came, is_aside);
    }

    fn note_came(&self, request: &Request, came: Came, is_aside: bool) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // Of a question that was asked again and again, the last time says it all.
        if is_aside
            && seen
                .last()
                .is_some_and(|last| last.is_aside && last.request.target() == request.target())
        {
            seen.pop();
        }
        seen.push(Seen {
            request: request.clone(),
            came,
            is_aside,
        });
    }
}

/// With parameters that tell the shipped upstream what to do.
pub(super) fn with(request: Request, switches: &[(&str, &str)]) -> Request {
    switches
        .iter()
        .fold(request, |request, (name, value)| request.query(name, value))
}

/// The second answer is the first one again.
pub(super) fn same(first: &Answer, again: &Answer) -> Checked {
    if again.status != first.status {
        return fail(format!("answered {} first and {} then", first.status, told(again)));
    }
    if !again.is_whole {
        return fail("the repeated answer broke off");
    }
    if let (Some(one), Some(other)) = (run(first), run(again))
        && one != other
    {
        return fail(format!(
            "it ran again: the answer is of run {other}, the first one was of run {one}"
        ));
    }
    if again.body != first.body {
        let (one, other) = (first.body.len(), again.body.len());
        return fail(format!("the body differs from the first one ({one} and {other} bytes)"));
    }
    Ok(())
}

/// Which run of the shipped upstream answered this.
fn run(answer: &Answer) -> Option<u64> {
    answer.json()?.get("run")?.as_u64()
}

/// The rule does not hold.
pub(super) fn fail<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Failed(why.into()))
}

/// An answer in a few words: its status, and its code or what became of the key.
pub(super) fn told(answer: &Answer) -> String {
    let code = answer
        .json()
        .and_then(|json| json.get("code")?.as_str().map(str::to_owned));
    let label = answer.header("idempotency-status").map(str::to_owned);
    let cut = (!answer.is_whole).then(|| "broken off".to_owned());
    let words: Vec<_> = [code, label, cut].into_iter().flatten().collect();
    format!("{} {}", answer.status, words.join(" ")).trim_end().to_owned()
}
