//! Looking at records, for people.

use super::{Reply, Store};
use crate::clock::Timestamp;
use crate::{CallId, Claim, Fingerprint, Key, Scope};

/// A store that can show its records. Nothing here changes one: whoever settles a doubt completes or abandons the claim
/// that the view carries, and the fence decides.
pub trait Inspect: Store {
    /// One record.
    fn get<'a>(&'a self, id: &'a CallId) -> Reply<'a, Option<CallView>>;

    /// Records that match, at most [`Filter::limit`] of them and in an order that paging can follow.
    fn list<'a>(&'a self, filter: &'a Filter) -> Reply<'a, Page>;
}

/// A record as people see it.
#[derive(Clone, Debug)]
pub struct CallView {
    /// Who asked for what.
    pub scope: Scope,
    /// Which one.
    pub key: Key,
    /// With which content.
    pub fingerprint: Fingerprint,
    /// How far it got.
    pub phase: Phase,
    /// The latest attempt's claim, with which a doubt can be settled.
    pub claim: Claim,
    /// When the key was first used, on the store's clock.
    pub created_at: Timestamp,
    /// When it ends: the lease of a call in flight, the retention of one that is done (`None`: kept forever).
    pub until: Option<Timestamp>,
    /// The stored answer's size in bytes, if there is one.
    pub outcome_len: Option<u64>,
}

/// How far a call got, as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// An attempt holds a lease.
    InFlight,
    /// An attempt was lost mid-effect, and the key is held until someone settles it.
    InDoubt,
    /// An attempt was lost, and the next caller reruns it.
    Lost,
    /// It happened.
    Done,
}

/// Which records to list.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Only those of this phase.
    pub phase: Option<Phase>,
    /// Only those of this operation.
    pub operation: Option<String>,
    /// Only those of this principal.
    pub principal: Option<String>,
    /// Only those whose key was first used before this instant, on the store's clock.
    pub created_before: Option<Timestamp>,
    /// Only those after the page that said so in [`Page::next`].
    pub after: Option<CallId>,
    /// At most so many; a store caps it at [`Filter::LIMIT_MAX`].
    pub limit: u32,
}

impl Filter {
    /// The most records in one page.
    pub const LIMIT_MAX: u32 = 1000;

    /// Whether `view` is among the records asked for, wherever its page starts.
    pub fn matches(&self, view: &CallView) -> bool {
        self.phase.is_none_or(|phase| phase == view.phase)
            && self
                .operation
                .as_deref()
                .is_none_or(|operation| operation == view.scope.operation())
            && self
                .principal
                .as_deref()
                .is_none_or(|principal| Some(principal) == view.scope.principal())
            && self.created_before.is_none_or(|before| view.created_at < before)
    }
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            phase: None,
            operation: None,
            principal: None,
            created_before: None,
            after: None,
            limit: 100,
        }
    }
}

/// One page of records.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The records.
    pub calls: Vec<CallView>,
    /// What to put into [`Filter::after`] for the next page; `None` after the last one.
    pub next: Option<CallId>,
}
