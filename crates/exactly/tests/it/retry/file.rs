//! `clients/decisions.json`: what the engine says, as data for clients in other languages.

use std::time::Duration;

use exactly::retry::{Class, Code, Ended, Heard, Policy, Repeat, retry_after};
use serde_json::{Value, json};

use super::oracle::Question;
use super::table::{KEYS, STATUSES, VARIANTS, WORDS};
use super::{Limited, after, ended, fate_name, judged, oracle, schedule};

const ABOUT: &str = "What the Rust engine (exactly::retry) says, for clients in other languages to be compared with, row \
by row. Written by its tests; do not edit. Every section has `columns` and `rows`; a column named in `gives` is what the \
engine answers, the others are what it is asked. Times are milliseconds; a wait of 2^53 ms or more is written \"forever\". \
`decisions`: the first attempt of a call with all its time, retries and budget left. phase: not_sent (provably no byte \
left), sent (bytes left, no answer), cut_off (an answer began and did not come whole), answered. code: the text of the \
error code, or null. word: the server's own word on whether repeating helps, or null. key: Idempotency-Status, or null. \
repeatable: a key or a safe method, and bytes that can be sent again. fate: what the attempt alone tells of the effect. \
decision: `wait` or why not. ending: how the call would end here, ending_in_doubt: the same if the fate of an earlier \
attempt was unknown. Left out, because they change nothing: word, code and key all at once, \
and word or code for what is not repeatable or not answered. \
`limits`: an answer 503 after retries_used retries and elapsed time, with Retry-After, time until the key expires, and \
whether the retry budget has one left; all at random 0. wait: the wait, or the wait that did not fit (decision \
`deadline`). \
`schedules`: the wait before retry number `retry` (1 is the first) of a call that began `elapsed` ago; random is a \
hexadecimal number below 2^64, u = random / 2^64. null: there is no such retry. Compare to within a microsecond. \
`retry_after`: the wait by Retry-After and the same answer's Date, now in seconds since 1970. null: as if absent. \
`codes`: the meaning of a code's text, null: none. fate `by_status`: the code does not tell.";

/// The whole file.
pub(super) fn text() -> String {
    let sections = [decisions(), limits(), schedules(), retry_afters(), codes()];
    let about = json!(ABOUT);
    format!("{{\n\"about\": {about},\n{}\n}}\n", sections.join(",\n"))
}

/// One row a line, so that a change shows as what it changes.
fn section(name: &str, asked: &[&str], gives: &[&str], rows: impl Iterator<Item = Value>) -> String {
    let columns = json!([asked, gives].concat());
    let gives = json!(gives);
    let rows: Vec<String> = rows.map(|row| row.to_string()).collect();
    let rows = rows.join(",\n");
    format!("\"{name}\": {{\n\"columns\": {columns},\n\"gives\": {gives},\n\"rows\": [\n{rows}\n]}}")
}

fn decisions() -> String {
    let asked = ["phase", "status", "code", "word", "key", "repeatable"];
    let gives = ["fate", "decision", "ending", "ending_in_doubt"];
    let policy = Policy::of(Class::UserFacing);
    let rows = questions().into_iter().map(move |question| {
        let in_doubt = Question {
            doubt: true,
            ..question
        };
        let (decision, ending) = judged(&question, &policy);
        let (_, ending_in_doubt) = judged(&in_doubt, &policy);
        // Of an attempt without a whole answer, the fate is what the call would end as.
        let fate = match ended(&question) {
            Ended::Answered(heard) => fate_name(heard.fate()),
            _ => match ending.as_str() {
                "applied" => "happened",
                "not_applied" => "did_not_happen",
                _ => "unknown",
            },
        };
        let status = question.phase.starts_with(['a', 'c']).then_some(question.status);
        json!([
            question.phase,
            status,
            question.code,
            question.word,
            question.key,
            question.repeatable,
            fate,
            decision,
            ending.as_str(),
            ending_in_doubt.as_str()
        ])
    });
    section("decisions", &asked, &gives, rows)
}

fn questions() -> Vec<Question> {
    let plain = Question {
        phase: "not_sent",
        status: 0,
        code: None,
        word: None,
        key: None,
        repeatable: true,
        doubt: false,
    };
    let mut questions = Vec::new();
    for phase in ["not_sent", "sent"] {
        questions.extend([true, false].map(|repeatable| Question {
            phase,
            repeatable,
            ..plain
        }));
    }
    for status in STATUSES {
        for key in KEYS {
            for repeatable in [true, false] {
                let of = |phase| Question {
                    phase,
                    status,
                    key,
                    repeatable,
                    ..plain
                };
                questions.push(of("cut_off"));
                if !repeatable {
                    questions.push(of("answered"));
                }
            }
            for word in WORDS {
                let codes = Code::ALL.map(|code| Some(code.as_str())).into_iter();
                let variants = VARIANTS.map(Some).into_iter();
                let all = [None].into_iter().chain(codes).chain(variants);
                let known = 1 + Code::ALL.len();
                let count = match (word, key) {
                    (None, None) => known + VARIANTS.len(),
                    (None, _) | (_, None) => known,
                    _ => 1,
                };
                questions.extend(all.take(count).map(|code| Question {
                    phase: "answered",
                    status,
                    code,
                    word,
                    key,
                    ..plain
                }));
            }
        }
    }
    questions
}

fn limits() -> String {
    let asked = [
        "class",
        "retries_used",
        "elapsed",
        "retry_after",
        "expires_in",
        "budget",
    ];
    let gives = ["decision", "wait"];
    let mut rows = Vec::new();
    for class in Class::ALL {
        let policy = Policy::of(class);
        let (retries_max, total) = oracle::class(class.as_str());
        for retries_used in [0, retries_max - 1, retries_max] {
            for elapsed in [0, total - 5000] {
                for retry_after in [None, Some(3000), Some(5000), Some(5001)] {
                    for expires_in in [None, Some(3000), Some(3001)] {
                        for budget in [true, false] {
                            let case = Limited {
                                retries_used,
                                elapsed,
                                retry_after,
                                expires_in,
                                budget,
                            };
                            let (decision, wait) = case.decided(&policy);
                            let wait = wait.map(milliseconds);
                            rows.push(json!([
                                class.as_str(),
                                retries_used,
                                elapsed,
                                retry_after,
                                expires_in,
                                budget,
                                decision,
                                wait
                            ]));
                        }
                    }
                }
            }
        }
    }
    section("limits", &asked, &gives, rows.into_iter())
}

fn schedules() -> String {
    let mut rows = Vec::new();
    for class in Class::ALL {
        let policy = Policy::of(class);
        for retry in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 31, 32, 33, 64, 65, 1000] {
            for elapsed in schedule::moments(class) {
                for (random, _) in schedule::RANDOM {
                    let before = Duration::from_millis(*elapsed);
                    let wait = policy.schedule.wait(retry, before, policy.total, random);
                    let random = format!("{random:016x}");
                    rows.push(json!([class.as_str(), retry, elapsed, random, wait.map(milliseconds)]));
                }
            }
        }
    }
    let asked = ["class", "retry", "elapsed", "random"];
    section("schedules", &asked, &["wait"], rows.into_iter())
}

fn retry_afters() -> String {
    let rows = after::CASES.iter().map(|(value, date, _)| {
        let wait = retry_after(value, *date, after::now()).map(milliseconds);
        json!([value, date, after::NOW, wait])
    });
    section("retry_after", &["value", "date", "now"], &["wait"], rows)
}

fn codes() -> String {
    let texts = Code::ALL.iter().map(|code| code.as_str()).chain(VARIANTS);
    let rows = texts.map(|text| match Code::of(text) {
        Some(code) => {
            let repeat = code.repeat() == Repeat::Helps;
            json!([text, meaning(code), repeat, fate_by(text), code.hint()])
        }
        None => json!([text, null, null, null, null]),
    });
    section("codes", &["text"], &["meaning", "repeat", "fate", "hint"], rows)
}

/// The name of a meaning, in the way of other languages.
fn meaning(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// What a code says of the effect, whatever the status.
fn fate_by(text: &'static str) -> &'static str {
    let fate = |status| {
        let heard = Heard {
            code: Code::of(text),
            ..Heard::status(status)
        };
        fate_name(heard.fate())
    };
    match (fate(200), fate(400)) {
        (one, other) if one == other => one,
        _ => "by_status",
    }
}

fn milliseconds(wait: Duration) -> Value {
    let whole = after::milliseconds(wait);
    let nanos = wait.subsec_nanos() % 1_000_000;
    match nanos {
        _ if whole == after::FOREVER => json!("forever"),
        0 => json!(whole),
        _ => serde_json::from_str(&format!("{whole}.{nanos:06}")).expect("a decimal number"),
    }
}
