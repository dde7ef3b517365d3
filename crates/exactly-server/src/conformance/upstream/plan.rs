//! How a run goes, as its query says.

use std::time::Duration;

use http::StatusCode;

/// How long a run can be told to take.
const WAIT_MAX: Duration = Duration::from_mins(1);
/// The largest answer that can be asked for.
const SIZE_MAX: usize = 64 * 1024 * 1024;

/// What one request asks for. Parameters that mean nothing here are ignored: they are how a check varies a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// `tag`: what it is counted under.
    pub(super) tag: String,
    /// `status=503,201`: of the first run, the second, and so on; the last one stands for all that follow.
    statuses: Vec<StatusCode>,
    /// `cut=after,no`: the same for the connection.
    cuts: Vec<Cut>,
    /// `ms`: how long it takes.
    pub(super) wait: Duration,
    /// `hold`: it takes until it is released.
    pub(super) hold: bool,
    /// `body`.
    pub(super) body: Content,
    /// `size`: of a large body.
    pub(super) size: usize,
    /// `with=cookie,links`.
    pub(super) with: Vec<With>,
}

/// Where the connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    No,
    /// The request was read, and nothing happened.
    Before,
    /// It happened, and no byte of an answer was sent.
    After,
    /// It happened, and the answer breaks off inside its body.
    Answer,
}

/// What the answer's body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Json,
    Empty,
    Binary,
    Large,
    /// In pieces, with no length told in advance.
    Streamed,
}

/// Headers of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum With {
    /// `Set-Cookie`.
    Cookie,
    /// `Location`, `ETag`, and a header of its own.
    Links,
    /// `Cache-Control: no-store`.
    NoStore,
    /// What is for the first caller and moment only: `Date`, `WWW-Authenticate`, CORS.
    Caller,
}

const CUTS: &[(&str, Cut)] = &[
    ("no", Cut::No),
    ("before", Cut::Before),
    ("after", Cut::After),
    ("answer", Cut::Answer),
];
const CONTENTS: &[(&str, Content)] = &[
    ("json", Content::Json),
    ("empty", Content::Empty),
    ("binary", Content::Binary),
    ("large", Content::Large),
    ("streamed", Content::Streamed),
];
const WITHS: &[(&str, With)] = &[
    ("cookie", With::Cookie),
    ("links", With::Links),
    ("no-store", With::NoStore),
    ("caller", With::Caller),
];

impl Default for Plan {
    fn default() -> Self {
        Self {
            tag: String::new(),
            statuses: vec![StatusCode::CREATED],
            cuts: vec![Cut::No],
            wait: Duration::ZERO,
            hold: false,
            body: Content::Json,
            size: 2 * 1024 * 1024,
            with: Vec::new(),
        }
    }
}

impl Plan {
    /// What a query asks for, or what in it cannot be.
    pub(super) fn read(query: &str) -> Result<Self, String> {
        let mut plan = Self::default();
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let refused = |accepted: &str| format!("{name} is {value:?}, accepted is {accepted}");
            match name {
                "tag" => value.clone_into(&mut plan.tag),
                "status" => {
                    let statuses = list(value, |text| StatusCode::from_bytes(text.as_bytes()).ok());
                    let final_ones = statuses.filter(|all| all.iter().all(|status| status.as_u16() >= 200));
                    plan.statuses = final_ones.ok_or_else(|| refused("a list of statuses from 200 to 999"))?;
                }
                "cut" => plan.cuts = words(value, CUTS).ok_or_else(|| refused(&names(CUTS)))?,
                "with" => plan.with = words(value, WITHS).ok_or_else(|| refused(&names(WITHS)))?,
                "body" => plan.body = word(value, CONTENTS).ok_or_else(|| refused(&names(CONTENTS)))?,
                "ms" => {
                    let wait = value.parse().ok().map(Duration::from_millis);
                    let wait = wait.filter(|wait| *wait <= WAIT_MAX);
                    plan.wait = wait.ok_or_else(|| refused("milliseconds up to a minute"))?;
                }
                "size" => {
                    let size = value.parse().ok().filter(|size| *size <= SIZE_MAX);
                    plan.size = size.ok_or_else(|| refused("bytes up to 64 MiB"))?;
                }
                "hold" => plan.hold = true,
                _ => {}
            }
        }
        Ok(plan)
    }

    /// The status of the run with this number, from one.
    pub(super) fn status(&self, run: u64) -> StatusCode {
        of_run(&self.statuses, run).unwrap_or(StatusCode::CREATED)
    }

    /// Where the connection of the run with this number breaks.
    pub(super) fn cut(&self, run: u64) -> Cut {
        of_run(&self.cuts, run).unwrap_or(Cut::No)
    }
}

fn of_run<T: Copy>(all: &[T], run: u64) -> Option<T> {
    let index = usize::try_from(run).unwrap_or(usize::MAX).saturating_sub(1);
    all.get(index).or(all.last()).copied()
}

fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Option<T> {
    words
        .iter()
        .find(|(word, _)| *word == text)
        .map(|(_, meaning)| *meaning)
}

fn words<T: Copy>(text: &str, known: &[(&str, T)]) -> Option<Vec<T>> {
    list(text, |text| word(text, known))
}

fn list<T>(text: &str, read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    text.split(',').map(read).collect()
}

fn names<T>(words: &[(&str, T)]) -> String {
    let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_a_list_stands_for_all_that_follow() {
        let plan = Plan::read("tag=t&status=503,201&cut=after,no&with=cookie,links&other=1").unwrap();
        assert_eq!(plan.tag, "t");
        let statuses = [1, 2, 3].map(|run| plan.status(run).as_u16());
        assert_eq!(statuses, [503, 201, 201]);
        assert_eq!([1, 2, 3].map(|run| plan.cut(run)), [Cut::After, Cut::No, Cut::No]);
        assert_eq!(plan.with, [With::Cookie, With::Links]);
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for query in [
            "status=abc",
            "status=100",
            "status=",
            "cut=half",
            "with=x",
            "body=soap",
            "ms=-1",
            "size=1e9",
        ] {
            let name = query.split('=').next().unwrap();
            let fault = Plan::read(query).unwrap_err();
            assert!(fault.starts_with(name) && fault.contains("accepted is"), "{fault}");
        }
    }
}
