//! Receivers on real sockets that do what no receiver should.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

const SEND_BUFFER_BYTES: u32 = 64 << 10;

/// A receiver, and what it has seen.
pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    pub(super) seen: Arc<Seen>,
    server: tokio::task::JoinHandle<()>,
}

/// What a receiver has seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) connections: AtomicUsize,
    /// Requests whose body came whole.
    pub(super) posts: AtomicUsize,
    /// Bytes that the system took for the other side.
    pub(super) written: AtomicUsize,
    heads: std::sync::Mutex<Vec<String>>,
}

impl Seen {
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(super) fn posts(&self) -> usize {
        self.posts.load(Ordering::SeqCst)
    }

    pub(super) fn written(&self) -> usize {
        self.written.load(Ordering::SeqCst)
    }

    pub(super) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// Reads a request whole; false when the other side is gone before.
    pub(super) async fn request(&self, stream: &mut TcpStream) -> bool {
        let Some(head) = head(stream).await else { return false };
        let mut body = vec![0; length(&head)];
        if stream.read_exact(&mut body).await.is_err() {
            return false;
        }
        self.heads.lock().unwrap().push(head);
        self.posts.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// Writes this piece over and over until so many bytes are written, or the other side takes no more.
    pub(super) async fn flood(&self, stream: &mut TcpStream, piece: &[u8], bytes: usize) {
        let mut written = 0;
        while written < bytes {
            match stream.write(&piece[written % piece.len()..]).await {
                Ok(0) | Err(_) => return,
                Ok(count) => {
                    written += count;
                    self.written.fetch_add(count, Ordering::SeqCst);
                }
            }
        }
    }
}

impl Receiver {
    /// Does the same on every connection.
    pub(super) fn start<F>(act: impl Fn(TcpStream, Arc<Seen>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let socket = TcpSocket::new_v4().unwrap();
        // So that what is written is soon what the other side has read. Connections have it from their listener.
        socket.set_send_buffer_size(SEND_BUFFER_BYTES).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1024).unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let shown = Arc::clone(&seen);
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shown.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(act(stream, Arc::clone(&shown)));
            }
        });
        Self { address, seen, server }
    }

    /// Answers every request with these bytes and closes.
    pub(super) fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer: Arc<[u8]> = answer.into().into();
        Self::start(move |mut stream, seen| {
            let answer = Arc::clone(&answer);
            async move {
                if seen.request(&mut stream).await {
                    let _ = stream.write_all(&answer).await;
                    let _ = stream.shutdown().await;
                    let _ = stream.read(&mut [0; 1]).await;
                }
            }
        })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Closes a connection so that the other side sees a reset.
pub(super) fn reset(stream: TcpStream) {
    stream.set_zero_linger().unwrap();
    drop(stream);
}

/// Waits until the other side has closed.
pub(super) async fn until_closed(stream: &mut TcpStream) {
    let mut rest = [0; 1024];
    while matches!(stream.read(&mut rest).await, Ok(count) if count > 0) {}
}

/// Reads up to the empty line.
pub(super) async fn head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

fn length(head: &str) -> usize {
    value(head, "content-length").map_or(0, |length| length.parse().unwrap())
}

/// The only value of a header.
pub(super) fn value<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut found = head.lines().filter_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    });
    let first = found.next();
    assert_eq!(found.next(), None, "{name} twice");
    first
}
