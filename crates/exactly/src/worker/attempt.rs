//! One run of a handler, in a task of its own.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::kinds::Kind;
use super::{Ran, log};
use crate::queue::{End, Failure, FailureKind, Leased};

/// What came of a run. There is exactly one for each, however it ended.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) task: Box<Leased>,
    /// `None`: it was stopped.
    pub(super) ran: Option<Ran>,
    pub(super) took: Duration,
}

/// Runs the handler until it ends or the returned handle is dropped.
pub(super) fn start(kind: Arc<Kind>, task: Box<Leased>, to: UnboundedSender<Report>) -> AbortOnDropHandle<()> {
    let span = log::span(&task);
    let mut slip = Slip {
        task: Some(task),
        ran: None,
        started: Instant::now(),
        to,
    };
    let attempt = async move {
        let task = slip.task.as_deref().expect("it is taken when the slip is dropped");
        let ran = contained(async { kind.handler.run(task).await }).await;
        slip.fill_in(ran.unwrap_or_else(|message| {
            let failure = Failure::new(FailureKind::Panicked, message);
            Ran::End(End::Bury(failure))
        }));
    };
    AbortOnDropHandle::new(tokio::spawn(attempt.instrument(span)))
}

/// Goes back when it is dropped, so that a run which is stopped is reported as well as one that ends.
struct Slip {
    task: Option<Box<Leased>>,
    ran: Option<Ran>,
    started: Instant,
    /// Unbounded, because nobody can wait while being dropped; there are never more than there are runs.
    to: UnboundedSender<Report>,
}

impl Slip {
    fn fill_in(&mut self, ran: Ran) {
        self.ran = Some(ran);
    }
}

impl Drop for Slip {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        let report = Report {
            task,
            ran: self.ran.take(),
            took: self.started.elapsed(),
        };
        // If nobody listens, the worker was dropped, and the lease decides.
        let _ = self.to.send(report);
    }
}

/// What the future comes to, or the message with which it panicked.
pub(crate) async fn contained<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        // What the future shared with others stays as the panic left it; it is never polled again itself.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(message(&*panic))),
        }
    })
    .await
}

pub(super) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
