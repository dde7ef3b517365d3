//! Bodies that must keep coming.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use exactly::layer::{self, BoxError, CallInfo};
use http::Request;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

/// A body that fails when nothing comes for a while, so that nobody holds a connection by saying nothing.
#[derive(Debug)]
pub(super) struct Watched<B> {
    body: B,
    idle_max: Duration,
    /// Made when the body first has nothing to give: most never have to wait.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl<B> Watched<B> {
    pub(super) fn new(body: B, idle_max: Duration) -> Self {
        Self {
            body,
            idle_max,
            alarm: None,
        }
    }
}

/// When the last piece of a request's body went out.
#[derive(Debug)]
pub(super) struct Pieces {
    begun: Instant,
    /// So many milliseconds later.
    last: Option<Arc<AtomicU64>>,
}

/// A body whose pieces are noted.
struct Noted<B> {
    body: B,
    begun: Instant,
    last: Arc<AtomicU64>,
}

impl Pieces {
    /// A body that goes out at once, or is none.
    pub(super) fn none() -> Self {
        Self {
            begun: Instant::now(),
            last: None,
        }
    }

    /// Notes the pieces of `request`, unless they are all there.
    pub(super) fn of(request: &mut Request<layer::Body>) -> Self {
        let mut pieces = Self::none();
        let is_all_there = request.body().is_end_stream() || request.extensions().get::<CallInfo>().is_some();
        if !is_all_there {
            let last = Arc::new(AtomicU64::new(0));
            pieces.last = Some(Arc::clone(&last));
            let (body, begun) = (std::mem::take(request.body_mut()), pieces.begun);
            *request.body_mut() = layer::Body::stream(Noted { body, begun, last });
        }
        pieces
    }

    /// When the last one went out; before the first, when it began.
    pub(super) fn last(&self) -> Instant {
        let later = self.last.as_ref().map_or(0, |last| last.load(Ordering::Relaxed));
        self.begun + Duration::from_millis(later)
    }
}

impl<B: Body + Unpin> Body for Noted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let later = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(later, Ordering::Relaxed);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Body for Watched<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.alarm = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let idle_max = self.idle_max;
        let alarm = self
            .alarm
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + idle_max)));
        ready!(alarm.as_mut().poll(cx));
        Poll::Ready(Some(Err(format!("no byte of the body for {idle_max:?}").into())))
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
    use http_body_util::{BodyExt as _, StreamBody};

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_coming_fails_and_one_that_drips_does_not() {
        let pieces = futures_util::stream::unfold(0_u64, |n| async move {
            let pause = if n < 5 { 9 } else { 11 };
            tokio::time::sleep(Duration::from_secs(pause)).await;
            Some((Ok::<_, BoxError>(Frame::data(Bytes::from("x"))), n + 1))
        });
        let mut body = Watched::new(StreamBody::new(Box::pin(pieces)), Duration::from_secs(10));
        for _ in 0..5 {
            assert!(body.frame().await.unwrap().is_ok());
        }
        assert!(body.frame().await.unwrap().is_err());
    }
}
