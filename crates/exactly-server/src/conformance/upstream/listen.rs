//! A port that can be closed for a while.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::sleep;

use super::Body;

/// How many connections are served at the same time; more wait to be accepted.
const CONNECTIONS_MAX: usize = 4096;
/// How long a client may take to send the head of a request.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// How long to wait before accepting again, after the system refused.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often a port that somebody else took meanwhile is asked for again.
const REOPEN_ATTEMPTS: u32 = 100;

/// Closes the port.
#[derive(Clone, Debug)]
pub(super) struct Door(mpsc::Sender<Closing>);

/// For how long, and whom to tell once it is closed.
#[derive(Debug)]
pub(super) struct Closing {
    during: Duration,
    closed: oneshot::Sender<()>,
}

pub(super) fn door() -> (Door, mpsc::Receiver<Closing>) {
    let (sender, receiver) = mpsc::channel(1);
    (Door(sender), receiver)
}

impl Door {
    /// Returns once connections are refused.
    pub(super) async fn close_for(&self, during: Duration) {
        let (closed, told) = oneshot::channel();
        if self.0.send(Closing { during, closed }).await.is_ok() {
            let _ = told.await;
        }
    }
}

/// Answers requests until the process is told to stop.
pub(super) async fn serve<A, F>(
    mut listener: TcpListener,
    mut closings: mpsc::Receiver<Closing>,
    answer: A,
) -> io::Result<()>
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = io::Result<Response<Body>>> + Send + 'static,
{
    let address = listener.local_addr()?;
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut stopped = std::pin::pin!(stopped());
    loop {
        tokio::select! {
            accepted = accept(&listener, &places) => match accepted {
                Ok((stream, place)) => {
                    let served = connection(stream, answer.clone());
                    tokio::spawn(async move {
                        served.await;
                        drop(place);
                    });
                }
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
            Some(closing) = closings.recv() => {
                drop(listener);
                let _ = closing.closed.send(());
                sleep(closing.during).await;
                listener = reopen(address).await?;
            }
            () = &mut stopped => return Ok(()),
        }
    }
}

/// The next connection, once there is room for it.
async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

async fn reopen(address: std::net::SocketAddr) -> io::Result<TcpListener> {
    let mut attempt = 1;
    loop {
        match TcpListener::bind(address).await {
            Err(_) if attempt < REOPEN_ATTEMPTS => sleep(ACCEPT_PAUSE).await,
            bound => return bound,
        }
        attempt += 1;
    }
}

async fn connection<A, F>(stream: TcpStream, answer: A)
where
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = io::Result<Response<Body>>>,
{
    let _ = stream.set_nodelay(true);
    // One request per connection: a port that is closed then means that nothing gets through.
    let served = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    // Cut connections are what it is for.
    let _ = served.await;
}

async fn stopped() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = terminate.recv() => return,
                _ = tokio::signal::ctrl_c() => return,
            }
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}
