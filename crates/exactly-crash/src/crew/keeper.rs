//! Keeps one process of the crew going, life after life.

use std::ffi::OsString;
use std::fmt;
use std::ops::AddAssign;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::{Attendance, Fate};
use crate::failure::{Failure, Result, failed};
use crate::process::Victim;
use crate::victim::READY;

/// How long a process may take to open its queue and start.
const START_MAX: Duration = Duration::from_secs(30);

/// What became of the crew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Blows {
    pub(crate) kills: u32,
    pub(crate) freezes: u32,
}

impl AddAssign for Blows {
    fn add_assign(&mut self, other: Self) {
        self.kills += other.kills;
        self.freezes += other.freezes;
    }
}

/// What a process is started with in each of its lives.
pub(crate) type CommandLine = Box<dyn Fn(u64) -> Vec<OsString> + Send + Sync>;

pub(crate) struct CrewKeeper {
    pub(crate) fates: Vec<Fate>,
    pub(crate) attendance: Arc<Attendance>,
    /// Where it writes what it complains about.
    pub(crate) log: PathBuf,
    /// The command line of each of its lives.
    pub(crate) arguments: CommandLine,
}

impl fmt::Debug for CrewKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrewKeeper")
            .field("fates", &self.fates)
            .finish_non_exhaustive()
    }
}

/// A process, and who it is to the queue.
struct Hand {
    victim: Victim,
    worker: Option<String>,
}

impl CrewKeeper {
    /// Through all fates, and then until `over`. Says through `rests` that the fates are behind it.
    pub(crate) async fn keep(self, rests: watch::Sender<usize>, mut over: watch::Receiver<bool>) -> Result<Blows> {
        let mut blows = Blows::default();
        let mut hand = self.start(0)?;
        for (life, fate) in (1..).zip(&self.fates) {
            match *fate {
                Fate::Kill(after) => {
                    let _ = timeout(after, self.ready(&mut hand)).await;
                    sleep(after).await;
                    self.gone(&hand);
                    hand.victim.kill().await?;
                    blows.kills += 1;
                    hand = self.start(life)?;
                }
                Fate::Freeze(after, time) => {
                    self.ready(&mut hand).await?;
                    sleep(after).await;
                    hand.victim.freeze()?;
                    self.gone(&hand);
                    sleep(time).await;
                    self.here(&hand);
                    hand.victim.wake()?;
                    blows.freezes += 1;
                }
            }
        }
        self.ready(&mut hand).await?;
        rests.send_modify(|resting| *resting += 1);
        tokio::select! {
            _ = over.wait_for(|over| *over) => {}
            died = hand.victim.died() => {
                died?;
                return Err(Failure::new("a process was killed by someone else"));
            }
        }
        hand.victim.dismiss().await?;
        Ok(blows)
    }

    fn start(&self, life: u64) -> Result<Hand> {
        Ok(Hand {
            victim: Victim::start(&(self.arguments)(life), self.log.clone())?,
            worker: None,
        })
    }

    /// Until it works, if it does not yet.
    async fn ready(&self, hand: &mut Hand) -> Result<()> {
        if hand.worker.is_none() {
            hand.worker = Some(hand.victim.hear(READY, START_MAX).await?);
            self.here(hand);
        }
        Ok(())
    }

    fn here(&self, hand: &Hand) {
        if let Some(worker) = hand.worker.as_deref().filter(|worker| !worker.is_empty()) {
            self.attendance.comes(worker);
        }
    }

    fn gone(&self, hand: &Hand) {
        if let Some(worker) = hand.worker.as_deref().filter(|worker| !worker.is_empty()) {
            self.attendance.goes(worker);
        }
    }
}

/// What a keeper that has ended had to do.
pub(crate) fn kept(ended: Result<Result<Blows>, tokio::task::JoinError>) -> Result<Blows> {
    ended.map_err(failed("keep a process"))?
}
