//! When to repeat a failed attempt, when to stop, and what is known when it is over.
//!
//! Unlike a retry loop around a closure, this asks first how far the attempt came ([`Ended`]): a request that never left
//! may always be sent again, one that left without an answer only if a key makes the repetition harmless, and an answer is
//! judged by what the server says of itself before its status is looked up in a table. What the attempts told is kept, so
//! that a call ends as [applied, not applied or unknown](Ending) and a late refusal never hides an early doubt.
//!
//! Everything here is a plain function of its inputs: time, randomness and sleeping are the caller's. Clients, webhook
//! deliveries and jobs share it.
//!
//! ```
//! use std::time::Duration;
//! use exactly::retry::{Class, Course, Decision, Ended, Ending, Heard, Policy, Stop};
//!
//! let policy = Policy::of(Class::UserFacing);
//! let mut course = Course::new(&policy, true);
//!
//! // The connection broke after the request was sent: only a key makes it safe to go on.
//! let decision = course.after(&Ended::Sent, Duration::from_millis(20), 0, || true);
//! assert_eq!(decision, Decision::Wait(Duration::from_millis(100)));
//!
//! // A refusal now says nothing about the first attempt, which may have been carried out.
//! let decision = course.after(&Ended::Answered(Heard::status(401)), Duration::from_millis(150), 0, || true);
//! assert_eq!(decision, Decision::Stop(Stop::Final));
//! assert_eq!(course.ending(), Ending::Unknown);
//! ```

mod after;
mod budget;
mod code;
mod course;
mod heard;
mod policy;
mod schedule;

pub use after::retry_after;
pub use budget::{Budget, BudgetLimits, Budgets};
pub use code::{Code, Repeat};
pub use course::{Course, Decision, Ended, Ending, Stop};
pub use heard::{Expiry, Fate, Heard, KeyWord};
pub use policy::{Class, Policy};
pub(crate) use schedule::about;
pub use schedule::{Jitter, Schedule};
