//! The server that is checked, and what was found out about it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::answer::Answer;
use super::counter::{self, Counter, Counts};
use super::exchange::{Lost, exchange};
use super::place::Place;
use super::preset::{Guarantee, Preset};
use super::request::{Line, Request};
use super::setting::Setting;

/// What the user says about the server.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) place: Place,
    pub(super) method: String,
    pub(super) path: String,
    /// Templates; the first is the content of an operation, the second, if there is one, other content.
    pub(super) bodies: Vec<String>,
    pub(super) content_type: String,
    /// The credentials of the caller.
    pub(super) caller: Vec<Line>,
    pub(super) other_caller: Option<Vec<Line>>,
    /// Another host that it answers for.
    pub(super) other_host: Option<String>,
    pub(super) routes: BTreeMap<Setting, String>,
    pub(super) counter: Option<Counter>,
    pub(super) preset: Preset,
    pub(super) guarantee: Guarantee,
    /// For one exchange.
    pub(super) limit: Duration,
    pub(super) is_store_down: bool,
    /// Where a refusal's code is, if refusals are not problem details.
    pub(super) code_at: Option<String>,
}

/// The server, and what it turned out to have.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) target: Target,
    /// Whom to ask for counts, if anybody.
    pub(super) counter: Option<Counter>,
    /// Whether that is the shipped upstream.
    pub(super) is_shipped: bool,
    /// Whether the shipped upstream carries out the operations.
    pub(super) has_switches: bool,
}

/// Why nothing can be checked.
#[derive(Debug)]
pub(super) struct Unusable(String);

impl Target {
    /// An operation that nobody asked for before.
    pub(super) fn operation(&self) -> Request {
        self.operation_at(&self.path)
    }

    /// The same on another path.
    pub(super) fn operation_at(&self, path: &str) -> Request {
        let tag = format!("c{:012x}", fastrand::u64(..1 << 48));
        let number = fastrand::u32(1000..9000);
        let path = format!("{}{}", self.place.prefix, expand(path, &tag, number));
        let body = self
            .bodies
            .first()
            .map_or_else(String::new, |body| expand(body, &tag, number));
        self.request(&self.method, &path, &tag).key(new_key()).body(body)
    }

    /// The operation with other content.
    pub(super) fn with_other_content(&self, request: &Request) -> Option<Request> {
        let template = self.bodies.get(1).or(self.bodies.first())?;
        // Outside what operations are given, so that it differs from any.
        let body = expand(template, &request.tag, 9001);
        (body.as_bytes() != request.body).then(|| request.clone().body(body))
    }

    /// A request with the caller's credentials and no key.
    pub(super) fn request(&self, method: &str, path: &str, tag: &str) -> Request {
        Request::new(method, path, tag)
            .line("Content-Type", &self.content_type)
            .secrets(&self.caller)
    }
}

impl Subject {
    /// Looks at the target: whether it answers, and what is behind it.
    pub(super) async fn explore(target: Target) -> Result<Self, Unusable> {
        let (counter, is_shipped) = find_counter(&target).await?;
        let mut operation = target.operation();
        if is_shipped {
            operation = with_tag(operation);
        }
        let answer = exchange(&target.place, &operation, target.limit).await;
        let answer = answer.map_err(|lost| unreached(&target, &lost))?;
        if let Some(fault) = turned_away(&target, &answer) {
            return Err(Unusable(fault));
        }
        Ok(Self {
            has_switches: is_shipped && counter::is_upstream(&answer),
            target,
            counter,
            is_shipped,
        })
    }
}

/// Whom to ask for counts, if anybody, and whether it is the shipped upstream.
async fn find_counter(target: &Target) -> Result<(Option<Counter>, bool), Unusable> {
    let Some(counter) = target.counter.clone() else {
        let counter = Counter::behind(&target.place);
        let told = count(target, &counter).await.map_err(|lost| unreached(target, &lost))?;
        let is_shipped = counter::is_upstream(&told);
        return Ok((is_shipped.then_some(counter), is_shipped));
    };
    let told = count(target, &counter).await;
    let told = told.map_err(|lost| Unusable(format!("ask for counts at {}: {lost}", counter.place)))?;
    if Counts::read(&told).is_none() {
        let fault = format!(
            "the counts are no number and no object with `effects`: {}",
            brief(&told)
        );
        return Err(Unusable(fault));
    }
    Ok((Some(counter), counter::is_upstream(&told)))
}

/// The shipped upstream counts by a parameter of the query.
pub(super) fn with_tag(request: Request) -> Request {
    let tag = request.tag.clone();
    request.query("tag", &tag)
}

/// A key that every format of keys accepts.
pub(super) fn new_key() -> String {
    let bits = fastrand::u128(..);
    let hex = format!("{bits:032x}");
    let variant = ["8", "9", "a", "b"][fastrand::usize(..4)];
    let (low, mid, high, clock, node) = (&hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..]);
    format!("{low}-{mid}-4{high}-{variant}{clock}-{node}")
}

/// What to ask `counter`. Only the target gets to see the caller's credentials.
pub(super) fn question(target: &Target, counter: &Counter, method: &str, path: &str, tag: &str) -> Request {
    let of = |place: &Place| (place.is_tls(), place.host.clone(), place.port);
    let is_target = of(&counter.place) == of(&target.place);
    let request = Request::new(method, path, tag);
    if is_target {
        request.secrets(&target.caller)
    } else {
        request
    }
}

async fn count(target: &Target, counter: &Counter) -> Result<Answer, Lost> {
    let tag = "nothing";
    let request = question(target, counter, "GET", &counter.path(tag), tag);
    exchange(&counter.place, &request, target.limit).await
}

fn expand(template: &str, tag: &str, number: u32) -> String {
    template.replace("{tag}", tag).replace("{n}", &number.to_string())
}

fn unreached(target: &Target, lost: &Lost) -> Unusable {
    Unusable(format!("reach {}: {lost}; is the server running there?", target.place))
}

/// Why the target cannot be checked although it answers.
fn turned_away(target: &Target, answer: &Answer) -> Option<String> {
    let fix = match answer.status {
        401 | 403 => "give the caller's credentials with --header",
        404 | 405 => "name an operation with --path and --method, or put `exactly conformance upstream` behind it",
        _ => return None,
    };
    let (method, path) = (&target.method, &target.path);
    Some(format!("{method} {path} was answered with {}: {fix}", brief(answer)))
}

fn brief(answer: &Answer) -> String {
    let text = String::from_utf8_lossy(&answer.body);
    let text: String = text.chars().filter(|c| !c.is_control()).take(120).collect();
    format!("{} {text}", answer.status).trim_end().to_owned()
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unusable {}

#[cfg(test)]
mod tests {
    use super::*;
    use exactly::Key;
    use exactly::key::KeyFormat;

    #[test]
    fn new_keys_are_uuids() {
        for _ in 0..100 {
            let key = Key::new(new_key()).unwrap();
            assert!(KeyFormat::UuidV4.check(key).is_ok());
        }
    }
}
