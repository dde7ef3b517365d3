//! Someone who settles doubts by looking at the ledger.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use exactly::CallId;
use fastrand::Rng;
use http::StatusCode;

use crate::failure::{Failure, Result};
use crate::history::Settlement;
use crate::ledger;
use crate::line::Line;
use crate::place::Place;
use crate::register::Register;
use crate::victim::{DRAIN_PATH, SETTLE_PATH, SettleAnswer, SettleOrder};

/// How long a server may take to settle one call, while others die and lie frozen.
const PATIENCE: Duration = Duration::from_millis(500);

/// The same once nobody does.
const CALM_PATIENCE: Duration = Duration::from_secs(15);

/// How long the last handlers may take.
const DRAIN_MAX: Duration = Duration::from_secs(30);

/// Settles three of four doubts, so that the others can be seen to stay.
#[derive(Debug)]
pub(crate) struct Operator {
    place: Place,
    register: Arc<Register>,
    lines: Vec<Line>,
    rng: Rng,
    /// What was decided about a key stays decided, also when telling the store did not work at once.
    decided: HashMap<String, bool>,
}

impl Operator {
    pub(crate) fn new(place: Place, register: Arc<Register>, ports: &[u16], rng: Rng) -> Self {
        Self {
            place,
            register,
            lines: ports.iter().map(|port| Line::to(*port)).collect(),
            rng,
            decided: HashMap::new(),
        }
    }

    /// Settles as happened what the ledger shows. Right at any time: an effect does not go away.
    pub(crate) async fn settle_what_happened(&mut self) -> Result<()> {
        self.settle(false).await
    }

    /// Also settles as not happened what the ledger does not show. Only for when nobody is frozen and no customer is
    /// left; waits until no handler is left either that could still make the effect.
    pub(crate) async fn settle_everything(&mut self) -> Result<()> {
        for line in &mut self.lines {
            let answer = line.send(DRAIN_PATH, None, Vec::new(), DRAIN_MAX).await;
            if !matches!(answer, Some((StatusCode::OK, ..))) {
                return Err(Failure::new(format!("a handler still runs after {DRAIN_MAX:?}")));
            }
        }
        self.settle(true).await
    }

    async fn settle(&mut self, nobody_left: bool) -> Result<()> {
        let doubts = self.register.doubts();
        if doubts.is_empty() {
            return Ok(());
        }
        let ledger = ledger::read(&self.place.ledger_file())?;
        let made: HashMap<&str, &str> = ledger
            .effects
            .iter()
            .map(|effect| (effect.key.as_str(), effect.nonce.as_str()))
            .collect();
        for (key, id) in &doubts {
            let rng = &mut self.rng;
            if !*self.decided.entry(key.clone()).or_insert_with(|| rng.u32(..4) > 0) {
                continue;
            }
            let nonce = made.get(key.as_str()).map(|nonce| (*nonce).to_owned());
            let settlement = match nonce {
                Some(_) => Settlement::Happened,
                None if nobody_left => Settlement::DidNotHappen,
                None => continue,
            };
            let patience = if nobody_left { CALM_PATIENCE } else { PATIENCE };
            if self.tell(id, nonce, patience).await {
                self.register.settled(key, settlement);
            }
        }
        Ok(())
    }

    /// Whether the store took it. Completing can be repeated, so it is, until a server answers; the doubt stays in the
    /// register if none does.
    async fn tell(&mut self, id: &CallId, nonce: Option<String>, patience: Duration) -> bool {
        let order = SettleOrder {
            call: id.to_string(),
            nonce,
        };
        let body = serde_json::to_vec(&order).expect("an order is plain data");
        // Not the frozen one first.
        self.lines.sort_by_key(Line::is_suspect);
        for line in &mut self.lines {
            let answer = line.send(SETTLE_PATH, None, body.clone(), patience).await;
            let Some((StatusCode::OK, _, answer)) = answer else {
                continue;
            };
            return serde_json::from_slice(&answer).is_ok_and(|answer: SettleAnswer| answer.applied);
        }
        false
    }
}
