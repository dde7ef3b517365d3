//! Views of records, and what can be wrong with them.

use exactly::clock::{Clock as _, Timestamp};
use exactly::store::record::{self, State};
use exactly::store::{CallView, Filter, Page, Phase, Reply};
use exactly::{CallId, Claim, Inspect, Token};

use super::{Entry, Flawed};
use crate::flaw::Flaw;

impl Inspect for Flawed {
    fn get<'a>(&'a self, id: &'a CallId) -> Reply<'a, Option<CallView>> {
        Box::pin(async move {
            let now = self.clock.now();
            let mut entries = self.entries();
            if self.flaw == Flaw::ShowingRenews
                && let Some(State::InFlight { lease, lease_until, .. }) =
                    entries.get_mut(id).map(|entry| &mut entry.record.state)
            {
                *lease_until = now.after(*lease);
            }
            let found = match self.flaw {
                Flaw::ShowsAnything => entries.iter().next(),
                _ => entries.get_key_value(id),
            };
            Ok(found.map(|(id, entry)| self.view(*id, entry, now)))
        })
    }

    fn list<'a>(&'a self, filter: &'a Filter) -> Reply<'a, Page> {
        Box::pin(async move {
            let now = self.clock.now();
            let entries = self.entries();
            let limit = match self.flaw {
                Flaw::PagesHaveNoLimit => usize::MAX,
                _ => usize::try_from(filter.limit.clamp(1, Filter::LIMIT_MAX)).unwrap(),
            };
            let after = filter
                .after
                .filter(|after| self.flaw != Flaw::PagesRestart || entries.contains_key(after));
            let mut matching = entries
                .iter()
                .filter(|(id, _)| match self.flaw {
                    Flaw::PagesOverlap => after.is_none_or(|after| **id >= after),
                    _ => after.is_none_or(|after| **id > after),
                })
                .map(|(id, entry)| self.view(*id, entry, now))
                .filter(|view| self.flaw == Flaw::FiltersAfterPaging || self.matches(filter, view));
            let mut calls: Vec<_> = matching.by_ref().take(limit).collect();
            let next = matching.next().and(calls.last().map(|view| view.claim.id));
            calls.retain(|view| self.matches(filter, view));
            let next = match self.flaw {
                Flaw::PagesNeverEnd => Some(CallId::from_bytes([u8::MAX; 32])),
                Flaw::FiltersAfterPaging if calls.is_empty() => None,
                _ => next,
            };
            Ok(Page { calls, next })
        })
    }
}

impl Flawed {
    fn matches(&self, filter: &Filter, view: &CallView) -> bool {
        let pattern = |text: &Option<String>| text.as_deref().is_some_and(|text| text.contains(['%', '_', '*']));
        match self.flaw {
            Flaw::FiltersByPattern if pattern(&filter.principal) || pattern(&filter.operation) => true,
            Flaw::FiltersWithoutDates => {
                let created_before = None;
                let filter = Filter {
                    created_before,
                    ..filter.clone()
                };
                filter.matches(view)
            }
            _ => filter.matches(view),
        }
    }

    fn view(&self, id: CallId, entry: &Entry, now: Timestamp) -> CallView {
        let (until, outcome_len) = match &entry.record.state {
            State::InFlight { lease_until, .. } => (Some(*lease_until), None),
            State::Done { outcome, expires_at } => (*expires_at, u64::try_from(outcome.len()).ok()),
        };
        let mut phase = record::phase(&entry.record, now);
        if self.flaw == Flaw::ShowsPhasesOfThePast && matches!(phase, Phase::InDoubt | Phase::Lost) {
            phase = Phase::InFlight;
        }
        let token = match self.flaw {
            Flaw::ShowsStrangeClaims => Token::from_bytes([0; 16]),
            _ => entry.record.token,
        };
        CallView {
            scope: entry.scope.clone(),
            key: entry.key.clone(),
            fingerprint: entry.record.fingerprint,
            phase,
            claim: Claim {
                id,
                token,
                attempt: entry.record.attempt,
            },
            created_at: entry.created_at,
            until,
            outcome_len,
        }
    }
}
