//! The database's clock.
//!
//! SQLite has no clock but the process's, and a process has two poor ones. The wall clock jumps: a day forward and every
//! outcome is forgotten early, so a retry runs twice; a day back and a dead owner blocks its key for a day. The monotonic
//! clock jumps never but means nothing to another process or after a restart. So the database keeps a clock of its own, a
//! row of two numbers, and all leases and retentions are on it:
//!
//! - While a process runs, the store's time goes on by the process's *monotonic* clock. Whatever the wall clock does, an
//!   hour is an hour.
//! - Two processes agree by taking the later of the row and their own reckoning. Each reckoning advances by one second per
//!   second from a value that was once the row's, and so does the later of them: alternating writes cannot make time run
//!   fast, which they would if each step was judged by clocks that differ.
//! - A process that has just started reckons from the row and from the wall clock's difference since the row was written,
//!   but no less than nothing and no more than [`STEP_MAX`]. Time that nobody was there to see counts as at most an hour,
//!   so a wall clock that jumped forgets nothing early, and the lease of a process that died still ends.
//!
//! The price: after an outage of more than an hour, outcomes are kept longer than asked for by the rest of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use exactly::clock::{Clock, Timestamp};

/// The most time that is taken to have passed while no process was running.
pub(super) const STEP_MAX: Duration = Duration::from_hours(1);

/// How old the row may get while processes write. Writing it with every commit would cost a page each; a process that
/// starts makes the age good by the wall clock.
const ROW_AGE_MAX: Duration = Duration::from_secs(1);

/// What the database knows about time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClockRow {
    /// The store's time when the row was written.
    pub(super) store: Timestamp,
    /// The wall clock's time at that moment.
    pub(super) wall: Timestamp,
}

/// This process's reckoning of the store's time.
#[derive(Debug)]
pub(super) struct StoreClock {
    /// How much time passes while this process runs.
    steady: Box<dyn Clock>,
    /// How much passed while no process ran.
    wall: Box<dyn Clock>,
    // A std mutex, since it is held for an addition and never across an await.
    seen: Mutex<Seen>,
    /// The row's time when it was last read, in milliseconds.
    row: AtomicU64,
}

/// The store's time as last reckoned, and where the steady clock stood then.
#[derive(Clone, Copy, Debug)]
struct Seen {
    store: Timestamp,
    steady: Timestamp,
}

impl StoreClock {
    /// Starts to reckon from the row that a process before this one left.
    pub(super) fn start(steady: Box<dyn Clock>, wall: Box<dyn Clock>, row: ClockRow) -> Self {
        let unseen = wall.now().since(row.wall).min(STEP_MAX);
        let seen = Seen {
            store: row.store.after(unseen),
            steady: steady.now(),
        };
        Self {
            steady,
            wall,
            seen: Mutex::new(seen),
            row: AtomicU64::new(row.store.as_millis()),
        }
    }

    /// The instant by the wall clock, for what happens at a time of day. Nothing is forgotten and no lease ends by it.
    pub(super) fn calendar(&self) -> Timestamp {
        self.wall.now()
    }

    /// This is the row now.
    pub(super) fn saw(&self, row: ClockRow) {
        self.row.store(row.store.as_millis(), Ordering::Relaxed);
    }

    /// Whether the row, as it was last read, is so young at `now` that it need not be written.
    pub(super) fn is_young(&self, now: Timestamp) -> bool {
        now.since(Timestamp::from_millis(self.row.load(Ordering::Relaxed))) < ROW_AGE_MAX
    }

    /// The store's time, given what the database says. Never earlier than what was said before.
    pub(super) fn now(&self, row: ClockRow) -> Timestamp {
        self.later_of(row.store)
    }

    /// The store's time by this process's reckoning alone, for where reading the row first would cost a round trip.
    pub(super) fn reckon(&self) -> Timestamp {
        self.later_of(Timestamp::from_millis(0))
    }

    /// The row to write at `now`, unless the present one is young enough.
    pub(super) fn due(&self, row: ClockRow, now: Timestamp) -> Option<ClockRow> {
        (now.since(row.store) >= ROW_AGE_MAX).then(|| ClockRow {
            store: now,
            wall: self.wall.now(),
        })
    }

    fn later_of(&self, store: Timestamp) -> Timestamp {
        let steady = self.steady.now();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let store = seen.store.after(steady.since(seen.steady)).max(store);
        *seen = Seen { store, steady };
        store
    }
}

impl ClockRow {
    /// The first row of a database.
    pub(super) fn first(wall: &dyn Clock) -> Self {
        let wall = wall.now();
        Self { store: wall, wall }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use exactly::clock::ManualClock;

    use super::*;

    const DAY: Duration = Duration::from_hours(24);
    const SECOND: Duration = Duration::from_secs(1);

    struct Process {
        steady: Arc<ManualClock>,
        clock: StoreClock,
    }

    fn process(wall: &Arc<ManualClock>, row: ClockRow) -> Process {
        let steady = Arc::new(ManualClock::at(Timestamp::from_millis(7_000)));
        let clock = StoreClock::start(Box::new(Arc::clone(&steady)), Box::new(Arc::clone(wall)), row);
        Process { steady, clock }
    }

    fn noon() -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000)
    }

    fn at_noon() -> (Arc<ManualClock>, ClockRow) {
        let wall = Arc::new(ManualClock::at(noon()));
        let row = ClockRow::first(&wall);
        (wall, row)
    }

    #[test]
    fn a_running_process_does_not_follow_the_wall_clock() {
        let (wall, row) = at_noon();
        let process = process(&wall, row);
        for jump in [noon().after(DAY), Timestamp::from_millis(0)] {
            wall.set(jump);
            assert_eq!(process.clock.now(row), noon());
        }
        process.steady.advance(DAY);
        assert_eq!(process.clock.now(row), noon().after(DAY));
    }

    #[test]
    fn a_steady_clock_that_is_set_back_stands_still() {
        let (wall, row) = at_noon();
        let process = process(&wall, row);
        process.steady.set(Timestamp::from_millis(0));
        assert_eq!(process.clock.now(row), noon());
        process.steady.advance(SECOND);
        assert_eq!(process.clock.now(row), noon().after(SECOND));
    }

    #[test]
    fn a_restart_counts_at_most_an_hour_and_at_least_nothing() {
        for (gone, counted) in [(SECOND, SECOND), (DAY, STEP_MAX)] {
            let (wall, row) = at_noon();
            wall.advance(gone);
            assert_eq!(process(&wall, row).clock.now(row), noon().after(counted));
        }
        let (wall, row) = at_noon();
        wall.set(Timestamp::from_millis(0));
        assert_eq!(process(&wall, row).clock.now(row), noon());
    }

    #[test]
    fn two_processes_that_write_in_turn_do_not_make_time_run_fast() {
        let (wall, mut row) = at_noon();
        let one = process(&wall, row);
        // The other one starts while the wall clock is a day ahead, so it counts an hour that did not pass, once.
        wall.advance(DAY);
        let other = process(&wall, row);
        let start = other.clock.now(row);
        assert_eq!(start, noon().after(STEP_MAX));
        row = other.clock.due(row, start).unwrap();
        assert_eq!(one.clock.now(row), start);
        for second in 1..=1000 {
            for process in [&one, &other] {
                process.steady.advance(SECOND);
                let now = process.clock.now(row);
                assert_eq!(now.since(start).as_secs(), second);
                row = process.clock.due(row, now).unwrap_or(row);
            }
        }
    }
}
