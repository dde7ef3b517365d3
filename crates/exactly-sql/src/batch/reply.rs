//! The way back to a caller.
//!
//! Waking a task of another runtime costs a system call, and a batch has dozens of callers. So what is to be told is
//! brought to each runtime as one task, which wakes its neighbours for next to nothing.

use exactly::StoreError;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::Step;

/// One caller's way back.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    answer: oneshot::Sender<Result<T, StoreError>>,
    home: Option<Handle>,
}

impl<T> Reply<T> {
    /// A way back to whoever waits here.
    pub(super) fn here() -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (answer, heard) = oneshot::channel();
        let home = Handle::try_current().ok();
        (Self { answer, home }, heard)
    }

    /// A way back to nobody.
    pub(super) fn to_nobody() -> Self {
        Self {
            answer: oneshot::channel().0,
            home: None,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.answer.is_closed()
    }

    pub(super) fn send(self, answer: Result<T, StoreError>) -> Result<(), Result<T, StoreError>> {
        self.answer.send(answer)
    }

    /// The runtime that the caller waits in, if it still does.
    pub(super) fn home(&self) -> Option<&Handle> {
        self.home.as_ref().filter(|_| !self.is_closed())
    }
}

/// Parts what is told to `steps` by the runtimes of their callers. What nobody waits for is left to `otherwise`.
pub(crate) fn by_home<T>(
    told: impl IntoIterator<Item = (Step, T)>,
    otherwise: &Handle,
) -> Vec<(Handle, Vec<(Step, T)>)> {
    let mut parties: Vec<(Handle, Vec<(Step, T)>)> = Vec::new();
    for (step, answer) in told {
        let home = step.home().unwrap_or(otherwise);
        match parties.iter_mut().find(|(party, _)| party.id() == home.id()) {
            Some((_, party)) => party.push((step, answer)),
            None => parties.push((home.clone(), vec![(step, answer)])),
        }
    }
    parties
}
