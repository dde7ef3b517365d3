//! The body that goes into a handler and out of the layer.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::time::timeout;

use super::held::Share;

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A request or answer body: bytes that were read, or a stream passed through.
///
/// Not a boxed body in both cases, because replays are bytes and should cost no more than that.
#[derive(Default)]
pub struct Body(Inner);

#[derive(Default)]
enum Inner {
    #[default]
    Empty,
    Bytes(Bytes),
    Stream(UnsyncBoxBody<Bytes, BoxError>),
}

impl Body {
    /// A body passed through as it comes.
    pub fn stream<B>(body: B) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        // What is one already need not be wrapped once more.
        let mut body = Some(body);
        if let Some(body) = (&mut body as &mut dyn Any).downcast_mut::<Option<Self>>() {
            return body.take().unwrap_or_default();
        }
        let body = body.expect("nobody took it");
        Self(Inner::Stream(body.map_err(Into::into).boxed_unsync()))
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self(if bytes.is_empty() {
            Inner::Empty
        } else {
            Inner::Bytes(bytes)
        })
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Inner::Empty => Poll::Ready(None),
            Inner::Bytes(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = Inner::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Inner::Stream(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Empty => true,
            Inner::Bytes(_) => false,
            Inner::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Empty => SizeHint::with_exact(0),
            Inner::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inner::Stream(body) => body.size_hint(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Bodies carry what their owners would not want in a log.
        match &self.0 {
            Inner::Empty => f.write_str("Body(empty)"),
            Inner::Bytes(bytes) => write!(f, "Body({} bytes)", bytes.len()),
            Inner::Stream(_) => f.write_str("Body(stream)"),
        }
    }
}

/// A body read up to a limit.
pub(super) enum Read {
    Whole(Bytes),
    /// It is longer than the limit: all of it, the part that was read in front.
    TooLong(Body),
}

/// Why a body was not read to its end.
pub(super) enum Unread {
    /// It broke off.
    Broken,
    /// It took too long.
    Late,
    /// There is no room for it beside all the others.
    NoRoom,
}

/// Reads `body` unless it takes longer than `within`, or is longer than `max` bytes or than its share of the room allows.
pub(super) async fn read<B>(body: B, max: usize, within: Duration, share: Share) -> Result<Read, Unread>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let read = read_patiently(body, max, share);
    timeout(within, read).await.unwrap_or(Err(Unread::Late))
}

async fn read_patiently<B>(body: B, max: usize, mut share: Share) -> Result<Read, Unread>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut body = Box::pin(body);
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Unread::Broken)?.into_data() else {
            continue;
        };
        // Most bodies come in one piece, which is kept as it is. Of more, one buffer is made: pieces of a byte each
        // would otherwise cost many times their length.
        if first.is_empty() && whole.is_empty() {
            first = data;
        } else {
            whole.extend_from_slice(&std::mem::take(&mut first));
            whole.extend_from_slice(&data);
        }
        let length = first.len() + whole.len();
        if !share.grow_to(length) {
            return Err(Unread::NoRoom);
        }
        if length > max {
            let read = if whole.is_empty() { first } else { whole.freeze() };
            return Ok(Read::TooLong(Body::stream(Prefixed {
                read: Some(read),
                rest: body,
            })));
        }
    }
    let bytes = if whole.is_empty() { first } else { whole.freeze() };
    Ok(Read::Whole(share.keep(bytes)))
}

/// What was read of a body, then the rest of it.
struct Prefixed<B> {
    read: Option<Bytes>,
    rest: Pin<Box<B>>,
}

impl<B> HttpBody for Prefixed<B>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.read.take() {
            Some(read) => Poll::Ready(Some(Ok(Frame::data(read)))),
            None => self.rest.as_mut().poll_frame(cx).map_err(Into::into),
        }
    }
}
