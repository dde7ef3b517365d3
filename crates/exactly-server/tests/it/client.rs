//! Clients that send what they are told to.

use std::fmt::Write as _;
use std::net::SocketAddr;

use tokio::time::timeout;

use crate::PATIENCE;
use crate::wire::{Message, Wire};

/// A request to send.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    head: String,
    body: Vec<u8>,
}

pub(crate) fn ask(method: &str, path: &str) -> Ask {
    Ask {
        head: format!("{method} {path} HTTP/1.1\r\nhost: shop.example\r\n"),
        body: Vec::new(),
    }
}

pub(crate) fn get(path: &str) -> Ask {
    ask("GET", path)
}

/// A request that would do something.
pub(crate) fn post(path: &str) -> Ask {
    ask("POST", path)
        .body("{\"amount\":7}")
        .header("content-type", "application/json")
}

impl Ask {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        let _ = write!(self.head, "{name}: {value}\r\n");
        self
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    pub(crate) fn bearer(self, name: &str) -> Self {
        self.header("authorization", &format!("Bearer {name}"))
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head.clone();
        if !self.body.is_empty() {
            let _ = write!(bytes, "content-length: {}\r\n", self.body.len());
        }
        bytes.push_str("\r\n");
        [bytes.as_bytes(), &self.body].concat()
    }

    /// Sends it on a connection of its own, and waits for the answer.
    pub(crate) async fn to(&self, server: SocketAddr) -> Message {
        let answer = self.try_to(server).await;
        answer.unwrap_or_else(|| panic!("no whole answer to {:?}", self.head))
    }

    /// The same; `None` if the connection ended before the answer did.
    pub(crate) async fn try_to(&self, server: SocketAddr) -> Option<Message> {
        let mut wire = Wire::connect(server).await;
        wire.send(self.bytes()).await.ok()?;
        wire.answered().await
    }
}

impl Wire {
    /// The next answer, which comes in time.
    pub(crate) async fn answered(&mut self) -> Option<Message> {
        timeout(PATIENCE, self.answer()).await.expect("an answer comes in time")
    }
}
