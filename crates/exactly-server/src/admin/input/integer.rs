//! Whole numbers as JSON has them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

/// Beyond it a number with a fraction cannot tell its neighbours apart.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// A whole number that is not negative. JSON has one kind of number, so `30.0` is as whole as `30`.
pub(super) struct Integer(pub(super) u64);

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(Whole).map(Self)
    }
}

struct Whole;

impl Visitor<'_> for Whole {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        u64::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<u64, E> {
        let refused = || E::invalid_value(Unexpected::Float(number), &Whole);
        if number.fract() != 0.0 || !(0.0..=EXACT_MAX).contains(&number) {
            return Err(refused());
        }
        format!("{:.0}", number.abs()).parse().map_err(|_| refused())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_without_a_fraction_is_whole_however_it_is_written() {
        let read = |text: &str| serde_json::from_str::<Integer>(text).map(|integer| integer.0).ok();
        for (text, number) in [
            ("30", Some(30)),
            ("30.0", Some(30)),
            ("3e1", Some(30)),
            ("0", Some(0)),
            ("-0.0", Some(0)),
        ] {
            assert_eq!(read(text), number, "{text}");
        }
        for text in ["30.5", "-1", "-1.0", "1e300", "\"30\"", "null", "true"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
