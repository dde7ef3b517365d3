//! What an exchange means for its delivery.

use std::fmt::Write as _;
use std::time::Duration;

use http::StatusCode;

use super::{Answer, Attempt, Course, Exchange, Fault, TroubleKind};
use crate::queue::{Failure, FailureKind};

/// What becomes of a delivery after an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The endpoint has the event.
    Delivered,
    /// It may not have it: attempt again.
    Retry {
        /// How long to wait, from now.
        after: Duration,
        /// What to note of this attempt.
        failure: Failure,
    },
    /// The endpoint wants nothing any more, 410: disable it, and hold what it has not got.
    Gone,
    /// It was the last attempt: the dead letter.
    Dead(Failure),
}

/// How much of an answer's body is told along with a failure, in bytes.
const EXCERPT_BYTES_MAX: usize = 256;

/// Judges an attempt.
///
/// Only a status of 2xx means that the endpoint has the event. Whatever else happens is tried again until the course is over,
/// refusals too: a 400 is as often a receiver's fault that is mended within the day as it is the event's.
pub fn verdict(exchange: &Exchange, course: &Course, attempt: &Attempt) -> Verdict {
    if exchange.is_delivered() {
        return Verdict::Delivered;
    }
    let (mut failure, retry_after) = match &exchange.answer {
        Ok(answer) if answer.status == StatusCode::GONE => return Verdict::Gone,
        Ok(answer) => (refusal(answer), answer.retry_after),
        Err(fault) => (Failure::new(kind(fault), fault.to_string()), None),
    };
    let window = course.window();
    match (course.next(attempt, retry_after), retry_after) {
        (Some(after), Some(asked)) if asked > after => {
            let why = format!("it asked to wait for {asked:?}, and the last attempt is {window:?} after the event");
            failure = because(&why, &failure);
            Verdict::Retry { after, failure }
        }
        (Some(after), _) => Verdict::Retry { after, failure },
        (None, _) => {
            let failed = usize::try_from(attempt.failures)
                .unwrap_or(usize::MAX)
                .saturating_add(1);
            let why = if failed < course.offsets().len() {
                format!("the last attempt is {window:?} after the event")
            } else {
                "no attempt is left".to_owned()
            };
            Verdict::Dead(because(&why, &failure))
        }
    }
}

fn kind(fault: &Fault) -> FailureKind {
    match fault.trouble().kind {
        TroubleKind::Timeout => FailureKind::Timeout,
        TroubleKind::Refused | TroubleKind::Unreachable | TroubleKind::Broken => FailureKind::Transient,
    }
}

fn refusal(answer: &Answer) -> Failure {
    let mut message = format!("the endpoint answered {}", answer.status);
    if answer.status.is_redirection() {
        message.push_str(", and redirects are not followed; register the address that it points to");
    }
    let text = String::from_utf8_lossy(&answer.body);
    let text = text.trim();
    if !text.is_empty() {
        let excerpt = &text[..text.floor_char_boundary(EXCERPT_BYTES_MAX)];
        let _ = write!(message, ": {}", excerpt.escape_debug());
    }
    Failure::new(FailureKind::Transient, message)
}

/// The same, with why there is no other attempt, or why it is when it is.
fn because(why: &str, failure: &Failure) -> Failure {
    Failure::new(failure.kind, format!("{why}; {}", failure.message))
}
