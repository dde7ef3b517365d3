//! Keeps one process of the crew going, life after life.

use std::ffi::OsString;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::WorkCell;
use super::attendance::Attendance;
use super::plan::{Fate, Role};
use crate::failure::{Failure, Result};
use crate::place::Place;
use crate::process::{Victim, value_name};
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

#[derive(Debug)]
pub(super) struct WorkKeeper {
    pub(super) cell: WorkCell,
    pub(super) place: Place,
    pub(super) role: Role,
    pub(super) number: usize,
    pub(super) fates: Vec<Fate>,
    pub(super) attendance: Arc<Attendance>,
    /// When the round began, on the queue's calendar.
    pub(super) since_ms: u64,
    pub(super) seed: u64,
}

/// A process, and who it is to the queue.
struct Hand {
    victim: Victim,
    worker: Option<String>,
}

impl WorkKeeper {
    /// Through all fates, and then until `over`. Says through `rests` that the fates are behind it.
    pub(super) async fn keep(self, rests: watch::Sender<usize>, mut over: watch::Receiver<bool>) -> Result<Blows> {
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
        let log = self.place.folder.join(format!("victim-{}.log", self.number));
        Ok(Hand {
            victim: Victim::start(&self.arguments(life), log)?,
            worker: None,
        })
    }

    fn arguments(&self, life: u64) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["work-victim".into()];
        let mut say = |name: &str, value: &str| arguments.extend([name.into(), value.into()]);
        say("--store", self.cell.store.name());
        say("--sabotage", &value_name(&self.cell.sabotage));
        say("--role", &value_name(&self.role));
        say("--url", &self.place.url);
        say("--name", &self.place.name);
        say("--since-ms", &self.since_ms.to_string());
        say("--seed", &self.seed.wrapping_add(life).to_string());
        arguments.extend(["--folder".into(), self.place.folder.clone().into()]);
        arguments
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
