//! Lines to the upstream that wait for their next request.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::line::{Failed, Line};
use super::proxy::NoAnswer;
use crate::config::Upstream;
use exactly::layer::Body;

/// How long an unused line is kept. Shorter than what servers commonly close theirs after, because a request that meets a
/// connection just being closed is in doubt.
const IDLE_TIME_MAX: Duration = Duration::from_secs(4);
/// How many unused lines are kept.
const IDLE_COUNT_MAX: usize = 512;

/// Opens lines and keeps those that can be used again. Cheap to clone; clones share their lines.
#[derive(Clone)]
pub(super) struct Pool(Arc<Inner>);

struct Inner {
    upstream: Upstream,
    connect_timeout: Duration,
    // A std mutex, since it is held for a push or a pop only.
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    line: Line,
    since: Instant,
}

impl Pool {
    pub(super) fn new(upstream: Upstream, connect_timeout: Duration) -> Self {
        Self(Arc::new(Inner {
            upstream,
            connect_timeout,
            idle: Mutex::default(),
        }))
    }

    pub(super) fn upstream(&self) -> &Upstream {
        &self.0.upstream
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        self.0.connect_timeout
    }

    /// Sends a request and waits for the head of its answer. One that could not be written to a used line goes out on a
    /// fresh one; nothing that was written is ever sent again.
    ///
    /// `begun` is set before anything can have been written, for whoever stops waiting.
    pub(super) async fn exchange(
        &self,
        mut request: Request<Body>,
        begun: &AtomicBool,
    ) -> Result<Response<Answering>, NoAnswer> {
        while let Some(line) = self.take() {
            begun.store(true, Ordering::Relaxed);
            match line.exchange(request).await {
                Ok((response, line)) => return Ok(self.answering(response, line)),
                Err(Failed {
                    unsent: Some(unsent), ..
                }) => request = *unsent,
                Err(failed) => return Err(failed.no_answer),
            }
        }
        begun.store(false, Ordering::Relaxed);
        let line = Line::open(&self.0.upstream, self.0.connect_timeout).await?;
        begun.store(true, Ordering::Relaxed);
        match line.exchange(request).await {
            Ok((response, line)) => Ok(self.answering(response, line)),
            Err(failed) => Err(failed.no_answer),
        }
    }

    /// Closes the lines that nobody used for a while.
    pub(super) fn prune(&self) {
        let now = Instant::now();
        // They are used from the end, so the ones at the front have waited longest.
        let mut idle = self.idle();
        let stale = idle.partition_point(|idle| now - idle.since > IDLE_TIME_MAX);
        let stale: Vec<_> = idle.drain(..stale).collect();
        drop(idle);
        drop(stale);
    }

    fn answering(&self, response: Response<Incoming>, line: Line) -> Response<Answering> {
        response.map(|body| {
            let mut answering = Answering {
                body,
                line: Some(line),
                pool: self.clone(),
            };
            answering.give_back_at_end();
            answering
        })
    }

    /// The line that was used last and is still open.
    fn take(&self) -> Option<Line> {
        loop {
            let Idle { mut line, since } = self.idle().pop()?;
            if since.elapsed() <= IDLE_TIME_MAX && line.is_open() {
                return Some(line);
            }
        }
    }

    fn put(&self, line: Line) {
        let mut idle = self.idle();
        if idle.len() < IDLE_COUNT_MAX {
            idle.push(Idle {
                line,
                since: Instant::now(),
            });
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({}, {} idle)", self.0.upstream, self.idle().len())
    }
}

/// The body of an answer, which drives the line that it comes on and gives it back at its end.
#[derive(Debug)]
pub(super) struct Answering {
    body: Incoming,
    line: Option<Line>,
    pool: Pool,
}

impl Answering {
    fn give_back_at_end(&mut self) {
        if self.body.is_end_stream() {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        if let Some(line) = self.line.take() {
            self.pool.put(line);
        }
    }
}

impl HttpBody for Answering {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        // First the body, which tells the line that it wants something.
        let mut frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_pending()
            && let Some(line) = &mut self.line
        {
            line.drive(cx);
            frame = Pin::new(&mut self.body).poll_frame(cx);
        }
        match &frame {
            // The body of an answer in chunks does not know its end before it has come.
            Poll::Ready(None) => self.give_back(),
            Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => self.give_back(),
            Poll::Ready(_) => self.give_back_at_end(),
            Poll::Pending => {}
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
