//! What is remembered of schedules.

use bytes::Bytes;
use exactly::clock::Timestamp;
use exactly::queue::{Book, Entry};

use crate::QueueHarness;
use crate::answers::answered;
use crate::work::{added, task, the_one};

/// What was written is there for everybody, by name.
pub async fn a_schedule_is_remembered<H: QueueHarness<Queue: Book>>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    assert_eq!(answered(queue.schedules().await), []);
    assert_eq!(answered(queue.read_schedule("a").await), None);
    let bytes = |name: &str| Bytes::from(format!("\0\u{ff} the definition of {name}"));
    let names = ["b", "ä", "B", "a b"];
    let before = answered(queue.calendar().await);
    for (n, name) in names.into_iter().enumerate() {
        let paused = [None, Some(true), Some(false)][n % 3];
        answered(queue.write_schedule(name, &bytes(name), paused).await);
    }
    let after = answered(other.calendar().await);
    let entries = answered(other.schedules().await);
    let told: Vec<_> = entries.iter().map(|entry| (&*entry.name, entry.paused)).collect();
    // Byte by byte.
    assert_eq!(told, [("B", false), ("a b", false), ("b", false), ("ä", true)]);
    for entry in entries {
        assert_eq!((&entry.definition, entry.position), (&bytes(&entry.name), None));
        assert!(before <= entry.changed_at && entry.changed_at <= after, "{entry:?}");
        assert_eq!(read(&*queue, &entry.name).await, entry);
    }
}

/// What has become tasks is never forgotten, and of a schedule that is not there nothing is remembered.
pub async fn a_position_never_goes_back<H: QueueHarness<Queue: Book>>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    answered(queue.advance_schedule("a", at(5)).await);
    assert_eq!(answered(queue.schedules().await), []);
    for name in ["a", "b"] {
        answered(queue.write_schedule(name, &"daily".into(), None).await);
    }
    for (advance, position) in [(7, 7), (3, 7), (9, 9), (9, 9)] {
        answered(other.advance_schedule("a", at(advance)).await);
        assert_eq!(read(&*queue, "a").await.position, Some(at(position)));
    }
    assert_eq!(read(&*queue, "b").await.position, None);
}

/// A definition can be written again without a loss of what has been done of it, and of whether it is paused.
pub async fn a_schedule_that_is_written_again_goes_on<H: QueueHarness<Queue: Book>>(harness: &H) {
    let queue = harness.open().await;
    answered(queue.write_schedule("a", &"one".into(), None).await);
    answered(queue.advance_schedule("a", at(7)).await);
    for (definition, asked, paused) in [
        ("two", Some(true), true),
        ("three", None, true),
        ("four", Some(false), false),
        ("five", None, false),
    ] {
        answered(queue.write_schedule("a", &definition.into(), asked).await);
        let entry = read(&*queue, "a").await;
        assert_eq!((&entry.definition[..], entry.paused), (definition.as_bytes(), paused));
        assert_eq!(entry.position, Some(at(7)));
    }
}

/// A pause changes nothing but the pause, and makes no schedule of a name.
pub async fn a_pause_changes_nothing_else<H: QueueHarness<Queue: Book>>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    assert!(!answered(queue.pause_schedule("a", true).await));
    assert_eq!(answered(queue.schedules().await), []);
    for name in ["a", "b"] {
        answered(queue.write_schedule(name, &"daily".into(), None).await);
        answered(queue.advance_schedule(name, at(7)).await);
    }
    for paused in [true, true, false] {
        assert!(answered(other.pause_schedule("a", paused).await));
        let entry = read(&*queue, "a").await;
        assert_eq!((&entry.definition[..], entry.position), (&b"daily"[..], Some(at(7))));
        assert_eq!((entry.paused, read(&*queue, "b").await.paused), (paused, false));
    }
}

/// Whoever writes a schedule while somebody pauses it takes nothing back.
pub async fn writing_and_pausing_at_once_lose_neither<H: QueueHarness<Queue: Book>>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    answered(queue.write_schedule("a", &"".into(), None).await);
    for round in 0..20 {
        let (definition, paused) = (Bytes::from(round.to_string()), round % 2 == 0);
        let write = queue.write_schedule("a", &definition, None);
        let pause = other.pause_schedule("a", paused);
        // Each is the first to be asked as often as the other.
        let (written, was_there) = if round % 4 < 2 {
            tokio::join!(write, pause)
        } else {
            let (was_there, written) = tokio::join!(pause, write);
            (written, was_there)
        };
        answered(written);
        assert!(answered(was_there));
        let entry = read(&*queue, "a").await;
        assert_eq!((entry.definition, entry.paused), (definition, paused));
    }
}

/// An erased schedule is as if it had never been, and what it made stays.
pub async fn an_erased_schedule_is_forgotten<H: QueueHarness<Queue: Book>>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    for name in ["a", "b"] {
        answered(queue.write_schedule(name, &"daily".into(), Some(true)).await);
        answered(queue.advance_schedule(name, at(7)).await);
    }
    added(&*queue, &[task("a")]).await;
    assert!(answered(other.erase_schedule("a").await));
    assert!(!answered(queue.erase_schedule("a").await));
    assert_eq!(answered(queue.read_schedule("a").await), None);
    assert!(!answered(queue.pause_schedule("a", false).await));
    assert_eq!(answered(queue.schedules().await).len(), 1);
    assert_eq!(&*the_one(&*queue).await.key, "a");
    answered(queue.write_schedule("a", &"hourly".into(), None).await);
    let entry = read(&*queue, "a").await;
    assert_eq!((entry.paused, entry.position), (false, None));
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

async fn read(book: &impl Book, name: &str) -> Entry {
    answered(book.read_schedule(name).await).expect("the schedule is there")
}
