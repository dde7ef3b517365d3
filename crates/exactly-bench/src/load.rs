//! The client: many connections, each of which sends its next request as soon as the last one is answered.
//!
//! Written by hand on sockets, since a general HTTP client costs more than the server that is measured and would hide
//! the difference between two of them.

mod connection;
mod keys;
mod latency;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

pub(crate) use self::connection::{Connection, PAYMENT, ask};
pub(crate) use self::keys::{Keys, series_prefix};
pub(crate) use self::latency::Latencies;
use crate::Result;

/// Sending each key of a series once ends by itself; this is only a bound.
const FILL_WITHIN: Duration = Duration::from_mins(30);

/// Connections to one server, kept alive from round to round.
#[derive(Debug)]
pub(crate) struct Clients {
    connections: Vec<Connection>,
}

/// What a run of all connections came to.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    pub(crate) elapsed: Duration,
    pub(crate) latencies: Arc<Latencies>,
}

impl Tally {
    pub(crate) fn per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }
}

impl Clients {
    pub(crate) async fn connect(address: SocketAddr, count: usize) -> Result<Self> {
        Self::connect_with(address, count, "idempotency-key").await
    }

    /// Connections whose requests carry their keys in another header.
    pub(crate) async fn connect_with(address: SocketAddr, count: usize, header: &str) -> Result<Self> {
        let mut connections = Vec::with_capacity(count);
        for _ in 0..count {
            connections.push(Connection::open_with(address, "/payments", header).await?);
        }
        Ok(Self { connections })
    }

    /// Sends the first `count` keys of a series, each once.
    pub(crate) async fn fill(&mut self, series: u32, count: u64) -> Result<()> {
        let sent = self.run(&Keys::each(series, count), FILL_WITHIN).await?.requests;
        if sent != count {
            return Err(format!("only {sent} of {count} keys were sent").into());
        }
        Ok(())
    }

    /// Sends requests for `duration`, or until `keys` run out. An answer that is not the handler's fails the run: a
    /// figure that counts refusals is worth nothing.
    pub(crate) async fn run(&mut self, keys: &Keys, duration: Duration) -> Result<Tally> {
        let latencies = Arc::new(Latencies::new());
        let started = Instant::now();
        let until = started + duration;
        let mut running = JoinSet::new();
        for mut connection in self.connections.drain(..) {
            let keys = keys.clone();
            let latencies = Arc::clone(&latencies);
            running.spawn(async move {
                let requests = drive(&mut connection, keys, until, &latencies).await?;
                Ok::<_, crate::Error>((connection, requests))
            });
        }
        let mut requests = 0;
        while let Some(ended) = running.join_next().await {
            let (connection, answered) = ended??;
            self.connections.push(connection);
            requests += answered;
        }
        Ok(Tally {
            requests,
            elapsed: started.elapsed(),
            latencies,
        })
    }
}

async fn drive(connection: &mut Connection, mut keys: Keys, until: Instant, latencies: &Latencies) -> Result<u64> {
    let mut requests = 0;
    let mut sent_at = Instant::now();
    while sent_at < until && keys.write_next(connection.key_mut()) {
        let answer = connection.exchange().await?;
        if answer.status != 201 {
            return Err(format!("answered {}: {}", answer.status, answer.text).into());
        }
        requests += 1;
        let answered_at = Instant::now();
        latencies.add(answered_at - sent_at);
        sent_at = answered_at;
    }
    Ok(requests)
}
