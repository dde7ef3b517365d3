//! A server on a real socket that does what a script says, byte by byte.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// What to do with one connection.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Read the whole request, act on it, answer with these bytes, and close.
    Answer(String),
    /// Read so many bytes of the request, and close.
    CutRequest(usize),
    /// Read the whole request, act on it, send so many bytes of the answer, and close.
    CutAnswer(String, usize),
    /// Read the whole request, act on it, send all but the last byte of the answer, and go on doing nothing.
    Drip(String),
    /// Read the whole request, act on it, and say nothing.
    Silence,
}

/// What arrived whole.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Arrived {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }
}

/// A scripted server; connections beyond the script are refused by closing them.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    arrived: Arc<Mutex<Vec<Arrived>>>,
    script: mpsc::UnboundedSender<Act>,
    server: tokio::task::JoinHandle<()>,
}

impl Scripted {
    pub(crate) async fn start(acts: impl IntoIterator<Item = Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let (script, mut acts_left) = mpsc::unbounded_channel();
        for act in acts {
            script.send(act).unwrap();
        }
        let seen = Arc::clone(&arrived);
        let server = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(act) = acts_left.try_recv() else { continue };
                tokio::spawn(perform(stream, act, Arc::clone(&seen)));
            }
        });
        Self {
            address,
            arrived,
            script,
            server,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn then(&self, act: Act) {
        self.script.send(act).unwrap();
    }

    /// The requests that arrived whole, each of which had its effect.
    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        self.arrived.lock().unwrap().clone()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn perform(mut stream: TcpStream, act: Act, arrived: Arc<Mutex<Vec<Arrived>>>) {
    let wanted = match act {
        Act::CutRequest(bytes) => bytes,
        _ => usize::MAX,
    };
    let Some(request) = read(&mut stream, wanted).await else {
        return;
    };
    arrived.lock().unwrap().push(request);
    match act {
        Act::Answer(answer) => {
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
            let _ = stream.read(&mut [0; 1]).await;
        }
        Act::CutAnswer(answer, bytes) => {
            let _ = stream.write_all(&answer.as_bytes()[..bytes]).await;
            let _ = stream.flush().await;
        }
        Act::Drip(answer) => {
            let _ = stream.write_all(&answer.as_bytes()[..answer.len() - 1]).await;
            let _ = stream.read(&mut [0; 1]).await;
        }
        Act::Silence => {
            let _ = stream.read(&mut [0; 1]).await;
        }
        Act::CutRequest(_) => unreachable!("it was not read whole"),
    }
}

/// Reads a request, or as much of it as is wanted: then there is none.
async fn read(stream: &mut TcpStream, wanted: usize) -> Option<Arrived> {
    let mut bytes = Vec::new();
    loop {
        if bytes.len() >= wanted {
            return None;
        }
        if let Some(request) = whole(&bytes) {
            // Asked to cut behind the end: the request is whole, and nobody answers.
            return (wanted == usize::MAX).then_some(request);
        }
        let mut byte = [0; 1];
        if stream.read(&mut byte).await.ok()? == 0 {
            return None;
        }
        bytes.push(byte[0]);
    }
}

fn whole(bytes: &[u8]) -> Option<Arrived> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let request = Arrived {
        head,
        body: bytes[end..].to_vec(),
    };
    let length = request
        .header("content-length")
        .map_or(0, |length| length.parse().unwrap());
    (request.body.len() == length).then_some(request)
}

/// An answer with a length, as most are.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n{body}",
        body.len()
    )
}
