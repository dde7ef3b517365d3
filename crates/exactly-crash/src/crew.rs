//! Processes that share work: what becomes of each, and whether what the dead have left is found.

mod attendance;
mod fate;
mod keeper;
mod lookout;

use std::time::Duration;

pub(crate) use self::attendance::Attendance;
pub(crate) use self::fate::{Fate, fates};
pub(crate) use self::keeper::{Blows, CommandLine, CrewKeeper, kept};
pub(crate) use self::lookout::{LOOK, Left, Standstill, all, watch_over};

/// Short, so that the dead are found out while the round lasts.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// How often workers look for what the dead have left.
pub(crate) const SWEEP: Duration = Duration::from_millis(500);

/// How often idle workers look for work.
pub(crate) const POLL: Duration = Duration::from_millis(200);
