//! One connection to the upstream, driven by whoever uses it.
//!
//! There is no task per connection: the request that uses a line polls it too, so that nothing has to be handed from one
//! task to another and back. And the line knows whether any byte of a request was written, which decides between *did not
//! happen* and *unknown*.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use exactly::layer::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::proxy::NoAnswer;
use crate::cli::chain;
use crate::config::Upstream;

/// A connection that is open, with at most one request on it.
#[derive(Debug)]
pub(super) struct Line {
    sender: SendRequest<Body>,
    connection: Pin<Box<Connection<TokioIo<Wire>, Body>>>,
    has_ended: bool,
    written: Arc<AtomicBool>,
}

/// Why an exchange failed, and the request if nothing of it was written.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) no_answer: NoAnswer,
    pub(super) unsent: Option<Box<Request<Body>>>,
}

impl Line {
    pub(super) async fn open(upstream: &Upstream, connect_timeout: Duration) -> Result<Self, NoAnswer> {
        let stream = dial(upstream, connect_timeout).await?;
        let written = Arc::new(AtomicBool::new(false));
        let wire = Wire {
            stream,
            written: Arc::clone(&written),
        };
        let (sender, connection) = http1::handshake(TokioIo::new(wire))
            .await
            .map_err(|error| NoAnswer::unsent(chain(&error)))?;
        Ok(Self {
            sender,
            connection: Box::pin(connection),
            has_ended: false,
            written,
        })
    }

    /// Whether a request could go out on it, as far as anyone on this side can know.
    pub(super) fn is_open(&mut self) -> bool {
        // Nobody waits for what this finds out, so nobody is to be woken.
        self.drive(&mut Context::from_waker(Waker::noop()));
        !self.has_ended && self.sender.is_ready()
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn exchange(mut self, request: Request<Body>) -> Result<(Response<Incoming>, Self), Failed> {
        self.written.store(false, Ordering::Relaxed);
        let sent = self.sender.try_send_request(request);
        let answered = {
            let mut sent = pin!(sent);
            let (connection, has_ended) = (&mut self.connection, &mut self.has_ended);
            poll_fn(|cx| {
                if !*has_ended {
                    *has_ended = connection.as_mut().poll(cx).is_ready();
                }
                sent.as_mut().poll(cx)
            })
            .await
        };
        match answered {
            Ok(response) => Ok((response, self)),
            Err(mut error) => {
                let unsent = error.take_message().map(Box::new);
                let (cause, by_client) = (chain(error.error()), error.error().is_user());
                let is_sent = self.written.load(Ordering::Relaxed);
                Err(Failed {
                    unsent: unsent.filter(|_| !is_sent),
                    no_answer: NoAnswer {
                        sent: is_sent,
                        timed_out: false,
                        by_client,
                        cause,
                    },
                })
            }
        }
    }

    /// Moves bytes in both directions.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if !self.has_ended {
            self.has_ended = self.connection.as_mut().poll(cx).is_ready();
        }
    }
}

/// Sends a request that may end HTTP on its connection, which therefore is its own.
pub(super) async fn exchange_alone(
    upstream: &Upstream,
    connect_timeout: Duration,
    request: Request<Body>,
) -> Result<Response<Incoming>, NoAnswer> {
    let stream = dial(upstream, connect_timeout).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| NoAnswer::unsent(chain(&error)))?;
    tokio::spawn(connection.with_upgrades());
    sender.send_request(request).await.map_err(|error| NoAnswer {
        sent: true,
        timed_out: false,
        by_client: error.is_user(),
        cause: chain(&error),
    })
}

async fn dial(upstream: &Upstream, connect_timeout: Duration) -> Result<TcpStream, NoAnswer> {
    let authority = &upstream.0;
    let port = authority.port_u16().unwrap_or(80);
    // Brackets belong to the text of an address, not to the address.
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let stream = timeout(connect_timeout, TcpStream::connect((host, port)))
        .await
        .map_err(|_| NoAnswer::unsent(format!("connect: no answer within {connect_timeout:?}")))?
        .and_then(|stream| {
            stream.set_nodelay(true)?;
            Ok(stream)
        });
    stream.map_err(|error| NoAnswer::unsent(format!("connect: {error}")))
}

/// A stream that remembers whether anything was written.
#[derive(Debug)]
struct Wire {
    stream: TcpStream,
    written: Arc<AtomicBool>,
}

impl Wire {
    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        // Also after an error: some of it may have left.
        if written.is_ready() {
            self.written.store(true, Ordering::Relaxed);
        }
        written
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
