//! One member of a JSON object, as often as it is there.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// The values of the member `name` in a JSON object. Readers differ in which of several they take, so the caller gets
/// all.
pub(super) fn values(name: &str, json: &[u8]) -> Result<Vec<Value>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let values = reader.deserialize_map(Member(name))?;
    reader.end()?;
    Ok(values)
}

struct Member<'a>(&'a str);

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Vec<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<Vec<Value>, M::Error> {
        let mut values = Vec::new();
        while let Some(name) = members.next_key::<Cow<'_, str>>()? {
            if name == self.0 {
                values.push(members.next_value()?);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_the_member_is_found_and_no_other() {
        let check = |json: &str, expected: &[&str]| {
            let found = values("id", json.as_bytes()).unwrap();
            assert_eq!(found, expected, "{json}");
        };
        check("{}", &[]);
        check(r#"{"id":"a"}"#, &["a"]);
        check(r#"{"x":{"id":"a"},"y":["id"]}"#, &[]);
        check(r#"{"id":"a","x":1,"\u0069d":"b"}"#, &["a", "b"]);
        for json in ["", "[]", "{} {}", r#"{"id":"a""#, r#""id""#] {
            assert!(values("id", json.as_bytes()).is_err(), "{json}");
        }
    }
}
