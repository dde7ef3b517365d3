//! Where a victim can be told to die.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use exactly::StoreError;
use exactly::store::Reply;
use rustix::process::{Signal, getpid, kill_process};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::history::Guarantee;

/// Said on standard output right before a victim freezes.
pub(crate) const FROZEN: &str = "frozen";

/// How many calls must be inside the store at once to count as a group.
const COMPANY: u32 = 3;

/// The longest pause between handing something to the store and dying.
const DURING_MAX_US: u64 = 4000;

/// How long a freeze lets others gather at its point.
const GATHER: Duration = Duration::from_millis(60);

/// A place in the life of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Point {
    /// Nothing is known of the call yet.
    BeforeBegin,
    /// It is claimed, and the handler has not started.
    AfterBegin,
    /// The handler runs.
    BeforeEffect,
    /// The effect is made; in a transaction, inside of it.
    AfterEffect,
    /// The lease was renewed while the handler runs.
    AfterRenew,
    /// The handler has answered.
    BeforeComplete,
    /// The outcome is stored; in a transaction, inside of it.
    AfterComplete,
    /// The store writes the steps of several calls together.
    DuringGroup,
    /// The handler said that nothing happened, and the key is about to be freed.
    BeforeAbandon,
    /// The key is freed.
    AfterAbandon,
    /// Record and effect are written and not committed.
    BeforeCommit,
    /// The commit is under way.
    DuringCommit,
    /// Record and effect are committed.
    AfterCommit,
    /// The layer has answered, and no byte has left.
    BeforeAnswer,
}

impl Point {
    /// Where calls of this guarantee come past.
    pub(crate) fn of(guarantee: Guarantee) -> &'static [Self] {
        match guarantee {
            Guarantee::Transactional => &[
                Self::BeforeBegin,
                Self::AfterBegin,
                Self::BeforeEffect,
                Self::AfterEffect,
                Self::BeforeComplete,
                Self::AfterComplete,
                Self::BeforeCommit,
                Self::DuringCommit,
                Self::AfterCommit,
                Self::BeforeAnswer,
            ],
            Guarantee::AtMostOnce => &[
                Self::BeforeBegin,
                Self::AfterBegin,
                Self::BeforeEffect,
                Self::AfterEffect,
                Self::AfterRenew,
                Self::BeforeComplete,
                Self::AfterComplete,
                Self::DuringGroup,
                Self::BeforeAbandon,
                Self::AfterAbandon,
                Self::BeforeAnswer,
            ],
        }
    }

    /// Where a process that is frozen beyond its lease can do the most harm when it wakes up.
    pub(crate) fn to_freeze_at(guarantee: Guarantee) -> &'static [Self] {
        match guarantee {
            Guarantee::Transactional => &[Self::AfterEffect, Self::BeforeCommit],
            // Most often where the effect is made and only the fence is left.
            Guarantee::AtMostOnce => &[
                Self::BeforeComplete,
                Self::AfterBegin,
                Self::BeforeComplete,
                Self::BeforeEffect,
            ],
        }
    }

    /// How often a busy server comes past, at most: a fuse that counts further would not burn in time.
    pub(crate) fn passes_max(self) -> u32 {
        match self {
            Self::AfterRenew | Self::BeforeAbandon | Self::AfterAbandon => 2,
            Self::DuringGroup => 5,
            _ => 20,
        }
    }
}

/// What happens when a fuse has burnt down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Blow {
    /// SIGKILL.
    Die,
    /// SIGSTOP, until someone sends SIGCONT.
    Freeze,
}

/// Ends or freezes this process when it passes a point for the nth time.
#[derive(Debug)]
pub(crate) struct Fuse {
    armed: Option<(Point, Blow)>,
    nth: u32,
    passes: AtomicU32,
    /// Whether the freeze is over.
    thawed: watch::Sender<bool>,
    /// Calls that are inside the store.
    company: AtomicU32,
}

impl Fuse {
    pub(crate) fn new(armed: Option<(Point, Blow)>, nth: u32) -> Self {
        Self {
            armed,
            nth,
            passes: AtomicU32::new(0),
            thawed: watch::Sender::new(false),
            company: AtomicU32::new(0),
        }
    }

    /// Counts this pass, and blows if it is the last one. Whoever comes past while a freeze is prepared takes part in it,
    /// so that many wake up as zombies and not one.
    pub(crate) async fn pass(&self, point: Point) {
        let Some((_, blow)) = self.armed.filter(|(armed, _)| *armed == point) else {
            return;
        };
        match (self.count().cmp(&self.nth), blow) {
            (Less, _) | (Greater, Blow::Die) => {}
            (Equal, Blow::Die) => self.blow(),
            (Equal, Blow::Freeze) => {
                sleep(GATHER).await;
                self.blow();
                self.thawed.send_replace(true);
            }
            (Greater, Blow::Freeze) => {
                let _ = self.thawed.subscribe().wait_for(|thawed| *thawed).await;
            }
        }
    }

    /// Blows while `reply` is on its way, if this is the last pass.
    pub(crate) async fn during<T>(&self, point: Point, mut reply: Reply<'_, T>) -> Result<T, StoreError> {
        let armed = self.armed.is_some_and(|(armed, _)| armed == point);
        if !armed || self.count() != self.nth {
            return reply.await;
        }
        let pause = Duration::from_micros(fastrand::u64(0..DURING_MAX_US));
        let early = timeout(pause, &mut reply).await;
        self.blow();
        match early {
            Ok(answer) => answer,
            Err(_) => reply.await,
        }
    }

    /// Sends `reply` through the store in the company of others, and blows there if this is the last pass in enough of
    /// it.
    pub(crate) async fn in_company<T>(&self, reply: Reply<'_, T>) -> Result<T, StoreError> {
        let inside = Inside::enter(&self.company);
        if inside.company >= COMPANY {
            self.during(Point::DuringGroup, reply).await
        } else {
            reply.await
        }
    }

    /// How often the point has been passed, this time included.
    fn count(&self) -> u32 {
        self.passes.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn blow(&self) {
        let signal = match self.armed {
            Some((_, Blow::Die)) => Signal::KILL,
            Some((_, Blow::Freeze)) => {
                println!("{FROZEN}");
                Signal::STOP
            }
            None => return,
        };
        kill_process(getpid(), signal).expect("a process may signal itself");
    }
}

/// One call inside the store, counted out also when its caller gives up.
struct Inside<'a> {
    count: &'a AtomicU32,
    company: u32,
}

impl<'a> Inside<'a> {
    fn enter(count: &'a AtomicU32) -> Self {
        let company = count.fetch_add(1, Ordering::SeqCst) + 1;
        Self { count, company }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
    }
}
