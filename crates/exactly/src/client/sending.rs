//! Whether a request left.
//!
//! reqwest does not tell at which byte an exchange broke. It hands the body over to the connection before the first byte is
//! written, though, so a body that nobody has asked for belongs to a request that has not left; and one that answers every
//! later question with an error belongs to a request that never will.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

const WAITING: u8 = 0;
const LEAVING: u8 = 1;
const RECALLED: u8 = 2;

/// What is known of a request that was handed over.
#[derive(Clone, Debug)]
pub(crate) struct Sending(Arc<AtomicU8>);

/// The body of one attempt.
#[derive(Debug)]
pub(crate) struct SentBody {
    bytes: Option<Bytes>,
    sending: Sending,
}

/// The attempt was given up before its body was asked for.
#[derive(Debug)]
pub(crate) struct Recalled;

impl Sending {
    /// A body, and what becomes of it. Of an empty one nothing can be told: nobody asks for it.
    pub(crate) fn of(bytes: Bytes) -> (SentBody, Self) {
        let state = if bytes.is_empty() { LEAVING } else { WAITING };
        let sending = Self(Arc::new(AtomicU8::new(state)));
        let body = SentBody {
            bytes: (!bytes.is_empty()).then_some(bytes),
            sending: sending.clone(),
        };
        (body, sending)
    }

    /// Keeps the request from leaving, if it has not begun to: then this is true.
    pub(crate) fn recall(&self) -> bool {
        let recalled = self
            .0
            .compare_exchange(WAITING, RECALLED, Ordering::AcqRel, Ordering::Acquire);
        recalled.is_ok()
    }

    fn leave(&self) -> bool {
        let left = self
            .0
            .compare_exchange(WAITING, LEAVING, Ordering::AcqRel, Ordering::Acquire);
        left != Err(RECALLED)
    }
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = Recalled;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Recalled>>> {
        if !self.sending.leave() {
            return Poll::Ready(Some(Err(Recalled)));
        }
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.bytes.as_ref().map_or(0, Bytes::len);
        SizeHint::with_exact(left as u64)
    }
}

impl fmt::Display for Recalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the attempt was given up before it left")
    }
}

impl Error for Recalled {}
