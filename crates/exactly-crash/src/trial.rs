//! What rounds of any kind have in common.

use std::fmt::Display;

use crate::failure::Result;
use crate::place::StoreKind;

/// Something that is put through rounds.
pub(crate) trait Trial: Copy + Display {
    type Outcome: Told;
    type Row: Tally<Self::Outcome>;

    fn store(self) -> StoreKind;

    /// Whether something is taken away from it, so that it must turn red.
    fn is_control(self) -> bool;

    /// How many kills there are in all if so many are asked for.
    fn kills(self, asked: u32) -> u32;

    fn kills_per_round(self) -> u32;

    /// What chooses it on the command line.
    fn flags(self) -> String;

    /// A row that nothing was added to.
    fn row(self) -> Self::Row;

    async fn run(self, lot: Lot) -> Result<Self::Outcome>;
}

/// Which round it is.
#[derive(Debug)]
pub(crate) struct Lot {
    pub(crate) number: u32,
    pub(crate) kills: u32,
    pub(crate) seed: u64,
    /// The server's address, if there is one.
    pub(crate) url: String,
}

/// What came of a round.
pub(crate) trait Told {
    /// In a few words.
    fn summary(&self) -> String;

    /// What promises were not kept, the gravest first.
    fn violations(&self) -> Vec<String>;
}

/// What all its rounds came to.
pub(crate) trait Tally<O> {
    fn add(&mut self, outcome: &O);

    fn kills(&self) -> u32;

    /// Whether it is as it must be, which is red for a control.
    fn is_green(&self) -> bool;
}
