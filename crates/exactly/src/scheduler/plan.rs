//! When, for whom, and how late it may be.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use super::Audience;
use crate::schedule::Pattern;
use crate::store::Reply;

/// A schedule that makes tasks.
#[derive(Clone, Debug)]
pub struct Plan {
    name: Arc<str>,
    pattern: Pattern,
    catch_up: Duration,
    audience: Arc<dyn Audience>,
}

/// Why a plan is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPlan(String);

impl Plan {
    /// The longest name, in bytes.
    pub const NAME_BYTES_MAX: usize = 64;

    /// How late an occurrence is still made up for, unless told otherwise.
    pub const CATCH_UP_DEFAULT: Duration = Duration::from_hours(24);

    /// The longest that can be made up for.
    pub const CATCH_UP_MAX: Duration = Duration::from_hours(7 * 24);

    /// A plan of this name: letters, digits, `.`, `_` and `-`.
    pub fn new(name: &str, pattern: Pattern, audience: impl Audience) -> Result<Self, InvalidPlan> {
        let accepted = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > Self::NAME_BYTES_MAX || !name.bytes().all(accepted) {
            return Err(InvalidPlan(format!(
                "{name:?} is no name of a schedule: use letters, digits, `.`, `_` and `-`, at most {} in all",
                Self::NAME_BYTES_MAX
            )));
        }
        Ok(Self {
            name: name.into(),
            pattern,
            catch_up: Self::CATCH_UP_DEFAULT,
            audience: Arc::new(audience),
        })
    }

    /// Makes up for occurrences that are no later than this.
    pub fn catching_up(mut self, catch_up: Duration) -> Result<Self, InvalidPlan> {
        if catch_up > Self::CATCH_UP_MAX {
            let most = Self::CATCH_UP_MAX.as_secs() / 3600;
            return Err(InvalidPlan(format!(
                "catching up {catch_up:?}: {most} hours are the most"
            )));
        }
        self.catch_up = catch_up;
        Ok(self)
    }

    /// What it is known by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When it fires.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// How late an occurrence is still made up for.
    pub fn catch_up(&self) -> Duration {
        self.catch_up
    }

    /// Whom it is for.
    pub fn audience(&self) -> &dyn Audience {
        &*self.audience
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.pattern, f)
    }
}

impl fmt::Display for InvalidPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read schedule: {}", self.0)
    }
}

impl std::error::Error for InvalidPlan {}

/// Where a scheduler finds its plans, anew in every pass.
pub trait Plans: Debug + Send + Sync + 'static {
    /// All of them. What cannot be read is left out, and told by whoever reads it.
    fn plans(&self) -> Reply<'_, Vec<Plan>>;

    /// The one of this name.
    fn plan<'a>(&'a self, name: &'a str) -> Reply<'a, Option<Plan>> {
        Box::pin(async move { Ok(self.plans().await?.into_iter().find(|plan| plan.name() == name)) })
    }
}

impl Plans for Vec<Plan> {
    fn plans(&self) -> Reply<'_, Vec<Plan>> {
        Box::pin(async { Ok(self.clone()) })
    }
}
