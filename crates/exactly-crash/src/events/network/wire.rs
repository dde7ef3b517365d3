//! As much of HTTP/1.1 as passes here.

use std::io::{Error, ErrorKind, Result};

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};

use crate::events::check::Name;

/// Everything before the body of a request or an answer.
#[derive(Debug)]
pub(super) struct Head {
    bytes: Vec<u8>,
    body: usize,
}

impl Head {
    /// The next one; none, if nothing more comes.
    pub(super) async fn read<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> Result<Option<Self>> {
        let mut bytes = Vec::new();
        loop {
            let before = bytes.len();
            if stream.read_until(b'\n', &mut bytes).await? == 0 {
                return match before {
                    0 => Ok(None),
                    _ => Err(ErrorKind::UnexpectedEof.into()),
                };
            }
            if &bytes[before..] == b"\r\n" {
                break;
            }
        }
        let mut head = Self { bytes, body: 0 };
        if head.field("transfer-encoding").is_some() {
            return Err(Error::other("the lab reads no chunks"));
        }
        if let Some(length) = head.field("content-length") {
            head.body = length.parse().map_err(Error::other)?;
        }
        Ok(Some(head))
    }

    /// All of it, as it came.
    pub(super) async fn with_body<S: AsyncRead + Unpin>(self, stream: &mut BufReader<S>) -> Result<Vec<u8>> {
        let Self { mut bytes, body } = self;
        let head = bytes.len();
        bytes.resize(head + body, 0);
        stream.read_exact(&mut bytes[head..]).await?;
        Ok(bytes)
    }

    /// Which delivery a request is an attempt at: the id is in a header, and the endpoint is the path.
    pub(super) fn delivery(&self) -> Result<Name> {
        let line = self.lines().next().unwrap_or_default();
        let endpoint = line.strip_prefix("POST /").and_then(|line| line.split_once(' '));
        match (self.field("webhook-id"), endpoint) {
            (Some(event), Some((endpoint, _))) => Ok(format!("{event} {endpoint}")),
            _ => Err(Error::other(format!("{line:?} is no delivery"))),
        }
    }

    fn field(&self, name: &str) -> Option<&str> {
        let fields = self.lines().skip(1).filter_map(|line| line.split_once(':'));
        let mut named = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| value.trim())
    }

    fn lines(&self) -> impl Iterator<Item = &str> {
        let lines = self.bytes.split(|byte| *byte == b'\n');
        lines.filter_map(|line| std::str::from_utf8(line).ok())
    }
}
