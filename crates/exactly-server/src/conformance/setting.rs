//! Routes of the target that are set otherwise than the rest.

use std::str::FromStr;

use clap::ValueEnum;

use super::rule::name;

/// The member of a JSON body that carries the key on [`Setting::Field`].
pub(super) const KEY_FIELD: &str = "clientMutationId";
/// The header that carries the key on [`Setting::Alias`].
pub(super) const KEY_ALIAS: &str = "X-Idempotency-Key";

/// The member of a JSON body that is left out of the comparison on [`Setting::LeaveOut`].
pub(super) const FIELD_LEFT_OUT: &str = "sentAt";

/// How a route is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Setting {
    /// A key is required.
    Required,
    /// The key may be in the body.
    Field,
    /// The key may be in another header.
    Alias,
    /// Keys are UUIDs.
    Uuid,
    /// Keys are not looked at.
    Off,
    /// A field of the body may differ between repetitions.
    LeaveOut,
    /// Answers are kept for a few seconds.
    Short,
    /// Answers are not kept.
    Secret,
    /// Lost attempts are run again.
    Rerunnable,
    /// Duplicates wait for less than a second.
    Impatient,
}

impl Setting {
    pub(super) fn name(self) -> String {
        name(&self)
    }

    /// As in "a route where …".
    pub(super) fn describe(self) -> String {
        match self {
            Self::Required => "where a key is required".to_owned(),
            Self::Field => format!("where the key may be the body's {KEY_FIELD}"),
            Self::Alias => format!("where the key may be in {KEY_ALIAS}"),
            Self::Uuid => "where keys are version 4 UUIDs".to_owned(),
            Self::Off => "where keys are not looked at".to_owned(),
            Self::LeaveOut => format!("where the body's {FIELD_LEFT_OUT} is left out of the comparison"),
            Self::Short => "where answers are kept for a few seconds".to_owned(),
            Self::Secret => "where answers are not kept".to_owned(),
            Self::Rerunnable => "where lost attempts are run again".to_owned(),
            Self::Impatient => "where duplicates wait for a second at most".to_owned(),
        }
    }

    /// Where it is unless told otherwise.
    pub(super) fn path(self) -> String {
        format!("/effects/{}", self.name())
    }
}

/// A route as the command line names it: `required`, `required=/payments`, or `all`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Routes(pub(super) Vec<(Setting, String)>);

impl FromStr for Routes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            let all = Setting::value_variants().iter();
            return Ok(Self(all.map(|setting| (*setting, setting.path())).collect()));
        }
        let (setting, path) = text
            .split_once('=')
            .map_or((text, None), |(name, path)| (name, Some(path)));
        let known: Vec<_> = Setting::value_variants().iter().map(|setting| setting.name()).collect();
        let setting =
            Setting::from_str(setting, false).map_err(|_| format!("the routes are {} and all", known.join(", ")))?;
        match path {
            None => Ok(Self(vec![(setting, setting.path())])),
            Some(path) if path.starts_with('/') => Ok(Self(vec![(setting, path.to_owned())])),
            Some(_) => Err("its path must begin with a slash".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_named_with_or_without_a_path() {
        let read = |text: &str| text.parse::<Routes>().map(|routes| routes.0);
        assert_eq!(read("short"), Ok(vec![(Setting::Short, "/effects/short".to_owned())]));
        assert_eq!(read("short=/otp"), Ok(vec![(Setting::Short, "/otp".to_owned())]));
        assert_eq!(read("all").unwrap().len(), Setting::value_variants().len());
        assert!(read("shorter").unwrap_err().contains("required, field"));
        assert!(read("short=otp").is_err());
    }
}
