//! What operators do, and what can be wrong with it.

use std::time::Duration;

use exactly::clock::{Clock as _, Timestamp};
use exactly::store::record::{self, Change};
use exactly::store::{Note, Noted, Operate, Reply, TrailFilter};
use exactly::{Claim, Fenced};

use super::Flawed;
use crate::flaw::Flaw;

/// What operators did, and how many numbers were drawn for it.
#[derive(Debug, Default)]
pub(super) struct Trail {
    drawn: u64,
    entries: Vec<Noted>,
}

impl Operate for Flawed {
    fn forget<'a>(&'a self, claim: &'a Claim) -> Reply<'a, Fenced> {
        Box::pin(async move {
            let claim = match self.flaw {
                Flaw::ForgetsUnfenced => self.owner(claim),
                _ => claim.clone(),
            };
            let found = self.record(&claim.id);
            let (change, fenced) = match (self.flaw, found.as_ref()) {
                (Flaw::ForgettingIsIgnored, _) => (Change::Keep, Fenced::Applied),
                (Flaw::ForgetsOnce, None) => (Change::Keep, Fenced::Superseded),
                (Flaw::ForgetsWhatIsNotDone, Some(_)) => (Change::Delete, Fenced::Applied),
                (_, found) => record::forget(found, &claim),
            };
            if self.flaw == Flaw::ForgetsInTwoSteps {
                tokio::task::yield_now().await;
            }
            self.change(&claim.id, change);
            if self.flaw != Flaw::ForgetsQuietly {
                self.wakeups.wake(&claim.id);
            }
            Ok(fenced)
        })
    }

    fn note<'a>(&'a self, note: &'a Note) -> Reply<'a, ()> {
        Box::pin(async move {
            let at = self.clock.now();
            let (number, seen) = {
                let mut trail = self.trail.lock().unwrap();
                trail.drawn += 1;
                (trail.drawn, trail.entries.clone())
            };
            let note = self.kept(note);
            match self.flaw {
                Flaw::NotesOverwriteEachOther => {
                    tokio::task::yield_now().await;
                    self.trail.lock().unwrap().entries = seen;
                }
                // The later ones of a drove are the first to arrive.
                Flaw::NumbersBeforeItWrites => tokio::time::sleep(Duration::from_millis(50 - number % 4 * 10)).await,
                _ => {}
            }
            let keep = match self.flaw {
                Flaw::TrailIsKeptForever => Duration::MAX,
                Flaw::TrailIsKeptForADay => Duration::from_hours(24),
                _ => Noted::KEEP,
            };
            let trail = &mut self.trail.lock().unwrap().entries;
            trail.push(Noted { number, at, note });
            trail.sort_by_key(|noted| noted.number);
            trail.retain(|noted| noted.at.after(keep) > at);
            Ok(())
        })
    }

    fn trail<'a>(&'a self, filter: &'a TrailFilter) -> Reply<'a, Vec<Noted>> {
        Box::pin(async move {
            let limit = match self.flaw {
                Flaw::TrailHasNoLimit => usize::MAX,
                _ => usize::try_from(filter.limit.clamp(1, TrailFilter::LIMIT_MAX)).unwrap(),
            };
            let mut trail = self.trail.lock().unwrap().entries.clone();
            trail.retain(|noted| {
                filter.after.is_none_or(|after| match self.flaw {
                    Flaw::TrailOverlaps => noted.number >= after,
                    _ => noted.number > after,
                })
            });
            if self.flaw != Flaw::TrailIsOfEverybody {
                trail.retain(|noted| filter.call.is_none_or(|call| noted.note.call == Some(call)));
            }
            if self.flaw == Flaw::TrailRunsBackwards {
                trail.reverse();
            }
            trail.truncate(limit);
            Ok(trail)
        })
    }

    fn now(&self) -> Reply<'_, Timestamp> {
        Box::pin(async move {
            Ok(match self.flaw {
                Flaw::ClockStandsStill => Timestamp::from_millis(1_800_000_000_000),
                Flaw::ShowsAnotherClock => self.clock.now().after(Duration::from_hours(2)),
                _ => self.clock.now(),
            })
        })
    }
}

impl Flawed {
    /// The note as a store with a narrow idea of text keeps it.
    fn kept(&self, note: &Note) -> Note {
        let text = |text: &str| match self.flaw {
            Flaw::NotesEndAtNul => text.split('\0').next().unwrap_or_default().to_owned(),
            Flaw::NotesLoseControlCharacters => text.chars().filter(|sign| !sign.is_control()).collect(),
            _ => text.to_owned(),
        };
        Note {
            call: note.call,
            actor: text(&note.actor),
            action: text(&note.action),
            detail: text(&note.detail),
        }
    }
}
