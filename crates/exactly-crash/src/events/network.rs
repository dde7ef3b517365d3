//! What lies between dispatchers and consumers: it loses, cuts, delays and doubles what passes.

mod wire;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use self::wire::Head;
use super::check::Name;
use super::dispatcher::{DEADLINE, sender};
use crate::failure::{Failure, Result, failed};

/// How many addresses it is reached at. Each dispatcher dials one of them.
pub(super) const SENDERS: u8 = 120;

const PORTS_TRIED: u32 = 20;

/// How long a consumer may take that was frozen meanwhile.
const ANSWER_MAX: Duration = Duration::from_secs(12);

/// The network of a round. Dropping it ends all that is under way.
#[derive(Debug)]
pub(super) struct Network {
    /// Where all its addresses listen.
    pub(super) port: u16,
    wires: Arc<Wires>,
    _listening: JoinSet<()>,
}

#[derive(Debug)]
struct Wires {
    consumers: Vec<u16>,
    /// Nothing is harmed any more.
    calm: AtomicBool,
    /// Nothing comes through for a while.
    cut: AtomicBool,
    rng: Mutex<Rng>,
    traffic: Mutex<Traffic>,
}

/// What passed.
#[derive(Clone, Debug, Default)]
pub(super) struct Traffic {
    /// Requests whose head was read, by delivery and by the address that their sender dialled.
    pub(super) posts: BTreeMap<(Name, IpAddr), usize>,
    /// How many of them came to harm.
    pub(super) harmed: usize,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    None,
    /// It does not arrive.
    Lost,
    /// Half of it does.
    Half,
    /// It arrives later, perhaps when its sender has given up and sent it again.
    Late(Duration),
    /// It arrives twice, at once.
    Twice,
    /// Its answer does not arrive.
    AnswerLost,
    /// Half of the answer does.
    AnswerHalf,
    /// The answer comes later, perhaps too late.
    AnswerLate(Duration),
}

impl Network {
    /// To consumers at these ports.
    pub(super) async fn start(consumers: Vec<u16>, mut rng: Rng) -> Result<Self> {
        let (port, listeners) = listeners().await?;
        let mut weather = rng.fork();
        let wires = Arc::new(Wires {
            consumers,
            calm: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            rng: Mutex::new(rng),
            traffic: Mutex::default(),
        });
        let mut listening = JoinSet::new();
        for (listener, dialled) in listeners {
            listening.spawn(listen(Arc::clone(&wires), listener, dialled));
        }
        listening.spawn({
            let wires = Arc::clone(&wires);
            async move {
                loop {
                    sleep(Duration::from_millis(weather.u64(500..4000))).await;
                    wires.cut.store(true, Ordering::SeqCst);
                    sleep(Duration::from_millis(weather.u64(100..1500))).await;
                    wires.cut.store(false, Ordering::SeqCst);
                }
            }
        });
        Ok(Self {
            port,
            wires,
            _listening: listening,
        })
    }

    /// Harms nothing from here on.
    pub(super) fn calm_down(&self) {
        self.wires.calm.store(true, Ordering::SeqCst);
    }

    pub(super) fn traffic(&self) -> Traffic {
        self.wires.traffic().clone()
    }
}

impl Wires {
    fn harm(&self) -> Harm {
        if self.calm.load(Ordering::SeqCst) {
            return Harm::None;
        }
        let mut rng = self.rng();
        let deadline = u64::try_from(DEADLINE.as_millis()).unwrap_or(u64::MAX);
        let mut ms = |most| Duration::from_millis(rng.u64(1..most));
        let (shortly, long) = (ms(deadline / 2), ms(deadline * 4));
        match rng.u32(..100) {
            0..5 => Harm::Lost,
            5..9 => Harm::Half,
            9..13 => Harm::Late(long),
            13..17 => Harm::Late(shortly),
            17..21 => Harm::Twice,
            21..27 => Harm::AnswerLost,
            27..31 => Harm::AnswerHalf,
            31..34 => Harm::AnswerLate(long),
            34..38 => Harm::AnswerLate(shortly),
            _ => Harm::None,
        }
    }

    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst) && !self.calm.load(Ordering::SeqCst)
    }

    fn consumer(&self) -> SocketAddr {
        let port = self.consumers[self.rng().usize(..self.consumers.len())];
        (Ipv4Addr::LOCALHOST, port).into()
    }

    fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rng(&self) -> MutexGuard<'_, Rng> {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries requests of one connection until either end, or harm, closes it.
    async fn carry(&self, stream: TcpStream, dialled: IpAddr) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let Some(head) = Head::read(&mut stream).await? else {
                return Ok(());
            };
            // Noted now: whatever becomes of it, somebody has sent it.
            let delivery = head.delivery()?;
            *self.traffic().posts.entry((delivery, dialled)).or_default() += 1;
            let request = head.with_body(&mut stream).await?;
            let harm = if self.is_cut() { Harm::Lost } else { self.harm() };
            if harm != Harm::None {
                self.traffic().harmed += 1;
            }
            match harm {
                Harm::Lost => return Ok(()),
                Harm::Half => return self.forward_half(&request).await,
                Harm::Late(after) => sleep(after).await,
                _ => {}
            }
            let answer = if harm == Harm::Twice {
                let (one, other) = tokio::join!(self.forward(&request), self.forward(&request));
                one.or(other)?
            } else {
                self.forward(&request).await?
            };
            match harm {
                Harm::AnswerLost => return Ok(()),
                Harm::AnswerHalf => return stream.write_all(&answer[..answer.len() / 2]).await,
                Harm::AnswerLate(after) => sleep(after).await,
                _ if self.is_cut() => return Ok(()),
                _ => {}
            }
            stream.write_all(&answer).await?;
        }
    }

    /// Sends a request to one of the consumers, and returns the answer.
    async fn forward(&self, request: &[u8]) -> std::io::Result<Vec<u8>> {
        let answer = async {
            let mut consumer = BufReader::new(TcpStream::connect(self.consumer()).await?);
            consumer.write_all(request).await?;
            let head = Head::read(&mut consumer).await?;
            let head = head.ok_or(std::io::ErrorKind::UnexpectedEof)?;
            head.with_body(&mut consumer).await
        };
        timeout(ANSWER_MAX, answer).await?
    }

    async fn forward_half(&self, request: &[u8]) -> std::io::Result<()> {
        let mut consumer = TcpStream::connect(self.consumer()).await?;
        // In the head or in the body.
        let some = self.rng().usize(1..request.len());
        consumer.write_all(&request[..some]).await
    }
}

/// All addresses at one port.
async fn listeners() -> Result<(u16, Vec<(TcpListener, IpAddr)>)> {
    'tries: for _ in 0..PORTS_TRIED {
        let mut listeners = Vec::new();
        let mut port = 0;
        for number in 0..SENDERS {
            let dialled = sender(number);
            let Ok(listener) = TcpListener::bind((dialled, port)).await else {
                continue 'tries;
            };
            port = listener.local_addr().map_err(failed("read address"))?.port();
            listeners.push((listener, dialled));
        }
        return Ok((port, listeners));
    }
    Err(Failure::new(format!(
        "find a port that is free at {SENDERS} addresses: none in {PORTS_TRIED} tries"
    )))
}

async fn listen(wires: Arc<Wires>, listener: TcpListener, dialled: IpAddr) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                let wires = Arc::clone(&wires);
                connections.spawn(async move {
                    // Either end may die at any moment, which is what this is about.
                    let _ = wires.carry(stream, dialled).await;
                });
            },
            Some(_) = connections.join_next() => {}
        }
    }
}
