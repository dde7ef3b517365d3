//! Who is to die when: drawn from a seed before anything runs.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use serde::Serialize;

use crate::history::Guarantee;
use crate::place::StoreKind;
use crate::point::{Blow, Point};
use crate::sabotaged::Sabotage;

/// Kills per round. Every round has fresh keys on a fresh place, so that a failure can be repeated in seconds.
pub(crate) const KILLS_PER_ROUND: u32 = 15;

/// What is under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Cell {
    pub(crate) store: StoreKind,
    pub(crate) guarantee: Guarantee,
    pub(crate) sabotage: Sabotage,
}

impl Cell {
    /// Every store under every guarantee that it gives.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let stores = [StoreKind::Sqlite, StoreKind::Postgres, StoreKind::Redis];
        let guarantees = [Guarantee::Transactional, Guarantee::AtMostOnce];
        stores.into_iter().flat_map(move |store| {
            let kept = guarantees
                .into_iter()
                .filter(move |guarantee| store.promises(*guarantee));
            kept.map(move |guarantee| Self {
                store,
                guarantee,
                sabotage: Sabotage::None,
            })
        })
    }

    /// The same without any one thing that its guarantee rests on; first the one that every run tries.
    pub(crate) fn controls(self) -> impl Iterator<Item = Self> {
        let sabotages: &[Sabotage] = match self.guarantee {
            Guarantee::Transactional => &[Sabotage::NoIndex, Sabotage::EarlyAnswer],
            Guarantee::AtMostOnce => &[Sabotage::NoFence, Sabotage::EarlyEffect, Sabotage::EarlyAnswer],
        };
        sabotages.iter().map(move |sabotage| Self {
            sabotage: *sabotage,
            ..self
        })
    }

    /// The randomness of its `round`th round. The same seed gives the same plan, whatever else runs.
    pub(crate) fn rng(self, seed: u64, round: u32) -> Rng {
        let mut rng = Rng::with_seed(seed);
        let cell = (self.store as u64) * 64 + (self.guarantee as u64) * 8 + self.sabotage as u64;
        for _ in 0..cell {
            rng.u64(..);
        }
        let mut rng = rng.fork();
        for _ in 0..round {
            rng.u64(..);
        }
        rng.fork()
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.store.name(), self.guarantee.name())?;
        match self.sabotage {
            Sabotage::None => Ok(()),
            Sabotage::NoIndex => f.write_str(" without its unique index"),
            Sabotage::NoFence => f.write_str(" without its fence"),
            Sabotage::EarlyEffect => f.write_str(" with early effects"),
            Sabotage::EarlyAnswer => f.write_str(" with early answers"),
        }
    }
}

/// How the life of one victim ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// By its own hand, when it passes `point` for the `nth` time.
    DieAt { point: Point, nth: u32 },
    /// At a random moment, while it starts.
    KillAtStart(Duration),
    /// At a random moment of its work.
    KillAfter(Duration),
    /// The same, and every other victim with it: nobody is left who has the database open.
    PowerCut(Duration),
    /// Frozen at `point` until its lease is long over, then awake for a moment, then killed.
    Freeze { point: Point, nth: u32, then: Duration },
    /// At the end of the round.
    Rest,
}

impl Life {
    /// What the victim itself is told.
    pub(crate) fn fuse(self) -> Option<(Point, Blow, u32)> {
        match self {
            Self::DieAt { point, nth } => Some((point, Blow::Die, nth)),
            Self::Freeze { point, nth, .. } => Some((point, Blow::Freeze, nth)),
            _ => None,
        }
    }
}

/// The lives of a round: about half of `kills` at named points, in turn, so that a few rounds see them all.
pub(crate) fn lives(guarantee: Guarantee, round: u32, kills: u32, rng: &mut Rng) -> VecDeque<Life> {
    let named = kills.div_ceil(2);
    let points = Point::of(guarantee);
    let first = u64::from(round) * u64::from(named);
    let mut lives: Vec<Life> = (first..first + u64::from(named))
        .map(|turn| {
            let point = *nth_of(points, turn);
            let nth = rng.u32(1..=point.passes_max());
            Life::DieAt { point, nth }
        })
        .collect();
    for turn in 0..u64::from(kills - named) {
        let ms = |rng: &mut Rng, range| Duration::from_millis(rng.u64(range));
        lives.push(match turn {
            0 => Life::PowerCut(ms(rng, 50..300)),
            1 | 2 => {
                let point = *nth_of(Point::to_freeze_at(guarantee), u64::from(round) * 2 + turn - 1);
                let nth = rng.u32(1..=point.passes_max());
                let then = ms(rng, 100..400);
                Life::Freeze { point, nth, then }
            }
            3 => Life::KillAtStart(ms(rng, 1..120)),
            _ => Life::KillAfter(ms(rng, 20..400)),
        });
    }
    rng.shuffle(&mut lives);
    lives.into()
}

fn nth_of(points: &[Point], turn: u64) -> &Point {
    let index = turn % points.len() as u64;
    &points[usize::try_from(index).expect("an index into a slice")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_rounds_kill_at_every_named_point() {
        for guarantee in [Guarantee::Transactional, Guarantee::AtMostOnce] {
            let mut rng = Rng::with_seed(1);
            let lives: Vec<_> = (0..3)
                .flat_map(|round| lives(guarantee, round, KILLS_PER_ROUND, &mut rng))
                .collect();
            for point in Point::of(guarantee) {
                let named = lives
                    .iter()
                    .any(|life| matches!(life, Life::DieAt { point: at, .. } if at == point));
                assert!(named, "{guarantee:?} {point:?}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_plan_and_another_round_another() {
        let cell = Cell::all().next().unwrap();
        let plan = |seed, round| lives(cell.guarantee, round, KILLS_PER_ROUND, &mut cell.rng(seed, round));
        assert_eq!(plan(7, 1), plan(7, 1));
        assert_ne!(plan(7, 1), plan(8, 1));
        assert_ne!(plan(7, 1), plan(7, 2));
    }
}
