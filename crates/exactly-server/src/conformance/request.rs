//! A request, byte by byte as it goes out.
//!
//! Not a request of an HTTP library: those refuse to send what a server has to refuse, such as a key with a control
//! character in it.

use bytes::Bytes;

pub(super) const KEY: &str = "Idempotency-Key";

/// What a rule sends.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// The path, and the query that the user wrote behind it.
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<Line>,
    pub(super) body: Bytes,
    /// What the service counts it under.
    pub(super) tag: String,
}

/// One header line.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) value: Vec<u8>,
    /// Somebody's credentials, which no report shows.
    pub(super) is_secret: bool,
}

impl Line {
    pub(super) fn new(name: &str, value: impl AsRef<[u8]>) -> Self {
        Self {
            name: name.to_owned(),
            value: value.as_ref().to_vec(),
            is_secret: false,
        }
    }
}

impl Request {
    pub(super) fn new(method: &str, path: &str, tag: &str) -> Self {
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            query: Vec::new(),
            headers: Vec::new(),
            body: Bytes::new(),
            tag: tag.to_owned(),
        }
    }

    pub(super) fn method(mut self, method: &str) -> Self {
        method.clone_into(&mut self.method);
        self
    }

    pub(super) fn path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// One more parameter. Its value is sent as it is, so it has to be one that a query can carry.
    pub(super) fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push((name.to_owned(), value.to_owned()));
        self
    }

    /// One more header line.
    pub(super) fn line(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push(Line::new(name, value));
        self
    }

    /// The only line of this header.
    pub(super) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.retain(|line| !line.name.eq_ignore_ascii_case(name));
        self.line(name, value)
    }

    pub(super) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|line| !line.name.eq_ignore_ascii_case(name));
        self
    }

    /// The only key.
    pub(super) fn key(self, key: impl AsRef<[u8]>) -> Self {
        self.header(KEY, key)
    }

    pub(super) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// The same with one more member in front of its JSON object; none if the body is no object.
    pub(super) fn member(&self, name: &str, value: &str) -> Option<Self> {
        let text = str::from_utf8(&self.body).ok()?.trim();
        let rest = text.strip_prefix('{')?;
        let comma = if rest.trim() == "}" { "" } else { "," };
        let body = format!("{{\"{name}\":{value}{comma}{rest}");
        Some(self.clone().body(body))
    }

    /// The credentials of another caller.
    pub(super) fn secrets(mut self, secrets: &[Line]) -> Self {
        self.headers.retain(|line| !line.is_secret);
        self.headers.extend_from_slice(secrets);
        self
    }

    pub(super) fn lines(&self) -> &[Line] {
        &self.headers
    }

    /// The path and the whole query.
    pub(super) fn target(&self) -> String {
        let mut target = self.path.clone();
        let mut joint = if target.contains('?') { '&' } else { '?' };
        for (name, value) in &self.query {
            target.push(joint);
            target.push_str(name);
            target.push('=');
            target.push_str(value);
            joint = '&';
        }
        target
    }

    /// The head as it is sent to `host`, unless a line of its own names another.
    pub(super) fn head(&self, host: &str) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target()).into_bytes();
        let mut put = |name: &str, value: &[u8]| {
            head.extend_from_slice(name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
        };
        if !self.headers.iter().any(|line| line.name.eq_ignore_ascii_case("Host")) {
            put("Host", host.as_bytes());
        }
        for line in &self.headers {
            put(&line.name, &line.value);
        }
        if !self.body.is_empty() || !["GET", "HEAD", "OPTIONS"].contains(&self.method.as_str()) {
            put("Content-Length", self.body.len().to_string().as_bytes());
        }
        put("Connection", b"close");
        head.extend_from_slice(b"\r\n");
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_out_as_it_was_put_together() {
        let request = Request::new("POST", "/pay?x=1", "t")
            .query("tag", "t")
            .key("a\tb")
            .line(KEY, b"\x01")
            .body("{}");
        let head = request.head("shop:80");
        let expected = b"POST /pay?x=1&tag=t HTTP/1.1\r\nHost: shop:80\r\nIdempotency-Key: a\tb\r\n\
                         Idempotency-Key: \x01\r\nContent-Length: 2\r\nConnection: close\r\n\r\n";
        assert_eq!(head, expected);
        let other = request.key("c").without("x").header("Host", "other").head("shop:80");
        let other = String::from_utf8(other).unwrap();
        assert_eq!(other.matches("Idempotency-Key").count(), 1);
        assert!(
            other.contains("Host: other\r\n") && !other.contains("shop:80"),
            "{other}"
        );
    }
}
