//! Connections that are kept for the next delivery.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use tokio::time::{Instant, sleep, timeout_at};
use tower_service::Service as _;

use super::Target;
use super::dial::{Dial, Failed};
use crate::client::sending::SentBody;

/// How long a connection is kept for the next delivery. Common servers close theirs after five seconds, and a request that
/// leaves at that moment is lost: it cannot be sent again, since that would be a second attempt that nobody has written down.
const IDLE_TIME_MAX: Duration = Duration::from_secs(4);

/// How many connections to one host are kept. As many as are in use at once, where many endpoints are on one host: what is over
/// that is dialled anew for each delivery, which costs more than sending it.
const IDLE_PER_HOST_MAX: usize = 256;

/// How long a connection may take, after an answer, until it takes the next request.
const READY_WITHIN: Duration = Duration::from_millis(50);

/// How often it is looked which ones nobody has used.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Dials, and keeps what was dialled for a while. Cheap to clone.
///
/// A client that pools connections for everybody decides by itself whether a request that a closing connection did not take is sent
/// once more, and costs a delivery about as much again as the connection. Here each request has one connection, and that is all.
#[derive(Clone, Debug)]
pub(super) struct Connections {
    dial: Dial,
    idle: Arc<Mutex<Idle>>,
}

/// What nobody uses for now. Under a std mutex, since it is held for a push or a pop and never across an await.
#[derive(Debug, Default)]
struct Idle {
    /// By scheme, host and port. What was used last is last.
    by_origin: HashMap<Arc<str>, Vec<Kept>>,
    /// Whether somebody looks after them.
    attended: bool,
}

#[derive(Debug)]
struct Kept {
    sender: SendRequest<SentBody>,
    since: Instant,
}

/// A connection in use. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Connection(SendRequest<SentBody>);

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Broken {
    /// There was no connection.
    Dialling(Failed),
    Sending(hyper::Error),
}

impl Connections {
    pub(super) fn new(dial: Dial) -> Self {
        let idle = Arc::default();
        Self { dial, idle }
    }

    /// Sends a request once, on a connection that is dialled if none is kept.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn has room for its arguments twice while it waits"
    )]
    pub(super) fn send(
        &self,
        target: &Target,
        mut request: Request<SentBody>,
    ) -> impl Future<Output = Result<(Connection, Response<Incoming>), Broken>> {
        async move {
            while let Some(mut sender) = self.pop(target) {
                match sender.try_send_request(request).await {
                    Ok(response) => return Ok((Connection(sender), response)),
                    Err(mut error) => match error.take_message() {
                        // It has ended just now, and nothing of the request was written.
                        Some(unsent) => request = unsent,
                        None => return Err(Broken::Sending(error.into_error())),
                    },
                }
            }
            // In a place of its own: most deliveries dial nothing, and each would make room for it.
            let mut sender = Box::pin(self.dialled(target)).await.map_err(Broken::Dialling)?;
            let response = sender.send_request(request).await.map_err(Broken::Sending)?;
            Ok((Connection(sender), response))
        }
    }

    async fn dialled(&self, target: &Target) -> Result<SendRequest<SentBody>, Failed> {
        let stream = self.dial.clone().call(target.uri().clone()).await?;
        let (sender, driver) = http1::handshake(stream).await?;
        // It ends with its sender. What goes wrong is told to whoever sends.
        tokio::spawn(async move { drop(driver.await) });
        Ok(sender)
    }

    /// Keeps a connection whose last answer was read to its end, once its request is too: whoever answers early may never read the rest.
    /// That is waited for until `deadline` at the latest.
    pub(super) async fn keep(&self, target: &Target, connection: Connection, deadline: Instant) {
        let mut sender = connection.0;
        let mut since = Instant::now();
        if !sender.is_ready() {
            let until = deadline.min(since + READY_WITHIN);
            if !matches!(timeout_at(until, sender.ready()).await, Ok(Ok(()))) {
                return;
            }
            since = Instant::now();
        }
        let kept = Kept { sender, since };
        let mut idle = lock(&self.idle);
        match idle.by_origin.get_mut(target.origin_key()) {
            Some(others) if others.len() >= IDLE_PER_HOST_MAX => return,
            Some(others) => others.push(kept),
            None => {
                idle.by_origin.insert(Arc::clone(target.origin_key()), vec![kept]);
            }
        }
        let is_attended = mem::replace(&mut idle.attended, true);
        drop(idle);
        if !is_attended {
            // Not under the lock: a runtime that ends drops the attendant here, which wants it.
            tokio::spawn(attend(Attendant(Arc::downgrade(&self.idle))));
        }
    }

    fn pop(&self, target: &Target) -> Option<SendRequest<SentBody>> {
        let kept = lock(&self.idle).by_origin.get_mut(target.origin_key())?.pop()?;
        (kept.since.elapsed() < IDLE_TIME_MAX).then_some(kept.sender)
    }
}

/// Whoever looks after what is kept. If its runtime ends it, another one is started.
struct Attendant(Weak<Mutex<Idle>>);

impl Drop for Attendant {
    fn drop(&mut self) {
        if let Some(idle) = self.0.upgrade() {
            lock(&idle).attended = false;
        }
    }
}

/// Closes what nobody has used for a while, until there is nothing.
async fn attend(mut attendant: Attendant) {
    loop {
        sleep(LOOK_EVERY).await;
        let Some(idle) = attendant.0.upgrade() else { return };
        let mut idle = lock(&idle);
        idle.by_origin.retain(|_, kept| {
            kept.retain(|kept| kept.since.elapsed() < IDLE_TIME_MAX && !kept.sender.is_closed());
            !kept.is_empty()
        });
        if idle.by_origin.is_empty() {
            idle.attended = false;
            attendant.0 = Weak::new();
            return;
        }
    }
}

fn lock(idle: &Mutex<Idle>) -> MutexGuard<'_, Idle> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}
