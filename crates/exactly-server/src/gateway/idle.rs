//! Bodies that must keep coming.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use exactly::layer::{self, BoxError};
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

/// How many pieces of a request's body went out.
#[derive(Debug, Default)]
pub(super) struct Pieces(Option<Arc<AtomicU64>>);

/// A body whose pieces are counted.
struct Counted<B> {
    body: B,
    pieces: Arc<AtomicU64>,
}

impl Pieces {
    /// Counts the pieces of `request`, if it has more than it has shown.
    pub(super) fn of(request: &mut Request<layer::Body>) -> Self {
        if request.body().size_hint().exact().is_some_and(|left| left == 0) || request.body().is_end_stream() {
            return Self::default();
        }
        let pieces = Arc::new(AtomicU64::new(0));
        let body = std::mem::take(request.body_mut());
        *request.body_mut() = layer::Body::stream(Counted {
            body,
            pieces: Arc::clone(&pieces),
        });
        Self(Some(pieces))
    }

    pub(super) fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, |pieces| pieces.load(Ordering::Relaxed))
    }
}

impl<B: Body + Unpin> Body for Counted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.pieces.fetch_add(1, Ordering::Relaxed);
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
