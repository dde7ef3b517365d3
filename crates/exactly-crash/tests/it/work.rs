use std::time::Duration;

use exactly_crash::work::check::{Books, Fault, check};

const DIGEST: &str = "digest:2026-03-29:ada";
const LETTER: &str = "letter:2026-03-29:ada";

/// Everybody got everything, once.
fn sound() -> Books {
    let outcome = |trace: &str, nonce: &str| (trace.to_owned(), Some(nonce.to_owned()));
    Books {
        expected: [DIGEST.to_owned(), LETTER.to_owned()].into(),
        effects: vec![(DIGEST.to_owned(), "1".to_owned())],
        letters: [(LETTER.to_owned(), "2".to_owned())].into(),
        outcomes: [outcome(DIGEST, "1"), outcome(LETTER, "2")].into(),
        occurrences_expected: 3,
        occurrences: 3,
        dead_expected: 1,
        dead: 1,
        ..Books::default()
    }
}

fn faults(books: &Books) -> Vec<Fault> {
    check(books).into_iter().map(|violation| violation.fault).collect()
}

#[test]
fn sound_books_have_no_fault() {
    assert_eq!(faults(&sound()), []);
}

#[test]
fn an_effect_that_is_there_twice_is_a_duplicate() {
    let mut books = sound();
    books.effects.push((DIGEST.to_owned(), "3".to_owned()));
    assert_eq!(faults(&books), [Fault::Duplicate(2)]);
}

#[test]
fn an_effect_that_is_not_there_is_lost_even_if_its_task_is_done() {
    let mut books = sound();
    books.effects.clear();
    assert_eq!(faults(&books), [Fault::Lost]);
}

#[test]
fn a_letter_by_another_attempt_than_the_one_that_was_settled_is_a_fault() {
    let mut books = sound();
    books.letters.insert(LETTER.to_owned(), "late".to_owned());
    assert_eq!(faults(&books), [Fault::OtherOutcome]);
}

#[test]
fn an_effect_whose_task_is_not_done_is_a_fault() {
    let mut books = sound();
    books.outcomes.insert(DIGEST.to_owned(), None);
    assert_eq!(faults(&books), [Fault::Unfinished]);
    books.outcomes.remove(DIGEST);
    assert_eq!(faults(&books), [Fault::Unfinished]);
}

#[test]
fn what_nobody_was_to_get_is_a_fault_and_so_is_a_task_for_it() {
    let mut books = sound();
    books.effects.push(("digest:2026-03-28:ada".to_owned(), "4".to_owned()));
    assert_eq!(faults(&books), [Fault::Unexpected]);
    books.effects.pop();
    books.outcomes.insert("digest:2026-03-28:ada".to_owned(), None);
    assert_eq!(faults(&books), [Fault::Unexpected]);
}

#[test]
fn occurrences_are_counted_and_so_are_the_dead_ones() {
    let mut books = sound();
    books.occurrences = 2;
    books.dead = 2;
    assert_eq!(faults(&books), [Fault::Occurrences(2, 3), Fault::DeadOccurrences(2, 1)]);
}

#[test]
fn what_lay_with_the_dead_for_too_long_is_a_fault() {
    let mut books = sound();
    books.stuck.insert(LETTER.to_owned(), Duration::from_secs(9));
    assert_eq!(faults(&books), [Fault::Stuck(Duration::from_secs(9))]);
}
