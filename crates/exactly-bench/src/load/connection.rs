//! One keep-alive connection, as much of HTTP/1.1 as the measured servers speak.

use std::net::SocketAddr;
use std::ops::Range;

use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::keys::KEY_LEN;
use crate::Result;

/// A typical payment: 120 bytes.
pub(crate) const PAYMENT: &str = concat!(
    r#"{"amount":19990,"currency":"EUR","customer":"cus_9f3a7b21c4","#,
    r#""order":"ord_2026_00000017","method":"card","capture":true}"#
);

const ANSWER_MAX: usize = 16 * 1024;

/// A connection with one request in it, of which only the key changes.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    key: Range<usize>,
    buffer: Vec<u8>,
}

/// What the server said. The text is kept of refusals only, since nobody reads the others.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Connection {
    /// A connection whose requests go to another path.
    pub(crate) async fn open_for(address: SocketAddr, path: &str) -> Result<Self> {
        Self::open_with(address, path, "idempotency-key").await
    }

    /// A connection whose requests carry the key in another header.
    pub(crate) async fn open_with(address: SocketAddr, path: &str, header: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        // One request is one segment; waiting for more would measure the wait.
        stream.set_nodelay(true)?;
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             {header}: ",
            PAYMENT.len()
        )
        .into_bytes();
        let key = request.len()..request.len() + KEY_LEN;
        request.extend_from_slice(&[b'-'; KEY_LEN]);
        request.extend_from_slice(b"\r\n\r\n");
        request.extend_from_slice(PAYMENT.as_bytes());
        Ok(Self {
            stream,
            request,
            key,
            buffer: Vec::with_capacity(1024),
        })
    }

    /// The key of the next request.
    pub(crate) fn key_mut(&mut self) -> &mut [u8] {
        &mut self.request[self.key.clone()]
    }

    /// Sends the request and reads the answer to its end.
    pub(crate) async fn exchange(&mut self) -> Result<Answer> {
        self.stream.write_all(&self.request).await?;
        self.buffer.clear();
        let (status, ends_at) = loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err("the server closed the connection".into());
            }
            if let Some(head) = Head::parse(&self.buffer)? {
                break (head.status, head.body_at + head.body_len);
            }
            if self.buffer.len() > ANSWER_MAX {
                return Err("the head of the answer has no end".into());
            }
        };
        while self.buffer.len() < ends_at {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err("the server closed the connection inside an answer".into());
            }
        }
        let text = match status {
            200..=299 => String::new(),
            _ => String::from_utf8_lossy(&self.buffer).into_owned(),
        };
        Ok(Answer { status, text })
    }

    /// The answer that was read last, head and body.
    pub(crate) fn answered(&self) -> &[u8] {
        &self.buffer
    }
}

/// Asks a server something beside the measurement and returns the body of its answer.
pub(crate) async fn ask(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the answer has no body")?;
    if !head.starts_with("HTTP/1.1 200") {
        return Err(format!("{path} was answered with {head}").into());
    }
    Ok(body.to_owned())
}

/// What is needed of an answer's head to find the end of its body.
struct Head {
    status: u16,
    body_at: usize,
    body_len: usize,
}

impl Head {
    /// `None` while the head is incomplete.
    ///
    /// Looks for the two things it needs and reads nothing else: a client that pays for every header would charge the
    /// layer for those that it adds.
    fn parse(bytes: &[u8]) -> Result<Option<Self>> {
        // As hyper writes it, and as nginx does.
        const LENGTHS: [&[u8]; 2] = [b"\r\ncontent-length: ", b"\r\nContent-Length: "];
        let Some(end) = memmem::find(bytes, b"\r\n\r\n") else {
            return Ok(None);
        };
        let head = &bytes[..end];
        let status = head.get(9..12).and_then(decimal).ok_or("the answer has no status")?;
        let length_at = LENGTHS
            .iter()
            .find_map(|name| Some(memmem::find(head, name)? + name.len()))
            .ok_or("the answer has no content-length")?;
        let length = head[length_at..].split(|byte| *byte == b'\r').next().and_then(decimal);
        Ok(Some(Self {
            status: u16::try_from(status)?,
            body_at: end + 4,
            body_len: length.ok_or("the answer's content-length is no number")?,
        }))
    }
}

fn decimal(digits: &[u8]) -> Option<usize> {
    str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payment_has_the_size_it_is_described_with() {
        assert_eq!(PAYMENT.len(), 120);
    }

    #[test]
    fn an_answer_ends_where_its_head_says() {
        let answer = b"HTTP/1.1 201 Created\r\ndate: x\r\ncontent-length: 2\r\n\r\n{}";
        let head = Head::parse(answer).unwrap().unwrap();
        assert_eq!(head.status, 201);
        assert_eq!(head.body_at + head.body_len, answer.len());
        assert!(Head::parse(&answer[..40]).unwrap().is_none());
    }
}
