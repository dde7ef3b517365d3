//! A payment provider as they come: slow, at-least-once, and now and then silent about what it did.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use exactly::CallId;

/// The fake provider. It pays out once per request id, and answers late or never.
#[derive(Clone, Debug)]
pub struct Provider {
    delay: Duration,
    silent_one_in: u32,
    paid: Arc<Mutex<BTreeMap<CallId, i64>>>,
}

/// No answer came: the payout may or may not have been made.
#[derive(Debug)]
pub struct Silent;

impl Provider {
    /// Takes `delay` for everything, and about once in `silent_one_in` requests never answers (0: always answers).
    pub fn new(delay: Duration, silent_one_in: u32) -> Self {
        Self {
            delay,
            silent_one_in,
            paid: Arc::default(),
        }
    }

    /// Pays out, unless `request` was paid out before.
    pub async fn pay_out(&self, request: &CallId, amount: i64) -> Result<(), Silent> {
        tokio::time::sleep(self.delay).await;
        self.paid().entry(*request).or_insert(amount);
        let silent = self.silent_one_in > 0 && fastrand::u32(0..self.silent_one_in) == 0;
        if silent { Err(Silent) } else { Ok(()) }
    }

    /// What was paid out for `request`.
    pub async fn look_up(&self, request: &CallId) -> Option<i64> {
        tokio::time::sleep(self.delay).await;
        self.paid().get(request).copied()
    }

    /// How many payouts were made.
    pub fn payouts(&self) -> usize {
        self.paid().len()
    }

    fn paid(&self) -> std::sync::MutexGuard<'_, BTreeMap<CallId, i64>> {
        self.paid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
