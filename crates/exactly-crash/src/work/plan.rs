//! Who is on board, and what becomes of them: drawn from a seed before anything runs.

use std::fmt;

use clap::ValueEnum;
use fastrand::Rng;
use serde::Serialize;

use crate::place::StoreKind;

/// What is under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct WorkCell {
    pub(crate) store: StoreKind,
    pub(crate) sabotage: WorkSabotage,
}

/// What is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WorkSabotage {
    /// Nothing.
    None,
    /// Effects are not in the transaction that settles their task.
    LooseEffect,
    /// What lies outside of the database does not look at fences.
    NoFence,
}

impl WorkCell {
    /// Every database that keeps a queue.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let stores = [StoreKind::Sqlite, StoreKind::Postgres];
        stores.into_iter().map(|store| Self {
            store,
            sabotage: WorkSabotage::None,
        })
    }

    /// The same without any one thing that its promise rests on; first the one that every run tries.
    pub(crate) fn controls(self) -> impl Iterator<Item = Self> {
        let sabotages = [WorkSabotage::LooseEffect, WorkSabotage::NoFence];
        // A process alone has nobody to be late for: whoever works on after it was frozen is the same.
        let kept = sabotages
            .into_iter()
            .filter(move |sabotage| self.store == StoreKind::Postgres || *sabotage != WorkSabotage::NoFence);
        kept.map(move |sabotage| Self { sabotage, ..self })
    }

    /// Who works in a round.
    pub(super) fn crew(self) -> &'static [Role] {
        match self.store {
            StoreKind::Postgres => &[
                Role::Scheduler,
                Role::WrongScheduler,
                Role::Worker,
                Role::Worker,
                Role::Worker,
                Role::Worker,
            ],
            // One process, which is all that a file is for.
            StoreKind::Sqlite | StoreKind::Redis => &[Role::Both],
        }
    }

    /// The randomness of its `round`th round. The same seed gives the same plan, whatever else runs.
    pub(super) fn rng(self, seed: u64, round: u32) -> Rng {
        let mut rng = Rng::with_seed(seed);
        for _ in 0..(self.store as u64) * 8 + self.sabotage as u64 {
            rng.u64(..);
        }
        let mut rng = rng.fork();
        for _ in 0..round {
            rng.u64(..);
        }
        rng.fork()
    }
}

impl fmt::Display for WorkCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} work", self.store.name())?;
        match self.sabotage {
            WorkSabotage::None => Ok(()),
            WorkSabotage::LooseEffect => f.write_str(" with effects beside the transaction"),
            WorkSabotage::NoFence => f.write_str(" without looking at fences"),
        }
    }
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Makes tasks of schedules.
    Scheduler,
    /// The same, by a calendar that jumps.
    WrongScheduler,
    /// Does tasks.
    Worker,
    /// Everything, by a calendar that jumps.
    Both,
}

impl Role {
    pub(super) fn schedules(self) -> bool {
        self != Self::Worker
    }

    pub(super) fn works(self) -> bool {
        matches!(self, Self::Worker | Self::Both)
    }

    pub(super) fn jumps(self) -> bool {
        matches!(self, Self::WrongScheduler | Self::Both)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crew::fates;

    #[test]
    fn the_same_seed_gives_the_same_fates_and_another_round_others() {
        let cell = WorkCell::all().next().unwrap();
        let plan = |seed, round| fates(6, 40, &mut cell.rng(seed, round));
        assert_eq!(plan(7, 1), plan(7, 1));
        assert_ne!(plan(7, 1), plan(8, 1));
        assert_ne!(plan(7, 1), plan(7, 2));
    }
}
