//! Requests whose end two servers could see at different places.
//!
//! A request with both `Content-Length` and `Transfer-Encoding`, or with either of them twice, is how one request is hidden
//! inside another: the gateway reads one boundary and the upstream another. hyper picks one reading and goes on; a gateway
//! that vouches for what happened must refuse. So bytes are followed on their way to hyper, and the head of such a request
//! never reaches it whole.

mod chunk;

use std::io;
use std::mem::{self, MaybeUninit};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::chunk::{Chunk, Followed};
use super::accept::HEAD_BYTES_MAX;

const HEADERS_MAX: usize = 128;
/// What no request can begin with or contain in its head: hyper answers 400 and closes.
const POISON: &[u8] = b"\0\0\r\n\r\n";

/// A client's stream whose requests have one reading each.
#[derive(Debug)]
pub(super) struct Framed<S> {
    stream: S,
    frame: Frame,
    /// Whether the last request asked for another protocol, so that an answer may end HTTP.
    may_switch: bool,
}

/// Where in a request the stream is.
#[derive(Debug)]
enum Frame {
    /// In a head, of which so much came in earlier reads.
    Head(Vec<u8>),
    /// In a body with so many bytes to come.
    Length(u64),
    Chunked(Chunk),
    /// Nothing more is looked at: it is HTTP/2 or no HTTP any more, or hyper will refuse it by itself.
    Passed,
    /// What follows is never passed on.
    Refused,
}

/// What a whole head says about the body after it.
enum Head {
    Partial,
    Body {
        frame: Frame,
        /// How much of the last piece belongs to the head.
        taken: usize,
        may_switch: bool,
    },
    /// It can be read in more than one way, or is too long.
    Refused,
    Unreadable,
}

impl<S> Framed<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            frame: Frame::Head(Vec::new()),
            may_switch: false,
        }
    }
}

impl Frame {
    /// Follows `bytes`. Says how many of them may be passed on, if not all, and notes whether the last head asked for
    /// another protocol.
    fn follow(&mut self, bytes: &[u8], may_switch: &mut bool) -> Result<(), usize> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match self {
                Self::Passed => return Ok(()),
                Self::Refused => return Err(at),
                Self::Length(left) => {
                    let taken = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= taken as u64;
                    at += taken;
                    if *left == 0 {
                        *self = Self::Head(Vec::new());
                    }
                }
                Self::Chunked(chunk) => match chunk.follow(rest) {
                    Followed::Within(taken) => at += taken,
                    Followed::Ended(taken) => {
                        at += taken;
                        *self = Self::Head(Vec::new());
                    }
                    // hyper refuses it too.
                    Followed::Broken => *self = Self::Passed,
                },
                Self::Head(earlier) => match head(earlier, rest) {
                    Head::Partial => {
                        earlier.extend_from_slice(rest);
                        return Ok(());
                    }
                    Head::Unreadable => *self = Self::Passed,
                    Head::Refused => {
                        *self = Self::Refused;
                        return Err(at);
                    }
                    Head::Body {
                        frame,
                        taken,
                        may_switch: may,
                    } => {
                        at += taken;
                        *self = frame;
                        *may_switch = may;
                    }
                },
            }
        }
        Ok(())
    }
}

/// Reads a head of which `earlier` came before `rest`, and says how much of `rest` belongs to it.
fn head(earlier: &[u8], rest: &[u8]) -> Head {
    let whole;
    let bytes = if earlier.is_empty() {
        rest
    } else if earlier.len() + rest.len() < HEAD_BYTES_MAX && !has_empty_line(earlier, rest) {
        // Whoever sends a head byte by byte would otherwise have it read from its start each time.
        return Head::Partial;
    } else {
        whole = [earlier, rest].concat();
        &whole
    };
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, &mut headers) {
        // hyper takes a longer one if it happens to come in one piece.
        Ok(httparse::Status::Complete(len)) if len > HEAD_BYTES_MAX => Head::Refused,
        Ok(httparse::Status::Complete(len)) => match body_of(request.headers) {
            Some(frame) => Head::Body {
                frame,
                taken: len - earlier.len(),
                may_switch: request
                    .headers
                    .iter()
                    .any(|header| header.name.eq_ignore_ascii_case("upgrade")),
            },
            None => Head::Refused,
        },
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => Head::Partial,
        Ok(httparse::Status::Partial) | Err(_) => Head::Unreadable,
    }
}

/// Whether an empty line ends in `rest`.
fn has_empty_line(earlier: &[u8], rest: &[u8]) -> bool {
    let before = earlier.iter().skip(earlier.len().saturating_sub(2));
    let mut since_line_end = None;
    for byte in before.chain(rest) {
        since_line_end = match (byte, since_line_end) {
            (b'\n', Some(())) => return true,
            (b'\n', None) | (b'\r', Some(())) => Some(()),
            _ => None,
        };
    }
    false
}

/// The body that these headers announce; `None` if they can be read in more than one way.
fn body_of(headers: &[httparse::Header<'_>]) -> Option<Frame> {
    let of = |name: &str| {
        let mut lines = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        (lines.next().map(|header| header.value), lines.next().is_some())
    };
    let (length, length_again) = of("content-length");
    let (encoding, encoding_again) = of("transfer-encoding");
    if length_again || encoding_again {
        return None;
    }
    match (length, encoding) {
        (Some(_), Some(_)) => None,
        (None, None) => Some(Frame::Head(Vec::new())),
        (None, Some(encoding)) => {
            // Anything before `chunked` is an encoding that the next server may not know.
            let chunked = Frame::Chunked(Chunk::START);
            encoding
                .trim_ascii()
                .eq_ignore_ascii_case(b"chunked")
                .then_some(chunked)
        }
        (Some(length), None) => {
            let is_number = !length.is_empty() && length.iter().all(u8::is_ascii_digit);
            let length = is_number.then(|| str::from_utf8(length).ok()?.parse().ok()).flatten()?;
            Some(if length == 0 {
                Frame::Head(Vec::new())
            } else {
                Frame::Length(length)
            })
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Framed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if matches!(self.frame, Frame::Refused) {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let Self { frame, may_switch, .. } = &mut *self;
        if let Err(passed) = frame.follow(&buf.filled()[before..], may_switch) {
            tracing::warn!("request refused: its end can be seen at two places");
            let at = before + passed;
            buf.set_filled(at);
            let poison = &POISON[..POISON.len().min(buf.remaining())];
            buf.put_slice(poison);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S> Framed<S> {
    /// Looks for the answer that ends HTTP, after which bytes mean what the other protocol says. Only at the beginning of
    /// an answer: a body can say anything.
    fn follow_answer(&mut self, bytes: &[u8]) {
        if mem::take(&mut self.may_switch) && bytes.starts_with(b"HTTP/1.1 101 ") {
            self.frame = Frame::Passed;
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Framed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.follow_answer(bytes);
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.follow_answer(bytes.first().map_or(&[], |first| first));
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How much of `stream` is passed on, whatever the pieces in which it comes.
    fn passed(stream: &str) -> usize {
        let bytes = stream.as_bytes();
        let mut found = None;
        for piece in 1..=bytes.len() {
            let mut frame = Frame::Head(Vec::new());
            let mut at = 0;
            for bytes in bytes.chunks(piece) {
                match frame.follow(bytes, &mut false) {
                    Ok(()) => at += bytes.len(),
                    Err(passed) => {
                        at += passed;
                        break;
                    }
                }
            }
            // A head that came in pieces is refused at its last one.
            let whole = at == bytes.len();
            assert_eq!(*found.get_or_insert(whole), whole, "{stream:?} in pieces of {piece}");
            if piece == bytes.len() {
                return at;
            }
        }
        0
    }

    const PLAIN: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    #[test]
    fn requests_with_one_reading_pass() {
        for request in [
            PLAIN.to_owned(),
            PLAIN.repeat(3),
            "POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello".to_owned() + PLAIN,
            "POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n".to_owned() + PLAIN,
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n".to_owned()
                + PLAIN,
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: y\r\n\r\n".to_owned() + PLAIN,
            // What looks like a second head is content.
            "POST / HTTP/1.1\r\ncontent-length: 53\r\n\r\nA / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: x\r\n\r\n"
                .to_owned()
                + PLAIN,
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0".to_owned(),
            "no HTTP at all\r\n\r\n".to_owned(),
        ] {
            assert_eq!(passed(&request), request.len(), "{request:?}");
        }
    }

    #[test]
    fn requests_with_two_readings_are_stopped_before_their_head_is_whole() {
        for headers in [
            "content-length: 5\r\ntransfer-encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "content-length: 5\r\ncontent-length: 5\r\n",
            "content-length: 5\r\ncontent-length: 6\r\n",
            "content-length: 5, 5\r\n",
            "content-length: +5\r\n",
            "content-length: 0x5\r\n",
            "content-length: 99999999999999999999\r\n",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
            "transfer-encoding: identity\r\n",
            "transfer-encoding: gzip, chunked\r\n",
            "transfer-encoding: chunked, identity\r\n",
        ] {
            for before in ["", PLAIN, "POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello"] {
                let request = format!("{before}POST / HTTP/1.1\r\n{headers}\r\n5\r\nhello\r\n0\r\n\r\n");
                assert!(passed(&request) < before.len() + 16 + headers.len() + 5, "{request:?}");
            }
        }
    }
}
