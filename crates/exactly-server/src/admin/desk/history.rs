//! What a record and the trail tell about a call.

use exactly::clock::Timestamp;
use exactly::store::{CallView, Noted, Phase};

use crate::admin::input::rfc3339;
use crate::admin::wire::Event;

/// In order of time; what has no time stands where the record knows it happened.
pub(super) fn of(view: &CallView, noted: Vec<Noted>) -> Vec<Event> {
    let mut events = vec![(
        view.created_at,
        told(Some(view.created_at), "begun", "the key was first used"),
    )];
    let attempt = view.claim.attempt.get();
    if attempt > 1 {
        let detail = format!("attempt {attempt} is the latest; those before it were lost");
        events.push((view.created_at, told(None, "attempt", &detail)));
    }
    // What an earlier record of the same key went through has left entries too, and they stand first.
    events.extend(noted.into_iter().map(of_trail));
    events.sort_by_key(|(at, _)| *at);
    let mut events: Vec<Event> = events.into_iter().map(|(_, event)| event).collect();
    events.push(state(view));
    events
}

fn state(view: &CallView) -> Event {
    let until = view.until;
    match view.phase {
        Phase::InFlight => told(until, "lease", "the attempt's lease ends, unless it is renewed"),
        Phase::InDoubt => told(
            until,
            "lease",
            "the attempt's lease ended without an outcome: it is in doubt",
        ),
        Phase::Lost => told(
            until,
            "lease",
            "the attempt's lease ended without an outcome: the next request reruns it",
        ),
        Phase::Done => {
            let bytes = view.outcome_len.unwrap_or_default();
            let kept = until.map_or("forever".to_owned(), |until| format!("until {}", rfc3339(until)));
            told(None, "outcome", &format!("it happened; {bytes} bytes are kept {kept}"))
        }
    }
}

fn told(at: Option<Timestamp>, what: &str, detail: &str) -> Event {
    Event {
        at: at.map(rfc3339),
        what: what.to_owned(),
        detail: detail.to_owned(),
        actor: None,
    }
}

fn of_trail(noted: Noted) -> (Timestamp, Event) {
    let event = Event {
        at: Some(rfc3339(noted.at)),
        what: noted.note.action,
        detail: noted.note.detail,
        actor: Some(noted.note.actor),
    };
    (noted.at, event)
}
