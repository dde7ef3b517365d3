//! Whole numbers as JSON has them, where `11.0` is as whole as `11`.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A number without a fraction, however it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Integer(pub(super) u64);

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(AnyNumber)
    }
}

/// For a field whose own type knows one way to write a number only.
pub(crate) fn integer<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: TryFrom<u64>,
    D: Deserializer<'de>,
{
    let Integer(number) = Integer::deserialize(deserializer)?;
    T::try_from(number).map_err(|_| D::Error::custom(format_args!("{number} is too large")))
}

struct AnyNumber;

impl Visitor<'_> for AnyNumber {
    type Value = Integer;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number that is not negative")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Integer, E> {
        Ok(Integer(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Integer, E> {
        // Written out, a number without a fraction has no point; and zero has no sign.
        let written = (number + 0.0).to_string();
        let number = written.parse().map(Integer);
        number.map_err(|_| E::invalid_type(serde::de::Unexpected::Other(&format!("number {written}")), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_as_whole_as_its_value() {
        for (text, number) in [
            ("11", 11),
            ("11.0", 11),
            ("1.1e1", 11),
            ("1E3", 1000),
            ("0", 0),
            ("-0.0", 0),
            ("315360000000.0", 315_360_000_000),
        ] {
            assert_eq!(serde_json::from_str::<Integer>(text).unwrap().0, number, "{text}");
        }
        for text in ["11.5", "-1", "-1.0", "1e30", "\"11\"", "null", "true"] {
            assert!(serde_json::from_str::<Integer>(text).is_err(), "{text}");
        }
    }
}
