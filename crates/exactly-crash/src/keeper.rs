//! Starts victims, sees to it that they die as planned, and starts them again.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::failure::{Failure, Result};
use crate::place::Place;
use crate::plan::{Cell, Life};
use crate::point::FROZEN;
use crate::process::{Victim, value_name};
use crate::victim::READY;

/// How long a victim may take to open its store and listen.
const START_MAX: Duration = Duration::from_secs(30);

/// How long a victim may live until it passes the point where it is to die. Then it is killed all the same.
const REACH_MAX: Duration = Duration::from_secs(3);

/// Twice the lease and a bit: long enough for the leases of a frozen victim to end, and for the doubt to be seen and
/// settled before it wakes up.
const FREEZE: Duration = Duration::from_millis(2300);

/// How victims died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Kills {
    /// At a moment that the seed chose.
    pub(crate) random: u32,
    /// At a named point.
    pub(crate) named: u32,
    /// How many of the random ones had been frozen beyond their lease.
    pub(crate) frozen: u32,
    /// How many of the random ones should have died at a named point, which they did not pass in time.
    pub(crate) missed: u32,
}

impl Kills {
    pub(crate) fn total(self) -> u32 {
        self.random + self.named
    }
}

impl AddAssign for Kills {
    fn add_assign(&mut self, other: Self) {
        self.random += other.random;
        self.named += other.named;
        self.frozen += other.frozen;
        self.missed += other.missed;
    }
}

/// What the keepers of one round share.
#[derive(Debug)]
pub(crate) struct Watchhouse {
    lives: Mutex<VecDeque<Life>>,
    power_cut: Notify,
    /// How many victims have nothing to die of any more.
    resting: watch::Sender<usize>,
    closing: watch::Sender<bool>,
}

impl Watchhouse {
    pub(crate) fn new(lives: VecDeque<Life>) -> Self {
        Self {
            lives: Mutex::new(lives),
            power_cut: Notify::new(),
            resting: watch::Sender::new(0),
            closing: watch::Sender::new(false),
        }
    }

    /// Until `victims` victims are up and no kill is left.
    pub(crate) async fn quiet(&self, victims: usize) {
        let _ = self.resting.subscribe().wait_for(|resting| *resting == victims).await;
    }

    /// Lets the victims go.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    async fn closed(&self) {
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    fn next(&self) -> Life {
        self.lives().pop_front().unwrap_or(Life::Rest)
    }

    fn lives(&self) -> std::sync::MutexGuard<'_, VecDeque<Life>> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps one victim alive, life after life.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) cell: Cell,
    pub(crate) place: Place,
    pub(crate) port: u16,
    pub(crate) house: Arc<Watchhouse>,
}

impl Keeper {
    /// Until the house closes.
    pub(crate) async fn keep(self) -> Result<Kills> {
        let mut kills = Kills::default();
        loop {
            let life = self.house.next();
            let log = self.place.folder.join(format!("victim-{}.log", self.port));
            let mut victim = Victim::start(&self.arguments(life), log)?;
            let cut = async {
                match life {
                    // Its own cut is not to end it twice.
                    Life::PowerCut(_) => std::future::pending().await,
                    _ => self.house.power_cut.notified().await,
                }
            };
            let died = tokio::select! {
                died = self.live(&mut victim, life) => died?,
                () = cut => {
                    victim.kill().await?;
                    // What it was to die of is still to be seen.
                    self.house.lives().push_front(life);
                    Some(Kills { random: 1, ..Kills::default() })
                }
            };
            match died {
                Some(died) => kills += died,
                None => return Ok(kills),
            }
        }
    }

    fn arguments(&self, life: Life) -> Vec<OsString> {
        let Self { cell, place, port, .. } = self;
        let mut arguments: Vec<OsString> = vec!["victim".into()];
        let mut say = |name: &str, value: &str| arguments.extend([name.into(), value.into()]);
        say("--store", cell.store.name());
        say("--guarantee", cell.guarantee.name());
        say("--sabotage", &value_name(&cell.sabotage));
        say("--url", &place.url);
        say("--name", &place.name);
        say("--port", &port.to_string());
        if let Some((point, blow, nth)) = life.fuse() {
            say("--at", &value_name(&point));
            say("--blow", &value_name(&blow));
            say("--nth", &nth.to_string());
        }
        arguments.extend(["--folder".into(), place.folder.clone().into()]);
        arguments
    }

    /// One life, and how it ended; `None` if it outlived the round.
    async fn live(&self, victim: &mut Victim, life: Life) -> Result<Option<Kills>> {
        let random = Kills {
            random: 1,
            ..Kills::default()
        };
        let missed = Kills { missed: 1, ..random };
        if let Life::KillAtStart(after) = life {
            sleep(after).await;
            victim.kill().await?;
            return Ok(Some(random));
        }
        victim.hear(READY, START_MAX).await?;
        let died = match life {
            Life::DieAt { .. } => match timeout(REACH_MAX, victim.died()).await {
                Ok(died) => {
                    died?;
                    return Ok(Some(Kills {
                        named: 1,
                        ..Kills::default()
                    }));
                }
                Err(_) => missed,
            },
            Life::Freeze { then, .. } => match victim.hear(FROZEN, REACH_MAX).await {
                Ok(_) => {
                    sleep(FREEZE).await;
                    victim.wake()?;
                    sleep(then).await;
                    Kills { frozen: 1, ..random }
                }
                Err(_) => missed,
            },
            Life::PowerCut(after) => {
                sleep(after).await;
                self.house.power_cut.notify_waiters();
                random
            }
            Life::KillAfter(after) | Life::KillAtStart(after) => {
                sleep(after).await;
                random
            }
            Life::Rest => {
                self.rest(victim).await?;
                return Ok(None);
            }
        };
        victim.kill().await?;
        Ok(Some(died))
    }

    async fn rest(&self, victim: &mut Victim) -> Result<()> {
        let _counted = Resting::count(&self.house.resting);
        tokio::select! {
            () = self.house.closed() => {}
            died = victim.died() => {
                died?;
                return Err(Failure::new("a victim was killed by someone else"));
            }
        }
        victim.dismiss().await
    }
}

/// Counted out also when a power cut ends the rest.
struct Resting<'a>(&'a watch::Sender<usize>);

impl<'a> Resting<'a> {
    fn count(resting: &'a watch::Sender<usize>) -> Self {
        resting.send_modify(|resting| *resting += 1);
        Self(resting)
    }
}

impl Drop for Resting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|resting| *resting -= 1);
    }
}
