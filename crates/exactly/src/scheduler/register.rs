//! A worker that does a scheduler's own tasks.

use super::{FAN_OUT_KIND, Scheduler, TICK_KIND};
use crate::queue::Book;
use crate::worker::Builder;

impl Builder {
    /// Fires what this scheduler makes. Without it ticks have no handler here: a worker that may lease their lanes would
    /// bury them.
    pub fn schedule<Q: Book + ?Sized>(self, scheduler: &Scheduler<Q>) -> Self {
        let ticks = scheduler.ticks_handler();
        self.handle(TICK_KIND, ticks.clone()).handle(FAN_OUT_KIND, ticks)
    }
}
