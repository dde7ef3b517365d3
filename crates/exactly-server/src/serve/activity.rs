//! Whether anything goes on on a connection.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use tokio::time::sleep;

/// What goes on on one HTTP/2 connection. Clones speak of the same one.
///
/// Without it, whoever answers pings would keep a place for ever, and whoever opens no window for its answers too. HTTP/1
/// needs none: the next head has to come in time, and an answer that is not taken fills the connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Activity(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// Requests that came, and pieces of answers that went.
    moved: AtomicU64,
    /// Requests and answers that wait for the upstream, not for the client.
    under_way: AtomicUsize,
}

/// Something that waits for the upstream.
#[derive(Debug)]
pub(super) struct UnderWay(Activity);

/// The body of an answer, whose pieces are noted.
pub(super) struct Noted<B> {
    body: Pin<Box<B>>,
    activity: Activity,
    waits: Option<UnderWay>,
}

impl Activity {
    pub(super) fn begin(&self) -> UnderWay {
        self.0.moved.fetch_add(1, Ordering::Relaxed);
        self.0.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self.clone())
    }

    pub(super) fn note<B>(&self, body: B) -> Noted<B> {
        Noted {
            body: Box::pin(body),
            activity: self.clone(),
            waits: None,
        }
    }

    /// Waits until nothing moved, and nothing waited for the upstream, for at least `patience`.
    pub(super) async fn quiet(&self, patience: Duration) {
        loop {
            let before = self.0.moved.load(Ordering::Relaxed);
            sleep(patience).await;
            let after = self.0.moved.load(Ordering::Relaxed);
            if before == after && self.0.under_way.load(Ordering::Relaxed) == 0 {
                return;
            }
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<B: Body> Body for Noted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = self.body.as_mut().poll_frame(cx);
        if frame.is_ready() {
            self.activity.0.moved.fetch_add(1, Ordering::Relaxed);
            self.waits = None;
        } else if self.waits.is_none() {
            self.waits = Some(self.activity.begin());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::{BodyExt as _, StreamBody};
    use tokio::time::{Instant, timeout};

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_quiet_once_nothing_waits_for_the_upstream() {
        let (activity, begun) = (Activity::default(), Instant::now());
        let request = activity.begin();
        assert!(timeout(PATIENCE * 5, activity.quiet(PATIENCE)).await.is_err());
        drop(request);
        // An answer that the upstream is slow to give.
        let pieces = futures_util::stream::unfold((), |()| async {
            sleep(PATIENCE * 3).await;
            Some((Ok::<_, std::io::Error>(Frame::data(Bytes::from("x"))), ()))
        });
        let mut answer = activity.note(StreamBody::new(pieces));
        {
            let taken = async {
                for _ in 0..3 {
                    answer.frame().await.unwrap().unwrap();
                }
            };
            tokio::select! {
                () = taken => {}
                () = activity.quiet(PATIENCE) => panic!("quiet after {:?}", begun.elapsed()),
            }
        }
        // And one that the client does not take.
        timeout(PATIENCE * 2, activity.quiet(PATIENCE)).await.unwrap();
    }
}
