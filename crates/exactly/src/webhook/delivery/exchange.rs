//! What came of sending something once.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::{Duration, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response, StatusCode, header};
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

use super::{Course, Refused};
use crate::clock::{Clock as _, WallClock};
use crate::retry::retry_after;

/// One POST, and what came of it.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// What the endpoint answered, or why it did not.
    pub answer: Result<Answer, Fault>,
    /// How long it took.
    pub took: Duration,
}

impl Exchange {
    /// Whether the endpoint has what was sent.
    pub fn is_delivered(&self) -> bool {
        matches!(&self.answer, Ok(answer) if answer.status.is_success())
    }
}

/// What an endpoint answered.
///
/// Complete with its status and headers. The body is for people to read, and how it ends changes nothing: a receiver that has
/// said 200 has the event, even if the rest of what it says drips, breaks off or has no end.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// How long to wait before another attempt, if it said so in a form that can be read.
    pub retry_after: Option<Duration>,
    /// The beginning of its body, as it came: nothing is unpacked.
    pub body: Bytes,
    /// There was more, or it did not come in time.
    pub cut: bool,
}

impl Answer {
    /// How much of a body is kept, in bytes.
    pub const BODY_BYTES_MAX: usize = 16 * 1024;
    /// How long a body is waited for once its head is there.
    pub const BODY_TIME_MAX: Duration = Duration::from_secs(1);

    /// Reads an answer whose head is there, until `deadline` at the latest. Whatever is left unread then, the connection that
    /// it would come over is closed.
    pub(super) fn read<B>(response: Response<B>, deadline: Instant) -> impl Future<Output = Self>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let (status, retry_after) = (response.status(), asked(response.headers()));
        let mut rest = response.into_body();
        async move {
            let mut body = BytesMut::new();
            let until = || deadline.min(Instant::now() + Self::BODY_TIME_MAX);
            let whole = rest.is_end_stream() || timeout_at(until(), read(&mut rest, &mut body)).await == Ok(true);
            Self {
                status,
                retry_after,
                body: body.freeze(),
                cut: !whole,
            }
        }
    }
}

/// Reads as much of a body as is kept, and says whether that is all of it.
async fn read<B>(rest: &mut B, body: &mut BytesMut) -> bool
where
    B: Body<Data = Bytes> + Unpin,
{
    while let Some(frame) = rest.frame().await {
        let Ok(chunk) = frame.map(|frame| frame.into_data().unwrap_or_default()) else {
            return false;
        };
        let room = Answer::BODY_BYTES_MAX - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            return false;
        }
    }
    true
}

/// The longest wait that an answer asks for. Of several, since an attempt before it would be too early.
fn asked(headers: &HeaderMap) -> Option<Duration> {
    if !headers.contains_key(header::RETRY_AFTER) {
        return None;
    }
    let date = headers.get(header::DATE).and_then(|date| date.to_str().ok());
    let now = UNIX_EPOCH + Duration::from_millis(WallClock.now().as_millis());
    let all = headers.get_all(header::RETRY_AFTER).into_iter();
    let legible = all.filter_map(|value| retry_after(value.to_str().ok()?, date, now));
    // No table of attempts is longer, and times further away do not fit everywhere.
    legible.max().map(|wait| wait.min(Course::WINDOW_MAX * 2))
}

/// Without the body, which is somebody else's.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("status", &self.status)
            .field("retry_after", &self.retry_after)
            .field("body_bytes", &self.body.len())
            .field("cut", &self.cut)
            .finish()
    }
}

/// Why there is no answer, by whether the endpoint may have the event nonetheless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No byte of the request has left, nor will.
    NotSent(Trouble),
    /// Some of it may have left, and the endpoint may have acted on it.
    Lost(Trouble),
}

impl Fault {
    /// What happened.
    pub fn trouble(&self) -> &Trouble {
        match self {
            Self::NotSent(trouble) | Self::Lost(trouble) => trouble,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(trouble) => write!(f, "not sent: {trouble}"),
            Self::Lost(trouble) => write!(f, "sent without an answer: {trouble}"),
        }
    }
}

impl Error for Fault {}

/// What kept an exchange from being complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What a program may want to tell apart.
    pub kind: TroubleKind,
    /// What to tell people.
    pub message: Box<str>,
}

/// What a program may want to tell apart about [`Trouble`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TroubleKind {
    /// It may not be sent there.
    Refused,
    /// No connection: the name is not known, nobody listens, or who does is not whom the certificate should be for.
    Unreachable,
    /// The time was up.
    Timeout,
    /// The connection broke, or what came over it made no sense.
    Broken,
}

impl Trouble {
    pub(super) fn new(kind: TroubleKind, message: impl Into<Box<str>>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// There was no connection.
    pub(super) fn of_dialling(error: &(dyn Error + 'static)) -> Self {
        if let Some(refused) = refusal(error) {
            return refused.into();
        }
        let kind = if is_timeout(error) {
            TroubleKind::Timeout
        } else {
            TroubleKind::Unreachable
        };
        Self::new(kind, story(error))
    }

    /// It broke.
    pub(super) fn of_sending(error: &hyper::Error) -> Self {
        let kind = if is_timeout(error) {
            TroubleKind::Timeout
        } else {
            TroubleKind::Broken
        };
        Self::new(kind, story(error))
    }
}

impl From<Refused> for Trouble {
    fn from(refused: Refused) -> Self {
        Self::new(TroubleKind::Refused, refused.to_string())
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| {
        let error: &'a (dyn Error + 'static) = *error;
        error.source()
    })
}

fn refusal(error: &(dyn Error + 'static)) -> Option<Refused> {
    causes(error).find_map(|cause| cause.downcast_ref::<Refused>().cloned())
}

fn is_timeout(error: &(dyn Error + 'static)) -> bool {
    let timed_out = |cause: &(dyn Error + 'static)| {
        let io = cause.downcast_ref::<io::Error>();
        io.is_some_and(|io| io.kind() == io::ErrorKind::TimedOut)
    };
    causes(error).any(timed_out)
}

/// An error and its causes in one line.
fn story(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for cause in causes(error).map(ToString::to_string) {
        // A writer of errors that repeats its cause would make the line tell everything twice.
        if !text.contains(&cause) {
            text.push_str(if text.is_empty() { "" } else { ": " });
            text.push_str(&cause);
        }
    }
    text
}
