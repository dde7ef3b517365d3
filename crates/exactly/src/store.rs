//! What a record can go through, and who keeps it.
//!
//! A [`Store`] offers transitions, not reads and writes: [`begin`](Store::begin), [`renew`](Store::renew),
//! [`complete`](Store::complete), [`abandon`](Store::abandon), [`lose`](Store::lose) and [`sweep`](Store::sweep), each
//! one atomic step. A get-then-set, where most public races of this field come from, cannot be written against it.
//!
//! ```text
//!             begin                     complete
//!   (absent) ───────▶ in flight ──────────────────▶ done ──┐ retention ends
//!      ▲               │  ▲  │ lease ends, or lose          │
//!      │    abandon    │  │  ▼                              │
//!      ├───────────────┘  │ lost ── OnLost::Rerun ─▶ begin runs the next attempt
//!      │                  │  │
//!      │                  │  └───── OnLost::Doubt ─▶ in doubt: held until completed or abandoned with its claim
//!      │                  └─ renew, if nobody took over
//!      └────────────────────────────────────────────────────┘
//! ```
//!
//! Answers of the protocol are values; `Err` means only that the store could not answer. Durations go in, never
//! instants: the store's clock judges.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use exactly::{Call, Fingerprint, Keep, Key, MemoryStore, Scope, Store, Verdict};
//!
//! let store = MemoryStore::new();
//! let call = || {
//!     let key = Key::new("order-1066").unwrap();
//!     Call::new(Scope::new("customer-7", "order.place"), key, Fingerprint::of(b"two tickets"))
//! };
//!
//! let Verdict::Run(claim) = store.begin(&call()).await? else { unreachable!("the key is fresh") };
//! // … the effect happens here …
//! let _ = store.complete(&claim, &"ticket 12 and 13".into(), Keep::DAY).await?;
//!
//! let Verdict::Replay(replay) = store.begin(&call()).await? else { unreachable!("it happened") };
//! assert_eq!(replay.outcome, "ticket 12 and 13");
//! # Ok::<_, exactly::StoreError>(()) }).unwrap();
//! ```

mod inspect;
mod memory;
mod operate;
pub mod record;
mod transactional;
mod wake;

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;

pub use self::inspect::{CallView, Filter, Inspect, Page, Phase};
pub use self::memory::MemoryStore;
pub use self::operate::{Note, Noted, Operate, TrailFilter};
pub use self::transactional::TransactionalStore;
pub use self::wake::{WakeHint, Wakeups, Watch};
use crate::clock::Timestamp;
use crate::{Call, CallId, Claim, StoreError};

/// A store's answer, on its way. Boxed, so that one trait serves as `Arc<dyn Store>` too.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Keeps the records of calls. Every method is one atomic, fenced step.
pub trait Store: Debug + Send + Sync + 'static {
    /// Claims the call, or says why not.
    ///
    /// Repeatable with the same [`Call`] value: a claim whose reply was lost is found again. If the returned future is
    /// dropped before it answers, a claim that it may have made is given back, since nobody can have acted on it.
    fn begin<'a>(&'a self, call: &'a Call) -> Reply<'a, Verdict>;

    /// What [`begin`](Self::begin) would say, unless it would claim. Changes nothing.
    fn peek<'a>(&'a self, call: &'a Call) -> Reply<'a, Option<Verdict>>;

    /// Makes the lease end `lease` from now. Also revives a claim whose lease ended, while nobody took over.
    fn renew<'a>(&'a self, claim: &'a Claim, lease: Duration) -> Reply<'a, Fenced>;

    /// In flight → done: the effect happened, and `outcome` is its answer for as long as `keep` says.
    ///
    /// Repeatable: completing again with the same claim and outcome is `Applied`, so a lost reply is not a lost write.
    /// `Superseded`: a newer attempt owns the key or the call was settled, and nothing was stored.
    fn complete<'a>(&'a self, claim: &'a Claim, outcome: &'a Bytes, keep: Keep) -> Reply<'a, Fenced>;

    /// In flight → absent: the effect did **not** happen. For an unknown outcome use [`lose`](Self::lose).
    fn abandon<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced>;

    /// Ends the lease at once: whether the effect happened is unknown. [`OnLost`](crate::OnLost) decides what follows.
    fn lose<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced>;

    /// Deletes at most `limit` records whose retention has ended, and says how many. Records in doubt stay.
    fn sweep(&self, limit: u32) -> Reply<'_, u32>;

    /// A watch that fires when the record may have changed. Take it *before* `begin`, or the change may be missed.
    fn watch(&self, id: &CallId) -> Watch;
}

/// What [`Store::begin`] found.
#[derive(Debug)]
#[must_use = "a verdict decides whether the effect may happen"]
pub enum Verdict {
    /// Yours: make the effect happen, then complete, abandon or lose the claim.
    Run(Claim),
    /// It happened; this is what it answered.
    Replay(Replay),
    /// Another attempt holds the lease.
    InFlight {
        /// When the lease ends if nobody renews it.
        retry_after: Duration,
    },
    /// The key was first used for a request with another fingerprint.
    Mismatch {
        /// How long the key stays taken; `None` while that is not decided, or if it is never forgotten.
        expires_in: Option<Duration>,
    },
    /// The attempt with this claim was lost mid-effect. Whoever finds out what happened settles it by completing or
    /// abandoning the claim, which fails if its owner comes back first.
    InDoubt(Claim),
}

/// The outcome of a call that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// What it answered.
    pub outcome: Bytes,
    /// When the key is forgotten; `None` if never.
    pub expires_in: Option<Duration>,
}

/// Whether a write got past the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a superseded write changed nothing"]
pub enum Fenced {
    /// The write took effect.
    Applied,
    /// The claim owns the record no longer; nothing was changed. Do not show this attempt's outcome as final.
    Superseded,
}

/// How long an outcome is kept, counted from when it was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Forgotten after this time: the same key is then a new operation.
    For(Duration),
    /// Never forgotten.
    Forever,
}

impl Keep {
    /// 24 hours.
    pub const DAY: Self = Self::For(Duration::from_hours(24));

    /// When an outcome that is stored `now` is forgotten, if ever.
    pub fn until(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::For(duration) => Some(now.after(duration)),
            Self::Forever => None,
        }
    }
}
