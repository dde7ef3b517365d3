use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::clock::{Clock as _, ManualClock, WallClock};
use crate::queue::{Ask, End, MemoryQueue, Queue as _, Settlement, WorkerId};

/// Lines of one key, at one endpoint unless told otherwise.
struct Yard {
    queue: Arc<MemoryQueue>,
    lines: Lines<MemoryQueue>,
    clock: Arc<ManualClock>,
    key: OrderKey,
    to: EndpointId,
    body: Bytes,
}

impl Yard {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(WallClock.now()));
        let queue = Arc::new(MemoryQueue::with_clock(Arc::clone(&clock)));
        let lines = Lines::new(Arc::clone(&queue));
        *lines.cursor() = Box::default();
        Self {
            lines,
            queue,
            clock,
            key: OrderKey::new("inv-1").unwrap(),
            to: EndpointId::new("a").unwrap(),
            body: "{}".into(),
        }
    }

    async fn join(&self, event: &EventId) {
        let to = std::slice::from_ref(&self.to);
        self.lines.join(self.joining(event), to).await.unwrap();
    }

    fn joining<'a>(&'a self, event: &'a EventId) -> Joining<'a> {
        Joining {
            event,
            key: &self.key,
            body: &self.body,
            now: self.clock.now(),
        }
    }

    async fn tail(&self) -> Tail {
        self.lines.tail(&self.key, &self.to).await.unwrap()
    }

    /// The events in the line, from the last one on.
    async fn line(&self) -> Vec<String> {
        let (mut line, mut next) = (Vec::new(), self.tail().await.last);
        while let Some(event) = next {
            let name = DeliveryName::new(event.clone(), self.to.clone());
            let view = self.queue.show(name.task_id()).await.unwrap().unwrap();
            next = Enclosed::read(&view.payload).unwrap().after().cloned();
            line.push(event.to_string());
            assert!(line.len() < 1000, "{line:?}");
        }
        line
    }

    async fn look_over(&self, joined: usize) -> Result<(), StoreError> {
        self.lines.look_over(joined, self.clock.now()).await
    }

    async fn cards(&self) -> usize {
        self.queue.cards(PREFIX, "", 100).await.unwrap().len()
    }

    /// What whoever enqueues the delivery of this event again is told.
    async fn found(&self, n: usize) -> Enqueued {
        let made = delivery(&DeliveryName::new(event(n), self.to.clone()), &self.body);
        self.queue.enqueue(&[made]).await.unwrap().remove(0)
    }

    /// Everything that is due is done.
    async fn deliver(&self) {
        for task in self.queue.lease(&Ask::new(WorkerId::random(), 100)).await.unwrap() {
            let done = Settlement::new(task.lease, End::Done("".into()));
            let _ = self.queue.settle(&[done]).await.unwrap();
        }
    }
}

fn event(n: usize) -> EventId {
    EventId::new(format!("evt_{n}")).unwrap()
}

/// Whoever wakes late, and does again what others have gone on from, changes nothing.
#[tokio::test]
async fn a_line_never_goes_back() {
    let yard = Yard::new();
    yard.join(&event(1)).await;
    let seen = yard.tail().await;
    yard.join(&event(2)).await;
    yard.join(&event(3)).await;
    yard.join(&event(2)).await;
    yard.join(&event(1)).await;
    assert_eq!(yard.line().await, ["evt_3", "evt_2", "evt_1"]);
    // One that had looked at the line before it was paused.
    let (event_2, found) = (event(2), yard.found(2).await);
    let advanced = yard.lines.advance(yard.joining(&event_2), &seen, &found).await;
    assert!(!advanced.unwrap(), "it has to look again");
    assert_eq!(yard.line().await, ["evt_3", "evt_2", "evt_1"]);
    yard.join(&event(4)).await;
    assert_eq!(yard.line().await, ["evt_4", "evt_3", "evt_2", "evt_1"]);
}

/// Stopped after the delivery was made and before the line said so, it is gone on with by whoever comes.
#[tokio::test]
async fn a_delivery_without_its_place_gets_it() {
    let yard = Yard::new();
    for n in 1..=3 {
        let (event, name) = (event(n), DeliveryName::new(event(n), yard.to.clone()));
        let tail = yard.tail().await;
        let made = tail.next(yard.joining(&event));
        assert_eq!(made.id(), name.task_id());
        assert!(yard.queue.enqueue(&[made]).await.unwrap()[0].is_new());
        yard.join(&event).await;
    }
    assert_eq!(yard.line().await, ["evt_3", "evt_2", "evt_1"]);
}

/// Two workers do each event, one of them at whatever time: the line is as if there had been one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_that_come_late_leave_the_line_as_it_is() {
    const EVENTS: usize = 200;
    let yard = Arc::new(Yard::new());
    let mut late = tokio::task::JoinSet::new();
    for n in 0..EVENTS {
        for again in 0..3 {
            let yard = Arc::clone(&yard);
            late.spawn(async move {
                let micros = u64::try_from((n * 31 + again * 17) % 97).unwrap();
                tokio::time::sleep(Duration::from_micros(micros)).await;
                yard.join(&event(n)).await;
            });
        }
        yard.join(&event(n)).await;
    }
    late.join_all().await;
    let expected: Vec<_> = (0..EVENTS).rev().map(|n| event(n).to_string()).collect();
    assert_eq!(yard.line().await, expected);
}

/// The line may outlast its last delivery, and the id may be used again: that is another event, and what comes next goes after it.
#[tokio::test]
async fn an_event_whose_name_the_line_still_has_is_sent() {
    let yard = Yard::new();
    for n in 1..=2 {
        yard.join(&event(n)).await;
        yard.deliver().await;
    }
    yard.clock.advance(Duration::from_secs(1));
    let forgotten = yard.queue.prune(TaskState::Done, Duration::from_millis(500), 10).await;
    assert_eq!(forgotten.unwrap(), 2);
    for _ in 0..2 {
        yard.join(&event(2)).await;
    }
    let turn = async |n: usize| {
        let name = DeliveryName::new(event(n), yard.to.clone());
        let view = yard.queue.show(name.task_id()).await.unwrap().unwrap();
        Enclosed::read(&view.payload).unwrap().turn.unwrap()
    };
    let second = turn(2).await;
    assert_eq!(
        (second.place, second.after),
        (3, None),
        "it is there, and nothing goes before it"
    );
    yard.join(&event(3)).await;
    let third = turn(3).await;
    assert_eq!((third.place, third.after), (4, Some(event(2))));
}

/// Whoever wakes after the line was forgotten does not begin it again with what is long over.
#[tokio::test]
async fn what_is_over_begins_no_line() {
    let yard = Yard::new();
    for n in 1..=2 {
        yard.join(&event(n)).await;
        yard.deliver().await;
    }
    let tail = yard.tail().await;
    let name = name(&yard.to, &yard.key);
    let erased = yard.queue.erase_card(&name, tail.revision.unwrap()).await;
    assert_eq!(erased.unwrap(), crate::Fenced::Applied);
    yard.join(&event(1)).await;
    assert_eq!(yard.cards().await, 0);
    yard.join(&event(3)).await;
    assert_eq!(yard.line().await, ["evt_3"]);
}

/// An unreadable end is a new beginning.
#[tokio::test]
async fn a_line_that_cannot_be_read_begins_anew() {
    let yard = Yard::new();
    let name = name(&yard.to, &yard.key);
    let written = yard.queue.write_card(&name, &"what?".into(), None).await.unwrap();
    assert!(written.is_some());
    yard.join(&event(1)).await;
    yard.join(&event(2)).await;
    assert_eq!(yard.line().await, ["evt_2", "evt_1"]);
}

/// What nobody adds to for a day is forgotten, unless its last delivery is still under way; and then it begins anew.
#[tokio::test]
async fn a_line_that_is_over_is_forgotten() {
    let yard = Yard::new();
    yard.join(&event(1)).await;
    yard.clock.advance(IDLE_MAX + Duration::from_secs(1));
    yard.look_over(1).await.unwrap();
    assert_eq!(yard.cards().await, 1, "its delivery waits");
    yard.deliver().await;
    yard.join(&event(2)).await;
    yard.deliver().await;
    yard.look_over(1).await.unwrap();
    assert_eq!(yard.cards().await, 1, "it was in use not long ago");
    yard.clock.advance(IDLE_MAX + Duration::from_secs(1));
    // The first look comes to the end of the list, and the second begins anew.
    yard.look_over(1).await.unwrap();
    yard.look_over(1).await.unwrap();
    assert_eq!(yard.cards().await, 0);
    yard.join(&event(3)).await;
    assert_eq!(yard.line().await, ["evt_3"]);
}

/// More are looked over than one event begins, so what is over goes sooner than it comes.
#[tokio::test]
async fn lines_go_sooner_than_they_come() {
    let mut yard = Yard::new();
    let to: Vec<_> = (0..10).map(|n| EndpointId::new(format!("ep_{n}")).unwrap()).collect();
    for n in 0..5 {
        yard.key = OrderKey::new(format!("inv-{n}")).unwrap();
        yard.lines.join(yard.joining(&event(n)), &to).await.unwrap();
    }
    yard.deliver().await;
    yard.clock.advance(IDLE_MAX + Duration::from_secs(1));
    assert_eq!(yard.cards().await, 50);
    for _ in 0..3 {
        yard.look_over(to.len()).await.unwrap();
    }
    assert_eq!(yard.cards().await, 0);
}
