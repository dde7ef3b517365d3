//! Where customers write down what they see.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use exactly::CallId;

use crate::history::{Exchange, History, KeyHistory, Said, Settlement, Wish};

/// A history in the making, shared by everyone in a round.
#[derive(Debug, Default)]
pub(crate) struct Register {
    moments: AtomicU64,
    history: Mutex<History>,
}

impl Register {
    /// The next moment of the round: later than every one that was given out before.
    pub(crate) fn moment(&self) -> u64 {
        self.moments.fetch_add(1, Ordering::SeqCst)
    }

    /// A key that is about to be sent for the first time.
    pub(crate) fn open(&self, key: &str, wish: Wish) {
        let entry = KeyHistory {
            wish,
            exchanges: Vec::new(),
            settlements: Vec::new(),
        };
        self.keys().keys.insert(key.to_owned(), entry);
    }

    pub(crate) fn exchanged(&self, key: &str, exchange: Exchange) {
        if let Some(entry) = self.keys().keys.get_mut(key) {
            entry.exchanges.push(exchange);
        }
    }

    pub(crate) fn settled(&self, key: &str, settlement: Settlement) {
        if let Some(entry) = self.keys().keys.get_mut(key) {
            entry.settlements.push(settlement);
        }
    }

    /// Every key and what is wanted under it.
    pub(crate) fn wishes(&self) -> Vec<(String, Wish)> {
        let history = self.keys();
        history
            .keys
            .iter()
            .map(|(key, entry)| (key.clone(), entry.wish))
            .collect()
    }

    /// Keys that are in doubt by the last word about them. Also those that look settled although no settlement is
    /// written down: the operator did not hear that the store took it.
    pub(crate) fn doubts(&self) -> BTreeMap<String, CallId> {
        let history = self.keys();
        let in_doubt = |(key, entry): (&String, &KeyHistory)| {
            let own = || entry.exchanges.iter().filter(|exchange| !exchange.tampered);
            let words = own().filter(|exchange| !matches!(exchange.said, Said::Lost | Said::Unavailable));
            let last = words.max_by_key(|exchange| exchange.sent)?;
            let open = matches!(last.said, Said::InDoubt(_) | Said::Settled) && entry.settlements.is_empty();
            let id = own().find_map(|exchange| match exchange.said {
                Said::InDoubt(id) => id,
                _ => None,
            })?;
            open.then(|| (key.clone(), id))
        };
        history.keys.iter().filter_map(in_doubt).collect()
    }

    /// What everyone saw.
    pub(crate) fn history(&self) -> History {
        self.keys().clone()
    }

    fn keys(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
