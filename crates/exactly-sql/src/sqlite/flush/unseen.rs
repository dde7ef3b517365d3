//! Batches that are written without a look.
//!
//! They go to the [scribe](super::super::scribe), which goes on with what came in meanwhile: handing over each batch would
//! cost two threads' waking.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use exactly::CallId;

use super::Flusher;
use crate::batch::{Step, Write};
use crate::sqlite::database::{Database, Slot};
use crate::sqlite::scribe::Batch;

impl Flusher {
    /// Has the scribe write the batch, and those behind it until somebody else waits for a turn, as long as they are likely
    /// to need no look. Returns the steps without an answer.
    pub(super) async fn write_unseen(&self, slot: &mut Slot, steps: Vec<Step>) -> Vec<Step> {
        let Some(scribe) = &self.database.scribe else {
            return steps;
        };
        if slot.is_unsealed() {
            return steps;
        }
        let batch = match self.database.unseen(steps) {
            Ok(batch) => batch,
            Err(steps) => return steps,
        };
        let (database, queued) = (Arc::clone(&self.database), self.queued.clone());
        let next = move || {
            if database.turn.are_wanted() {
                return None;
            }
            queued.batch_now().map(|steps| database.unseen(steps))
        };
        match scribe.write(batch, next, &self.again).await {
            Ok(left) => left,
            Err(unwritten) => {
                self.database.novelty.surprised();
                if unwritten.unsealed {
                    slot.unseal();
                }
                unwritten.batch.map_or_else(Vec::new, Batch::into_steps)
            }
        }
    }
}

impl Database {
    /// The steps as a batch that is likely to need no look, if they are one.
    fn unseen(&self, mut steps: Vec<Step>) -> Result<Batch, Vec<Step>> {
        steps.retain(|step| !step.is_pointless());
        let now = self.clock.reckon();
        if steps.is_empty() || !self.novelty.is_likely() || !self.clock.is_young(now) {
            return Err(steps);
        }
        let (mut completions, are_new) = take_trusted(&mut steps);
        if !are_new {
            steps.append(&mut completions);
            return Err(steps);
        }
        self.batches.fetch_add(1, Ordering::Relaxed);
        Ok(Batch {
            begins: steps,
            completions,
            now,
        })
    }
}

/// Takes out the completions that nothing else in the batch has to do with. As a rule their claims hold, and the statement
/// that writes them finds out if one does not, so nobody looks at their records before. Says of the steps that are left
/// whether each begins a call of its own.
pub(super) fn take_trusted(steps: &mut Vec<Step>) -> (Vec<Step>, bool) {
    let mut times: HashMap<CallId, u32> = HashMap::with_capacity(steps.len());
    for step in steps.iter() {
        *times.entry(*step.id()).or_default() += 1;
    }
    let alone = |step: &mut Step| times.get(step.id()) == Some(&1);
    let trusted = steps
        .extract_if(.., |step| {
            matches!(step.write(), Some(Write::Complete { .. })) && alone(step)
        })
        .collect();
    let are_new = steps
        .iter_mut()
        .all(|step| matches!(step, Step::Begin { until: None, .. }) && alone(step));
    (trusted, are_new)
}
