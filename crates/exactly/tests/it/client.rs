//! The caller's half of the contract.

mod around;
mod journal;
mod outcome;
mod scripted;
mod sent;
mod telemetry;

use std::net::{SocketAddr, TcpListener, TcpStream};

use exactly::client::Client;
use tokio::net::TcpSocket;

/// A client whose waits are as short as they can be; no test depends on their length.
fn hasty() -> Client {
    Client::builder().random(|| 0).build().unwrap()
}

/// Where nobody listens, and nobody else can begin to while the test runs: a port that is bound, and kept.
fn refused_address() -> SocketAddr {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = socket.local_addr().unwrap();
    std::mem::forget(socket);
    address
}

/// A listener whose queue is full, so that connections are neither made nor refused.
struct FullBacklog {
    address: SocketAddr,
    _listener: TcpListener,
    _queued: Vec<TcpStream>,
}

fn full_backlog() -> FullBacklog {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The system's queue is as long as it likes; what connects at once still fits.
    let patience = std::time::Duration::from_millis(100);
    let queued = std::iter::from_fn(|| TcpStream::connect_timeout(&address, patience).ok()).collect();
    FullBacklog {
        address,
        _listener: listener,
        _queued: queued,
    }
}
