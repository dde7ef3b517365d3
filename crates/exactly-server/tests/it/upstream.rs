//! A service behind the gateway that counts what it does, and misbehaves at any byte.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::wire::{Message, Wire};

/// Ends with the test that started it.
#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    ledger: Arc<Ledger>,
}

/// What was asked for and done.
#[derive(Default)]
struct Ledger {
    connections: AtomicUsize,
    open: AtomicUsize,
    requests: Mutex<Vec<Message>>,
}

impl Upstream {
    /// Hands every connection to `serve`, which notes the requests that it carries out.
    pub(crate) async fn scripted<F>(serve: impl Fn(Wire, Upstream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let upstream = Self {
            address: listener.local_addr().expect("it is bound"),
            ledger: Arc::default(),
        };
        let own = upstream.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                own.ledger.connections.fetch_add(1, Ordering::SeqCst);
                own.ledger.open.fetch_add(1, Ordering::SeqCst);
                let (served, own) = (serve(Wire::new(stream), own.clone()), own.clone());
                tokio::spawn(async move {
                    served.await;
                    own.ledger.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        upstream
    }

    /// Carries out every request and answers it with what `answer` makes of it.
    pub(crate) async fn answering<F>(answer: impl Fn(Message) -> F + Clone + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Vec<u8>> + Send,
    {
        Self::scripted(move |mut wire, upstream| {
            let answer = answer.clone();
            async move {
                while let Some(request) = wire.request().await {
                    upstream.note(&request);
                    if wire.send(answer(request).await).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await
    }

    /// Answers with the number of the effect.
    pub(crate) async fn counting() -> Self {
        let count = Arc::new(AtomicUsize::new(0));
        Self::answering(move |_| {
            let number = count.fetch_add(1, Ordering::SeqCst) + 1;
            async move { reply(201, &[("x-number", &number.to_string())], &format!("effect {number}")) }
        })
        .await
    }

    /// Answers once `gate` is open.
    pub(crate) async fn held(gate: &Gate) -> Self {
        let gate = gate.clone();
        Self::answering(move |_| {
            let gate = gate.clone();
            async move {
                gate.passed().await;
                reply(201, &[("x-a", "b")], "done")
            }
        })
        .await
    }

    pub(crate) fn note(&self, request: &Message) {
        self.ledger
            .requests
            .lock()
            .expect("nobody panicked")
            .push(request.clone());
    }

    pub(crate) fn requests(&self) -> Vec<Message> {
        self.ledger.requests.lock().expect("nobody panicked").clone()
    }

    /// The only request.
    pub(crate) fn request(&self) -> Message {
        let requests = self.requests();
        let [request] = &requests[..] else {
            panic!("not one request: {requests:#?}");
        };
        request.clone()
    }

    /// How often something was done.
    pub(crate) fn effects(&self) -> usize {
        self.effects_of(|_| true)
    }

    pub(crate) fn effects_of(&self, which: impl Fn(&Message) -> bool) -> usize {
        let requests = self.requests();
        let done = requests.iter().filter(|request| request.method() != "GET");
        done.filter(|request| which(request)).count()
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        self.ledger.open.load(Ordering::SeqCst)
    }

    /// How many connections there ever were.
    pub(crate) fn connections(&self) -> usize {
        self.ledger.connections.load(Ordering::SeqCst)
    }
}

/// Holds an upstream back until the test lets it go.
#[derive(Clone, Default)]
pub(crate) struct Gate(CancellationToken);

impl Gate {
    pub(crate) fn open(&self) {
        self.0.cancel();
    }

    pub(crate) async fn passed(&self) {
        self.0.cancelled().await;
    }
}

/// An answer as bytes.
pub(crate) fn reply(status: u16, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} Said\r\n");
    for (name, value) in headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    let _ = write!(text, "content-length: {}\r\n\r\n{body}", body.len());
    text.into_bytes()
}

/// An answer in chunks, as bytes.
pub(crate) fn chunked(status: u16, chunks: &[&str]) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} Said\r\ntransfer-encoding: chunked\r\n\r\n");
    for chunk in chunks {
        let _ = write!(text, "{:x}\r\n{chunk}\r\n", chunk.len());
    }
    text.push_str("0\r\n\r\n");
    text.into_bytes()
}
