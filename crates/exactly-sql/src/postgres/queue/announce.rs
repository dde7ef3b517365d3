//! Telling workers that there may be something to lease.
//!
//! A notification in every transaction would serialise their commits. Instead one is sent after commits, on a connection of
//! the queue's own, and one stands for all that were made in the meantime. It is a hint: a lost one is made good by the
//! workers' slow poll.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use crate::postgres::listen::Listener;
use crate::postgres::session::{BATCH_TIMEOUT, Sessions, within};

/// The shortest time between two notifications. Each is a transaction of its own, which whoever enqueues all the time pays for.
const PAUSE: Duration = Duration::from_millis(10);

/// How long a server is left alone that took no notification.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// How long a start waits until it listens.
const LISTEN_WAIT_MAX: Duration = Duration::from_secs(2);

/// Of one queue.
#[derive(Debug)]
pub(in crate::postgres) struct Announcer {
    arrivals: watch::Sender<u64>,
    due: Arc<Notify>,
    sending: AbortHandle,
    _listener: Listener,
}

impl Announcer {
    /// Returns once it listens, or soon if that cannot be done: what is said before is not heard.
    pub(super) async fn start(pool: PgPool, sessions: Arc<Sessions>, channel: Arc<str>) -> Self {
        let arrivals = watch::Sender::new(0);
        let heard = arrivals.clone();
        let mut listening = arrivals.subscribe();
        let listener = Listener::start(pool, Arc::clone(&channel), move |_: Option<&str>| arrive(&heard));
        if tokio::time::timeout(LISTEN_WAIT_MAX, listening.changed())
            .await
            .is_err()
        {
            tracing::warn!("cannot listen for tasks yet; they are found at the next poll");
        }
        let due = Arc::new(Notify::new());
        let sending = tokio::spawn(send(sessions, channel, Arc::clone(&due))).abort_handle();
        Self {
            arrivals,
            due,
            sending,
            _listener: listener,
        }
    }

    /// Tells this process at once, and the others soon.
    pub(in crate::postgres) fn announce(&self) {
        arrive(&self.arrivals);
        self.due.notify_one();
    }

    pub(super) fn arrivals(&self) -> watch::Receiver<u64> {
        self.arrivals.subscribe()
    }

    /// How many arrivals were heard of.
    pub(super) fn heard(&self) -> u64 {
        *self.arrivals.borrow()
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.sending.abort();
    }
}

fn arrive(arrivals: &watch::Sender<u64>) {
    arrivals.send_modify(|count| *count = count.wrapping_add(1));
}

async fn send(sessions: Arc<Sessions>, channel: Arc<str>, due: Arc<Notify>) {
    loop {
        due.notified().await;
        let pause = match notify(&sessions, &channel).await {
            Ok(()) => PAUSE,
            Err(error) => {
                tracing::debug!(%error, "announce tasks; other processes find them at their next poll");
                FAILED_PAUSE
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn notify(sessions: &Sessions, channel: &str) -> Result<(), sqlx::Error> {
    let mut conn = sessions.take().await?;
    let notify = sqlx::query("select pg_notify($1, '')").bind(channel);
    let notified = within(BATCH_TIMEOUT, notify.execute(&mut conn)).await;
    match &notified {
        Ok(_) => sessions.give_back(conn),
        Err(error) => sessions.failed(error),
    }
    notified.map(drop)
}
