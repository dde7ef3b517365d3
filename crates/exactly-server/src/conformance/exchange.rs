//! One request and what came of it, each on a connection of its own.

use std::fmt;
use std::io;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::answer::{Answer, Reader};
use super::place::Place;
use super::request::Request;
use super::socket::Stream;

/// The longest answer that is read.
const ANSWER_MAX: usize = 64 * 1024 * 1024;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// Nobody listens there.
    Unreached(String),
    /// The connection ended before an answer began.
    Closed,
    /// It took longer than the limit.
    TimedOut(Duration),
    /// What came is no answer.
    NotHttp(String),
}

/// A connection with a request on it.
#[derive(Debug)]
pub(super) struct Open {
    stream: Stream,
    method: String,
    limit: Duration,
    deadline: Instant,
}

impl Open {
    /// Connects and sends the whole request.
    pub(super) async fn send(place: &Place, request: &Request, limit: Duration) -> Result<Self, Lost> {
        Self::send_part(place, request, request.body.len(), limit).await
    }

    /// Connects and sends the request with only the first bytes of its body, as one does whose power fails.
    pub(super) async fn send_part(place: &Place, request: &Request, len: usize, limit: Duration) -> Result<Self, Lost> {
        let deadline = Instant::now() + limit;
        let connected = timeout_at(deadline, Stream::connect(place)).await;
        let stream = match connected {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(Lost::Unreached(error.to_string())),
            Err(_) => return Err(Lost::TimedOut(limit)),
        };
        let mut open = Self {
            stream,
            method: request.method.clone(),
            limit,
            deadline,
        };
        let mut bytes = request.head(&place.authority());
        bytes.extend_from_slice(&request.body[..len]);
        match timeout_at(deadline, open.stream.write_all(&bytes)).await {
            // A server may have said all it wants to say before it read everything.
            Ok(Ok(()) | Err(_)) => Ok(open),
            Err(_) => Err(Lost::TimedOut(limit)),
        }
    }

    /// Reads the answer to its end, or as far as it comes.
    pub(super) async fn answer(mut self) -> Result<Answer, Lost> {
        let mut reader = Reader::new(&self.method);
        let mut piece = vec![0; 64 * 1024];
        loop {
            let read = timeout_at(self.deadline, self.stream.read(&mut piece)).await;
            let len = match read {
                Ok(Ok(len)) => len,
                Ok(Err(_)) => 0,
                Err(_) => return Err(Lost::TimedOut(self.limit)),
            };
            if len == 0 {
                return reader.finish().ok_or(Lost::Closed);
            }
            match reader.take(&piece[..len]) {
                Ok(true) => return reader.finish().ok_or(Lost::Closed),
                Ok(false) if reader.len() <= ANSWER_MAX => {}
                Ok(false) => return Err(Lost::NotHttp(format!("the answer is over {ANSWER_MAX} bytes"))),
                Err(error) => return Err(Lost::NotHttp(error.0)),
            }
        }
    }

    /// Hangs up without waiting for anything.
    pub(super) fn hang_up(self) -> io::Result<()> {
        self.stream.reset()
    }
}

/// Sends a request and reads its answer.
pub(super) async fn exchange(place: &Place, request: &Request, limit: Duration) -> Result<Answer, Lost> {
    Open::send(place, request, limit).await?.answer().await
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreached(error) => write!(f, "connect: {error}"),
            Self::Closed => f.write_str("the connection was closed without an answer"),
            Self::TimedOut(limit) => write!(f, "no answer within {} s", limit.as_secs()),
            Self::NotHttp(what) => f.write_str(what),
        }
    }
}
