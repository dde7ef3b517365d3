//! Work that outlives the one who waits for it.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::Instrument as _;
use tracing::instrument::Instrumented;

/// Runs to its end even if it is dropped: then it goes on in a task of its own.
///
/// Not a task from the start, because a client seldom hangs up, and the way to another thread and back costs more than
/// everything else that the layer does around a handler.
#[must_use = "it runs only if it is waited for, or dropped"]
pub(super) struct Detached<F>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    /// None once it has ended.
    running: Option<Running<F>>,
}

struct Running<F> {
    work: Pin<Box<Instrumented<F>>>,
    /// Lets a shutdown wait for it.
    tracked: TaskTrackerToken,
}

impl<F> Detached<F>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    pub(super) fn new(work: F, tasks: &TaskTracker) -> Self {
        Self {
            running: Some(Running {
                work: Box::pin(work.in_current_span()),
                tracked: tasks.token(),
            }),
        }
    }
}

impl<F> Future for Detached<F>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let running = self.running.as_mut().expect("it is not polled after its end");
        let ended = running.work.as_mut().poll(cx);
        if ended.is_ready() {
            self.running = None;
        }
        ended
    }
}

impl<F> Drop for Detached<F>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn drop(&mut self) {
        // A panic that it let through has ended it. Outside a runtime nothing goes on any more, and the lease decides.
        if let Some(Running { work, tracked }) = self.running.take()
            && !std::thread::panicking()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move {
                work.await;
                drop(tracked);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::Notify;

    use super::*;

    fn work(leave: &Arc<Notify>, ended: &Arc<AtomicBool>) -> impl Future<Output = ()> + Send + 'static {
        let (leave, ended) = (Arc::clone(leave), Arc::clone(ended));
        async move {
            leave.notified().await;
            ended.store(true, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn what_is_dropped_goes_on_and_is_waited_for() {
        for polled in [false, true] {
            let (leave, ended) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
            let tasks = TaskTracker::new();
            let mut detached = Detached::new(work(&leave, &ended), &tasks);
            if polled {
                assert!(futures_util::poll!(&mut detached).is_pending());
            }
            drop(detached);
            tasks.close();
            assert!(futures_util::poll!(std::pin::pin!(tasks.wait())).is_pending());
            leave.notify_one();
            tasks.wait().await;
            assert!(ended.load(Ordering::SeqCst), "polled: {polled}");
        }
    }

    #[tokio::test]
    async fn what_has_ended_is_waited_for_no_longer() {
        let (leave, ended) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let tasks = TaskTracker::new();
        let mut detached = Detached::new(work(&leave, &ended), &tasks);
        leave.notify_one();
        (&mut detached).await;
        tasks.close();
        tasks.wait().await;
        drop(detached);
    }
}
