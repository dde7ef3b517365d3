//! When an attempt is repeated, and what is known when a call is over.

mod after;
mod budget;
mod course;
mod file;
mod oracle;
mod schedule;
mod table;

use std::time::Duration;

use exactly::retry::{Code, Course, Decision, Ended, Ending, Expiry, Fate, Heard, KeyWord, Policy, Stop};

use oracle::Question;

const MILLISECOND: Duration = Duration::from_millis(1);

/// The question as the engine is asked it.
fn ended(question: &Question) -> Ended {
    let heard = Heard {
        code: question.code.and_then(Code::of),
        retryable: question.word,
        key: question.key.map(|key| match key {
            "stored" => KeyWord::Stored,
            "replayed" => KeyWord::Replayed,
            "freed" => KeyWord::Freed,
            "unknown" => KeyWord::Unknown,
            other => panic!("no such word of a key: {other}"),
        }),
        ..Heard::status(question.status)
    };
    match question.phase {
        "not_sent" => Ended::NotSent,
        "sent" => Ended::Sent,
        "cut_off" => Ended::CutOff(heard),
        "answered" => Ended::Answered(heard),
        other => panic!("no such phase: {other}"),
    }
}

/// What the engine says of the first attempt of a call, with everything allowed.
fn judged(question: &Question, policy: &Policy) -> (&'static str, Ending) {
    let mut course = Course::new(policy, question.repeatable);
    if question.doubt {
        course = course.in_doubt();
    }
    let decision = course.after(&ended(question), Duration::ZERO, 0, || true);
    (decision_name(decision), course.ending())
}

fn decision_name(decision: Decision) -> &'static str {
    match decision {
        Decision::Wait(_) => "wait",
        Decision::Stop(stop) => stop.as_str(),
    }
}

fn fate_name(fate: Fate) -> &'static str {
    match fate {
        Fate::Happened => "happened",
        Fate::DidNotHappen => "did_not_happen",
        Fate::Unknown => "unknown",
    }
}

/// An attempt under limits: the answer is a 503 that repeating may help, and nothing is left to chance.
#[derive(Clone, Copy, Debug)]
struct Limited {
    retries_used: u32,
    elapsed: u64,
    retry_after: Option<u64>,
    expires_in: Option<u64>,
    budget: bool,
}

impl Limited {
    /// What the engine says of it, and how long it would wait, or how long it would have had to.
    fn decided(&self, policy: &Policy) -> (&'static str, Option<Duration>) {
        let mut course = Course::new(policy, true);
        for _ in 0..self.retries_used {
            let _ = course.after(&Ended::NotSent, Duration::ZERO, 0, || true);
        }
        let answer = Ended::Answered(Heard {
            retry_after: self.retry_after.map(Duration::from_millis),
            expires: self.expires_in.map(|left| Expiry::In(Duration::from_millis(left))),
            ..Heard::status(503)
        });
        let decision = course.after(&answer, Duration::from_millis(self.elapsed), 0, || self.budget);
        let wait = match decision {
            Decision::Wait(wait) | Decision::Stop(Stop::Deadline { ready_in: wait }) => Some(wait),
            Decision::Stop(_) => None,
        };
        (decision_name(decision), wait)
    }
}
