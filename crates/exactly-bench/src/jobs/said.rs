//! What a measured worker and the benchmark say to each other, on the worker's side.
//!
//! A worker says `ready` once it is connected and waits for a line. Every line that it writes from then on is the number of
//! jobs handled so far; the first of them, a zero, says that it begins to claim. It works until its input ends. When the
//! last job is durable, it need not say: the benchmark sees that in the tables.
//!
//! The programs in `peers` are compiled with this file too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines, Stdin, stdin, stdout};

use crate::Result;

/// How often the count is told. It delays the end of a turn by no more than this.
const TOLD_EVERY: Duration = Duration::from_millis(5);

static HANDLED: AtomicU64 = AtomicU64::new(0);

/// Counts jobs that have run.
pub(crate) fn handled(jobs: u64) {
    HANDLED.fetch_add(jobs, Ordering::Relaxed);
}

/// Lets a worker that is connected run between the first word and the last.
pub(crate) async fn work(worker: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
    let mut word = BufReader::new(stdin()).lines();
    say("ready").await?;
    if word.next_line().await?.is_none() {
        return Ok(());
    }
    say("0").await?;
    let mut working = tokio::spawn(worker);
    tokio::select! {
        ended = &mut working => match ended? {
            Ok(()) => Err("the worker ended by itself".into()),
            Err(error) => Err(error),
        },
        told = tell(&mut word) => told,
    }
}

/// As [`work`], but without a count that has to be told: nothing of this takes any time while there is nothing to do.
pub(crate) async fn work_silently(worker: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
    let mut word = BufReader::new(stdin()).lines();
    say("ready").await?;
    if word.next_line().await?.is_none() {
        return Ok(());
    }
    let mut working = tokio::spawn(worker);
    tokio::select! {
        ended = &mut working => ended?,
        told = word.next_line() => Ok(told.map(drop)?),
    }
}

/// Tells the count until nobody listens.
async fn tell(word: &mut Lines<BufReader<Stdin>>) -> Result<()> {
    let mut tick = tokio::time::interval(TOLD_EVERY);
    let mut told = 0;
    loop {
        tokio::select! {
            _ = word.next_line() => return Ok(()),
            _ = tick.tick() => {
                let count = HANDLED.load(Ordering::Relaxed);
                if count != told {
                    say(&count.to_string()).await?;
                    told = count;
                }
            }
        }
    }
}

pub(crate) async fn say(line: &str) -> Result<()> {
    let mut out = stdout();
    out.write_all(format!("{line}\n").as_bytes()).await?;
    out.flush().await?;
    Ok(())
}
