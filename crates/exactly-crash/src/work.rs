//! Durable work under fire.
//!
//! Schedulers and workers share one queue, on a calendar on which a day takes seconds and the clocks of some zones change.
//! They are killed and frozen beyond their leases at random, and the calendar of one scheduler jumps. Afterwards every
//! subject must have exactly one effect per local date, made by the attempt whose outcome is stored, and nothing that a dead
//! worker held may have waited for longer than its lease and a sweep.

mod calendar;
pub mod check;
mod desk;
mod errand;
mod plan;
mod report;
mod round;
mod victim;

pub(crate) use self::plan::{WorkCell, WorkSabotage};
pub(crate) use self::report::WorkRow;
pub(crate) use self::round::WorkOutcome;
pub(crate) use self::victim::{WorkVictimArguments, serve};
