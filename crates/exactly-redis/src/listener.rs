//! Wake-ups from other processes, over pub/sub.
//!
//! A subscribed connection cannot run other commands, so this one is the listener's own. Messages are hints and may be
//! lost: whoever waits polls too.

use std::time::Duration;

use exactly::store::{WakeHint, Wakeups};
use futures_util::StreamExt as _;
use redis::aio::{PubSubSink, PubSubStream};
use redis::{Client, RedisResult};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{self, MissedTickBehavior};

/// Between two attempts to subscribe. Doubles from the one to the other.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A listener sends nothing by itself, so it would not notice a server that went away without a word.
const PING_EVERY: Duration = Duration::from_secs(10);

/// A task that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    task: AbortHandle,
}

impl Listener {
    /// Returns once the channel is subscribed to, or when the first attempt failed: then waiters poll until another one
    /// succeeds.
    pub(crate) async fn start(client: Client, channel: String, wakeups: Wakeups, timeout: Duration) -> Self {
        let (attempted, first_attempt) = oneshot::channel();
        let task = tokio::spawn(listen(client, channel, wakeups, timeout, attempted)).abort_handle();
        let listener = Self { task };
        let _ = first_attempt.await;
        listener
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(client: Client, channel: String, wakeups: Wakeups, timeout: Duration, attempted: oneshot::Sender<()>) {
    let mut attempted = Some(attempted);
    let mut pause = PAUSE_MIN;
    loop {
        let subscribed = time::timeout(timeout, subscribe(&client, &channel)).await;
        if let Some(attempted) = attempted.take() {
            let _ = attempted.send(());
        }
        match subscribed {
            Ok(Ok((sink, stream))) => {
                pause = PAUSE_MIN;
                // Whatever changed while nobody listened was announced to nobody.
                wakeups.wake_all();
                follow(sink, stream, &wakeups, timeout).await;
                tracing::warn!(channel, "lost the subscription to wake-ups");
            }
            Ok(Err(error)) => tracing::warn!(channel, %error, "cannot subscribe to wake-ups"),
            Err(_) => tracing::warn!(channel, "cannot subscribe to wake-ups: no answer within {timeout:?}"),
        }
        time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn subscribe(client: &Client, channel: &str) -> RedisResult<(PubSubSink, PubSubStream)> {
    let (mut sink, stream) = client.get_async_pubsub().await?.split();
    sink.subscribe(channel).await?;
    Ok((sink, stream))
}

/// Passes messages on until the connection breaks or a ping is not answered.
async fn follow(mut sink: PubSubSink, mut messages: PubSubStream, wakeups: &Wakeups, timeout: Duration) {
    let mut pings = time::interval(PING_EVERY);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            message = messages.next() => {
                let Some(message) = message else { return };
                match WakeHint::try_from(message.get_payload_bytes()) {
                    Ok(hint) => wakeups.wake_hint(&hint),
                    // Not one of ours, but someone meant something by it.
                    Err(_) => wakeups.wake_all(),
                }
            }
            _ = pings.tick() => {
                let pong = time::timeout(timeout, sink.ping::<redis::Value>()).await;
                if !matches!(pong, Ok(Ok(_))) {
                    return;
                }
            }
        }
    }
}
