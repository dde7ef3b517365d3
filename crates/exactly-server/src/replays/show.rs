//! What people are shown about replays.

use std::fmt::Write as _;

use crate::admin::replays::ask::WhichText;
use crate::admin::replays::wire::{ReplayPage, ReplayShown, ReplayStateText};
use crate::calls::{Table, plain, when};

pub(super) fn page(page: &ReplayPage) -> String {
    let mut table = Table::new(["ID", "STATE", "OF", "SEEN", "SENT", "STARTED"]);
    for replay in &page.replays {
        let progress = replay.progress;
        table.row([
            &replay.id,
            replay.state.word(),
            &meant(replay),
            &progress.seen.to_string(),
            &(progress.revived + progress.sent_again).to_string(),
            &when(&replay.started_at),
        ]);
    }
    let mut text = if page.replays.is_empty() {
        "no replays\n".to_owned()
    } else {
        table.to_string()
    };
    if let Some(next) = &page.next {
        let _ = writeln!(text, "there are more: --after {next}");
    }
    text
}

pub(super) fn replay(replay: &ReplayShown) -> String {
    let progress = replay.progress;
    let mut facts = Table::bare();
    facts.row(["id", &replay.id]);
    facts.row(["state", replay.state.word()]);
    facts.row(["of", &meant(replay)]);
    if let Some(since) = &replay.since {
        facts.row(["made since", &when(since)]);
    }
    if let Some(until) = &replay.until {
        facts.row(["made before", &when(until)]);
    }
    if let Some(per_second) = replay.per_second {
        facts.row(["per second", &per_second.to_string()]);
    }
    facts.row(["started", &when(&replay.started_at)]);
    if let Some(ended) = &replay.ended_at {
        facts.row(["ended", &when(ended)]);
    }
    facts.row(["seen", &progress.seen.to_string()]);
    let (revived, again) = if replay.dry_run {
        ("would revive", "would send again")
    } else {
        ("revived", "sent again")
    };
    facts.row([revived, &progress.revived.to_string()]);
    facts.row([again, &progress.sent_again.to_string()]);
    facts.row(["left alone", &progress.left_alone.to_string()]);
    facts.row(["skipped", &progress.skipped.to_string()]);
    let mut text = facts.to_string();
    if let Some(warning) = &replay.warning {
        let _ = write!(text, "\nwarning: {}\n", plain(warning));
    }
    let id = &replay.id;
    let _ = match replay.state {
        ReplayStateText::Running => write!(text, "\nTo see how far it is:\n  exactly replays show {id}\n"),
        ReplayStateText::Paused => write!(text, "\nIt rests. To go on:\n  exactly replays resume {id}\n"),
        ReplayStateText::Canceled | ReplayStateText::Done => Ok(()),
    };
    text
}

/// Which deliveries it is about, in a line.
fn meant(replay: &ReplayShown) -> String {
    let mut text = match replay.which {
        WhichText::Failed => "failed".to_owned(),
        WhichText::All => "all".to_owned(),
    };
    let (event, endpoint) = (replay.event.iter(), replay.endpoint.iter());
    let named = event.map(|id| format!("event {id}"));
    let named = named.chain(endpoint.map(|id| format!("to {id}")));
    for part in named.chain(replay.types.iter().cloned()) {
        let _ = write!(text, ", {part}");
    }
    if replay.dry_run {
        text.push_str(" (dry run)");
    }
    text
}
