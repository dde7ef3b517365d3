//! HTTP/1 as bytes, so that tests see what is really sent.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// One end of a connection.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    /// What was read and not yet asked for.
    ahead: Vec<u8>,
}

/// A request or an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    /// The first line.
    pub(crate) start: String,
    /// Names in lower case, in the order in which they came.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
}

impl Message {
    /// The only value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() <= 1, "{name} more than once: {all:?}");
        all.first().copied()
    }

    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(other, _)| other == name);
        named.map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn method(&self) -> &str {
        self.start.split(' ').next().unwrap_or_default()
    }

    pub(crate) fn target(&self) -> &str {
        self.start.split(' ').nth(1).unwrap_or_default()
    }

    pub(crate) fn status(&self) -> u16 {
        let status = self.start.split(' ').nth(1);
        status.and_then(|status| status.parse().ok()).expect("an answer")
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// What the gateway says became of the key.
    pub(crate) fn key_status(&self) -> Option<&str> {
        self.header("idempotency-status")
    }

    /// The code of a problem.
    pub(crate) fn code(&self) -> String {
        let problem: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        problem["code"].as_str().unwrap_or_default().to_owned()
    }
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a socket that is open");
        Self {
            stream,
            ahead: Vec::new(),
        }
    }

    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::new(TcpStream::connect(address).await.expect("somebody listens"))
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await
    }

    /// The next request, with its body. `None` if the other side ended instead, wherever in it.
    pub(crate) async fn request(&mut self) -> Option<Message> {
        let head = self.head().await?;
        self.body(head, false).await
    }

    /// The next answer, with its body.
    pub(crate) async fn answer(&mut self) -> Option<Message> {
        let head = self.head().await?;
        let status = head.status();
        if status < 200 || status == 204 || status == 304 {
            return Some(head);
        }
        self.body(head, true).await
    }

    /// The next head alone.
    pub(crate) async fn head(&mut self) -> Option<Message> {
        let mut lines = Vec::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() && !lines.is_empty() {
                break;
            }
            lines.push(line);
        }
        let mut lines = lines.into_iter();
        Some(Message {
            start: lines.next()?,
            headers: lines.map(|line| field(&line)).collect(),
            ..Message::default()
        })
    }

    /// The body that `head` announces; up to the end of the connection if it announces none and `until_end`.
    pub(crate) async fn body(&mut self, mut head: Message, until_end: bool) -> Option<Message> {
        if head.all("transfer-encoding") == ["chunked"] {
            loop {
                let line = self.line().await?;
                let size = usize::from_str_radix(line.split(';').next()?, 16).ok()?;
                if size == 0 {
                    break;
                }
                head.body.extend(self.bytes(size).await?);
                self.line().await?;
            }
            loop {
                let line = self.line().await?;
                if line.is_empty() {
                    return Some(head);
                }
                head.trailers.push(field(&line));
            }
        }
        match head.header("content-length") {
            Some(length) => head.body = self.bytes(length.parse().ok()?).await?,
            None if until_end => head.body = self.rest().await?,
            None => {}
        }
        Some(head)
    }

    /// Just so many bytes.
    pub(crate) async fn bytes(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.ahead.len() < count {
            self.more().await.ok().filter(|more| *more)?;
        }
        Some(self.ahead.drain(..count).collect())
    }

    /// Everything up to the end; `None` if the connection is reset.
    pub(crate) async fn rest(&mut self) -> Option<Vec<u8>> {
        while self.more().await.ok()? {}
        Some(std::mem::take(&mut self.ahead))
    }

    /// Whether the other side has ended the connection, which is waited for.
    pub(crate) async fn is_ended(&mut self) -> bool {
        self.ahead.is_empty() && !self.more().await.unwrap_or(false)
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.ahead.windows(2).position(|pair| pair == b"\r\n") {
                let line: Vec<u8> = self.ahead.drain(..end + 2).collect();
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            self.more().await.ok().filter(|more| *more)?;
        }
    }

    async fn more(&mut self) -> io::Result<bool> {
        Ok(self.stream.read_buf(&mut self.ahead).await? > 0)
    }
}

fn field(line: &str) -> (String, String) {
    let (name, value) = line.split_once(':').unwrap_or((line, ""));
    (name.to_ascii_lowercase(), value.trim().to_owned())
}
