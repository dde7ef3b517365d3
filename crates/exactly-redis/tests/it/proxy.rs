//! A wire that can be cut.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};

/// What a step is sent as.
const STEP: &[u8] = b"EVALSHA";

/// Stands between a store and a server.
pub(crate) struct Proxy {
    address: SocketAddr,
    wire: Arc<Wire>,
}

#[derive(Default)]
struct Wire {
    accepted: AtomicU64,
    /// Connections up to this one pass nothing on any more, and stay open.
    silent_up_to: AtomicU64,
    cut_next_reply: AtomicBool,
}

impl Proxy {
    pub(crate) async fn to(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let wire = Arc::new(Wire::default());
        tokio::spawn(accept(listener, socket, Arc::clone(&wire)));
        Self { address, wire }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// From here on nothing comes through on the connections that there are, as if a firewall had forgotten them.
    pub(crate) fn silence(&self) {
        self.wire
            .silent_up_to
            .store(self.wire.accepted.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// The server gets the next step, and its reply is lost with the connection. What is sent between steps, such as a
    /// listener's ping, is answered.
    pub(crate) fn cut_next_reply(&self) {
        self.wire.cut_next_reply.store(true, Ordering::SeqCst);
    }

    /// Whether a reply was lost as asked for.
    pub(crate) fn was_cut(&self) -> bool {
        !self.wire.cut_next_reply.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, socket: PathBuf, wire: Arc<Wire>) {
    while let Ok((client, _)) = listener.accept().await {
        let number = wire.accepted.fetch_add(1, Ordering::SeqCst) + 1;
        if let Ok(server) = UnixStream::connect(&socket).await {
            tokio::spawn(pass(client, server, number, Arc::clone(&wire)));
        }
    }
}

async fn pass(mut client: TcpStream, mut server: UnixStream, number: u64, wire: Arc<Wire>) {
    let (mut requests, mut replies) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let mut in_step = false;
    loop {
        let (bytes, is_reply) = tokio::select! {
            read = client.read(&mut requests) => (read, false),
            read = server.read(&mut replies) => (read, true),
        };
        let Ok(len @ 1..) = bytes else { return };
        if number <= wire.silent_up_to.load(Ordering::SeqCst) {
            continue;
        }
        let written = if is_reply {
            if in_step && wire.cut_next_reply.swap(false, Ordering::SeqCst) {
                return;
            }
            client.write_all(&replies[..len]).await
        } else {
            in_step = requests[..len].windows(STEP.len()).any(|word| word == STEP);
            server.write_all(&requests[..len]).await
        };
        if written.is_err() {
            return;
        }
    }
}
