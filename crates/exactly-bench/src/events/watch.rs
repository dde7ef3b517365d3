//! A receiver that notes when what arrives, and one that never answers.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use crate::Result;

/// What arrived where, and when.
type Arrival = (String, String, Instant);

/// Answers at once, and notes it.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) address: SocketAddr,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
    serving: AbortHandle,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Watch {
    pub(super) async fn start() -> Result<Self> {
        let (note, arrivals) = mpsc::unbounded_channel();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let router = Router::new().route("/hook/{place}", post(take)).with_state(note);
        let serving = tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self {
            address,
            arrivals,
            serving: serving.abort_handle(),
        })
    }

    /// How long it took from when each of these was published until each of so many places had it, in milliseconds.
    pub(super) async fn latencies(
        &mut self,
        published: &HashMap<String, Instant>,
        places: usize,
        patience: Duration,
    ) -> Result<Vec<f64>> {
        let until = Instant::now() + patience;
        let mut found: HashMap<(String, String), f64> = HashMap::new();
        let wanted = published.len() * places;
        while found.len() < wanted {
            let arrival = timeout_at(until, self.arrivals.recv()).await;
            let arrival = arrival.map_err(|_| format!("{} of {wanted} arrived within {patience:?}", found.len()))?;
            let (event, place, at) = arrival.ok_or("the receiver ended")?;
            if let Some(began) = published.get(&event) {
                let took = at.saturating_duration_since(*began).as_secs_f64() * 1000.0;
                found.entry((event, place)).or_insert(took);
            }
        }
        Ok(found.into_values().collect())
    }
}

async fn take(
    State(note): State<mpsc::UnboundedSender<Arrival>>,
    Path(place): Path<String>,
    headers: HeaderMap,
) -> StatusCode {
    let event = headers.get("webhook-id").and_then(|id| id.to_str().ok());
    // Whoever no longer listens has what it wanted.
    let _ = note.send((event.unwrap_or_default().to_owned(), place, Instant::now()));
    StatusCode::NO_CONTENT
}

/// Accepts and never answers.
#[derive(Debug)]
pub(super) struct Silent {
    pub(super) address: SocketAddr,
    holding: AbortHandle,
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.holding.abort();
    }
}

impl Silent {
    pub(super) async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let holding = tokio::spawn(async move {
            let mut held: Vec<TcpStream> = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                held.push(stream);
            }
        });
        Ok(Self {
            address,
            holding: holding.abort_handle(),
        })
    }
}

/// An address that refuses whoever calls.
pub(super) async fn dead() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn post(address: SocketAddr, place: &str, id: &str) {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "POST /hook/{place} HTTP/1.1\r\nhost: watch\r\nwebhook-id: {id}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    }

    #[tokio::test]
    async fn what_is_posted_is_noted_once_for_each_place() {
        let mut watch = Watch::start().await.unwrap();
        let published = HashMap::from([("a".to_owned(), Instant::now())]);
        for (place, id) in [("1", "a"), ("1", "a"), ("1", "other"), ("2", "a")] {
            post(watch.address, place, id).await;
        }
        let took = watch.latencies(&published, 2, Duration::from_secs(5)).await.unwrap();
        assert_eq!(took.len(), 2);
        assert!(watch.latencies(&published, 1, Duration::ZERO).await.is_err());
    }
}
