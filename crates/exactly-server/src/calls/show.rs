//! What people are shown.

use std::fmt::Write as _;
use std::time::Duration;

use exactly::clock::{Clock as _, Timestamp, WallClock};
use serde::Serialize;

use super::Refused;
use super::table::Table;
use crate::admin::wire::{Became, Call, CallDetail, CallPage, Phase, Purged, Settled, Trail};
use crate::cli::say;

/// How much of an id a table shows: more than enough to name it by.
const ID_SHOWN: usize = 16;

/// Prints `value` as JSON, or as `text`.
pub(crate) fn print<T: Serialize>(json: bool, value: &T, text: impl FnOnce(&T) -> String) -> Result<(), Refused> {
    let text = if json {
        serde_json::to_string_pretty(value).map_err(Refused::failed)? + "\n"
    } else {
        text(value)
    };
    say(text).map_err(Refused::failed)
}

pub(super) fn page(page: &CallPage) -> String {
    let mut table = Table::new(["ID", "PHASE", "ATTEMPT", "OPERATION", "PRINCIPAL", "KEY", "BEGUN"]);
    for call in &page.calls {
        table.row([
            &call.id[..ID_SHOWN.min(call.id.len())],
            phase(call.phase),
            &call.attempt.to_string(),
            &call.operation,
            call.principal.as_deref().map_or("(everyone)", short),
            &format!("#{}", call.key_digest),
            &when(&call.created_at),
        ]);
    }
    let mut text = if page.calls.is_empty() {
        "no calls\n".to_owned()
    } else {
        table.to_string()
    };
    if let Some(next) = &page.next {
        let _ = writeln!(text, "there are more: --after {next}");
    }
    text
}

pub(super) fn detail(detail: &CallDetail) -> String {
    let mut table = Table::bare();
    let Call {
        id,
        principal,
        operation,
        key_digest,
        key,
        fingerprint,
        phase: reached,
        attempt,
        claim,
        created_at,
        lease_ends_at,
        expires_at,
        outcome_bytes,
    } = &detail.call;
    table.row(["id", id]);
    table.row(["phase", phase(*reached)]);
    table.row(["operation", operation]);
    table.row(["principal", principal.as_deref().unwrap_or("(everyone)")]);
    table.row(["key", &key.clone().unwrap_or_else(|| format!("#{key_digest}"))]);
    table.row(["fingerprint", fingerprint]);
    table.row(["attempt", &attempt.to_string()]);
    table.row(["claim", claim]);
    table.row(["begun", &when(created_at)]);
    if let Some(lease) = lease_ends_at {
        table.row(["lease", &when(lease)]);
    }
    if let Some(bytes) = outcome_bytes {
        table.row(["outcome", &format!("{bytes} bytes")]);
        table.row(["kept until", &expires_at.as_deref().map_or("forever".to_owned(), when)]);
    }
    let mut history = Table::new(["AT", "WHAT", "BY", "DETAIL"]);
    for event in &detail.history {
        let at = event.at.as_deref().map_or("-".to_owned(), when);
        history.row([&at, &event.what, event.actor.as_deref().unwrap_or("-"), &event.detail]);
    }
    format!("{table}\n{history}{}", advice(*reached, id))
}

/// What to do about a call that needs somebody.
fn advice(reached: Phase, id: &str) -> String {
    if reached != Phase::InDoubt {
        return String::new();
    }
    let id = &id[..ID_SHOWN.min(id.len())];
    format!(
        "\nNobody knows whether it happened. Find out, then say so:\n  \
         exactly calls resolve {id} --did-not-happen --yes\n  \
         exactly calls resolve {id} --happened --status 201 --body '…' --yes\n"
    )
}

pub(super) fn settled(settled: &Settled) -> String {
    let now = match settled.now {
        Became::Done => "done: repetitions get its answer",
        Became::Absent => "gone: the next request with its key runs",
    };
    format!(
        "{}: was {}, is {now}\n",
        &settled.id[..ID_SHOWN.min(settled.id.len())],
        phase(settled.was)
    )
}

pub(super) fn purged(purged: &Purged) -> String {
    if purged.dry_run {
        format!("{} finished calls would be forgotten\n", purged.matched)
    } else {
        format!(
            "{} of {} finished calls were forgotten\n",
            purged.purged, purged.matched
        )
    }
}

pub(super) fn trail(trail: &Trail) -> String {
    let mut table = Table::new(["NUMBER", "AT", "BY", "ACTION", "CALL", "DETAIL"]);
    for entry in &trail.entries {
        table.row([
            &entry.number.to_string(),
            &when(&entry.at),
            &entry.actor,
            &entry.action,
            entry.call.as_deref().map_or("-", |id| &id[..ID_SHOWN.min(id.len())]),
            &entry.detail,
        ]);
    }
    let mut text = if trail.entries.is_empty() {
        "no entries\n".to_owned()
    } else {
        table.to_string()
    };
    if let Some(next) = trail.next {
        let _ = writeln!(text, "there may be more: --after {next}");
    }
    text
}

pub(super) fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::InFlight => "in_flight",
        Phase::InDoubt => "in_doubt",
        Phase::Lost => "lost",
        Phase::Done => "done",
    }
}

/// A principal may be the digest of a credential, of which the start is enough.
fn short(principal: &str) -> &str {
    principal
        .char_indices()
        .nth(ID_SHOWN)
        .map_or(principal, |(at, _)| &principal[..at])
}

/// The instant as it is, and how far away it is.
pub(crate) fn when(at: &str) -> String {
    let parsed: Option<jiff::Timestamp> = at.parse().ok();
    let millis = parsed.and_then(|at| u64::try_from(at.as_millisecond()).ok());
    match millis {
        Some(millis) => format!("{at} ({})", relative(Timestamp::from_millis(millis), WallClock.now())),
        None => at.to_owned(),
    }
}

fn relative(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        format!("in {}", rough(at.since(now)))
    } else {
        format!("{} ago", rough(now.since(at)))
    }
}

/// One unit says enough.
pub(crate) fn rough(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} m", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_told_how_long_ago() {
        let now = Timestamp::from_millis(1_000_000_000);
        for (offset, told) in [
            (0, "0 s ago"),
            (59, "59 s ago"),
            (125, "2 m ago"),
            (7_200, "2 h ago"),
            (259_200, "3 d ago"),
        ] {
            let at = Timestamp::from_millis(1_000_000_000 - offset * 1_000);
            assert_eq!(relative(at, now), told);
        }
        assert_eq!(relative(now.after(Duration::from_mins(5)), now), "in 5 m");
    }
}
