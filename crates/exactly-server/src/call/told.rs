//! What is known when it is over.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _, stdout};
use std::process::ExitCode;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use exactly::client::{Answer, Attempt, Outcome};
use exactly::retry::{Code, Ending, Stop};
use serde::Serialize;

use super::log::{self, Log, span};
use super::{Args, say};
use crate::calls::plain;
use crate::cli::chain;

/// How it went.
#[derive(Debug)]
pub(super) struct Told {
    ending: Ending,
    error: Option<String>,
    key: Option<String>,
    stop: Option<Stop>,
    answer: Option<Answer>,
    attempts: Vec<Attempt>,
    took: Duration,
}

/// The same for programs.
#[derive(Debug, Serialize)]
struct Document<'a> {
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop: Option<&'static str>,
    /// When the server would have been ready for another attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    ready_in_ms: Option<u128>,
    took_ms: u128,
    attempts: Vec<AttemptRow<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<AnswerDocument<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct AttemptRow<'a> {
    attempt: u32,
    delay_ms: u128,
    took_ms: u128,
    status: String,
    code: Option<&'a str>,
    notes: String,
}

/// The answer, as the API writes one.
#[derive(Debug, Serialize)]
struct AnswerDocument<'a> {
    status: u16,
    headers: BTreeMap<&'a str, String>,
    truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

impl Told {
    pub(super) fn of(outcome: &Outcome) -> Self {
        let (ending, error) = match outcome {
            Outcome::Applied(_) => (Ending::Applied, None),
            Outcome::NotApplied(not) => (Ending::NotApplied, not.error()),
            Outcome::Unknown(unknown) => (Ending::Unknown, unknown.error()),
        };
        let account = outcome.account();
        Self {
            ending,
            error: error.map(|error| chain(error)),
            key: account.key().map(|key| key.as_str().to_owned()),
            stop: account.stop(),
            answer: outcome.answer().cloned(),
            attempts: account.attempts().to_vec(),
            took: account.took(),
        }
    }

    /// Nothing was sent, by this run at least.
    pub(super) fn unsent(key: Option<&str>, in_doubt: bool, why: String) -> Self {
        Self {
            ending: if in_doubt { Ending::Unknown } else { Ending::NotApplied },
            error: Some(why),
            key: key.map(str::to_owned),
            stop: None,
            answer: None,
            attempts: Vec::new(),
            took: Duration::ZERO,
        }
    }

    /// Somebody stopped it. An earlier run may have left a doubt as well.
    pub(super) fn interrupted(log: &Log, key: Option<&str>, in_doubt: bool) -> Self {
        Self {
            attempts: log.attempts(),
            took: log.took(),
            ..Self::unsent(key, in_doubt || log.is_in_doubt(), "interrupted".to_owned())
        }
    }

    /// Tells it, and hands the answer over.
    pub(super) fn show(self, args: &Args, output: Option<File>) -> ExitCode {
        for line in self.lines(args) {
            say(line);
        }
        let written = self.write(args, output);
        if let Err(error) = &written {
            say(format_args!("the answer could not be written: {error}"));
        }
        let is_whole = written.is_ok() && self.answer.as_ref().is_none_or(|answer| !answer.is_truncated());
        match self.ending {
            Ending::Applied if is_whole => ExitCode::SUCCESS,
            Ending::Applied => ExitCode::from(4),
            Ending::NotApplied => ExitCode::from(1),
            Ending::Unknown => ExitCode::from(3),
        }
    }

    fn lines(&self, args: &Args) -> Vec<String> {
        let mut first = match self.ending {
            Ending::Applied => "applied".to_owned(),
            Ending::NotApplied => "not applied".to_owned(),
            Ending::Unknown => "unknown: it may have happened".to_owned(),
        };
        let attempts = self.attempts.len();
        if attempts > 1 {
            first = format!("{first} after {attempts} attempts in {}", span(self.took));
        }
        // What the last attempt said of itself is in its line already.
        let said = self.attempts.last().and_then(|attempt| attempt.note.as_ref()).is_some();
        if let Some(error) = self.error.as_deref().filter(|_| !said) {
            first = format!("{first}: {}", plain(error));
        }
        let mut lines = vec![first];
        lines.extend(self.reason());
        if self.answer.as_ref().is_some_and(Answer::is_truncated) {
            lines.push("the answer is not whole".to_owned());
        }
        if self.ending == Ending::Unknown {
            lines.push(self.way_on(args));
        }
        lines
    }

    /// Why it was not repeated, or what to do about it.
    fn reason(&self) -> Option<String> {
        let code = self.answer.as_ref().and_then(Answer::code).and_then(Code::of);
        match self.stop? {
            Stop::Final => code.map(|code| code.hint().to_owned()),
            Stop::Unrepeatable => Some("it has no key where it went, so it was not repeated".to_owned()),
            Stop::Attempts => Some("the retries are used up: --retries".to_owned()),
            Stop::Deadline { ready_in } => Some(format!(
                "the time is up: the next attempt could begin in {}; --within gives more",
                span(ready_in)
            )),
            Stop::Budget => Some("too many retries to this destination".to_owned()),
            _ => None,
        }
    }

    /// How to find out.
    fn way_on(&self, args: &Args) -> String {
        if self.stop == Some(Stop::Expired) {
            return "its key has expired, so that nothing can be sent: find out where it was to happen".to_owned();
        }
        // It has no key where it went, so that nobody there would know it again.
        if self.stop == Some(Stop::Unrepeatable) {
            return "do not send it again, with any key: find out there whether it happened".to_owned();
        }
        match (&args.operation, &self.key) {
            (Some(_), _) => "to find out, run the same command again: the journal has its key".to_owned(),
            (None, Some(key)) => format!("to find out, run the same command with --resume {}", plain(key)),
            (None, None) => "it has no key: find out where it was to happen".to_owned(),
        }
    }

    fn write(&self, args: &Args, output: Option<File>) -> io::Result<()> {
        let is_apart = output.is_some();
        if let (Some(mut file), Some(answer)) = (output, &self.answer) {
            file.set_len(0)?;
            file.write_all(answer.bytes())?;
            file.sync_data()?;
        }
        let mut out = stdout().lock();
        if args.json {
            serde_json::to_writer_pretty(&mut out, &self.document(args, is_apart))?;
            out.write_all(b"\n")?;
        } else if let (Some(answer), false, false) = (&self.answer, args.csv, is_apart) {
            out.write_all(answer.bytes())?;
        }
        out.flush()
    }

    fn document<'a>(&'a self, args: &'a Args, is_apart: bool) -> Document<'a> {
        let code = self.answer.as_ref().and_then(Answer::code).and_then(Code::of);
        Document {
            outcome: self.ending.as_str(),
            key: self.key.as_deref(),
            operation: args.operation.as_deref(),
            stop: self.stop.map(Stop::as_str),
            ready_in_ms: match self.stop {
                Some(Stop::Deadline { ready_in }) => Some(ready_in.as_millis()),
                _ => None,
            },
            took_ms: self.took.as_millis(),
            attempts: self.attempts.iter().map(AttemptRow::of).collect(),
            answer: self.answer.as_ref().map(|answer| AnswerDocument::of(answer, is_apart)),
            error: self.error.as_deref(),
            hint: code.map(Code::hint),
        }
    }
}

impl<'a> AttemptRow<'a> {
    fn of(attempt: &'a Attempt) -> Self {
        Self {
            attempt: attempt.number,
            delay_ms: attempt.delay.as_millis(),
            took_ms: attempt.took.as_millis(),
            status: log::status(attempt),
            code: attempt.code.as_deref(),
            notes: log::notes(attempt),
        }
    }
}

impl<'a> AnswerDocument<'a> {
    /// Without its body, if that went elsewhere.
    fn of(answer: &'a Answer, is_apart: bool) -> Self {
        let mut headers: BTreeMap<&str, String> = BTreeMap::new();
        for (name, value) in answer.headers() {
            let value = String::from_utf8_lossy(value.as_bytes());
            headers
                .entry(name.as_str())
                .and_modify(|line| line.extend([", ", &*value]))
                .or_insert_with(|| value.into_owned());
        }
        let text = std::str::from_utf8(answer.bytes());
        Self {
            status: answer.status().as_u16(),
            headers,
            truncated: answer.is_truncated(),
            body: text.ok().filter(|_| !is_apart),
            body_base64: (text.is_err() && !is_apart).then(|| STANDARD.encode(answer.bytes())),
        }
    }
}
