//! Names of tables and schemas.
//!
//! SQL has no parameters for names, so they become part of the statement's text. Only letters, digits and `_` are
//! accepted, which leaves nothing to inject. Statements still quote them, because `order` is a name too.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use exactly::{StoreError, StoreErrorKind};

/// Remembers the version of each table next to it.
pub(crate) const VERSIONS: &str = "exactly_versions";

/// What operators did to the records of every table next to it.
pub(crate) const TRAIL: &str = "exactly_trail";

/// SQLite's clock.
pub(crate) const CLOCK: &str = "exactly_clock";

/// A table or schema name: `[a-z_][a-z0-9_]{0,62}`. No capitals, whose meaning depends on quotes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Name(Box<str>);

/// A text that is no [`Name`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidName(Box<str>);

impl Name {
    /// The longest name, in bytes: PostgreSQL cuts longer ones off without an error, and two tables become one.
    pub const BYTES_MAX: usize = 63;

    /// Refuses every other text.
    pub fn new(text: impl Into<Box<str>>) -> Result<Self, InvalidName> {
        let text = text.into();
        let starts = text
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_');
        let goes_on = text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        if starts && goes_on && text.len() <= Self::BYTES_MAX {
            Ok(Self(text))
        } else {
            Err(InvalidName(text))
        }
    }

    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as statements have it.
    pub(crate) fn quoted(&self) -> String {
        format!("\"{}\"", self.0)
    }

    /// The name that was given for `option`.
    pub(crate) fn option(option: &str, text: String) -> Result<Self, StoreError> {
        Self::new(text).map_err(|error| {
            StoreError::new(StoreErrorKind::Refused, format!("read the {option} option")).with_source(error)
        })
    }

    /// The table that was given, unless the store keeps something else under that name.
    pub(crate) fn table(text: String) -> Result<Self, StoreError> {
        if [VERSIONS, TRAIL, CLOCK].contains(&text.as_str()) {
            let context = format!("read the table option: {text:?} is a table that the store keeps for itself");
            return Err(StoreError::new(StoreErrorKind::Refused, context));
        }
        Self::option("table", text)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({})", self.0)
    }
}

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no table or schema name: use a lower-case letter or `_`, then lower-case letters, digits or `_`, \
             at most {} in all",
            self.0,
            Name::BYTES_MAX
        )
    }
}

impl Error for InvalidName {}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn a_name_has_nothing_to_inject() {
        let longest = "a".repeat(Name::BYTES_MAX);
        for name in ["calls", "_calls", "league_operations", "c2", longest.as_str()] {
            assert!(Name::new(name).is_ok(), "{name}");
        }
        let too_long = "a".repeat(Name::BYTES_MAX + 1);
        for name in [
            "",
            "2c",
            "Calls",
            "a.b",
            "a b",
            "a\"b",
            "a;drop",
            "é",
            "a-b",
            "a\0",
            too_long.as_str(),
        ] {
            assert!(Name::new(name).is_err(), "{name}");
        }
    }
}
