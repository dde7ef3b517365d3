//! Connections of clients.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exactly::layer::BoxError;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1::UpgradeableConnection;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;

use super::activity::Activity;
use super::desk::{Desk, Seat};
use super::framing::Framed;
use super::patient::Patient;
use super::shutdown::Shutdown;
use crate::config::Config;
use crate::gateway::{Peer, Place};

/// The longest head of a request.
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// How many requests one HTTP/2 connection carries at a time.
const STREAMS_MAX: u32 = 200;
/// The pause after the system refused a connection, usually because there are too many files open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The pause before looking again at the first bytes of a client that sends them one by one.
const PEEK_PAUSE: Duration = Duration::from_millis(5);
/// How long an HTTP/2 client that was told to leave is waited for, while it takes and asks for nothing.
const GOODBYE_MAX: Duration = Duration::from_secs(5);
/// How often an HTTP/2 connection is asked whether its other end is still there.
const PING_EVERY: Duration = Duration::from_secs(30);

/// Accepts clients, at most so many at a time.
pub(super) struct Acceptor {
    listener: TcpListener,
    places: Arc<Semaphore>,
    desk: Desk,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    head_timeout: Duration,
    /// How long a client may take nothing of its answer, or ask for nothing over HTTP/2.
    patience: Duration,
}

/// Who is connected, and the place that it takes.
struct Client {
    address: SocketAddr,
    place: Place,
}

impl Acceptor {
    /// All clients of `listener`, as many at a time as `config` says.
    pub(super) fn alone(listener: TcpListener, config: &Config) -> Self {
        Self::new(listener, Self::places(config), Desk::alone(), config)
    }

    /// As many clients at a time as there are `places`, and of them those who are seated at `desk`.
    pub(super) fn new(listener: TcpListener, places: Arc<Semaphore>, desk: Desk, config: &Config) -> Self {
        let head_timeout = config.timeouts.header;
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(head_timeout)
            .max_buf_size(HEAD_BYTES_MAX);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
            .keep_alive_interval(PING_EVERY);
        Self {
            listener,
            places,
            desk,
            http1,
            http2,
            head_timeout,
            patience: config.timeouts.body,
        }
    }

    /// Places for so many clients as `config` says.
    pub(super) fn places(config: &Config) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(config.connections_max.min(Semaphore::MAX_PERMITS)))
    }

    /// Serves until told to stop, and then until every client has its answer.
    pub(super) async fn serve<A, F, B>(mut self, answer: A, shutdown: &Shutdown)
    where
        A: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let connections = TaskTracker::new();
        loop {
            let (stream, address, seat) = tokio::select! {
                client = self.next() => client,
                () = shutdown.asked() => break,
            };
            let place = Place(Arc::new(seat));
            let client = Client { address, place };
            connections.spawn(self.connection(stream, client, answer.clone(), shutdown.clone()));
        }
        // Who is on the way to this thread goes with the desk.
        drop((self.listener, self.desk));
        connections.close();
        connections.wait().await;
    }

    /// The next client to serve here.
    async fn next(&mut self) -> (TcpStream, SocketAddr, Seat) {
        loop {
            let client = tokio::select! {
                (stream, address, place) = accepted(&self.listener, &self.places) => {
                    self.desk.seat(stream, address, place).transpose()
                }
                handed = self.desk.handed() => Some(handed),
            };
            match client {
                Some(Ok(client)) => return client,
                Some(Err(error)) => tracing::warn!(%error, "connection not moved to the thread that serves it"),
                None => {}
            }
        }
    }

    /// Serves one client until it leaves, or has the answers that it waits for when the server is told to stop.
    fn connection<A, F, B>(
        &self,
        stream: TcpStream,
        client: Client,
        answer: A,
        shutdown: Shutdown,
    ) -> impl Future<Output = ()> + Send + use<A, F, B>
    where
        A: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let address = client.address;
        let answer = move |mut request: Request<_>| {
            request.extensions_mut().insert(Peer(client.address));
            request.extensions_mut().insert(client.place.clone());
            answer(request)
        };
        let (http1, http2) = (self.http1.clone(), self.http2.clone());
        let (head_timeout, patience) = (self.head_timeout, self.patience);
        async move {
            let begun = tokio::select! {
                begun = timeout(head_timeout, is_http2(&stream)) => begun,
                () = shutdown.asked() => return,
            };
            let ended = match begun {
                Ok(Ok(true)) => {
                    let activity = Activity::default();
                    let noted = activity.clone();
                    let service = service_fn(move |request| {
                        let (under_way, answered) = (noted.begin(), answer(request));
                        let noted = noted.clone();
                        async move {
                            let answer = answered.await;
                            drop(under_way);
                            answer.map(|answer| answer.map(|body| noted.note(body)))
                        }
                    });
                    let connection = http2.serve_connection(TokioIo::new(Patient::new(stream, patience)), service);
                    let leave = async {
                        tokio::select! {
                            () = shutdown.asked() => {}
                            () = activity.quiet(patience) => {}
                        }
                    };
                    let give_up = activity.quiet(patience.min(GOODBYE_MAX));
                    finished(connection, http2::Connection::graceful_shutdown, leave, give_up).await
                }
                Ok(Ok(false)) => {
                    let io = TokioIo::new(Framed::new(Patient::new(stream, patience)));
                    let connection = http1.serve_connection(io, service_fn(answer)).with_upgrades();
                    let (stop, leave) = (UpgradeableConnection::graceful_shutdown, shutdown.asked());
                    finished(connection, stop, leave, std::future::pending()).await
                }
                // Whoever says nothing has no place here.
                Ok(Err(_)) | Err(_) => return,
            };
            if let Err(error) = ended {
                tracing::debug!(%address, %error, "connection ended early");
            }
        }
    }
}

/// The next client that comes in, however often the system refuses one.
async fn accepted(listener: &TcpListener, places: &Arc<Semaphore>) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
    loop {
        match accept(listener, places).await {
            Ok(client) => return client,
            Err(error) => {
                tracing::warn!(%error, "connection not accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await;
    let place = place.map_err(io::Error::other)?;
    let (stream, address) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, address, place))
}

/// Runs a connection to its end, which comes sooner once it is to be left. Then its client is told, and may have no more to
/// say about it.
async fn finished<C, E>(
    connection: C,
    stop: impl Fn(Pin<&mut C>),
    leave: impl Future<Output = ()>,
    give_up: impl Future<Output = ()>,
) -> Result<(), E>
where
    C: Future<Output = Result<(), E>>,
{
    let mut connection = pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = leave => stop(connection.as_mut()),
    }
    tokio::select! {
        ended = connection => ended,
        () = give_up => Ok(()),
    }
}

/// Whether the client begins as HTTP/2 does, which no request of HTTP/1 can. All of the beginning is waited for: hyper would
/// wait for the rest without an end.
async fn is_http2(stream: &TcpStream) -> io::Result<bool> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let mut begun = [0; PREFACE.len()];
    loop {
        let len = stream.peek(&mut begun).await?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if !PREFACE.starts_with(&begun[..len]) {
            return Ok(false);
        }
        if len == PREFACE.len() {
            return Ok(true);
        }
        // What was peeked at counts as come, so nobody tells when there is more.
        sleep(PEEK_PAUSE).await;
    }
}
