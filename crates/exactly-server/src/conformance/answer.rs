//! An answer, as far as it came.

use bytes::Bytes;
use serde_json::Value;

/// The most header lines of an answer.
const HEADERS_MAX: usize = 128;

/// Header lines, with their names in lower case.
type Headers = Vec<(String, Vec<u8>)>;

/// What the server said.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Headers,
    pub(super) body: Bytes,
    /// Whether it came to its end, or was cut.
    pub(super) is_whole: bool,
}

/// Why bytes are no answer.
#[derive(Debug)]
pub(super) struct NotHttp(pub(super) String);

/// Puts an answer together from the bytes of a connection.
#[derive(Debug)]
pub(super) struct Reader {
    is_head_only: bool,
    raw: Vec<u8>,
    head: Option<(u16, Headers, Framing)>,
    /// How much of `raw` is used up.
    at: usize,
    body: Vec<u8>,
    is_whole: bool,
}

/// What ends a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
    Close,
}

impl Answer {
    /// The first line of a header.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.header_lines(name).next()
    }

    pub(super) fn header_lines<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a str> + use<'a, 'n> {
        let of_name = self
            .headers
            .iter()
            .filter(move |(found, _)| found.eq_ignore_ascii_case(name));
        of_name.filter_map(|(_, value)| str::from_utf8(value).ok())
    }

    pub(super) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status) && self.is_whole
    }
}

impl Reader {
    /// For the answer to a request with this method.
    pub(super) fn new(method: &str) -> Self {
        Self {
            is_head_only: method == "HEAD",
            raw: Vec::new(),
            head: None,
            at: 0,
            body: Vec::new(),
            is_whole: false,
        }
    }

    /// How many bytes it was given.
    pub(super) fn len(&self) -> usize {
        self.raw.len()
    }

    /// Takes what was read. True once the answer is whole.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<bool, NotHttp> {
        self.raw.extend_from_slice(bytes);
        while self.head.is_none() {
            if !self.take_head()? {
                return Ok(false);
            }
        }
        self.take_body()?;
        Ok(self.is_whole)
    }

    /// The connection has ended: the answer, if its head is there.
    pub(super) fn finish(mut self) -> Option<Answer> {
        let (status, headers, framing) = self.head.take()?;
        Some(Answer {
            status,
            headers,
            body: Bytes::from(self.body),
            is_whole: self.is_whole || framing == Framing::Close,
        })
    }

    /// Whether there was a whole head.
    fn take_head(&mut self) -> Result<bool, NotHttp> {
        let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut lines);
        let parsed = head
            .parse(&self.raw[self.at..])
            .map_err(|error| NotHttp(format!("the answer is not HTTP/1.1: {error}")))?;
        let httparse::Status::Complete(len) = parsed else {
            return Ok(false);
        };
        let status = head.code.unwrap_or_default();
        self.at += len;
        // Interim answers announce the one that counts.
        if (100..200).contains(&status) {
            return Ok(true);
        }
        let headers: Vec<_> = head
            .headers
            .iter()
            .map(|line| (line.name.to_ascii_lowercase(), line.value.to_vec()))
            .collect();
        let framing = if self.is_head_only || status == 204 || status == 304 {
            Framing::Length(0)
        } else {
            Framing::of(&headers)?
        };
        self.head = Some((status, headers, framing));
        Ok(true)
    }

    fn take_body(&mut self) -> Result<(), NotHttp> {
        let Some((_, _, framing)) = &self.head else {
            return Ok(());
        };
        match *framing {
            Framing::Length(length) => {
                let rest = &self.raw[self.at..];
                let taken = rest.len().min(length - self.body.len());
                self.body.extend_from_slice(&rest[..taken]);
                self.at += taken;
                self.is_whole = self.body.len() == length;
            }
            Framing::Close => {
                self.body.extend_from_slice(&self.raw[self.at..]);
                self.at = self.raw.len();
            }
            Framing::Chunked => while !self.is_whole && self.take_chunk()? {},
        }
        Ok(())
    }

    /// Whether there was a whole chunk.
    fn take_chunk(&mut self) -> Result<bool, NotHttp> {
        let rest = &self.raw[self.at..];
        let parsed = httparse::parse_chunk_size(rest).map_err(|_| NotHttp("a chunk has no size".to_owned()))?;
        let httparse::Status::Complete((begin, size)) = parsed else {
            return Ok(false);
        };
        let end = usize::try_from(size).ok().and_then(|size| begin.checked_add(size));
        let end = end.ok_or_else(|| NotHttp("a chunk is larger than memory".to_owned()))?;
        if size == 0 {
            // Trailers are of no interest, and the connection is closed behind them.
            self.is_whole = true;
        } else if let Some(chunk) = rest.get(begin..end)
            && rest.len() >= end + 2
        {
            self.body.extend_from_slice(chunk);
            self.at += end + 2;
            return Ok(true);
        }
        Ok(false)
    }
}

impl Framing {
    fn of(headers: &[(String, Vec<u8>)]) -> Result<Self, NotHttp> {
        let value = |name: &str| headers.iter().find(|(found, _)| found == name).map(|(_, value)| value);
        if let Some(coding) = value("transfer-encoding")
            && coding.eq_ignore_ascii_case(b"chunked")
        {
            return Ok(Self::Chunked);
        }
        match value("content-length") {
            None => Ok(Self::Close),
            Some(length) => {
                let length = str::from_utf8(length).ok().and_then(|length| length.parse().ok());
                length
                    .map(Self::Length)
                    .ok_or_else(|| NotHttp("the content-length is no number".to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer, given byte by byte.
    fn read(method: &str, bytes: &[u8]) -> Option<Answer> {
        let mut reader = Reader::new(method);
        for byte in bytes {
            if reader.take(&[*byte]).unwrap() {
                break;
            }
        }
        reader.finish()
    }

    #[test]
    fn a_body_ends_as_its_head_says() {
        let check = |bytes: &str, body: &str, whole: bool| {
            let answer = read("POST", bytes.as_bytes()).unwrap();
            assert_eq!((&answer.body[..], answer.is_whole), (body.as_bytes(), whole), "{bytes}");
        };
        check("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}more", "{}", true);
        check("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}", "{}", false);
        check("HTTP/1.1 200 OK\r\n\r\n{}", "{}", true);
        check("HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\n", "", true);
        check(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx",
            "x",
            true,
        );
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n";
        check(&format!("{chunked}0\r\n\r\n"), "abcde", true);
        check(chunked, "abcde", false);
    }

    #[test]
    fn a_head_has_no_body_and_half_a_head_is_no_answer() {
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\nX: 1\r\n\r\n";
        let answer = read("HEAD", head).unwrap();
        assert!(answer.is_whole && answer.header("x") == Some("1"));
        assert!(read("GET", &head[..20]).is_none());
        assert!(Reader::new("GET").take(b"SSH-2.0-OpenSSH\r\n").is_err());
    }
}
