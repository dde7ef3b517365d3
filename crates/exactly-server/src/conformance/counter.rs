//! Whom to ask how often something happened.

use std::str::FromStr;

use serde_json::Value;

use super::answer::Answer;
use super::place::Place;
use super::upstream;

const TAG: &str = "{tag}";

/// Where effects are counted.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    pub(super) place: Place,
    /// The path and query, with `{tag}` where the tag goes.
    template: String,
}

/// How often something happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) effects: u64,
    /// The shipped upstream also knows how often it was asked.
    pub(super) runs: Option<u64>,
    pub(super) running: Option<u64>,
    pub(super) reads: Option<u64>,
}

impl Counter {
    /// The shipped upstream's, as it is reached through the target.
    pub(super) fn behind(place: &Place) -> Self {
        Self {
            place: Place {
                prefix: String::new(),
                ..place.clone()
            },
            template: format!("{}/effects?tag={TAG}", place.prefix),
        }
    }

    /// What to ask for.
    pub(super) fn path(&self, tag: &str) -> String {
        self.template.replace(TAG, tag)
    }

    /// Where the shipped upstream is told something: `release`, `down`.
    pub(super) fn control(&self, what: &str, query: &str) -> Option<String> {
        let base = self.template.strip_suffix(&format!("?tag={TAG}"))?;
        Some(format!("{base}/{what}?{query}"))
    }
}

impl FromStr for Counter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let after_scheme = text.find("://").map_or(0, |at| at + 3);
        let path_at = text[after_scheme..]
            .find('/')
            .map_or(text.len(), |at| after_scheme + at);
        let (place, path) = text.split_at(path_at);
        let place = place.parse()?;
        let template = match path {
            _ if path.contains(TAG) => path.to_owned(),
            _ if path.contains('?') => return Err(format!("a query must say where the tag goes: {TAG}")),
            "" | "/" => format!("/effects?tag={TAG}"),
            _ => format!("{}?tag={TAG}", path.trim_end_matches('/')),
        };
        Ok(Self { place, template })
    }
}

impl Counts {
    /// A number, or an object with `effects` in it.
    pub(super) fn read(answer: &Answer) -> Option<Self> {
        let told = answer.json().filter(|_| answer.status == 200)?;
        let number = |name: &str| told.get(name).and_then(Value::as_u64);
        match told.as_u64() {
            Some(effects) => Some(Self {
                effects,
                ..Self::default()
            }),
            None => Some(Self {
                effects: number("effects")?,
                runs: number("runs"),
                running: number("running"),
                reads: number("reads"),
            }),
        }
    }
}

/// Whether the shipped upstream said this.
pub(super) fn is_upstream(answer: &Answer) -> bool {
    let mark = answer.json().and_then(|told| told.get("upstream").cloned());
    mark.as_ref().and_then(Value::as_str) == Some(upstream::MARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_goes_where_the_address_says() {
        let check = |text: &str, path: &str, release: Option<&str>| {
            let counter: Counter = text.parse().unwrap();
            assert_eq!(counter.path("t"), path, "{text}");
            let control = counter.control("release", "tag=t");
            assert_eq!(control.as_deref(), release, "{text}");
        };
        let release = Some("/effects/release?tag=t");
        check("http://up:9090", "/effects?tag=t", release);
        check("http://up:9090/effects/", "/effects?tag=t", release);
        check("http://up:9090/count?ref={tag}&x=1", "/count?ref=t&x=1", None);
        check("http://up:9090/count/{tag}", "/count/t", None);
        for text in ["up:9090", "ftp://up", "http://up/count?x=1"] {
            assert!(text.parse::<Counter>().is_err(), "{text}");
        }
    }

    #[test]
    fn counts_are_a_number_or_have_a_name() {
        let answer = |body: &'static str| Answer {
            status: 200,
            headers: Vec::new(),
            body: body.into(),
            is_whole: true,
        };
        assert_eq!(Counts::read(&answer("3")).unwrap().effects, 3);
        let counts = Counts::read(&answer(r#"{"effects": 1, "runs": 2}"#)).unwrap();
        assert_eq!((counts.effects, counts.runs, counts.reads), (1, Some(2), None));
        assert_eq!(Counts::read(&answer("many")), None);
        assert_eq!(Counts::read(&answer("{}")), None);
    }
}
