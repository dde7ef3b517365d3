//! What a queue says of a write that carries a fence.

use crate::Fenced;

/// What came of renewing a lease or of settling it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a superseded write changed nothing, and a busy one is to be repeated"]
pub enum Ruling {
    /// The write took effect.
    Applied,
    /// The lease owns the task no longer; nothing was changed.
    Superseded,
    /// Nothing was changed, and nothing is known: a transaction elsewhere has the task locked, which may be this lease's own
    /// [settlement](super::TransactionalQueue::settle_in) on its way. Nobody else can take the task before that transaction
    /// has ended, and the lease ends when it would have. Ask again.
    Busy,
}

impl From<Fenced> for Ruling {
    fn from(fenced: Fenced) -> Self {
        match fenced {
            Fenced::Applied => Self::Applied,
            Fenced::Superseded => Self::Superseded,
        }
    }
}

impl PartialEq<Fenced> for Ruling {
    fn eq(&self, fenced: &Fenced) -> bool {
        *self == Self::from(*fenced)
    }
}
