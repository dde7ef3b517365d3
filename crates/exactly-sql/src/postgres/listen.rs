//! Waking those who wait in other processes.
//!
//! `NOTIFY` serialises the commits that use it, so it is sent after the commit and only for rows on which someone noted
//! that he waits. A notification is a hint; a lost one is made good by the waiter's slow poll.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use exactly::store::{WakeHint, Wakeups};
use exactly::{CallId, Hex};
use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{Executor as _, PgConnection, PgPool};
use tokio::task::AbortHandle;

/// The most hints in one notification: sixteen hex digits and a comma each, within PostgreSQL's 8000 bytes.
const HINTS_MAX: usize = 450;

/// How long to wait before listening again after a failure.
const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(100);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(5);

/// After so long without a word, the connection is asked whether it still stands.
const CHECK_EVERY: Duration = Duration::from_secs(30);
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// Tells every process that these records have changed.
pub(super) async fn notify(conn: &mut PgConnection, channel: &str, ids: &[CallId]) -> Result<(), sqlx::Error> {
    let payloads: Vec<String> = ids.chunks(HINTS_MAX).map(payload).collect();
    sqlx::query("select pg_notify($1, payload) from unnest($2::text[]) as payload")
        .bind(channel)
        .bind(payloads)
        .execute(conn)
        .await?;
    Ok(())
}

/// Gets the payload of every notification, and nothing when some may have been missed.
pub(super) trait Hear: Fn(Option<&str>) + Send + Sync + 'static {}

impl<F: Fn(Option<&str>) + Send + Sync + 'static> Hear for F {}

/// Passes on notifications for as long as it lives.
#[derive(Debug)]
pub(super) struct Listener(AbortHandle);

impl Listener {
    /// Listens on a connection of its own, which it opens like `pool` does.
    pub(super) fn start(pool: PgPool, channel: Arc<str>, hear: impl Hear) -> Self {
        Self(tokio::spawn(listen(pool, channel, hear)).abort_handle())
    }
}

/// Wakes those who wait for the records that a notification names.
pub(super) fn waking(wakeups: Wakeups) -> impl Hear {
    move |payload: Option<&str>| match payload {
        Some(payload) => hints(payload).for_each(|hint| wakeups.wake_hint(&hint)),
        None => wakeups.wake_all(),
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn listen(pool: PgPool, channel: Arc<str>, hear: impl Hear) {
    let mut pause = RECONNECT_PAUSE_MIN;
    loop {
        let mut heard = false;
        if let Err(error) = listen_once(&pool, &channel, &hear, &mut heard).await {
            tracing::warn!(%error, ?pause, "listen for what other processes do");
        }
        pause = if heard {
            RECONNECT_PAUSE_MIN
        } else {
            (pause * 2).min(RECONNECT_PAUSE_MAX)
        };
        tokio::time::sleep(pause).await;
    }
}

/// Listens until the connection ends.
async fn listen_once(pool: &PgPool, channel: &str, hear: &impl Hear, heard: &mut bool) -> Result<(), sqlx::Error> {
    let alone = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None);
    let alone = alone
        .acquire_timeout(CHECK_TIMEOUT)
        .connect_lazy_with((*pool.connect_options()).clone());
    let mut listener = PgListener::connect_with(&alone).await?;
    listener.eager_reconnect(false);
    listener.listen(channel).await?;
    *heard = true;
    // What was said before we listened is lost.
    hear(None);
    loop {
        match tokio::time::timeout(CHECK_EVERY, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => hear(Some(notification.payload())),
            Ok(Ok(None)) => return Ok(()),
            Ok(Err(error)) => return Err(error),
            Err(_) => super::session::within(CHECK_TIMEOUT, async { listener.execute("select").await })
                .await
                .map(drop)?,
        }
    }
}

fn payload(ids: &[CallId]) -> String {
    let mut payload = String::with_capacity(ids.len() * (2 * size_of::<WakeHint>() + 1));
    for id in ids {
        write!(payload, "{},", Hex(&Wakeups::hint(id))).expect("writing to a string cannot fail");
    }
    payload
}

/// What does not read as a hint is skipped: anyone who may connect can notify.
fn hints(payload: &str) -> impl Iterator<Item = WakeHint> {
    payload
        .split(',')
        .filter(|hint| hint.len() == 2 * size_of::<WakeHint>() && hint.bytes().all(|digit| digit.is_ascii_hexdigit()))
        .filter_map(|hint| u64::from_str_radix(hint, 16).ok())
        .map(u64::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use exactly::CallId;
    use exactly::store::Wakeups;

    use super::{HINTS_MAX, hints, payload};

    #[test]
    fn a_notification_carries_every_hint_within_postgres_limit() {
        let ids: Vec<CallId> = (0..HINTS_MAX)
            .map(|n| CallId::from_bytes([u8::try_from(n % 251).unwrap(); 32]))
            .collect();
        let payload = payload(&ids);
        assert!(payload.len() < 8000);
        assert_eq!(
            hints(&payload).collect::<Vec<_>>(),
            ids.iter().map(Wakeups::hint).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_strangers_notification_wakes_nobody() {
        assert_eq!(hints("hello,,+123456789abcdef,é123456789abcde").count(), 0);
    }
}
