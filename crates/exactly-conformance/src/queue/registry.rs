//! What is remembered beside tasks.

use bytes::Bytes;
use exactly::Fenced;
use exactly::queue::{Card, Registry, Revision};
use futures_util::future::join_all;

use crate::QueueHarness;
use crate::answers::answered;

/// What was written is there for everybody, by name.
pub async fn a_card_is_remembered<H: QueueHarness<Queue: Registry>>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    assert_eq!(answered(queue.read_card("a/1").await), None);
    let value = |name: &str| Bytes::from(format!("\0\u{ff} the value of {name}"));
    for name in ["b/1", "a/ä", "a/B", "a/_", "a/%", "a", "a/1"] {
        assert!(answered(queue.write_card(name, &value(name), None).await).is_some());
    }
    let listed = |cards: Vec<Card>| cards.into_iter().map(|card| card.name).collect::<Vec<_>>();
    let cards = answered(other.cards("a/", "", 10).await);
    assert!(cards.iter().all(|card| card.value == value(&card.name)), "{cards:?}");
    // Byte by byte, and nothing in a prefix stands for anything else.
    let names = ["a/%", "a/1", "a/B", "a/_", "a/ä"].map(Box::from);
    assert_eq!(listed(cards), names);
    assert_eq!(listed(answered(other.cards("a/", "a/1", 2).await)), names[2..4]);
    assert_eq!(listed(answered(other.cards("a/_", "", 10).await)), names[3..4]);
    assert_eq!(listed(answered(other.cards("a/", "b", 10).await)), []);
    assert_eq!(
        listed(answered(other.cards("", "", 2).await)),
        ["a".into(), "a/%".into()]
    );
}

/// Whoever has not seen the last change makes none.
pub async fn a_stale_change_of_a_card_is_refused<H: QueueHarness<Queue: Registry>>(harness: &H) {
    let (queue, other) = (harness.open().await, harness.open().await);
    let first = written(&*queue, "one", None).await;
    assert_eq!(answered(other.write_card("a", &"other".into(), None).await), None);
    let second = written(&*other, "two", Some(first)).await;
    assert!(second > first);
    assert_eq!(answered(queue.write_card("a", &"late".into(), Some(first)).await), None);
    assert_eq!(answered(queue.erase_card("a", first).await), Fenced::Superseded);
    let card = read(&*queue).await;
    assert_eq!((&card.value[..], card.revision), (&b"two"[..], second));
    let gone = Some(Revision::new(1));
    assert_eq!(answered(queue.write_card("b", &"new".into(), gone).await), None);
    assert_eq!(answered(queue.read_card("b").await), None);
}

/// A name that is used again is not taken for what it was.
pub async fn an_erased_card_is_forgotten<H: QueueHarness<Queue: Registry>>(harness: &H) {
    let queue = harness.open().await;
    let first = written(&*queue, "one", None).await;
    assert_eq!(answered(queue.erase_card("a", first).await), Fenced::Applied);
    assert_eq!(answered(queue.erase_card("a", first).await), Fenced::Superseded);
    assert_eq!(answered(queue.read_card("a").await), None);
    assert_eq!(answered(queue.write_card("a", &"late".into(), Some(first)).await), None);
    assert!(answered(queue.write_card("a", &"two".into(), None).await).is_some());
}

/// Of many who change what they have seen, each change stays or is told to have failed.
pub async fn changes_of_a_card_at_once_lose_none<H: QueueHarness<Queue: Registry>>(harness: &H) {
    const WRITERS: usize = 4;
    const CHANGES: usize = 10;
    let first = harness.open().await;
    written(&*first, "0", None).await;
    let mut queues = Vec::new();
    for _ in 0..WRITERS {
        queues.push(harness.open().await);
    }
    let count = |card: &Card| String::from_utf8_lossy(&card.value).parse::<usize>().expect("a number");
    join_all(queues.iter().map(async |queue| {
        for _ in 0..CHANGES {
            loop {
                let card = read(&**queue).await;
                let more = Bytes::from((count(&card) + 1).to_string());
                if answered(queue.write_card("a", &more, Some(card.revision)).await).is_some() {
                    break;
                }
            }
        }
    }))
    .await;
    let card = read(&*first).await;
    assert_eq!(count(&card), WRITERS * CHANGES);
}

async fn written(queue: &impl Registry, value: &'static str, over: Option<Revision>) -> Revision {
    answered(queue.write_card("a", &value.into(), over).await).expect("what was seen is replaced")
}

async fn read(queue: &impl Registry) -> Card {
    answered(queue.read_card("a").await).expect("it was written")
}
