//! The verdict on a round: what customers were told against what really happened.
//!
//! A pure function of a [`History`] and a [`Ledger`], so that it can be tested with histories made by hand. It knows
//! nothing of stores and believes none.

mod finding;

use std::collections::BTreeMap;

pub use self::finding::{Counts, Fault, Findings, Violation};
use crate::history::{Answer, Effect, Exchange, Guarantee, History, KeyHistory, Ledger, Said, Settlement};

/// Compares what customers were told with what happened.
pub fn check(guarantee: Guarantee, history: &History, ledger: &Ledger) -> Findings {
    let mut effects: BTreeMap<&str, Vec<&Effect>> = BTreeMap::new();
    for effect in &ledger.effects {
        effects.entry(&effect.key).or_default().push(effect);
    }
    let mut findings = Findings::default();
    findings.counts.effects = ledger.effects.len();
    findings.counts.fenced = ledger.fences;
    for (key, seen) in &history.keys {
        let made = effects.remove(key.as_str()).unwrap_or_default();
        let case = Case::new(guarantee, seen, &made, executions(ledger, key));
        let faults = case.faults();
        case.count(&faults, &mut findings.counts);
        findings.violations.extend(faults.into_iter().map(|fault| Violation {
            key: key.clone(),
            fault,
        }));
    }
    for (key, made) in effects {
        findings.counts.duplicates += usize::from(made.len() > 1);
        findings.violations.push(Violation {
            key: key.to_owned(),
            fault: Fault::NotWished,
        });
    }
    findings
}

/// How often the handler was started for `key`, and how often it said that nothing happened.
fn executions(ledger: &Ledger, key: &str) -> (u32, u32) {
    let of = |counts: &BTreeMap<String, u32>| counts.get(key).copied().unwrap_or_default();
    (of(&ledger.starts), of(&ledger.frees))
}

/// Everything about one key.
struct Case<'a> {
    guarantee: Guarantee,
    seen: &'a KeyHistory,
    made: &'a [&'a Effect],
    starts: u32,
    frees: u32,
    /// The first final answer, and when a customer had it.
    answer: Option<(&'a Answer, u64)>,
    /// The last thing that was said about the customer's own request.
    last: Option<&'a Said>,
}

impl<'a> Case<'a> {
    fn new(guarantee: Guarantee, seen: &'a KeyHistory, made: &'a [&'a Effect], (starts, frees): (u32, u32)) -> Self {
        let own = seen.exchanges.iter().filter(|exchange| !exchange.tampered);
        let answers = own
            .clone()
            .filter_map(|exchange| Some((answer(exchange)?, exchange.received)));
        Self {
            guarantee,
            seen,
            made,
            starts,
            frees,
            answer: answers.min_by_key(|(_, received)| *received),
            last: own
                .filter(|exchange| is_word(&exchange.said))
                .max_by_key(|exchange| exchange.sent)
                .map(|exchange| &exchange.said),
        }
    }

    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        self.check_effects(&mut faults);
        for exchange in &self.seen.exchanges {
            faults.extend(self.fault_of(exchange));
        }
        self.check_executions(&mut faults);
        self.check_last_word(&mut faults);
        faults
    }

    /// Whether the tampered order may have come first. A doubt ends when a handler that was frozen goes on, and if that says that
    /// nothing happened, the key is free for whoever asks next.
    fn is_anybodys(&self) -> bool {
        let own = self.seen.exchanges.iter().filter(|exchange| !exchange.tampered);
        let doubted = own.filter(|exchange| matches!(exchange.said, Said::InDoubt(_)));
        let Some(doubted) = doubted.map(|exchange| exchange.received).min() else {
            return false;
        };
        let mut tampered = self.seen.exchanges.iter().filter(|exchange| exchange.tampered);
        self.frees > 0
            && self.answer.is_none()
            && tampered.any(|exchange| exchange.sent > doubted && exchange.said != Said::Mismatch)
    }

    fn check_effects(&self, faults: &mut Vec<Fault>) {
        let wish = self.seen.wish;
        if self.made.len() > 1 {
            faults.push(Fault::Duplicate(self.made.len()));
        }
        if self.is_anybodys() && self.made.iter().all(|effect| effect.amount == wish.tampered_amount()) {
            return;
        }
        if self.made.iter().any(|effect| effect.amount != wish.amount) || (wish.declined && !self.made.is_empty()) {
            faults.push(Fault::NotWished);
        }
        if wish.declined {
            return;
        }
        match self.answer {
            Some(_) if self.made.is_empty() => faults.push(Fault::Lost),
            Some((answer, _)) if self.made.iter().all(|effect| effect.nonce != answer.nonce) => {
                faults.push(Fault::OtherExecution);
            }
            None if self.is_settled_as_happened() && self.made.is_empty() => faults.push(Fault::Lost),
            _ => {}
        }
    }

    fn fault_of(&self, exchange: &Exchange) -> Option<Fault> {
        let said = &exchange.said;
        match said {
            Said::Strange(what) => return Some(Fault::Strange(what.clone())),
            Said::Lost | Said::Unavailable => return None,
            Said::Mismatch => return (!exchange.tampered && !self.is_anybodys()).then_some(Fault::OwnRefused),
            _ if exchange.tampered && self.is_anybodys() => return None,
            _ if exchange.tampered => return Some(Fault::TamperedAccepted(said.clone())),
            Said::InDoubt(_) if self.guarantee == Guarantee::Transactional => return Some(Fault::DoubtInTransaction),
            _ => {}
        }
        if let Said::Done(answer) = said {
            if self.is_settled_as_happened() {
                return Some(Fault::SettlementOverwritten);
            }
            if self.answer.is_some_and(|(first, _)| !first.is_same_as(answer)) {
                return Some(Fault::AnswersDiffer);
            }
        }
        // Only what was sent after the answer had arrived: the others may have been overtaken by it.
        self.answer.filter(|(_, answered)| exchange.sent > *answered)?;
        match said {
            Said::Done(answer) => (!answer.replayed).then_some(Fault::AnsweredAnew),
            other => Some(Fault::Forgotten(other.clone())),
        }
    }

    /// At most one execution per claim: one more is allowed after each that said that nothing happened, and after each
    /// time that an operator did.
    fn check_executions(&self, faults: &mut Vec<Fault>) {
        if self.guarantee == Guarantee::Transactional {
            return;
        }
        let settled = |settlement: &&Settlement| **settlement == Settlement::DidNotHappen;
        let released = self.seen.settlements.iter().filter(settled).count();
        let allowed = 1 + self.frees + u32::try_from(released).unwrap_or(u32::MAX);
        if self.starts > allowed {
            faults.push(Fault::Rerun {
                starts: self.starts,
                allowed,
            });
        }
    }

    fn check_last_word(&self, faults: &mut Vec<Fault>) {
        let has_one = match (self.last, self.guarantee) {
            (Some(Said::Done(_)), _) | (Some(Said::InDoubt(_)), Guarantee::AtMostOnce) => true,
            (Some(Said::Settled), _) => self.is_settled_as_happened(),
            (Some(Said::Mismatch), Guarantee::AtMostOnce) => self.is_anybodys(),
            _ => false,
        };
        if !has_one {
            faults.push(Fault::NoLastWord);
        }
    }

    fn is_settled_as_happened(&self) -> bool {
        self.seen.settlements.contains(&Settlement::Happened)
    }

    fn count(&self, faults: &[Fault], counts: &mut Counts) {
        let said = |what: fn(&Said) -> bool| self.seen.exchanges.iter().filter(move |exchange| what(&exchange.said));
        counts.keys += 1;
        counts.requests += self.seen.exchanges.len();
        counts.replays += said(|said| matches!(said, Said::Done(answer) if answer.replayed)).count();
        counts.acknowledged += usize::from(self.answer.is_some() || matches!(self.last, Some(Said::Settled)));
        counts.duplicates += usize::from(self.made.len() > 1);
        counts.lost += usize::from(faults.contains(&Fault::Lost));
        let doubted = said(|said| matches!(said, Said::InDoubt(_))).next().is_some();
        let settled = !self.seen.settlements.is_empty();
        counts.doubted += usize::from(doubted);
        counts.in_doubt += usize::from(matches!(self.last, Some(Said::InDoubt(_))));
        counts.settled += usize::from(settled);
        counts.settled_late += usize::from(doubted && !settled && self.answer.is_some());
        counts.refused += said(|said| matches!(said, Said::Mismatch)).count();
    }
}

fn answer(exchange: &Exchange) -> Option<&Answer> {
    match &exchange.said {
        Said::Done(answer) => Some(answer),
        _ => None,
    }
}

/// Whether it says anything about the call, and not only about the way there.
fn is_word(said: &Said) -> bool {
    !matches!(said, Said::Lost | Said::Unavailable)
}
