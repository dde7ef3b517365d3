//! A rule: one sentence of the contract, and how to see whether it holds.

use std::pin::Pin;

use super::preset::{Guarantee, Preset};
use super::setting::Setting;
use super::subject::Subject;
use super::trial::Trial;

/// One sentence of the contract.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    /// Its name, which stays the same.
    pub(super) id: &'static str,
    /// What is promised.
    pub(super) statement: &'static str,
    /// Where the promise comes from: Y, T, P, H are the source systems, I the IETF draft, + our own.
    pub(super) sources: &'static str,
    /// What the target must have for it to be seen.
    pub(super) needs: &'static [Need],
    /// Tries it.
    pub(super) check: Check,
}

/// Tries a rule on a target.
pub(super) type Check = for<'a> fn(&'a Trial<'a>) -> Pin<Box<dyn Future<Output = Checked> + Send + 'a>>;

/// What a rule ends with; `Ok` if it holds.
pub(super) type Checked = Result<(), Stop>;

/// Why a rule did not get to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Failed(String),
    NotApplicable(String),
}

/// What a rule needs beside a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// The shipped upstream behind the target, which can be told how to behave.
    Switches,
    /// A second caller.
    OtherCaller,
    /// A second host.
    OtherHost,
    /// A route with this setting.
    Route(Setting),
    /// This preset's way with duplicates in flight: to wait.
    Waiting,
    /// The main route promises this.
    AtMostOnce,
    /// The main route promises something else than at-most-once.
    Repeatable,
    /// A store that was stopped.
    StoreDown,
    /// The port of the upstream is closed meanwhile, so nothing else may run.
    Alone,
}

impl Rule {
    /// Why the rule cannot be seen on `subject`, if it cannot.
    pub(super) fn missing(&self, subject: &Subject) -> Option<String> {
        // With the store stopped nothing else holds, and nothing else is asked.
        if subject.target.is_store_down && !self.needs.contains(&Need::StoreDown) {
            return Some("the store is down, as --store-down says".to_owned());
        }
        self.needs.iter().find_map(|need| need.missing(subject))
    }

    pub(super) fn runs_alone(&self) -> bool {
        self.needs.contains(&Need::Alone)
    }
}

impl Need {
    fn missing(self, subject: &Subject) -> Option<String> {
        let target = &subject.target;
        match self {
            Self::Switches if !subject.has_switches => Some(Self::Switches.describe()),
            Self::OtherCaller if target.other_caller.is_none() => Some(Self::OtherCaller.describe()),
            Self::OtherHost if target.other_host.is_none() => Some(Self::OtherHost.describe()),
            Self::Route(setting) if !target.routes.contains_key(&setting) => Some(self.describe()),
            Self::Waiting if !target.preset.waits() => Some(self.describe()),
            Self::AtMostOnce if target.guarantee != Guarantee::AtMostOnce => Some(self.describe()),
            Self::Repeatable if target.guarantee == Guarantee::AtMostOnce => Some(self.describe()),
            Self::StoreDown if !target.is_store_down => Some(self.describe()),
            _ => None,
        }
    }

    /// What is needed, in words.
    pub(super) fn describe(self) -> String {
        match self {
            Self::Switches => "needs `exactly conformance upstream` behind the target".to_owned(),
            Self::OtherCaller => "needs a second caller: --other-header".to_owned(),
            Self::OtherHost => "needs a second host: --other-host".to_owned(),
            Self::Route(setting) => format!("needs a route {}: --route {}", setting.describe(), setting.name()),
            Self::Waiting => format!("needs the preset {}, which waits", name(&Preset::Playbook)),
            Self::AtMostOnce => format!("needs --guarantee {}", name(&Guarantee::AtMostOnce)),
            Self::Repeatable => {
                let (one, other) = (name(&Guarantee::Rerunnable), name(&Guarantee::Transactional));
                format!("needs --guarantee {one} or {other}")
            }
            Self::StoreDown => "needs a target whose store was stopped: --store-down".to_owned(),
            Self::Alone => String::new(),
        }
    }
}

/// The name that the command line has for it.
pub(super) fn name(value: &impl clap::ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rule({})", self.id)
    }
}
