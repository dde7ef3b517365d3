//! What an operator says came of a doubt.

use bytes::Bytes;
use exactly::Keep;
use http::{HeaderName, HeaderValue, Response, StatusCode};

use crate::admin::ask::{Came, HttpAnswer, Resolve};
use crate::admin::input::{OUTCOME_MAX, keep};
use crate::admin::problem::{Answer, Problem};

/// The most headers of an answer.
const HEADERS_MAX: usize = 64;

/// How a doubt is to end.
#[derive(Debug)]
pub(super) enum Wanted {
    /// It happened, and this is the HTTP answer.
    Answer(Box<Response<Bytes>>),
    /// It happened, and these bytes are the outcome.
    Outcome {
        outcome: Bytes,
        keep: Keep,
    },
    DidNotHappen,
}

impl Wanted {
    /// Refuses what does not go together.
    pub(super) fn of(asked: &Resolve) -> Answer<Self> {
        if asked.keep_ms.is_some() && asked.outcome_base64.is_none() {
            return Err(Problem::invalid("keep_ms", "it goes with outcome_base64 only"));
        }
        match (asked.outcome, &asked.answer, &asked.outcome_base64) {
            (Came::Happened, Some(answer), None) => response(answer).map(|answer| Self::Answer(Box::new(answer))),
            (Came::Happened, None, Some(outcome)) => Ok(Self::Outcome {
                outcome: outcome.0.clone(),
                keep: asked.keep_ms.map_or(Keep::DAY, keep),
            }),
            (Came::Happened, None, None) => {
                let why = "it happened, so say what it answered: answer for a call over HTTP, else outcome_base64";
                Err(Problem::invalid("answer", why))
            }
            (Came::Happened, Some(_), Some(_)) => Err(Problem::invalid(
                "outcome_base64",
                "give either answer or outcome_base64",
            )),
            (Came::DidNotHappen, Some(_), _) => Err(Problem::invalid("answer", NOTHING)),
            (Came::DidNotHappen, _, Some(_)) => Err(Problem::invalid("outcome_base64", NOTHING)),
            (Came::DidNotHappen, None, None) => Ok(Self::DidNotHappen),
        }
    }

    /// For the trail, without what it answered.
    pub(super) fn in_words(&self) -> String {
        match self {
            Self::Answer(answer) => {
                let bytes = answer.body().len();
                format!(
                    "it happened and answered {} with {bytes} bytes",
                    answer.status().as_u16()
                )
            }
            Self::Outcome { outcome, .. } => format!("it happened with an outcome of {} bytes", outcome.len()),
            Self::DidNotHappen => "it did not happen".to_owned(),
        }
    }
}

const NOTHING: &str = "what did not happen has no answer";

fn response(answer: &HttpAnswer) -> Answer<Response<Bytes>> {
    let status = u16::try_from(answer.status.get())
        .ok()
        .and_then(|status| StatusCode::from_u16(status).ok());
    let status = status.ok_or_else(|| Problem::invalid("answer.status", "accepted are 200 to 599"))?;
    let body = match (&answer.body, &answer.body_base64) {
        (Some(text), None) => Bytes::copy_from_slice(text.as_bytes()),
        (None, Some(bytes)) => bytes.0.clone(),
        (None, None) => Bytes::new(),
        (Some(_), Some(_)) => {
            return Err(Problem::invalid(
                "answer.body_base64",
                "give either body or body_base64",
            ));
        }
    };
    if body.len() > OUTCOME_MAX {
        let why = format!("has {} bytes, accepted are up to {OUTCOME_MAX}", body.len());
        return Err(Problem::invalid("answer.body", why));
    }
    if answer.headers.len() > HEADERS_MAX {
        let why = format!("has {} members, accepted are up to {HEADERS_MAX}", answer.headers.len());
        return Err(Problem::invalid("answer.headers", why));
    }
    let mut response = Response::new(body);
    *response.status_mut() = status;
    for (name, value) in &answer.headers {
        let refused = |why: &str| Problem::invalid(format!("answer.headers.{name}"), why);
        let name: HeaderName = name.parse().map_err(|_| refused("is not a header's name"))?;
        let visible = value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        let value = HeaderValue::from_str(value).ok().filter(|_| visible);
        let value = value.ok_or_else(|| refused("accepted are visible ASCII characters and spaces"))?;
        response.headers_mut().append(name, value);
    }
    Ok(response)
}
