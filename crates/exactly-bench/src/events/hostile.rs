//! Whether a dispatcher stays as small as it was while every receiver is out to make it larger.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exactly_sql::PgQueue;
use sqlx::postgres::PgPoolOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::deliveries::{CONNECTIONS, add_endpoints, enduring, publish};
use crate::Result;
use crate::database::Database;
use crate::jobs::turn::Worker;
use crate::machine::Pid;
use crate::report::{Finding, Wanted};
use crate::versus::Ratio;

const DATABASE: &str = "bench_hostile";
const NAME: &str = "hostile";

const DURATION: Duration = Duration::from_mins(2);
const DURATION_QUICK: Duration = Duration::from_secs(20);
/// An event for each of them so often. Each of those that hang holds sixteen places for a deadline, and gets two attempts.
const EVENT_EVERY: Duration = Duration::from_millis(50);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// What has to come of each event at least, so that something was measured.
const EXCHANGES_PER_EVENT_MIN: u64 = 3;

/// How much larger the last tenth of the time may be than the second: the first is for caches and pools to fill.
const GROWTH_MAX: f64 = 1.10;

const DRIP_EVERY: Duration = Duration::from_millis(20);
const FLOOD: usize = 64 << 10;
/// The largest head of a request of ours.
const HEAD_MAX: usize = 16 << 10;

/// What a receiver does to who calls.
#[derive(Clone, Copy, Debug)]
enum Trick {
    DripsItsHead,
    DripsItsBody,
    EndlessHead,
    EndlessBody,
    PackedBody,
    NeverAgain,
}

impl Trick {
    const ALL: [Self; 6] = [
        Self::DripsItsHead,
        Self::DripsItsBody,
        Self::EndlessHead,
        Self::EndlessBody,
        Self::PackedBody,
        Self::NeverAgain,
    ];

    /// The one of the place that a request names.
    fn of(head: &str) -> Option<Self> {
        let path = head.split(' ').nth(1)?;
        let (_, place) = path.rsplit_once('-')?;
        Self::ALL.get(place.parse::<usize>().ok()?).copied()
    }

    async fn play(self, stream: &mut TcpStream) -> std::io::Result<()> {
        match self {
            Self::DripsItsHead => drip(stream, b"HTTP/1.1 500 No\r\nx-drip: ").await,
            Self::DripsItsBody => drip(stream, b"HTTP/1.1 500 No\r\ncontent-length: 1000000\r\n\r\n").await,
            Self::EndlessHead => {
                let line = format!("x-more: {}\r\n", "x".repeat(1000)).repeat(FLOOD / 1000);
                flood(stream, b"HTTP/1.1 500 No\r\n", line.as_bytes()).await
            }
            Self::EndlessBody => flood(stream, b"HTTP/1.1 500 No\r\n\r\n", &vec![b'x'; FLOOD]).await,
            Self::PackedBody => {
                let packed = packed();
                let length = packed.len();
                let head = format!("HTTP/1.1 500 No\r\ncontent-encoding: gzip\r\ncontent-length: {length}\r\n\r\n");
                stream.write_all(head.as_bytes()).await?;
                stream.write_all(&packed).await
            }
            Self::NeverAgain => {
                let head = "HTTP/1.1 503 No\r\nretry-after: 99999999999999999999\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(head.as_bytes()).await
            }
        }
    }
}

/// A byte now and then, until the other side has had enough.
async fn drip(stream: &mut TcpStream, begins: &[u8]) -> std::io::Result<()> {
    stream.write_all(begins).await?;
    let mut ticks = interval(DRIP_EVERY);
    loop {
        ticks.tick().await;
        stream.write_all(b"x").await?;
    }
}

/// As much as the other side takes.
async fn flood(stream: &mut TcpStream, begins: &[u8], piece: &[u8]) -> std::io::Result<()> {
    stream.write_all(begins).await?;
    loop {
        stream.write_all(piece).await?;
    }
}

/// Ten megabytes of zeros in sixteen kilobytes, as `gzip` packs 64 KiB of them, again and again.
fn packed() -> Vec<u8> {
    const BEGINS: [u8; 24] = [
        0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xed, 0xc1, 0x01, 0x01, 0x00, 0x00, 0x00, 0x80,
        0x90, 0xfe, 0xaf, 0xee, 0x08, 0x0a,
    ];
    const ENDS: [u8; 9] = [0x6a, 0xeb, 0x8e, 0x97, 0xd7, 0x00, 0x00, 0x01, 0x00];
    [&BEGINS[..], &[0; 63], &ENDS].concat().repeat(160)
}

/// Plays a trick on whoever posts to its place, and counts them.
#[derive(Debug)]
struct Hostile {
    address: SocketAddr,
    posts: Arc<AtomicU64>,
    serving: AbortHandle,
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Hostile {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let posts: Arc<AtomicU64> = Arc::default();
        let counted = Arc::clone(&posts);
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let posts = Arc::clone(&counted);
                tokio::spawn(async move {
                    // Several on one connection, where the trick leaves it whole. It ends with the other side's patience.
                    while let Some(trick) = request(&mut stream).await {
                        posts.fetch_add(1, Ordering::Relaxed);
                        if trick.play(&mut stream).await.is_err() {
                            break;
                        }
                    }
                });
            }
        });
        Ok(Self {
            address,
            posts,
            serving: serving.abort_handle(),
        })
    }

    fn posts(&self) -> u64 {
        self.posts.load(Ordering::Relaxed)
    }
}

/// Reads a request to its end, and tells whom it is for.
async fn request(stream: &mut TcpStream) -> Option<Trick> {
    let mut read = Vec::new();
    let head_end = loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if read.len() > HEAD_MAX || stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    };
    let head = std::str::from_utf8(&read[..head_end]).ok()?.to_lowercase();
    let (_, length) = head.split_once("content-length: ")?;
    let length: usize = length.split("\r\n").next()?.parse().ok()?;
    while read.len() < head_end + length {
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    }
    Trick::of(&head)
}

pub(super) async fn measure(server: &Database, quick: bool) -> Result<Finding> {
    let duration = if quick { DURATION_QUICK } else { DURATION };
    let database = server.fresh_database(DATABASE).await?;
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS);
    let queue = Arc::new(PgQueue::builder(pool.connect(&database.url).await?).start().await?);
    let hostile = Hostile::start().await?;
    add_endpoints(&queue, hostile.address, NAME, u64::try_from(Trick::ALL.len())?).await?;
    let mut worker = Worker::start(&enduring(), &database.url, 0).await?;
    // It has nothing to say.
    let _ = worker.begin().await?;
    let (sizes, exchanges) = tokio::select! {
        watched = watch(worker.pid, duration, &hostile) => (watched?, hostile.posts()),
        published = publish_forever(&queue) => return Err(published),
    };
    worker.stop().await?;
    drop((queue, database));
    server.drop_database(DATABASE).await?;
    let events = u64::try_from(duration.as_millis() / EVENT_EVERY.as_millis())?;
    let least = EXCHANGES_PER_EVENT_MIN * events;
    if exchanges < least {
        return Err(format!("there were {exchanges} exchanges, and {least} are the least that say anything").into());
    }
    Ok(finding(&sizes, duration, exchanges))
}

async fn publish_forever(queue: &Arc<PgQueue>) -> crate::Error {
    loop {
        if let Err(error) = publish(queue, NAME, 1).await {
            return error;
        }
        sleep(EVENT_EVERY).await;
    }
}

/// The resident size of the dispatcher, again and again.
async fn watch(pid: Pid, duration: Duration, hostile: &Hostile) -> Result<Vec<u64>> {
    let mut sizes = Vec::new();
    let started = Instant::now();
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while started.elapsed() < duration {
        ticks.tick().await;
        let size = pid.resident()?;
        sizes.push(size);
        if sizes.len().is_multiple_of(40) {
            let (seconds, posts) = (started.elapsed().as_secs(), hostile.posts());
            eprintln!("  {seconds:>4} s  {:.1} MiB after {posts} exchanges", mib(size));
        }
    }
    Ok(sizes)
}

fn finding(sizes: &[u64], duration: Duration, exchanges: u64) -> Finding {
    let tenth = (sizes.len() / 10).max(1);
    let median = |part: &[u64]| Ratio::of(part.iter().map(|size| mib(*size))).median;
    let early = median(&sizes[tenth..(2 * tenth).min(sizes.len())]);
    let late = median(&sizes[sizes.len() - tenth..]);
    let largest = sizes.iter().copied().max().map_or(0.0, mib);
    Finding {
        scenario: NAME,
        what: format!(
            "resident size of a dispatcher over {} s of receivers that drip, never end, send packed bodies and ask for ages",
            duration.as_secs()
        ),
        against: "its second tenth".to_owned(),
        theirs: format!("{early:.1} MiB"),
        ours: format!("{late:.1} MiB"),
        ratio: Ratio::once(late / early),
        cpu_ratio: None,
        wanted: Wanted::AtMost(GROWTH_MAX),
        foreign_max: 0.0,
        notes: vec![format!("{exchanges} exchanges, at most {largest:.1} MiB")],
        courses: Vec::new(),
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0 / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each trick says in a while, to who posts to its place.
    async fn said(address: SocketAddr, place: usize) -> Vec<u8> {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("POST /hook/hostile-{place} HTTP/1.1\r\nhost: x\r\nContent-Length: 2\r\n\r\nhi");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut said = Vec::new();
        let reading = async { while said.len() < 4 * FLOOD && stream.read_buf(&mut said).await.unwrap() > 0 {} };
        let _ = tokio::time::timeout(Duration::from_millis(500), reading).await;
        said
    }

    #[tokio::test]
    async fn each_place_plays_its_trick() {
        let hostile = Hostile::start().await.unwrap();
        let mut said_by = Vec::new();
        for place in 0..Trick::ALL.len() {
            said_by.push(said(hostile.address, place).await);
        }
        let text = |place: usize| String::from_utf8_lossy(&said_by[place]).into_owned();
        assert!(text(0).contains("x-drip: xx") && !text(0).contains("\r\n\r\n"));
        assert!(text(1).contains("\r\n\r\nxx") && said_by[1].len() < 200);
        assert!(!text(2).contains("\r\n\r\n") && said_by[2].len() >= 4 * FLOOD);
        assert!(text(3).contains("\r\n\r\nxx") && said_by[3].len() >= 4 * FLOOD);
        assert!(text(4).contains("content-encoding: gzip") && said_by[4].ends_with(&packed()));
        assert!(text(5).contains("retry-after: 99999999999999999999"));
        assert_eq!(hostile.posts(), 6);
    }

    #[test]
    fn what_grows_is_told() {
        let grows: Vec<u64> = (0..100_u64).map(|n| (10 + n) << 20).collect();
        assert!(!finding(&grows, DURATION, 1).is_met());
        let flat = [vec![1 << 20; 10], vec![20 << 20; 90]].concat();
        assert!(finding(&flat, DURATION, 1).is_met());
    }
}
