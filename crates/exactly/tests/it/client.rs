//! The caller's half of the contract.

mod outcome;
mod scripted;
