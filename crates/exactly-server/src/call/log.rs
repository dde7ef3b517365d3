//! The attempts, told as they happen.

use std::fmt::Write as _;
use std::io::{self, stdout};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use exactly::client::{Attempt, ErrorKind};
use exactly::retry::{Ended, Fate, Heard, KeyWord};
use tokio::time::Instant;

use super::say;
use crate::calls::plain;

/// How attempts are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// For people, on standard error.
    Lines,
    /// For programs, on standard output.
    Csv,
}

/// What happened so far.
#[derive(Debug)]
pub(super) struct Log {
    form: Form,
    started: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    attempts: Vec<Attempt>,
    /// No attempt is under way before then.
    rests_until: Option<Instant>,
}

impl Log {
    /// The key is told first: whatever comes, somebody has to have it.
    pub(super) fn start(form: Form, key: Option<&str>, operation: Option<&str>) -> Self {
        match (key, operation) {
            (Some(key), _) => say(format_args!("key {}", plain(key))),
            (None, Some(operation)) => say(format_args!("operation {}", plain(operation))),
            (None, None) => {}
        }
        if form == Form::Csv {
            print_row(&["attempt", "delay_ms", "status", "code", "notes"]);
        }
        Self {
            form,
            started: Instant::now(),
            state: Mutex::default(),
        }
    }

    pub(super) fn note(&self, attempt: &Attempt, wait: Option<Duration>) {
        match self.form {
            Form::Lines => say(line(attempt, wait)),
            Form::Csv => print_row(&[
                &attempt.number.to_string(),
                &attempt.delay.as_millis().to_string(),
                &status(attempt),
                attempt.code.as_deref().unwrap_or_default(),
                &notes(attempt),
            ]),
        }
        let mut state = self.state();
        state.attempts.push(attempt.clone());
        state.rests_until = wait.map(|wait| Instant::now() + wait);
    }

    pub(super) fn attempts(&self) -> Vec<Attempt> {
        self.state().attempts.clone()
    }

    pub(super) fn took(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether something may have happened, should it all stop now.
    pub(super) fn is_in_doubt(&self) -> bool {
        let state = self.state();
        let is_under_way = state.rests_until.is_none_or(|until| Instant::now() >= until);
        is_under_way || state.attempts.iter().any(|attempt| leaves_doubt(&attempt.ended))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What came of an attempt, in one word or as its status.
pub(super) fn status(attempt: &Attempt) -> String {
    match &attempt.ended {
        Ended::NotSent => "not_sent".to_owned(),
        Ended::Sent if attempt.error == Some(ErrorKind::Timeout) => "timeout".to_owned(),
        Ended::Sent | Ended::CutOff(_) => "cut".to_owned(),
        Ended::Answered(heard) => heard.status.to_string(),
    }
}

/// Whatever else is worth knowing of an attempt.
pub(super) fn notes(attempt: &Attempt) -> String {
    let mut notes = Vec::new();
    if let Ended::CutOff(heard) = &attempt.ended {
        notes.push(format!("the answer {} broke off", heard.status));
    }
    let heard = attempt.ended.heard();
    notes.extend(heard.and_then(key_word).map(str::to_owned));
    if let Some(wait) = heard.and_then(|heard| heard.retry_after) {
        notes.push(format!("wants to be left alone for {}", span(wait)));
    }
    notes.extend(attempt.note.as_deref().map(plain));
    notes.join("; ")
}

/// A duration for people.
pub(super) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3_600 => format!("{} m {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} m", seconds / 3_600, seconds / 60 % 60),
    }
}

fn line(attempt: &Attempt, wait: Option<Duration>) -> String {
    let mut line = format!("attempt {}", attempt.number);
    if attempt.number > 1 {
        let _ = write!(line, " after {}", span(attempt.delay));
    }
    let status = status(attempt);
    line += match status.as_str() {
        "not_sent" => ": not sent",
        "timeout" => ": sent, no answer in time",
        "cut" => ": sent, broke off",
        _ => ": ",
    };
    if matches!(attempt.ended, Ended::Answered(_)) {
        line += &status;
    }
    if let Some(code) = &attempt.code {
        let _ = write!(line, " {}", plain(code));
    }
    let notes = notes(attempt);
    if !notes.is_empty() {
        let _ = write!(line, " ({notes})");
    }
    if let Some(wait) = wait {
        let _ = write!(line, ", again in {}", span(wait));
    }
    line
}

fn key_word(heard: &Heard) -> Option<&'static str> {
    heard.key.map(|word| match word {
        KeyWord::Stored => "stored",
        KeyWord::Replayed => "replayed",
        KeyWord::Freed => "freed",
        KeyWord::Unknown => "unknown to the server",
    })
}

fn leaves_doubt(ended: &Ended) -> bool {
    match ended {
        Ended::NotSent => false,
        Ended::Sent | Ended::CutOff(_) => true,
        Ended::Answered(heard) => heard.fate() != Fate::DidNotHappen,
    }
}

/// One row of CSV. Nobody who reads it is a reason to stop a call half way, so a reader that is gone is not noticed here.
fn print_row(cells: &[&str]) {
    let mut out = stdout().lock();
    let _ = io::Write::write_all(&mut out, row(cells).as_bytes()).and_then(|()| io::Write::flush(&mut out));
}

fn row(cells: &[&str]) -> String {
    let cells: Vec<_> = cells.iter().map(|cell| quoted(cell)).collect();
    cells.join(",") + "\n"
}

/// A cell as RFC 4180 has it.
fn quoted(cell: &str) -> String {
    let cell = plain(cell);
    if cell.contains([',', '"']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_have_to_be() {
        assert_eq!(row(&["1", "0", "503", "", "busy"]), "1,0,503,,busy\n");
        assert_eq!(row(&["a,b", "say \"no\""]), "\"a,b\",\"say \"\"no\"\"\"\n");
        assert_eq!(row(&["two\r\nlines"]), "two\\r\\nlines\n", "a row is a line");
    }

    #[test]
    fn a_duration_is_told_in_its_own_unit() {
        for (millis, told) in [
            (137, "137 ms"),
            (1_500, "1.5 s"),
            (90_000, "1 m 30 s"),
            (5_400_000, "1 h 30 m"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), told);
        }
    }
}
