//! The trail that operators leave.

use std::sync::Arc;
use std::time::Duration;

use exactly::store::{Note, Noted, Operate, TrailFilter};
use exactly::{CallId, Store as _, StoreErrorKind};
use futures_util::future::join_all;

use crate::StoreHarness;
use crate::answers::{VerdictExt as _, answered};
use crate::request::{PATIENCE, Request};

const EVERYTHING: TrailFilter = TrailFilter {
    call: None,
    after: None,
    limit: TrailFilter::LIMIT_MAX,
};

/// Entries come back in the order they were written, whole, and dated.
pub async fn a_trail_keeps_its_order<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    assert_eq!(answered(store.trail(&EVERYTHING).await), []);
    let claim = store.begin(&Request::fresh().call()).await.must_run();
    let notes: Vec<_> = (0..5)
        .map(|n| note(&format!("note {n}"), (n % 2 == 0).then_some(claim.id)))
        .collect();
    let before = answered(store.now().await);
    for note in &notes {
        answered(store.note(note).await);
    }
    let after = answered(store.now().await);
    let trail = answered(store.trail(&EVERYTHING).await);
    assert_eq!(written(&trail), notes);
    assert!(trail.is_sorted_by(|one, next| one.number < next.number && one.at <= next.at));
    assert!(trail.iter().all(|noted| before <= noted.at && noted.at <= after));
}

/// Following the numbers shows every entry once, in portions no larger than asked for.
pub async fn a_trail_is_read_in_portions<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    for n in 0..7 {
        answered(store.note(&note(&format!("note {n}"), None)).await);
    }
    let all = answered(store.trail(&TrailFilter::default()).await);
    for limit in [1, 3, 7] {
        let mut seen: Vec<Noted> = Vec::new();
        loop {
            let after = seen.last().map(|noted| noted.number);
            let filter = TrailFilter {
                after,
                limit,
                ..EVERYTHING
            };
            let portion = answered(store.trail(&filter).await);
            assert!(portion.len() <= usize::try_from(limit).expect("small"));
            if portion.is_empty() {
                break;
            }
            seen.extend(portion);
            assert!(seen.len() <= all.len(), "an entry is shown twice");
        }
        assert_eq!(seen, all);
    }
    let least = TrailFilter { limit: 0, ..EVERYTHING };
    assert_eq!(answered(store.trail(&least).await), all[..1]);
    let beyond = TrailFilter {
        after: Some(u64::MAX),
        ..EVERYTHING
    };
    assert_eq!(answered(store.trail(&beyond).await), []);
}

/// One answer never holds more than the limit of all limits.
pub async fn a_trail_is_never_longer_than_the_limit<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let most = usize::try_from(TrailFilter::LIMIT_MAX).expect("small");
    let notes: Vec<_> = (0..=most).map(|n| note(&format!("note {n}"), None)).collect();
    for notes in notes.chunks(50) {
        for added in join_all(notes.iter().map(|note| store.note(note))).await {
            answered(added);
        }
    }
    let filter = TrailFilter {
        limit: u32::MAX,
        ..EVERYTHING
    };
    let first = answered(store.trail(&filter).await);
    assert_eq!(first.len(), most);
    let after = first.last().map(|noted| noted.number);
    assert_eq!(answered(store.trail(&TrailFilter { after, ..filter }).await).len(), 1);
}

/// What was done to one call is found among all that was done.
pub async fn a_trail_can_be_read_for_one_call<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let (one, other) = (CallId::from_bytes([1; 32]), CallId::from_bytes([2; 32]));
    let calls = [Some(one), None, Some(other), Some(one), Some(other), Some(one)];
    for (n, call) in calls.into_iter().enumerate() {
        answered(store.note(&note(&format!("note {n}"), call)).await);
    }
    let filter = TrailFilter {
        call: Some(one),
        ..EVERYTHING
    };
    let found = answered(store.trail(&filter).await);
    let details: Vec<_> = found.iter().map(|noted| noted.note.detail.as_str()).collect();
    assert_eq!(details, ["note 0", "note 3", "note 5"]);
    let after = Some(found[0].number);
    let next = TrailFilter {
        after,
        limit: 1,
        ..filter
    };
    assert_eq!(answered(store.trail(&next).await), found[1..2]);
    let nobody = TrailFilter {
        call: Some(CallId::from_bytes([3; 32])),
        ..EVERYTHING
    };
    assert_eq!(answered(store.trail(&nobody).await), []);
}

/// The trail is there for whoever opens a store on the same place, and goes on from where it was.
pub async fn a_trail_outlives_the_store_that_wrote_it<H: StoreHarness>(harness: &H) {
    let notes = [note("before", None), note("after", None)];
    for note in &notes {
        let store = harness.open().await;
        answered(store.note(note).await);
    }
    let trail = answered(harness.open().await.trail(&EVERYTHING).await);
    assert_eq!(written(&trail), notes);
    assert!(trail[0].number < trail[1].number);
}

/// Notes of many operators at once are all kept, each under a number of its own.
pub async fn concurrent_notes_are_all_kept<H: StoreHarness>(harness: &H) {
    let stores = [harness.open().await, harness.open().await];
    let notes: Vec<_> = (0..40).map(|n| note(&format!("note {n:02}"), None)).collect();
    let added = notes
        .iter()
        .zip(stores.iter().cycle())
        .map(|(note, store)| store.note(note));
    for added in join_all(added).await {
        answered(added);
    }
    let trail = answered(stores[0].trail(&EVERYTHING).await);
    assert!(trail.is_sorted_by(|one, next| one.number < next.number));
    let mut kept = written(&trail);
    kept.sort_by(|one, other| one.detail.cmp(&other.detail));
    assert_eq!(kept, notes);
}

/// Whoever follows the numbers while others write misses no entry: none appears behind one that was seen.
pub async fn whoever_follows_a_trail_misses_nothing<H: StoreHarness>(harness: &H) {
    const WRITERS: usize = 4;
    const NOTES: usize = 10;
    let stores = [harness.open().await, harness.open().await];
    let writers = (0..WRITERS).map(|writer| {
        let store = Arc::clone(&stores[writer % 2]);
        tokio::spawn(async move {
            for n in 0..NOTES {
                answered(store.note(&note(&format!("note {n} of {writer}"), None)).await);
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let follow = async {
        let mut seen: Vec<Noted> = Vec::new();
        while seen.len() < WRITERS * NOTES {
            let after = seen.last().map(|noted| noted.number);
            seen.extend(answered(stores[0].trail(&TrailFilter { after, ..EVERYTHING }).await));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let followed = tokio::time::timeout(PATIENCE, follow).await;
    for writer in writers {
        writer.await.expect("a writer writes");
    }
    followed.expect("an entry appeared behind others that were seen");
}

/// Quotes, escapes, control characters and long texts are text.
pub async fn difficult_texts_in_notes_come_back_unchanged<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let long = "long ".repeat(20_000);
    let texts = [
        "",
        "'; drop table exactly_trail; --",
        "back\\slash \\' \\x00 \\u0000 \"quoted\" $1 $$ ?1 {0} %s",
        "]] redis.call('flushall') --[[",
        "Ünïcödé – 日本語 – 🎟️ – e\u{301} – \u{202e}right to left\u{feff}",
        "line\nend\r\n\ttab \u{7}\u{1b}[31m\u{1}\u{1f}\u{7f}\u{80}",
        &long,
    ];
    for text in texts {
        let note = Note {
            call: None,
            actor: text.to_owned(),
            action: text.to_owned(),
            detail: text.to_owned(),
        };
        answered(store.note(&note).await);
        assert_eq!(
            answered(store.trail(&EVERYTHING).await).pop().map(|noted| noted.note),
            Some(note)
        );
    }
}

/// A text that a store cannot keep is refused in words. It is never kept in part, and the next note is.
pub async fn a_note_is_kept_whole_or_refused<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    let mut kept = Vec::new();
    for (actor, action, detail) in [
        ("nul \0 inside", "a", "d"),
        ("a", "\0", "d"),
        ("a", "a", "ends with \0"),
    ] {
        let odd = Note {
            call: None,
            actor: actor.to_owned(),
            action: action.to_owned(),
            detail: detail.to_owned(),
        };
        match store.note(&odd).await {
            Ok(()) => kept.push(odd),
            Err(error) => assert_ne!(
                error.kind(),
                StoreErrorKind::Unavailable,
                "trying later does not help: {error}"
            ),
        }
        let plain = note("plain", None);
        answered(store.note(&plain).await);
        kept.push(plain);
        assert_eq!(written(&answered(store.trail(&EVERYTHING).await)), kept);
    }
}

/// Entries past their age go when another one is written, and no others do.
pub async fn old_entries_go_and_numbers_rise<H: StoreHarness>(harness: &H) {
    let store = harness.open().await;
    answered(store.note(&note("oldest", None)).await);
    let hour = Duration::from_hours(1);
    harness.elapse(hour * 2).await;
    answered(store.note(&note("old", None)).await);
    harness.elapse(Noted::KEEP.saturating_sub(hour)).await;
    answered(store.note(&note("new", None)).await);
    let trail = answered(store.trail(&EVERYTHING).await);
    assert_eq!(written(&trail), [note("old", None), note("new", None)]);

    harness.elapse(Noted::KEEP + hour).await;
    answered(store.note(&note("newest", None)).await);
    let left = answered(store.trail(&EVERYTHING).await);
    assert_eq!(written(&left), [note("newest", None)]);
    assert!(left[0].number > trail[1].number);
}

fn note(detail: &str, call: Option<CallId>) -> Note {
    Note {
        call,
        actor: "ann".to_owned(),
        action: "forget".to_owned(),
        detail: detail.to_owned(),
    }
}

fn written(trail: &[Noted]) -> Vec<Note> {
    trail.iter().map(|noted| noted.note.clone()).collect()
}
