//! The checker of events, on books made by hand.

use std::time::Duration;

use exactly_crash::events::check::{Attempt, Books, Delivery, Fault, check};

const PAID: &str = "evt_1 books";

/// One event, told to one endpoint at the second attempt, after its first sender died.
fn sound() -> Books {
    let attempt = |fence, sender: &str| Attempt {
        fence,
        sender: sender.to_owned(),
    };
    let delivery = Delivery {
        is_done: true,
        attempts: vec![attempt(1, "dead"), attempt(3, "alive")],
    };
    Books {
        endpoints: ["books".to_owned()].into(),
        committed: [("evt_1".to_owned(), "n".to_owned())].into(),
        published: ["evt_1".to_owned()].into(),
        applied: vec![(PAID.to_owned(), "n".to_owned())],
        deliveries: [(PAID.to_owned(), delivery)].into(),
        posts: [
            ((PAID.to_owned(), "dead".to_owned()), 1),
            ((PAID.to_owned(), "alive".to_owned()), 1),
        ]
        .into(),
        ..Books::default()
    }
}

fn faults(books: &Books) -> Vec<Fault> {
    check(books).into_iter().map(|violation| violation.fault).collect()
}

#[test]
fn an_event_that_was_committed_and_applied_once_is_no_fault() {
    assert_eq!(faults(&sound()), []);
}

#[test]
fn an_event_that_was_applied_twice_is_a_duplicate() {
    let mut books = sound();
    books.applied.push((PAID.to_owned(), "n".to_owned()));
    assert_eq!(faults(&books), [Fault::Duplicate(2)]);
}

#[test]
fn an_event_that_was_committed_and_not_applied_is_lost_even_if_its_delivery_is_done() {
    let mut books = sound();
    books.applied.clear();
    assert_eq!(faults(&books), [Fault::Lost]);
}

#[test]
fn an_event_that_one_of_its_endpoints_never_got_is_lost() {
    let mut books = sound();
    books.endpoints.insert("post".to_owned());
    assert_eq!(faults(&books), [Fault::Lost, Fault::Unfinished]);
}

#[test]
fn an_event_that_was_rolled_back_is_a_fault_once_published_and_once_applied() {
    let mut books = sound();
    books.published.insert("evt_2".to_owned());
    assert_eq!(faults(&books), [Fault::Unexpected]);
    books.applied.push(("evt_2 books".to_owned(), "n".to_owned()));
    assert_eq!(faults(&books), [Fault::Unexpected, Fault::Unexpected]);
}

#[test]
fn an_event_that_was_applied_with_another_content_is_a_fault() {
    let mut books = sound();
    books.applied[0].1 = "m".to_owned();
    assert_eq!(faults(&books), [Fault::OtherContent]);
}

#[test]
fn a_request_that_its_senders_history_does_not_know_is_a_fault_even_if_another_has_attempts_to_spare() {
    let mut books = sound();
    books.posts.insert((PAID.to_owned(), "alive".to_owned()), 2);
    books.posts.remove(&(PAID.to_owned(), "dead".to_owned()));
    assert_eq!(faults(&books), [Fault::Unnoted(2, 1)]);
}

#[test]
fn a_request_for_no_delivery_is_a_fault() {
    let mut books = sound();
    books.posts.insert(("evt_2 books".to_owned(), "alive".to_owned()), 1);
    assert_eq!(faults(&books), [Fault::Unnoted(1, 0)]);
}

#[test]
fn an_attempt_without_a_request_is_none() {
    let mut books = sound();
    books.posts.clear();
    assert_eq!(faults(&books), []);
}

#[test]
fn a_delivery_that_changed_after_it_was_done_is_a_fault() {
    let mut books = sound();
    books.changed.insert(PAID.to_owned());
    assert_eq!(faults(&books), [Fault::Reopened]);
}

#[test]
fn an_attempt_that_is_later_than_the_one_that_succeeded_is_a_fault() {
    let mut books = sound();
    let delivery = books.deliveries.get_mut(PAID).unwrap();
    delivery.attempts[0].fence = 4;
    assert_eq!(faults(&books), [Fault::Reopened]);
}

#[test]
fn a_delivery_that_is_not_done_is_a_fault_even_if_its_event_was_applied() {
    let mut books = sound();
    books.deliveries.get_mut(PAID).unwrap().is_done = false;
    assert_eq!(faults(&books), [Fault::Unfinished]);
}

#[test]
fn what_lay_with_the_dead_for_too_long_is_a_fault() {
    let mut books = sound();
    books.stuck.insert(PAID.to_owned(), Duration::from_secs(9));
    assert_eq!(faults(&books), [Fault::Stuck(Duration::from_secs(9))]);
}
