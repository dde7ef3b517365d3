//! Who is on board.

use std::fmt;

use clap::ValueEnum;
use fastrand::Rng;
use serde::Serialize;

use crate::place::StoreKind;

/// Who is told of every event. Each is a lane, a path and an inbox.
pub(super) const ENDPOINTS: [&str; 2] = ["books", "post"];

/// Who tells.
pub(super) const SOURCE: &str = "shop";

/// What is under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct EventCell {
    pub(crate) store: StoreKind,
    pub(crate) sabotage: EventSabotage,
}

/// What is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EventSabotage {
    /// Nothing.
    None,
    /// Consumers apply what they get, and do not note it.
    NoNote,
    /// Events are published beside the transaction of what they tell of.
    LooseEvent,
    /// The history of deliveries loses attempts.
    NoHistory,
    /// Dispatchers do not look at fences.
    NoFence,
}

impl EventCell {
    /// The database that several processes share.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        std::iter::once(Self {
            store: StoreKind::Postgres,
            sabotage: EventSabotage::None,
        })
    }

    /// The same without any one thing that its promise rests on.
    pub(crate) fn controls(self) -> impl Iterator<Item = Self> {
        let sabotages = [
            EventSabotage::NoNote,
            EventSabotage::LooseEvent,
            EventSabotage::NoHistory,
            EventSabotage::NoFence,
        ];
        sabotages.into_iter().map(move |sabotage| Self { sabotage, ..self })
    }

    /// The randomness of its `round`th round. The same seed gives the same plan, whatever else runs.
    pub(super) fn rng(self, seed: u64, round: u32) -> Rng {
        let mut rng = Rng::with_seed(!seed);
        for _ in 0..self.sabotage as u64 {
            rng.u64(..);
        }
        let mut rng = rng.fork();
        for _ in 0..round {
            rng.u64(..);
        }
        rng.fork()
    }
}

impl fmt::Display for EventCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} events", self.store.name())?;
        match self.sabotage {
            EventSabotage::None => Ok(()),
            EventSabotage::NoNote => f.write_str(" with consumers that note nothing"),
            EventSabotage::LooseEvent => f.write_str(" published beside the transaction"),
            EventSabotage::NoHistory => f.write_str(" without every attempt in the history"),
            EventSabotage::NoFence => f.write_str(" without looking at fences"),
        }
    }
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Publishes events.
    Producer,
    /// Sends them.
    Dispatcher,
    /// Applies them.
    Consumer,
}

/// Two of each, so that one takes over what another left, and two copies of an event can be applied at once.
pub(super) const CREW: [Role; 6] = [
    Role::Producer,
    Role::Producer,
    Role::Dispatcher,
    Role::Dispatcher,
    Role::Consumer,
    Role::Consumer,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crew::fates;

    #[test]
    fn the_same_seed_gives_the_same_fates_and_another_round_others() {
        let cell = EventCell::all().next().unwrap();
        let plan = |seed, round| fates(CREW.len(), 30, &mut cell.rng(seed, round));
        assert_eq!(plan(7, 1), plan(7, 1));
        assert_ne!(plan(7, 1), plan(8, 1));
        assert_ne!(plan(7, 1), plan(7, 2));
    }
}
