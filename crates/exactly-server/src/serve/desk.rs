//! Which thread serves a client.
//!
//! All threads accept from one socket, and one that is awake takes everybody who waits there. Whoever opens many connections
//! at once, as proxies and pools do, would have all of them on one thread for as long as they live. So each thread counts
//! its clients, and hands a new one on to the thread that has fewest.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// A thread's clients, beside those of the others.
pub(super) struct Desk {
    number: usize,
    lines: Arc<[Line]>,
    handed: UnboundedReceiver<Handed>,
}

/// How many clients a thread has, and the way to give it one more. Their places bound how many are on that way.
#[derive(Debug)]
struct Line {
    clients: AtomicUsize,
    way: UnboundedSender<Handed>,
}

/// A client on the way to its thread. A stream belongs to the runtime in which it is made, so none is made before.
#[derive(Debug)]
struct Handed {
    stream: std::net::TcpStream,
    address: SocketAddr,
    seat: Seat,
}

/// A client's place, counted with its thread's.
#[derive(Debug)]
pub(super) struct Seat {
    number: usize,
    lines: Arc<[Line]>,
    _place: OwnedSemaphorePermit,
}

impl Desk {
    /// The desk of a thread that serves all clients.
    pub(super) fn alone() -> Self {
        let (way, handed) = mpsc::unbounded_channel();
        Self {
            number: 0,
            lines: Arc::new([Line::new(way)]),
            handed,
        }
    }

    /// Desks for so many threads that share their clients.
    pub(super) fn several(count: usize) -> impl Iterator<Item = Self> {
        let (ways, handed): (Vec<_>, Vec<_>) = (0..count).map(|_| mpsc::unbounded_channel()).unzip();
        let lines: Arc<[Line]> = ways.into_iter().map(Line::new).collect();
        handed.into_iter().enumerate().map(move |(number, handed)| Self {
            number,
            lines: Arc::clone(&lines),
            handed,
        })
    }

    /// Seats a client that came in here. Returns it, unless another thread is to serve it.
    pub(super) fn seat(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        place: OwnedSemaphorePermit,
    ) -> io::Result<Option<(TcpStream, SocketAddr, Seat)>> {
        let seat = Seat::take(self.least(), &self.lines, place);
        if seat.number == self.number {
            return Ok(Some((stream, address, seat)));
        }
        let way = &self.lines[seat.number].way;
        let stream = stream.into_std()?;
        // A thread that takes nobody any more was told to stop, and so were all.
        drop(way.send(Handed { stream, address, seat }));
        Ok(None)
    }

    /// The next client that another thread let in.
    pub(super) async fn handed(&mut self) -> io::Result<(TcpStream, SocketAddr, Seat)> {
        let handed = self
            .handed
            .recv()
            .await
            .expect("the way to this thread is among its lines");
        Ok((TcpStream::from_std(handed.stream)?, handed.address, handed.seat))
    }

    /// Who has fewest clients: this thread, if none has fewer.
    fn least(&self) -> usize {
        let clients = |number: usize| self.lines[number].clients.load(Ordering::Relaxed);
        let others = 0..self.lines.len();
        others.fold(
            self.number,
            |least, other| {
                if clients(other) < clients(least) { other } else { least }
            },
        )
    }
}

impl Line {
    fn new(way: UnboundedSender<Handed>) -> Self {
        let clients = AtomicUsize::new(0);
        Self { clients, way }
    }
}

impl Seat {
    fn take(number: usize, lines: &Arc<[Line]>, place: OwnedSemaphorePermit) -> Self {
        lines[number].clients.fetch_add(1, Ordering::Relaxed);
        Self {
            number,
            lines: Arc::clone(lines),
            _place: place,
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.lines[self.number].clients.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use http_body_util::Full;
    use hyper::Response;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::runtime;
    use tokio::sync::Semaphore;
    use tokio::time::timeout;

    use super::super::accept::Acceptor;
    use super::super::shutdown::Shutdown;
    use super::*;
    use crate::config::Config;

    /// Takes `count` clients through `desk`. Returns its own.
    async fn let_in(desk: &Desk, count: usize) -> Vec<(TcpStream, SocketAddr, Seat)> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let places = Arc::new(Semaphore::new(count));
        let mut kept = Vec::new();
        for _ in 0..count {
            let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, address) = listener.accept().await.unwrap();
            let place = Arc::clone(&places).acquire_owned().await.unwrap();
            kept.extend(desk.seat(stream, address, place).unwrap());
        }
        kept
    }

    async fn handed(desk: &mut Desk) -> Vec<(TcpStream, SocketAddr, Seat)> {
        let mut clients = Vec::new();
        while let Ok(client) = timeout(Duration::from_millis(50), desk.handed()).await {
            clients.push(client.unwrap());
        }
        clients
    }

    #[tokio::test]
    async fn a_client_goes_to_whoever_has_fewest() {
        let mut desks: Vec<_> = Desk::several(3).collect();
        let kept = let_in(&desks[0], 30).await;
        let (mut second, third) = (handed(&mut desks[1]).await, handed(&mut desks[2]).await);
        assert_eq!([kept.len(), second.len(), third.len()], [10, 10, 10]);
        second.truncate(6);
        let more = let_in(&desks[0], 4).await;
        assert_eq!([more.len(), handed(&mut desks[1]).await.len()], [0, 4]);
    }

    #[tokio::test]
    async fn who_is_on_the_way_to_a_thread_that_drains_is_let_go_at_once() {
        let mut desks = Desk::several(2);
        let (here, draining) = (desks.next().unwrap(), desks.next().unwrap());
        let (config, shutdown, asked) = (Config::default(), Shutdown::never(), Arc::new(Semaphore::new(0)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut waiting = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let acceptor = Acceptor::new(listener, Acceptor::places(&config), draining, &config);
        let (heard, stop) = (Arc::clone(&asked), shutdown.clone());
        let never = move |_| {
            heard.add_permits(1);
            std::future::pending::<Result<Response<Full<_>>, _>>()
        };
        let serving = tokio::spawn(async move { acceptor.serve(never, &stop).await });
        waiting
            .write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")
            .await
            .unwrap();
        asked.acquire().await.unwrap().forget();
        let kept = let_in(&here, 2).await;
        shutdown.ask();
        tokio::time::sleep(Duration::from_millis(50)).await;

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut late = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, address) = listener.accept().await.unwrap();
        let place = Acceptor::places(&config).acquire_owned().await.unwrap();
        assert!(here.seat(stream, address, place).unwrap().is_none());
        let gone = timeout(Duration::from_secs(5), late.read(&mut [0; 1])).await;
        assert_eq!(gone.unwrap().unwrap(), 0);
        assert_eq!((kept.len(), serving.is_finished()), (2, false));
    }

    #[tokio::test]
    async fn threads_that_accept_from_one_socket_share_those_who_come_at_once() {
        const CLIENTS: usize = 40;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let config = Config::default();
        let places = Acceptor::places(&config);
        for desk in Desk::several(2) {
            let number = desk.number.to_string();
            let (listener, places, config) = (listener.try_clone().unwrap(), Arc::clone(&places), config.clone());
            thread::spawn(move || {
                let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let listener = TcpListener::from_std(listener).unwrap();
                    let answer = move |_| std::future::ready(Ok(Response::new(Full::from(number.clone()))));
                    let acceptor = Acceptor::new(listener, places, desk, &config);
                    acceptor.serve(answer, &Shutdown::never()).await;
                });
            });
        }
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(TcpStream::connect(address).await.unwrap());
        }
        let mut by_first = 0;
        for client in &mut clients {
            client.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"\r\n\r\n0") && !answer.ends_with(b"\r\n\r\n1") {
                assert_ne!(client.read_buf(&mut answer).await.unwrap(), 0);
            }
            by_first += usize::from(answer.ends_with(b"0"));
        }
        assert_eq!(by_first, CLIENTS / 2);
    }
}
